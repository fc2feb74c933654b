"""Stamps that cost no computing: as many tries as proof of work takes, of which none is made. PROTOCOL §5.11.

For tests that count what clients spend on stamps, and compute nothing else for minutes of simulated time. As
with real ones, a stamp is good for one cookie and one list of topics, and whether it is found at a try
depends on no other try. It tells which bits it pays, and is good for fewer, too.
"""

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil, log, log1p

import pytest

from kcast.client import stamps
from kcast.pubsub import stamp


def is_valid(stamp: bytes, cookie: bytes, topics: Sequence[bytes], bits: int) -> bool:
    """Does `kcast.pubsub.stamp.is_valid` for stamps of a `QuickMint`."""
    paid_bits = int(stamp[:2], 16)
    return paid_bits >= bits and stamp == _stamp(cookie, topics, paid_bits)


class QuickMint:
    """Takes the place of `kcast.pubsub.stamp.Mint`."""

    def __init__(self, cookie: bytes, topics: Sequence[bytes], bits: int) -> None:
        self.bits = bits
        self.tries = 0
        self._stamp = _stamp(cookie, topics, bits)
        # How many tries it takes when each succeeds with a chance of 2**-bits: drawn by the stamp's digest.
        drawn = (int(self._stamp[2:], 16) + 1) / (2**64 + 1)
        self._needed = max(1, ceil(log(drawn) / log1p(-(2.0**-bits)))) if bits else 1

    def work(self, tries: int) -> bytes | None:
        """Does as `Mint.work`."""
        if self.tries < self._needed <= self.tries + tries:
            self.tries = self._needed
            return self._stamp
        self.tries += tries
        return None


def use_quick_mint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all clients and fake servers of a test deal in such stamps."""
    monkeypatch.setattr(stamps, "Mint", QuickMint)
    monkeypatch.setattr(stamp, "is_valid", is_valid)


def _stamp(cookie: bytes, topics: Sequence[bytes], bits: int) -> bytes:
    digest = blake2b(b"%b%b" % (cookie, b"\n".join(topics)), digest_size=8)
    return b"%02x%b" % (bits, digest.hexdigest().encode())
