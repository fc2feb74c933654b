"""Stamps: proof of work that a new lease costs. PROTOCOL §5.11.

The threat: an attacker with many addresses, or behind one that many share, can fill a table with leases
whose copies it never reads. A cookie makes it receive at each address. A stamp makes each lease cost some
computing, on top of the limits per address and prefix. It is a price, not a wall: a graphics card pays a
thousand times faster. It makes scarce entries cost something, while honest clients pay once for a lease,
renew it for nothing, and hardly notice.

    work  = BLAKE2b( cookie || subscribe lines with their LF || stamp, 8 bytes, person = "kcastwk1" )
    valid = work, as a big-endian number, begins with `bits` zero bits

The cookie binds a stamp to the client's address, to one life of one server, and to 128 s, so stamps cannot be
computed ahead or used elsewhere. The lines bind it to the leases. A datagram that opens n leases costs
`price_bits(bits, n)`: n leases cost n times as much as one, however they are divided among datagrams.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from kcast.pubsub.limits import WORK_DATAGRAM_BITS

WORK_BYTES = 8
_PERSON = b"kcastwk1"


def price_bits(bits: int, new_leases: int) -> int:
    """Returns the zero bits that a datagram with `new_leases` costs: bits + ceil(log2(n)).

    `bits` is the price of one lease. Returns 0 if `bits` is 0 or no lease is new.

    >>> price_bits(10, 1), price_bits(10, 2), price_bits(10, 5)
    (10, 11, 13)
    """
    return bits + (new_leases - 1).bit_length() if bits and new_leases else 0


class Quote(NamedTuple):
    """What was quoted with a cookie: the price of a new lease, and whether keeping many costs as much."""

    bits: int = 0
    is_keeping_dear: bool = False

    def due_bits(self, new_count: int, beyond_free_count: int) -> int:
        """Returns what a datagram costs that opens new leases, and renews others beyond the first few."""
        paid_count = new_count + (beyond_free_count if self.is_keeping_dear else 0)
        due_bits = price_bits(self.bits, paid_count)
        return due_bits if new_count else min(due_bits, WORK_DATAGRAM_BITS)

    @property
    def attributes(self) -> dict[str, str]:
        """What an answer tells of it beside the price of a new lease (§5.1)."""
        return {"keep": str(self.due_bits(0, 1))} if self.is_keeping_dear else {}


FREE = Quote()


def is_valid(stamp: bytes, cookie: bytes, topics: Sequence[bytes], bits: int) -> bool:
    """Whether this stamp pays `bits` for these topics: all of the datagram, in order, in wire form."""
    return _work_on(cookie, topics, stamp).digest() <= _worst_work(bits)


class Mint:
    """Looks for a stamp, a slice at a time: the caller says when to compute, and for how long.

    `cookie` and `topics` as in `is_valid`. `tries` counts the hashes so far; on average 2^bits are needed.
    """

    def __init__(self, cookie: bytes, topics: Sequence[bytes], bits: int) -> None:
        self.bits = bits
        self.tries = 0
        self._midstate = _work_on(cookie, topics, b"")
        self._worst_work = _worst_work(bits)

    def work(self, tries: int) -> bytes | None:
        """Tries this many stamps. Returns the first valid one, or None."""
        copy, worst_work = self._midstate.copy, self._worst_work
        for number in range(self.tries, self.tries + tries):
            stamp = b"%x" % number
            work = copy()
            work.update(stamp)
            if work.digest() <= worst_work:
                self.tries = number + 1
                return stamp
        self.tries += tries
        return None


def _work_on(cookie: bytes, topics: Sequence[bytes], stamp: bytes) -> blake2b:
    return blake2b(b"%b%b\n%b" % (cookie, b"\n".join(topics), stamp), digest_size=WORK_BYTES, person=_PERSON)


def _worst_work(bits: int) -> bytes:
    """Returns the highest work that pays this many bits."""
    return ((1 << 8 * WORK_BYTES >> bits) - 1).to_bytes(WORK_BYTES, "big")
