"""Merkle trees and their proofs, as RFC 9162 2.1 has them (and RFC 6962 before it), with SHA-256. Sans-IO.

A proof is a sequence of hashes of subtrees. Verifiers climb from a leaf, or from the old tree's last subtree,
to the root; the bits of index and size say on which side the next hash stands. A proof with a hash too many
or too few proves nothing.
"""

from collections.abc import Sequence
from hashlib import sha256

HASH_BYTES = 32
SIZE_MAX = 2**63 - 1
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Returns the hash of an entry as a leaf."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Returns the hash of a node with these children."""
    return sha256(b"\x01" + left + right).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Returns the root of a tree with these leaf hashes."""
    level = list(leaves)
    while len(level) > 1:
        paired = [node_hash(*level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
        level = paired + level[len(level) // 2 * 2 :]  # an odd one rises as it is
    return level[0] if level else EMPTY_ROOT


def includes(index: int, size: int, leaf: bytes, path: Sequence[bytes], root: bytes) -> bool:
    """Returns whether `path` proves that the tree of `size` leaves with this root has this leaf hash at
    `index`, from 0 (RFC 9162 2.1.3.2)."""
    if not 0 <= index < size <= SIZE_MAX:
        return False
    at, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            found = node_hash(sibling, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def extends(old_size: int, size: int, path: Sequence[bytes], old_root: bytes, root: bytes) -> bool:
    """Returns whether `path` proves that the tree of `size` leaves begins with all leaves of the tree of
    `old_size` (RFC 9162 2.1.4.2). Every tree extends the empty one; that, and equality, has an empty path."""
    if not 0 <= old_size <= size <= SIZE_MAX:
        return False
    if old_size == 0:
        return not path and old_root == EMPTY_ROOT and (size > 0 or root == EMPTY_ROOT)
    if old_size == size:
        return not path and old_root == root
    hashes = list(path)
    if old_size & (old_size - 1) == 0:
        hashes.insert(0, old_root)  # the old tree is one full subtree of the new one
    if not hashes:
        return False
    at, last = old_size - 1, size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old_found = found = hashes[0]
    for other in hashes[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            old_found, found = node_hash(other, old_found), node_hash(other, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, other)
        at, last = at >> 1, last >> 1
    return last == 0 and old_found == old_root and found == root
