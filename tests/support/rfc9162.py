"""Merkle trees as RFC 9162 2.1 writes them down, literally: for tests to hold the fast code against."""

from collections.abc import Sequence
from hashlib import sha256


def mth(entries: Sequence[bytes]) -> bytes:
    """MTH: the root of a tree with these entries (RFC 9162 2.1.1)."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = largest_power_below(len(entries))
    return sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def largest_power_below(n: int) -> int:
    """The largest power of two that is smaller than n."""
    return 1 << ((n - 1).bit_length() - 1)


def path(m: int, entries: Sequence[bytes]) -> list[bytes]:
    """PATH: that entry m is in the tree (RFC 9162 2.1.3.1)."""
    if len(entries) == 1:
        return []
    k = largest_power_below(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def proof(m: int, entries: Sequence[bytes]) -> list[bytes]:
    """PROOF: that the tree begins with that of its first m entries (RFC 9162 2.1.4.1)."""
    return _subproof(m, entries, True) if m else []


def _subproof(m: int, entries: Sequence[bytes], whole: bool) -> list[bytes]:
    if m == len(entries):
        return [] if whole else [mth(entries)]
    k = largest_power_below(len(entries))
    if m <= k:
        return [*_subproof(m, entries[:k], whole), mth(entries[k:])]
    return [*_subproof(m - k, entries[k:], False), mth(entries[:k])]
