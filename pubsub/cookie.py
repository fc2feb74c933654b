"""Stateless cookies: proof that a client receives at the address it sends from. PROTOCOL §6.

The threat: a subscribe with a forged source address would make a server send every copy of a topic to a
victim. So a server first sends a value to the address, and keeps nothing for the address until that value
comes back. The value must be unforgeable, bound to the address and short-lived. It must also cost the server
no memory, or asking for cookies would itself be an attack (RFC 6347 §4.2.1 has the argument, RFC 9018 on DNS
cookies the form).

    cookie = base64url( issued || tag )                      24 bytes, 32 characters
    issued = version, bits, and when it was issued: parts of a second, 1/65536 each (2 bytes), and seconds on
             the server's own clock, which never goes back (4 bytes)
    tag    = BLAKE2s-128(key of the epoch, issued || family || IP || port)

`bits` is the price of a new lease that was quoted with the cookie, and that holds while it does; 128 more if
keeping many leases has a price, too (`kcast.pubsub.stamp`). The parts of a second tell which of two cookies
is the later one (`kcast.pubsub.subscribers`).

The port is bound too: a cookie of one host behind a NAT must not be good for its neighbours. Keys derive from
the server's secret and the epoch, so nothing is stored and nothing needs rotating. The secret lives as long
as the process. After a restart every cookie is foreign: that costs a client one more round trip, and tells it
that its leases are gone.
"""

import hmac
import struct
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from hashlib import blake2s
from ipaddress import IPv6Address
from typing import NamedTuple

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import COOKIE_EPOCH_S, COOKIE_PUBLISH_LIFE_S, COOKIE_TIME_STEP_S
from kcast.pubsub.stamp import FREE, Quote

SECRET_BYTES = 32
_ISSUED = struct.Struct(">BBHI")
_VERSION = 2
_KEEPING_IS_DEAR = 0x80
_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")
_STEPS_PER_S = round(1 / COOKIE_TIME_STEP_S)
# A cookie's life touches a part of an epoch at each of its ends.
_EPOCHS_ALIVE = int(COOKIE_PUBLISH_LIFE_S // COOKIE_EPOCH_S) + 2


class Issued(NamedTuple):
    """What a good cookie says: how old it is, when it was issued, and what was quoted with it."""

    age_s: float
    issued_at: float
    quote: Quote


class Cookies:
    """Mints and checks cookies with one server's `secret` (32 random bytes; else ValueError)."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret must be {SECRET_BYTES} random bytes, not {len(secret)}")
        self._secret = secret
        self._epoch_key = lru_cache(maxsize=_EPOCHS_ALIVE)(self._derive_key)

    def mint(self, address: Address, now: float, quote: Quote = FREE) -> bytes:
        """Returns a cookie for this address, issued now with this quote: 32 base64url characters."""
        bits = quote.bits | (_KEEPING_IS_DEAR if quote.is_keeping_dear else 0)
        seconds, parts = divmod(int(now / COOKIE_TIME_STEP_S), _STEPS_PER_S)
        issued = _ISSUED.pack(_VERSION, bits, parts, seconds)
        raw = issued + self._tag(issued, seconds, address)
        return b2a_base64(raw, newline=False).translate(_TO_URLSAFE)

    def read(self, cookie: bytes, address: Address, now: float) -> Issued | None:
        """Returns what a cookie says that was issued to this address 3600 s ago at most; None of others.

        `cookie` must be 32 base64url characters, as the parser guarantees.
        """
        raw = a2b_base64(cookie.translate(_FROM_URLSAFE))
        issued = raw[: _ISSUED.size]
        version, bits, parts, seconds = _ISSUED.unpack(issued)
        issued_at = seconds + parts * COOKIE_TIME_STEP_S
        age_s = now - issued_at
        # No key is derived for other epochs: else garbage could empty the cache of keys.
        if version != _VERSION or not 0 <= age_s <= COOKIE_PUBLISH_LIFE_S:
            return None
        if not hmac.compare_digest(raw[_ISSUED.size :], self._tag(issued, seconds, address)):
            return None
        quote = Quote(bits & ~_KEEPING_IS_DEAR, bits >= _KEEPING_IS_DEAR)
        return Issued(age_s, issued_at, quote)

    def _tag(self, issued: bytes, seconds: int, address: Address) -> bytes:
        key = self._epoch_key(int(seconds // COOKIE_EPOCH_S))
        return blake2s(issued + _address_bytes(address), digest_size=16, key=key, person=b"kcastck1").digest()

    def _derive_key(self, epoch: int) -> bytes:
        return blake2s(epoch.to_bytes(8, "big"), key=self._secret, person=b"kcastke1").digest()


@lru_cache(maxsize=4096)
def _address_bytes(address: Address) -> bytes:
    host, port = address
    # Forged addresses find nothing in the cache, and `ipaddress` takes longer than all else.
    packed = IPv6Address(host).packed if ":" in host else bytes(map(int, host.split(".")))
    return bytes([4 if len(packed) == 4 else 6]) + packed + port.to_bytes(2, "big")
