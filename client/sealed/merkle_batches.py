"""Small Merkle trees over the messages of one batch, so that one signature holds for all of them. Sans-IO.

PROTOCOL §9.6; C. K. Wong and S. S. Lam, "Digital Signatures for Flows and Multicasts" (1999). Each message
carries its path, the hashes beside its way to the root: with that it can be verified alone, whatever becomes
of the others. Where a level has an odd number of nodes, the last one rises as it is: it has no hash beside
it.
"""

from collections.abc import Sequence
from hashlib import blake2b

HASH_BYTES = 16
BATCH_MAX = 16  # messages of one tree

_LEAF = blake2b(digest_size=HASH_BYTES, person=b"kcastbl1")
_NODE = blake2b(digest_size=HASH_BYTES, person=b"kcastbn1")


def leaf_of(line: bytes) -> bytes:
    """Returns the hash of a line, which is unsigned and ends with LF."""
    state = _LEAF.copy()  # half the time of a new one
    state.update(line)
    return state.digest()


def node_of(left: bytes, right: bytes) -> bytes:
    """Returns the hash of a node with these children."""
    state = _NODE.copy()
    state.update(left + right)
    return state.digest()


def tree_of(leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Returns the root over one leaf or more, and each leaf's path, from the leaf upwards, in one piece."""
    level = list(leaves)
    paths = [b""] * len(level)
    width = 1  # how many leaves lie below a node, but for the last of a level
    while len(level) > 1:
        for index in range(len(paths)):
            beside = index // width ^ 1
            if beside < len(level):
                paths[index] += level[beside]
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [node_of(*pair) for pair in pairs] + level[len(level) // 2 * 2 :]
        width *= 2
    return level[0], paths


def root_by(path: bytes, leaf: bytes, count: int, index: int) -> bytes | None:
    """Returns the root to which a path leads from a leaf, which is the `index`-th, from 0, of `count`.

    None where no batch is so large or so small, or where its path would have another length.
    """
    if not (2 <= count <= BATCH_MAX and 0 <= index < count):
        return None
    found, at, level = leaf, 0, count
    while level > 1:
        if index ^ 1 < level:
            beside = path[at : at + HASH_BYTES]
            if len(beside) != HASH_BYTES:
                return None
            found = node_of(beside, found) if index & 1 else node_of(found, beside)
            at += HASH_BYTES
        index, level = index // 2, (level + 1) // 2
    return found if at == len(path) else None
