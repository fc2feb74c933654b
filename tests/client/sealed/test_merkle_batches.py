"""client/sealed/merkle_batches.py: roots and paths of small trees, and what is no path."""

from hashlib import blake2b

import pytest

from kcast.client.sealed.merkle_batches import BATCH_MAX, HASH_BYTES, leaf_of, node_of, root_by, tree_of

LEAVES = [leaf_of(b"line %d\n" % number) for number in range(BATCH_MAX)]
COUNTS = range(2, BATCH_MAX + 1)


def levels(leaves: list[bytes]) -> list[list[bytes]]:
    """The tree written down as the protocol has it: pairs are hashed, and an odd one rises."""
    found = [leaves]
    while len(found[-1]) > 1:
        below, above = found[-1], []
        for at in range(0, len(below), 2):
            above.append(below[at] if at + 1 == len(below) else node_of(below[at], below[at + 1]))
        found.append(above)
    return found


def test_hashes_are_those_of_the_protocol() -> None:
    line = b"weather/oslo %@AbCdEfGhIjK.7;t=1790000000000 rain\n"
    assert leaf_of(line) == blake2b(line, digest_size=16, person=b"kcastbl1").digest()
    assert (
        node_of(b"a" * 16, b"b" * 16)
        == blake2b(b"a" * 16 + b"b" * 16, digest_size=16, person=b"kcastbn1").digest()
    )


@pytest.mark.parametrize("count", [1, *COUNTS])
def test_each_path_has_what_stands_beside_the_way_to_the_root(count: int) -> None:
    tree = levels(LEAVES[:count])
    root, paths = tree_of(LEAVES[:count])
    assert (root, len(paths)) == (tree[-1][0], count)
    for index, path in enumerate(paths):
        beside = [
            level[at ^ 1] for depth, level in enumerate(tree) if (at := index >> depth) ^ 1 < len(level)
        ]
        assert path == b"".join(beside)


@pytest.mark.parametrize("count", COUNTS)
def test_a_path_leads_to_the_root_from_its_own_place_alone(count: int) -> None:
    root, paths = tree_of(LEAVES[:count])
    for index, path in enumerate(paths):
        assert root_by(path, LEAVES[index], count, index) == root
        for other in set(range(count)) - {index}:
            assert root_by(path, LEAVES[index], count, other) != root
            assert root_by(path, LEAVES[other], count, index) != root


@pytest.mark.parametrize("count", COUNTS)
def test_a_path_of_another_length_leads_nowhere(count: int) -> None:
    _, paths = tree_of(LEAVES[:count])
    for index, path in enumerate(paths):
        for wrong in (b"", path[:-1], path[:-HASH_BYTES], path + b"\0", path + bytes(HASH_BYTES)):
            if wrong != path:
                assert root_by(wrong, LEAVES[index], count, index) is None


@pytest.mark.parametrize(
    ("count", "index"), [(0, 0), (1, 0), (17, 0), (99, 98), (-2, 0), (2, 2), (2, 99), (16, 16), (3, -1)]
)
def test_what_no_batch_has(count: int, index: int) -> None:
    for length in range(0, 6 * HASH_BYTES, HASH_BYTES):
        assert root_by(bytes(length), LEAVES[0], count, index) is None
