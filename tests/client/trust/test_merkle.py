"""Merkle proofs against RFC 9162 written down literally."""

from itertools import pairwise

import pytest

from kcast.client.trust import merkle
from tests.support.rfc9162 import mth, path, proof

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
