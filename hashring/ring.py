"""The ring that is never built: which hosts serve a topic (PROTOCOL §8).

The hosts of a topic are those whose points come right before it, walking down and wrapping at 0. Each host
counts at its first point. A ring of 100,000 hosts has 10^8 points, and sorting them takes a gigabyte. But
each host has exactly one point in each of 1024 arcs, so its nearest point before a topic lies in the topic's
own arc or, if that point comes after the topic, in the arc before. So one pass over one number per host, its
base, finds what a walk over the sorted ring would find. The tests compare the two.

Of equal points the one with the larger base comes first, of equal bases the one with the larger key. So the
order in which the hosts are given makes no difference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import isqrt
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from kcast.hashring.hashing import (
    ARC_BITS,
    ARCS,
    GOLDEN,
    OFFSET_BITS,
    OFFSET_MAX,
    TOPIC_SEED,
    U64_MAX,
    hashed_bytes,
    host_base,
    point,
    topic_hash,
)
from kcast.hashring.mixing import LAST_STEP_BITS, Words, finish_mix_in_place, mix_in_place, premix_in_place

# The arrays of one look-up are made for this many hosts, so they stay in the processor's cache. Arrays for
# 100,000 hosts came from the kernel as fresh pages each time, which took five times longer.
CHUNK_HOSTS = 1 << 14
# Up to this many hosts a table (topics, hosts) beats one pass per topic, which would be all call overhead.
TABLE_HOSTS_MAX = 1024
TABLE_CELLS = 1 << 15

CACHE_ENTRIES_MAX = 4096
CACHE_KEYS_MAX = 1 << 17

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RankedHost:
    """One host of a topic: its `rank` from 0, and its nearest point before the topic.

    `arc` (0 .. 1023) contains that `point`, which lies `distance` before the topic; both are in units of
    2**-64 of the ring.
    """

    rank: int
    key: bytes
    arc: int
    point: int
    distance: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a topic has its hosts: the bytes that were hashed, their position on the ring, the hosts found."""

    hashed: bytes
    topic_hash: int
    hosts: tuple[RankedHost, ...]


class HashRing:
    """The hosts of one view, and the look-up of those that serve a topic. Immutable.

    `keys` name the hosts, in any order; a `str` stands for its UTF-8, and keys come back as `bytes`. `salt`
    is put before each key when it is hashed. Raises ValueError if a key occurs twice. Look-ups are
    thread-safe.

    >>> ring = HashRing(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"])
    >>> ring.node("weather")
    b'192.0.2.1'
    >>> ring.nodes("weather", k=2)
    (b'192.0.2.1', b'192.0.2.4')
    """

    __slots__ = ("_bases", "_cache", "_keys", "_older", "_salt", "_sorted_keys")

    def __init__(self, keys: Iterable[bytes | str], salt: bytes = b"") -> None:
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        digests = map(xxh3_64_intdigest, names) if not salt else map(partial(host_base, salt=salt), names)
        bases = np.fromiter(digests, np.uint64, len(names))
        order = np.argsort(bases, kind="stable")
        bases = bases[order]
        if (bases[1:] == bases[:-1]).any():
            order = np.array(sorted(order.tolist(), key=lambda i: (host_base(names[i], salt), names[i])))
            _refuse_duplicates([names[i] for i in order])
        self._bases = bases
        # A memoryview gives out its indices one by one; a list of them would outweigh the ring.
        self._keys = tuple(map(names.__getitem__, order.data))
        self._salt = salt
        self._sorted_keys: tuple[bytes, ...] | None = None
        self._cache: dict[tuple[bytes, int], tuple[bytes, ...]] = {}
        self._older: dict[tuple[bytes, int], tuple[bytes, ...]] = {}

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys, ordered by their bases, whatever order they were given in."""
        return self._keys

    @property
    def sorted_keys(self) -> tuple[bytes, ...]:
        """All keys in byte order. Sorted on first use, then kept."""
        if self._sorted_keys is None:
            self._sorted_keys = tuple(sorted(self._keys))
        return self._sorted_keys

    @property
    def salt(self) -> bytes:
        """The bytes that are put before each key when it is hashed."""
        return self._salt

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"HashRing({len(self)} hosts)"

    def node(self, topic: bytes | str) -> bytes:
        """Returns the host nearest before a decoded topic. Raises LookupError if the ring is empty."""
        nearest = self.nodes(topic, 1)
        if not nearest:
            raise LookupError("the ring has no hosts: check that the server list is not empty")
        return nearest[0]

    def nodes(self, topic: bytes | str, k: int) -> tuple[bytes, ...]:
        """Returns the `k` hosts nearest before a decoded topic, nearest first; all if there are fewer.

        Raises ValueError if `k` is below 1.
        """
        hashed = hashed_bytes(topic)
        cached = self._cache.get((hashed, k))
        return cached if cached is not None else self._look_up(hashed, k)

    def nodes_many(self, topics: Iterable[bytes | str], k: int) -> npt.NDArray[np.int32]:
        """Returns the `nodes` of many decoded topics: indices into `keys`, shape (topics, min(k, hosts)).

        Raises ValueError if `k` is below 1.

        >>> ring = HashRing(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"])
        >>> found = ring.nodes_many(["weather", "traffic"], k=2)
        >>> found.shape
        (2, 2)
        >>> [ring.keys[index] for index in found[0]]
        [b'192.0.2.1', b'192.0.2.4']
        """
        return self.nodes_of_hashes(np.fromiter(map(topic_hash, topics), np.uint64), k)

    def nodes_of_hashes(self, topic_hashes: Words, k: int) -> npt.NDArray[np.int32]:
        """Does `nodes_many` for positions on the ring (`topic_hash`). `topic_hashes` has shape (topics,)."""
        k = self._clamped(k)
        topic_hashes = np.asarray(topic_hashes, np.uint64)
        found = np.empty((len(topic_hashes), k), np.int32)
        if k == 0:
            return found
        rows = TABLE_CELLS // len(self)
        if len(self) > TABLE_HOSTS_MAX:
            for row, position in enumerate(topic_hashes.tolist()):
                found[row] = self._nearest(position, k)
        else:
            for start in range(0, len(topic_hashes), rows):
                found[start : start + rows] = self._nearest_table(topic_hashes[start : start + rows], k)
        return found

    def explain(self, topic: bytes | str, k: int) -> Explanation:
        """Tells what was hashed, and the `k` nearest hosts of a topic with their points and distances.

        Raises ValueError if `k` is below 1.

        >>> ring = HashRing(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"])
        >>> why = ring.explain("{weather}wind", k=1)
        >>> why.hashed, why.hosts[0].key, why.hosts[0].arc
        (b'weather', b'192.0.2.1', 586)
        """
        hashed = hashed_bytes(topic)
        position = topic_hash(topic)
        hosts = []
        for rank, index in enumerate(self._nearest(position, self._clamped(k)).tolist()):
            arc = position >> OFFSET_BITS
            here = point(int(self._bases[index]), arc)
            if here > position:
                arc = (arc - 1) % ARCS
                here = point(int(self._bases[index]), arc)
            hosts.append(RankedHost(rank, self._keys[index], arc, here, (position - here) & U64_MAX))
        return Explanation(hashed, position, tuple(hosts))

    def _look_up(self, hashed: bytes, k: int) -> tuple[bytes, ...]:
        found = self._older.get((hashed, k))
        if found is None:
            indices = self._nearest(xxh3_64_intdigest(hashed, seed=TOPIC_SEED), self._clamped(k))
            found = self._keys_at(indices.tolist())
        # Two generations: an entry not asked for during a whole generation is forgotten. Each step is one
        # operation on a dict or an attribute, so a race between threads can only lose an entry.
        if len(self._cache) >= min(CACHE_ENTRIES_MAX, CACHE_KEYS_MAX // (len(found) + 1)):
            self._older, self._cache = self._cache, {}
        self._cache[hashed, k] = found
        return found

    def _keys_at(self, indices: list[int]) -> tuple[bytes, ...]:
        # itemgetter is a third faster than a comprehension, but gives a single item bare.
        return itemgetter(*indices)(self._keys) if len(indices) > 1 else tuple(self._keys[i] for i in indices)

    def _nearest(self, position: int, k: int) -> Indices:
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
        """Does `_nearest` for many positions, by a table of distances, shape (positions, hosts)."""
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
                found[row] = self._nearest(int(positions[row]), k)
            return found
        return len(self) - 1 - np.argsort(distances, axis=1, kind="stable")

    def _clamped(self, k: int) -> int:
        if k < 1:
            raise ValueError(f"k is {k}: a topic needs at least 1 host")
        return min(k, len(self))


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


def _refuse_duplicates(ordered: list[bytes]) -> None:
    for key, following in pairwise(ordered):
        if key == following:
            raise ValueError(f"key {key!r} occurs twice: a view names each host once")
