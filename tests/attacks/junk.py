"""Junk of each kind, as strangers send it to a server."""

from collections.abc import Callable
from random import Random

VARIANTS = 256  # of each kind, which a flood repeats
_BASE64URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _word(random: Random, length: int) -> bytes:
    return bytes(random.choices(_BASE64URL, k=length))


def _random_bytes(random: Random) -> bytes:
    return random.randbytes(100)


def _forged_cookie(random: Random) -> bytes:
    return (b"%! " + _word(random, 8) + b" " + _word(random, 32) + b" -\nt x\n").ljust(192, b"\n")


def _bare_publish(random: Random) -> bytes:
    return b"topic " + _word(random, 60) + b"\n"


def _ask(random: Random) -> bytes:
    return (b"%? " + _word(random, 8) + b"\n").ljust(192, b"\n")


def _pings(random: Random) -> bytes:
    return b"".join(b"%~ " + _word(random, 1) + b"\n" for _ in range(64))


def _asks(random: Random) -> bytes:
    return b"".join(b"%? " + _word(random, 1) + b"\n" for _ in range(64))


def _pings_with_attributes(random: Random) -> bytes:
    return b"".join(b"%~ " + _word(random, 1) + b" a= b= c= d=\n" for _ in range(64))


def _asks_with_many_attributes(random: Random) -> bytes:
    return b"%? " + _word(random, 8) + b" a=" * 80 + b"\n"


def _cookies_with_many_attributes(random: Random) -> bytes:
    return b"%! " + _word(random, 8) + b" " + _word(random, 32) + b" -" + b" a=" * 65 + b"\n"


def _cookies_with_attributes_to_the_end(random: Random) -> bytes:
    return b"%! " + _word(random, 8) + b" " + _word(random, 32) + b" -" + b" a=" * 370 + b"\x01\n"


def _asks_behind_publishes(random: Random) -> bytes:
    return b"".join(b"t%b x%%y z\n" % _word(random, 9) for _ in range(63)) + b"%? " + _word(random, 8) + b"\n"


KINDS: dict[str, Callable[[Random], bytes]] = {
    "random-bytes": _random_bytes,
    "forged-cookies": _forged_cookie,
    "bare-publishes": _bare_publish,
    "asks": _ask,
    "64-pings": _pings,
    "64-asks": _asks,
    "64-pings-with-attributes": _pings_with_attributes,
}

DEAR_KINDS: dict[str, Callable[[Random], bytes]] = {
    "asks-with-many-attributes": _asks_with_many_attributes,
    "asks-behind-63-publishes": _asks_behind_publishes,
    "forged-cookies-with-many-attributes": _cookies_with_many_attributes,
    "forged-cookies-with-attributes-to-the-end": _cookies_with_attributes_to_the_end,
}
"""What is made to be dear to read."""


def datagrams_of(kind: str, seed: int = 1) -> list[bytes]:
    """Returns datagrams of a kind, the same for the same seed."""
    random = Random(seed)
    make = (KINDS | DEAR_KINDS)[kind]
    return [make(random) for _ in range(VARIANTS)]
