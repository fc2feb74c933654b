"""Merkle proofs at their edges. `test_proofs` has them by the thousand."""

from itertools import pairwise

import pytest

from kcast.client.trust.forms import merkle
from tests.support.rfc9162 import LiteralTree

TREE = LiteralTree([b"entry %d" % index for index in range(40)])
LEAVES = [merkle.leaf_hash(entry) for entry in TREE.entries]


def test_the_empty_tree() -> None:
    roots = [TREE.mth(size) for size in range(3)]
    assert roots[0] == merkle.EMPTY_ROOT == merkle.root_of([])
    assert merkle.extends(0, 0, [], roots[0], roots[0])
    assert merkle.extends(0, 2, [], roots[0], roots[2])
    assert not merkle.extends(0, 2, [roots[1]], roots[0], roots[2])
    assert not merkle.includes(0, 0, LEAVES[0], [], roots[0])
    assert not any(merkle.extends(new, old, [], roots[new], roots[old]) for old, new in pairwise(range(3)))


@pytest.mark.parametrize("index", [-1, 40, 2**63, 2**64])
def test_an_index_outside_of_the_tree_proves_nothing(index: int) -> None:
    assert not merkle.includes(index, 40, LEAVES[0], TREE.path(0), TREE.mth())


def test_a_path_of_any_length_is_looked_at_only_as_far_as_the_tree_is_high(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed = []

    def node_hash(left: bytes, right: bytes) -> bytes:
        hashed.append(left)
        return bytes(32)

    monkeypatch.setattr(merkle, "node_hash", node_hash)
    endless = [bytes(32)] * 100_000
    assert not merkle.includes(3, 40, LEAVES[3], endless, TREE.mth())
    assert not merkle.extends(7, 40, endless, TREE.mth(7), TREE.mth())
    assert len(hashed) < 20
