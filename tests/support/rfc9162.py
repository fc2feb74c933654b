"""Merkle trees as RFC 9162 2.1 defines them, word for word, and slowly: what
`kcast.client.trust.forms.merkle` and `tiles` are held to."""

from collections.abc import Sequence
from hashlib import sha256


def largest_power_below(n: int) -> int:
    """Returns "the largest power of two smaller than n", for n > 1."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


class LiteralTree:
    """D_n, a list of entries. A list D[start:end] of the RFC is a pair of numbers here, so that its hash need
    be computed once only. `None` stands for n, all entries."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self.entries = entries
        self._known: dict[tuple[int, int], bytes] = {}

    def mth(self, end: int | None = None, start: int = 0) -> bytes:
        """MTH(D[start:end]), 2.1.1."""
        end = len(self.entries) if end is None else end
        if (start, end) not in self._known:
            self._known[start, end] = self._mth(start, end)
        return self._known[start, end]

    def _mth(self, start: int, end: int) -> bytes:
        n = end - start
        if n == 0:
            return sha256(b"").digest()
        if n == 1:
            return sha256(b"\x00" + self.entries[start]).digest()
        k = largest_power_below(n)
        return sha256(b"\x01" + self.mth(start + k, start) + self.mth(end, start + k)).digest()

    def path(self, m: int, end: int | None = None, start: int = 0) -> list[bytes]:
        """PATH(m, D[start:end]), 2.1.3.1."""
        end = len(self.entries) if end is None else end
        n = end - start
        if n == 1:
            return []
        k = largest_power_below(n)
        if m < k:
            return [*self.path(m, start + k, start), self.mth(end, start + k)]
        return [*self.path(m - k, end, start + k), self.mth(start + k, start)]

    def proof(self, m: int, end: int | None = None) -> list[bytes]:
        """PROOF(m, D[0:end]), 2.1.4.1."""
        return self._subproof(m, 0, len(self.entries) if end is None else end, b=True)

    def _subproof(self, m: int, start: int, end: int, *, b: bool) -> list[bytes]:
        n = end - start
        if m == n:
            return [] if b else [self.mth(end, start)]
        k = largest_power_below(n)
        if m <= k:
            return [*self._subproof(m, start, start + k, b=b), self.mth(end, start + k)]
        return [*self._subproof(m - k, start + k, end, b=False), self.mth(start + k, start)]
