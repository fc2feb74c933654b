"""Proofs by the thousand: right ones, which must be taken, and false ones, which must not.

`tests/client/trust/forms/test_proofs.py` takes a sample.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from kcast.client.trust.forms import merkle
from kcast.client.trust.forms.merkle import HASH_BYTES
from tests.support.rfc9162 import LiteralTree

SIZE_MAX = 1025


def tree_of(size: int = SIZE_MAX) -> LiteralTree:
    """Returns a tree with so many different entries."""
    return LiteralTree([b"entry %d" % index for index in range(size)])


# --- Right ones ------------------------------------------------------------------------------------------


def check_right_proofs(sizes: Iterable[int], step: int = 1) -> int:
    """Checks every `step`th proof of inclusion and of consistency in trees of these sizes; returns how many
    there were."""
    tree = tree_of()
    leaves = [merkle.leaf_hash(entry) for entry in tree.entries]
    count = 0
    for size in sizes:
        root = tree.mth(size)
        assert merkle.root_of(leaves[:size]) == root
        for index in range(size % step, size, step):
            assert merkle.includes(index, size, leaves[index], tree.path(index, size), root), (index, size)
            old_size = index + 1
            proof = tree.proof(old_size, size)
            assert merkle.extends(old_size, size, proof, tree.mth(old_size), root), (old_size, size)
            count += 2
    return count


def check_against_pymerkle(sizes: Iterable[int], step: int = 1) -> int:
    """Checks that pymerkle has the same roots and paths of inclusion, and takes those. Returns how many paths
    there were. Its proofs of consistency are not RFC 9162's."""
    from pymerkle import InmemoryTree, verify_inclusion

    tree = tree_of()
    other: Any = InmemoryTree.init_from_entries(tree.entries)
    count = 0
    for size in sizes:
        root = tree.mth(size)
        assert other.get_root(size) == root
        for index in range(size % step, size, step):
            leaf = tree.mth(index + 1, index)
            proof = other.prove_inclusion(index + 1, size)  # it counts from 1
            assert proof.path == [leaf, *tree.path(index, size)], (index, size)
            verify_inclusion(leaf, root, proof, index=index + 1, size=size, algorithm="sha256")
            count += 1
    return count


# --- False ones ------------------------------------------------------------------------------------------
#
# A mutant differs from a right proof in what is proved: a hash, the path, an index or a size. Where another
# index or size has the same hashes on the same sides it is left out, since no proof says which was meant: the
# size stands in the signed checkpoint.


def false_proofs(count: int, seed: int, tree: LiteralTree) -> int:
    """Returns how many of so many mutants are taken."""
    chance = Random(seed)
    taken = 0
    for number in range(count):
        size = 1 + int(len(tree.entries) ** chance.random())  # small trees have the odd shapes
        mutate = _false_inclusion if number % 2 else _false_consistency
        taken += mutate(chance, tree, min(size, len(tree.entries)))
    return taken


def _false_inclusion(chance: Random, tree: LiteralTree, size: int) -> bool:
    index = chance.randrange(size)
    leaf, path, root = tree.mth(index + 1, index), tree.path(index, size), tree.mth(size)
    kind = chance.randrange(8)
    if kind == 0:
        leaf = _other_hash(chance, leaf)
    elif kind == 1:
        root = _other_hash(chance, root)
    elif kind == 2:
        index, size = _other_numbers(chance, index, size, _sides)
    else:
        path = _other_path(chance, path, [leaf, root])
    return merkle.includes(index, size, leaf, path, root)


def _false_consistency(chance: Random, tree: LiteralTree, size: int) -> bool:
    old_size = chance.randint(1, size)
    path, old_root, root = tree.proof(old_size, size), tree.mth(old_size), tree.mth(size)
    kind = chance.randrange(8)
    if kind == 0:
        old_root = _other_hash(chance, old_root)
    elif kind == 1:
        root = _other_hash(chance, root)
    elif kind == 2:
        old_size, size = _other_numbers(chance, old_size, size, _shape)
    elif kind == 3 and old_root != root:
        old_root, root = root, old_root
    else:
        path = _other_path(chance, path, [old_root, root])
    return merkle.extends(old_size, size, path, old_root, root)


def _other_hash(chance: Random, right: bytes) -> bytes:
    if chance.random() < 0.1:
        return right[: chance.randrange(HASH_BYTES)]
    changed = bytearray(right)
    changed[chance.randrange(HASH_BYTES)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _other_path(chance: Random, path: list[bytes], near: list[bytes]) -> list[bytes]:
    """Returns another path: hashes changed, left out, added, doubled or in another order."""
    while True:
        other = list(path)
        at = chance.randrange(len(path) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            other.insert(at, chance.choice([*near, *path, chance.randbytes(HASH_BYTES)]))
        elif kind == 1:
            del other[at:]
        elif kind == 2:
            del other[at : at + 1]
        elif kind == 3:
            chance.shuffle(other)
        elif kind == 4:
            other[at : at + 1] = [chance.choice([*near, *path])]
        elif at < len(path):
            other[at] = _other_hash(chance, other[at])
        if other != path:
            return other


def _other_numbers(
    chance: Random, at: int, size: int, shape: Callable[[int, int], object]
) -> tuple[int, int]:
    """Returns another index or size, or both, with a proof of another shape."""
    while True:
        other_at = chance.choice([at, at - 1, at + 1, at ^ 1 << chance.randrange(11), chance.randrange(2000)])
        other_size = chance.choice([size, size, size - 1, size + 1, 2 * size, chance.randrange(2000), 2**63])
        if shape(other_at, other_size) != shape(at, size):
            return other_at, other_size


def _sides(index: int, size: int) -> object:
    """Returns on which side each hash of a path of inclusion stands; None where there is no such leaf."""
    if not 0 <= index < size <= merkle.SIZE_MAX:
        return None
    sides = ""
    start, end = 0, size
    while end - start > 1:
        middle = start + (1 << ((end - start - 1).bit_length() - 1))
        if index < middle:
            sides, end = "r" + sides, middle
        else:
            sides, start = "l" + sides, middle
    return sides


def _shape(old_size: int, size: int) -> object:
    """Returns how the hashes of a proof of consistency are put together; None where there is none."""
    if not 0 < old_size <= size <= merkle.SIZE_MAX:
        return None
    if old_size == size:
        return "equal"
    height = (old_size & -old_size).bit_length() - 1  # of the old tree's last complete subtree
    is_whole = old_size == 1 << height
    return is_whole, _sides((old_size - 1) >> height, -(-size // (1 << height)))
