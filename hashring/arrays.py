"""Look-ups in rings with many hosts, or of many topics: passes of numpy over all bases (PROTOCOL §8).

What `hashring/ring.py` computes host by host is computed here for all at once. It has a module of its own
because numpy takes longer to import than all else that a client needs, and small rings do without it.
"""

from array import array
from math import isqrt

import numpy as np
import numpy.typing as npt

from kcast.hashring.hashing import ARC_BITS, ARCS, GOLDEN, OFFSET_BITS, OFFSET_MAX, U64_MAX
from kcast.hashring.mixing import LAST_STEP_BITS, Words, finish_mix_in_place, mix_in_place, premix_in_place

# The arrays of one look-up are made for this many hosts, so they stay in the processor's cache. Arrays for
# 100,000 hosts came from the kernel as fresh pages each time, which took five times longer.
CHUNK_HOSTS = 1 << 14
# Up to this many hosts a table (topics, hosts) beats one pass per topic, which would be all call overhead.
TABLE_HOSTS_MAX = 1024
TABLE_CELLS = 1 << 15

Indices = npt.NDArray[np.intp]


def order_of_bases(bases: "array[int]") -> memoryview | None:
    """Returns the indices of the bases in ascending order, or None if any two are equal."""
    words = np.frombuffer(bases, np.uint64)
    order = np.argsort(words, kind="stable")
    words = words[order]
    # A memoryview gives out its indices one by one; a list of them would outweigh the ring.
    return None if (words[1:] == words[:-1]).any() else order.data


class BaseArray:
    """The bases of a ring's hosts, in ascending order, which it shares with the ring."""

    __slots__ = ("_bases",)

    def __init__(self, bases: "array[int]") -> None:
        self._bases: Words = np.frombuffer(bases, np.uint64)

    def __len__(self) -> int:
        return len(self._bases)

    def nodes_of_hashes(self, topic_hashes: Words, k: int) -> npt.NDArray[np.int32]:
        """Returns the `k` (0 .. hosts) nearest hosts before each position, nearest first: (topics, k)."""
        topic_hashes = np.asarray(topic_hashes, np.uint64)
        found = np.empty((len(topic_hashes), k), np.int32)
        if k == 0:
            return found
        rows = TABLE_CELLS // len(self)
        if len(self) > TABLE_HOSTS_MAX:
            for row, position in enumerate(topic_hashes.tolist()):
                found[row] = self.nearest(position, k)
        else:
            for start in range(0, len(topic_hashes), rows):
                found[start : start + rows] = self._nearest_table(topic_hashes[start : start + rows], k)
        return found

    def nearest(self, position: int, k: int) -> Indices:
        """Returns indices of the `k` (0 .. hosts) nearest hosts before `position`, nearest first."""
        arc, offset = position >> OFFSET_BITS, position & OFFSET_MAX
        nearest = self._last_points(arc, offset, k, None)
        if len(nearest) == k:
            return nearest
        rest = self._last_points((arc - 1) % ARCS, OFFSET_MAX, k - len(nearest), nearest)
        return np.concatenate((nearest, rest))

    def _last_points(self, arc: int, offset_max: int, count: int, seen: Indices | None) -> Indices:
        """Returns hosts of the last `count` points of `arc` up to `offset_max`, last first, without `seen`.

        They are fewer than `count` only if the arc has no more.
        """
        if count == 0:
            return np.empty(0, np.intp)
        candidates = len(self)
        if seen is not None:
            candidates -= len(seen)
            unseen = np.ones(len(self), np.bool_)
            unseen[seen] = False
        # Only points within `width` of `offset_max` are sorted: on average `count` and six standard
        # deviations more. If that is ever too few, the width grows, so the answer is exact.
        width = ((count + 6 * isqrt(count) + 18) << OFFSET_BITS) // candidates
        while True:
            offset_min = max(0, offset_max - width)
            hosts, offsets = self._points_between(arc, offset_min, offset_max)
            if seen is not None:
                keep = unseen[hosts]
                hosts, offsets = hosts[keep], offsets[keep]
            if len(hosts) >= count or offset_min == 0:
                return hosts[_ascending(offsets)[::-1][:count]]
            width *= 4

    def _points_between(self, arc: int, offset_min: int, offset_max: int) -> tuple[Indices, Words]:
        """Returns hosts (ascending) with a point of `arc` between two offsets, inclusive, and the offsets."""
        step = np.uint64((arc + 1) * GOLDEN & U64_MAX)
        first_word, last_word = offset_min << ARC_BITS, offset_max << ARC_BITS | ARCS - 1
        # The last step of mixing leaves the high bits alone, so words that these rule out do not need it.
        low_bits = (1 << LAST_STEP_BITS) - 1
        start = np.uint64(first_word & ~low_bits)
        width = np.uint64((last_word | low_bits) - (first_word & ~low_bits))
        words, scratch = np.empty((2, min(len(self), CHUNK_HOSTS)), np.uint64)
        hosts, near = [], []
        for first in range(0, len(self), CHUNK_HOSTS):
            bases = self._bases[first : first + CHUNK_HOSTS]
            words, scratch = words[: len(bases)], scratch[: len(bases)]
            np.add(bases, step, out=words)
            premix_in_place(words, scratch)
            np.subtract(words, start, out=scratch)
            hits = np.flatnonzero(scratch <= width)
            near.append(words[hits])
            hosts.append(hits + first)
        mixed = np.concatenate(near)
        finish_mix_in_place(mixed, np.empty_like(mixed))
        within = (mixed >= np.uint64(first_word)) & (mixed <= np.uint64(last_word))
        return np.concatenate(hosts)[within], mixed[within] >> np.uint64(ARC_BITS)

    def _nearest_table(self, positions: Words, k: int) -> Indices:
        """Does `nearest` for many positions, by a table of distances, shape (positions, hosts)."""
        bases = self._bases[::-1]  # larger base first: of equal points the first is then the right one
        arcs, offsets = positions >> np.uint64(OFFSET_BITS), positions & np.uint64(OFFSET_MAX)
        points = _offsets_table(bases, arcs)
        after = points > offsets[:, None]
        distances = offsets[:, None] - points  # wraps to a huge number if the point comes after
        short = np.flatnonzero(np.count_nonzero(after, axis=1) > len(self) - k)
        if len(short):
            points = _offsets_table(bases, (arcs[short] - np.uint64(1)) % np.uint64(ARCS))
            farther = offsets[short, None] + (np.uint64(1 << OFFSET_BITS) - points)
            distances[short] = np.where(after[short], farther, distances[short])
        if k < len(self):
            columns = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
            chosen = np.take_along_axis(distances, columns, axis=1)
            order = np.argsort(chosen, axis=1, kind="stable")
            columns = np.take_along_axis(columns, order, axis=1)
            # If several hosts share the k-th distance, the partition may have taken any of them.
            within = np.count_nonzero(distances <= chosen.max(axis=1)[:, None], axis=1)
            found = len(self) - 1 - columns
            for row in np.flatnonzero(within > k):
                found[row] = self.nearest(int(positions[row]), k)
            return found
        return len(self) - 1 - np.argsort(distances, axis=1, kind="stable")


def _ascending(offsets: Words) -> Indices:
    """Returns the stable order of `offsets`: reversed, it has the larger base first among equals."""
    order = np.argsort(offsets)  # not stable, but four times faster
    ascending = offsets[order]
    if (ascending[1:] == ascending[:-1]).any():
        return np.argsort(offsets, kind="stable")
    return order


def _offsets_table(bases: Words, arcs: Words) -> Words:
    """Returns the offsets of every host's point in each of `arcs`, shape (arcs, hosts)."""
    words = bases + ((arcs + np.uint64(1)) * np.uint64(GOLDEN))[:, None]
    mix_in_place(words, np.empty_like(words))
    words >>= np.uint64(ARC_BITS)
    return words
