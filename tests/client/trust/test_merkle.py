"""Merkle proofs against RFC 9162 written down literally."""

from hashlib import sha256
from itertools import pairwise

import pytest

from kcast.client.trust import merkle


def mth(entries: list[bytes]) -> bytes:
    """RFC 9162 2.1.1."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = largest_power_below(len(entries))
    return sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def largest_power_below(n: int) -> int:
    return 1 << ((n - 1).bit_length() - 1)


def path(m: int, entries: list[bytes]) -> list[bytes]:
    """RFC 9162 2.1.3.1."""
    if len(entries) == 1:
        return []
    k = largest_power_below(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def proof(m: int, entries: list[bytes]) -> list[bytes]:
    """RFC 9162 2.1.4.1."""

    def subproof(m: int, entries: list[bytes], whole: bool) -> list[bytes]:
        if m == len(entries):
            return [] if whole else [mth(entries)]
        k = largest_power_below(len(entries))
        if m <= k:
            return [*subproof(m, entries[:k], whole), mth(entries[k:])]
        return [*subproof(m - k, entries[k:], False), mth(entries[:k])]

    return subproof(m, entries, True)


ENTRIES = [b"entry %d" % index for index in range(40)]


@pytest.mark.parametrize("size", range(1, 41))
def test_all_proofs_of_small_trees(size: int) -> None:
    entries = ENTRIES[:size]
    root = merkle.root_of([merkle.leaf_hash(entry) for entry in entries])
    assert root == mth(entries)
    for index in range(size):
        right = path(index, entries)
        leaf = merkle.leaf_hash(entries[index])
        assert merkle.includes(index, size, leaf, right, root)
        assert not merkle.includes(index, size, leaf, [*right, root], root)
        assert not merkle.includes(index, size, leaf, right[:-1], root) or not right
    for old_size in range(1, size + 1):
        right, old_root = proof(old_size, entries), mth(entries[:old_size])
        assert merkle.extends(old_size, size, right, old_root, root)
        assert not merkle.extends(old_size, size, [*right, root], old_root, root)
        assert not merkle.extends(old_size, size, right, root, old_root) or old_size == size


def test_the_empty_tree() -> None:
    roots = [mth(ENTRIES[:size]) for size in range(3)]
    assert roots[0] == merkle.EMPTY_ROOT
    assert merkle.extends(0, 0, [], roots[0], roots[0])
    assert merkle.extends(0, 2, [], roots[0], roots[2])
    assert not merkle.extends(0, 2, [roots[1]], roots[0], roots[2])
    assert not any(merkle.extends(new, old, [], roots[new], roots[old]) for old, new in pairwise(range(3)))
