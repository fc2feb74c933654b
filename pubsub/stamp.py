"""Stamps: proof of work that a new lease costs. PROTOCOL §5.11.

The threat: whoever owns many addresses, or sits behind one that many share, can fill a table with leases that
it never reads. A cookie makes it receive at each address; a stamp makes each lease cost some computing, on
top of the limits per address and prefix. It is a price, not a wall: a graphics card pays a thousand times
faster. What it buys is that scarce entries are not free, while honest clients, who pay once for a lease and
renew it without, hardly notice.

    work  = BLAKE2b( cookie || subscribe lines with their LF || stamp, 8 bytes, person = "kcastwk1" )
    valid = work, as a big-endian number, begins with `bits` zero bits

The cookie binds a stamp to the client's address, to one life of one server, and to 128 s, so nothing can be
computed ahead or used elsewhere; the lines bind it to the leases. A datagram that opens n of them costs
`price_bits(bits, n)`: n leases cost n times as much as one, however they are put together.
"""

from collections.abc import Sequence
from hashlib import blake2b

WORK_BYTES = 8
_PERSON = b"kcastwk1"


def price_bits(bits: int, new_leases: int) -> int:
    """Zero bits that a datagram opening so many leases costs, at `bits` for one: bits + ceil(log2(n)).

    Nothing where `bits` is 0, or no lease is new.
    """
    return bits + (new_leases - 1).bit_length() if bits and new_leases else 0


def is_valid(stamp: bytes, cookie: bytes, topics: Sequence[bytes], bits: int) -> bool:
    """Whether this stamp is worth `bits` for these topics (wire form, all of the datagram, in order)."""
    return _work_on(cookie, topics, stamp).digest() <= _worst_work(bits)


class Mint:
    """Looks for a stamp, a slice at a time: the caller says when to compute, and for how long.

    `cookie` and `topics` as in `is_valid`. `tries` counts the hashes so far; 2^bits are to be expected.
    """

    def __init__(self, cookie: bytes, topics: Sequence[bytes], bits: int) -> None:
        self.bits = bits
        self.tries = 0
        self._midstate = _work_on(cookie, topics, b"")
        self._worst_work = _worst_work(bits)

    def work(self, tries: int) -> bytes | None:
        """Tries so many stamps; the first that is valid, or None if none of these is."""
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
    """The highest work that is worth so many bits."""
    return ((1 << 8 * WORK_BYTES >> bits) - 1).to_bytes(WORK_BYTES, "big")
