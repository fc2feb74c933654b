"""Sealed lines for tests: keys from fixed bytes, and what a reader makes of a line."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from kcast.client.events import Drop
from kcast.client.messages import base64url
from kcast.client.sealed.dhkem import public_key
from kcast.client.sealed.sealing import Epoch, Frame, Opener, Sealer, parse_seal
from kcast.client.sealed.topics import hidden
from tests.support.groups import EVERYBODY, OWNER

_LINE = re.compile(
    rb"((?P<topic>[!-$&-~]{1,255}) %@(?P<pub>[0-9A-Za-z_-]{1,43})\.(?P<seq>[1-9][0-9]{0,17})"
    rb";S=(?P<seal>[0-9A-Za-z_-]+) )(?P<payload>[0-9A-Za-z_-]+)\n"
)

PRIVATE = bytes(range(32))
TOPIC_SECRET = bytes(range(32, 64))
EPHEMERAL = bytes(range(64, 96))
PUBLISHER = "AbCdEfGhIjK"
SENT_MS = 1_790_000_000_000
SMALL_ORDER = tuple(  # all numbers below 2**256 that X25519 takes for points whose order divides 8
    (u | high << 255).to_bytes(32, "little")
    for high in (0, 1)
    for u in (
        *(0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18),
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
)


class Parts(NamedTuple):
    """What a reader needs of a line: the arguments of `Opener.unseal`, and the tag."""

    head: bytes
    topic: bytes
    publisher: bytes
    seq: int
    enc: bytes
    payload: bytes
    tag: bytes


def epoch(group: str = "ops", number: int = 1, private: bytes = PRIVATE) -> Epoch:
    """An epoch that begins with time."""
    keys = frozenset(who.signer.key for who in EVERYBODY)
    return Epoch(
        group, number, 0, public_key(private), TOPIC_SECRET, private, owner=OWNER.signer.key, senders=keys
    )


def sealer(of: Epoch | None = None, publisher: str = PUBLISHER, secret: bytes = EPHEMERAL) -> Sealer:
    """What seals for an epoch."""
    return Sealer(of or epoch(), publisher, secret)


def topic(name: bytes = b"weather/oslo") -> bytes:
    """The hidden topic of a name."""
    return hidden(TOPIC_SECRET, name)


def text(size: int = 100, **fields: Any) -> Frame:
    """A message of this size."""
    return Frame(b"x" * size, SENT_MS)._replace(**fields)


def parts_of(line: bytes) -> Parts | None:
    """The parts of a sealed line; None where it is malformed."""
    found = _LINE.fullmatch(line)
    seal = parse_seal(found["seal"].decode()) if found else None
    if not found or seal is None or base64url.decode_ascii(found["payload"]) is None:
        return None
    return Parts(
        found[1], found["topic"], found["pub"], int(found["seq"]), seal[1], found["payload"], seal[0]
    )


def sound_parts(line: bytes) -> Parts:
    """The parts of a line that is not malformed."""
    parts = parts_of(line)
    assert parts is not None
    return parts


def read(line: bytes, openers: Iterable[Opener]) -> Frame | str:
    """What a reader finds in a line, or the name of the drop."""
    parts = parts_of(line)
    if parts is None:
        return Drop.MALFORMED_MESSAGE.value
    for opener in openers:
        if opener.is_tag(parts.topic, parts.publisher, parts.enc, parts.tag):
            found = opener.unseal(*parts[:-1])
            if isinstance(found, Drop):
                return found.value
            return found.frame if opener.verify(found) else Drop.BAD_SIGNATURE.value
    return "unknown-key"
