"""The ring that is never built: which hosts serve a topic (PROTOCOL §8).

The hosts of a topic are those whose points come right before it, walking down and wrapping at 0, each
counted at its first point. A ring of 100,000 hosts has 10^8 points; to sort them takes a gigabyte. But
each host has exactly one point in each of 1024 arcs, so its nearest point before a topic lies in the
topic's own arc, or if that one comes after the topic, in the arc before; never farther. One pass over
one number per host, its base, therefore yields what a walk over the sorted ring would: the tests hold
the two equal.

Equal points go to the larger base first, equal bases to the larger key, so that every order of the same
hosts gives the same answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from math import isqrt
from operator import itemgetter
from typing import Self

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
    rendezvous,
    topic_hash,
)
from kcast.hashring.mixing import LAST_STEP_BITS, Words, finish_mix_in_place, mix_in_place, premix_in_place

__all__ = [
    "Explanation",
    "HashRing",
    "RankedHost",
    "hashed_bytes",
    "rendezvous",
    "topic_hash",
]

# Scratch for this many hosts stays in the processor's cache. Scratch for 100,000 came from the kernel as
# fresh pages at every look-up, which took five times longer.
CHUNK_HOSTS = 1 << 14
# Up to this size a table of (topics, hosts) beats one pass per topic, whose cost is then all call overhead.
TABLE_HOSTS_MAX = 1024
TABLE_CELLS = 1 << 15

CACHE_ENTRIES_MAX = 4096
CACHE_KEYS_MAX = 1 << 17

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RankedHost:
    """One host of a topic: its `rank` from 0, and its nearest `point`, `distance` before the topic.

    Points and distances are in units of 2**-64 of the ring.
    """

    rank: int
    key: bytes
    arc: int
    point: int
    distance: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a topic has the hosts it has: the bytes hashed, their position on the ring, and the places."""

    hashed: bytes
    topic_hash: int
    hosts: tuple[RankedHost, ...]


class HashRing:
    """The hosts of one view, immutable, and the topics they serve.

    `keys` name the hosts, in any order; a `str` stands for its UTF-8, and keys come back as `bytes`.
    Raises ValueError if a key occurs twice. Concurrent look-ups are safe.
    """

    __slots__ = ("_bases", "_cache", "_fingerprint", "_keys", "_older", "_salt", "_sorted_keys")

    _bases: Words
    _keys: tuple[bytes, ...]

    def __init__(self, keys: Iterable[bytes | str], salt: bytes = b"") -> None:
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        digests = map(xxh3_64_intdigest, names) if not salt else map(partial(host_base, salt=salt), names)
        bases = np.fromiter(digests, np.uint64, len(names))
        order = np.argsort(bases, kind="stable")
        bases = bases[order]
        if (bases[1:] == bases[:-1]).any():
            order = np.array(sorted(order.tolist(), key=lambda i: (host_base(names[i], salt), names[i])))
            _refuse_duplicates([names[i] for i in order])
        # A memoryview gives out its indices one by one; a list of them would outweigh the ring.
        self._set(bases, tuple(map(names.__getitem__, order.data)), salt)

    def _set(self, bases: Words, keys: tuple[bytes, ...], salt: bytes) -> None:
        self._bases, self._keys, self._salt = bases, keys, salt
        self._sorted_keys: tuple[bytes, ...] | None = None
        self._fingerprint: str | None = None
        self._cache: dict[tuple[bytes, int], tuple[bytes, ...]] = {}
        self._older: dict[tuple[bytes, int], tuple[bytes, ...]] = {}

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys, in the order of their bases: the same whatever order they were given in."""
        return self._keys

    @property
    def sorted_keys(self) -> tuple[bytes, ...]:
        """All keys in the order of their bytes. Sorted at the first use, then kept."""
        if self._sorted_keys is None:
            self._sorted_keys = tuple(sorted(self._keys))
        return self._sorted_keys

    @property
    def salt(self) -> bytes:
        """What stands before every key when it is hashed."""
        return self._salt

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that are equal for two rings just if their salts and sets of keys are.

        BLAKE2b-128 over the salt and then each key in byte order, each after its length as 32 bits, big end
        first.
        """
        if self._fingerprint is None:
            digest = blake2b(digest_size=16)
            for part in (self._salt, *self.sorted_keys):
                digest.update(len(part).to_bytes(4, "big") + part)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes | str) -> bool:
        name = key.encode() if isinstance(key, str) else key
        place = self._place(name)
        return place < len(self) and self._keys[place] == name

    def __repr__(self) -> str:
        return f"HashRing({len(self)} hosts)"

    def node(self, topic: bytes | str) -> bytes:
        """The host nearest before a decoded topic. Raises LookupError if the ring is empty."""
        nearest = self.nodes(topic, 1)
        if not nearest:
            raise LookupError("the ring has no hosts: check that the server list is not empty")
        return nearest[0]

    def nodes(self, topic: bytes | str, k: int) -> tuple[bytes, ...]:
        """The `k` hosts nearest before a decoded topic, nearest first; all if there are fewer than `k`.

        Raises ValueError if `k` is below 1.
        """
        hashed = hashed_bytes(topic)
        cached = self._cache.get((hashed, k))
        return cached if cached is not None else self._look_up(hashed, k)

    def nodes_many(self, topics: Iterable[bytes | str], k: int) -> npt.NDArray[np.int32]:
        """`nodes` for many decoded topics: indices into `keys`, shape (topics, min(k, hosts))."""
        return self.nodes_of_hashes(np.fromiter(map(topic_hash, topics), np.uint64), k)

    def nodes_of_hashes(self, topic_hashes: Words, k: int) -> npt.NDArray[np.int32]:
        """`nodes_many` for positions on the ring instead of topics. `topic_hashes` has shape (topics,)."""
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
        """What was hashed, and the `k` nearest hosts of a topic with their points and distances."""
        hashed = hashed_bytes(topic)
        position = topic_hash(topic)
        places = []
        for rank, index in enumerate(self._nearest(position, self._clamped(k)).tolist()):
            arc = position >> OFFSET_BITS
            here = point(int(self._bases[index]), arc)
            if here > position:
                arc = (arc - 1) % ARCS
                here = point(int(self._bases[index]), arc)
            places.append(RankedHost(rank, self._keys[index], arc, here, (position - here) & U64_MAX))
        return Explanation(hashed, position, tuple(places))

    def with_keys(self, keys: Iterable[bytes | str]) -> Self:
        """A ring that also has `keys`; only they are hashed. Raises ValueError if one is there already."""
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        fresh = sorted((host_base(name, self._salt), name) for name in names)
        _refuse_duplicates([name for _, name in fresh])
        places: list[int] = []
        merged: list[bytes] = []
        done = 0
        for _, name in fresh:
            if name in self:
                raise ValueError(f"key {name!r} is on the ring already")
            place = self._place(name)
            merged += (*self._keys[done:place], name)
            places.append(place)
            done = place
        bases = np.insert(self._bases, places, np.array([base for base, _ in fresh], np.uint64))
        return self._derived(bases, (*merged, *self._keys[done:]))

    def without_keys(self, keys: Iterable[bytes | str]) -> Self:
        """A ring that lacks `keys`; nothing is hashed again. Raises LookupError if one is not there."""
        gone = set()
        for key in keys:
            name = key.encode() if isinstance(key, str) else key
            if name not in self:
                raise LookupError(f"key {name!r} is not on the ring")
            gone.add(self._place(name))
        places = sorted(gone)
        kept: list[bytes] = []
        for start, stop in zip([0, *(place + 1 for place in places)], [*places, len(self)], strict=True):
            kept += self._keys[start:stop]
        return self._derived(np.delete(self._bases, places), tuple(kept))

    def _look_up(self, hashed: bytes, k: int) -> tuple[bytes, ...]:
        found = self._older.get((hashed, k))
        if found is None:
            indices = self._nearest(xxh3_64_intdigest(hashed, seed=TOPIC_SEED), self._clamped(k))
            found = self._keys_at(indices.tolist())
        # Two generations: what has not been asked for during a whole one is forgotten. Each step is one
        # operation on a dict or an attribute, so that threads may race here and lose nothing but an entry.
        if len(self._cache) >= min(CACHE_ENTRIES_MAX, CACHE_KEYS_MAX // (len(found) + 1)):
            self._older, self._cache = self._cache, {}
        self._cache[hashed, k] = found
        return found

    def _keys_at(self, indices: list[int]) -> tuple[bytes, ...]:
        # itemgetter is a third faster than a comprehension, but gives a single item bare.
        return itemgetter(*indices)(self._keys) if len(indices) > 1 else tuple(self._keys[i] for i in indices)

    def _nearest(self, position: int, k: int) -> Indices:
        """Indices of the `k` (0 .. hosts) nearest hosts before `position`, nearest first."""
        arc, offset = position >> OFFSET_BITS, position & OFFSET_MAX
        nearest = self._last_points(arc, offset, k, None)
        if len(nearest) == k:
            return nearest
        rest = self._last_points((arc - 1) % ARCS, OFFSET_MAX, k - len(nearest), nearest)
        return np.concatenate((nearest, rest))

    def _last_points(self, arc: int, offset_max: int, count: int, seen: Indices | None) -> Indices:
        """Hosts of the last `count` points of `arc` up to `offset_max`, last first, leaving out the `seen`.

        There are fewer than `count` only if the arc has no more.
        """
        if count == 0:
            return np.empty(0, np.intp)
        candidates = len(self)
        if seen is not None:
            candidates -= len(seen)
            unseen = np.ones(len(self), np.bool_)
            unseen[seen] = False
        # Only survivors of a threshold are sorted. It leaves `count` plus six standard deviations, so it is
        # next to never too narrow, and then it is widened: the answer is exact whatever it was.
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
        """Hosts (ascending) with a point of `arc` between two offsets, both included, and those offsets."""
        step = np.uint64((arc + 1) * GOLDEN & U64_MAX)
        first_word, last_word = offset_min << ARC_BITS, offset_max << ARC_BITS | ARCS - 1
        # The last step of mixing leaves the high bits alone: it is spared to all words that these rule out.
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
        """`_nearest` for many positions, from a table of the distances (positions, hosts) to every host."""
        bases = self._bases[::-1]  # larger base first, so that the first of equals is the right one
        arcs, offsets = positions >> np.uint64(OFFSET_BITS), positions & np.uint64(OFFSET_MAX)
        points = _offsets_table(bases, arcs)
        after = points > offsets[:, None]
        distances = offsets[:, None] - points  # wraps to more than any distance where the point comes after
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
            # The partition may have taken any of several that share the k-th distance.
            within = np.count_nonzero(distances <= chosen.max(axis=1)[:, None], axis=1)
            found = len(self) - 1 - columns
            for row in np.flatnonzero(within > k):
                found[row] = self._nearest(int(positions[row]), k)
            return found
        return len(self) - 1 - np.argsort(distances, axis=1, kind="stable")

    def _place(self, name: bytes) -> int:
        """Where a key is among `keys`, or would be."""
        base = host_base(name, self._salt)
        place = int(np.searchsorted(self._bases, np.uint64(base)))
        while place < len(self) and self._bases[place] == base and self._keys[place] < name:
            place += 1
        return place

    def _clamped(self, k: int) -> int:
        if k < 1:
            raise ValueError(f"k is {k}: a topic needs at least 1 host")
        return min(k, len(self))

    def _derived(self, bases: Words, keys: tuple[bytes, ...]) -> Self:
        ring = object.__new__(type(self))
        ring._set(bases, keys, self._salt)
        return ring


def _ascending(offsets: Words) -> Indices:
    """The stable order of `offsets`: reversed, it has the larger base first where they are equal."""
    order = np.argsort(offsets)  # not stable, but four times faster
    ascending = offsets[order]
    if (ascending[1:] == ascending[:-1]).any():
        return np.argsort(offsets, kind="stable")
    return order


def _offsets_table(bases: Words, arcs: Words) -> Words:
    """Offsets of the points of every host in each of `arcs`, shape (arcs, hosts)."""
    words = bases + ((arcs + np.uint64(1)) * np.uint64(GOLDEN))[:, None]
    mix_in_place(words, np.empty_like(words))
    words >>= np.uint64(ARC_BITS)
    return words


def _refuse_duplicates(ordered: list[bytes]) -> None:
    for key, following in pairwise(ordered):
        if key == following:
            raise ValueError(f"key {key!r} occurs twice: a view names each host once")
