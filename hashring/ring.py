"""The ring that is never built: which hosts serve a topic (PROTOCOL §8).

The hosts of a topic are those whose points come right before it, walking down and wrapping at 0. Each host
counts at its first point. A ring of 100,000 hosts has 10^8 points, and sorting them takes a gigabyte. But
each host has exactly one point in each of 1024 arcs, so its nearest point before a topic lies in the topic's
own arc or, if that point comes after the topic, in the arc before. So one pass over one number per host, its
base, finds what a walk over the sorted ring would find. The tests compare the two.

Of equal points the one with the larger base comes first, of equal bases the one with the larger key. So the
order in which the hosts are given makes no difference.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from kcast.hashring.hashing import (
    OFFSET_BITS,
    TOPIC_SEED,
    U64_MAX,
    hashed_bytes,
    point_before,
    topic_hash,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kcast.hashring.arrays import BaseArray
    from kcast.hashring.mixing import Words

# Up to this many hosts a look-up takes 7 to 50 us without numpy, about as long as with it. To import numpy
# would take longer than all else that a client does at its start.
PLAIN_HOSTS_MAX = 32

CACHE_ENTRIES_MAX = 4096
CACHE_KEYS_MAX = 1 << 17


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

    __slots__ = ("_bases", "_cache", "_keys", "_older", "_salt", "_shared", "_sorted_keys")

    def __init__(self, keys: Iterable[bytes | str], salt: bytes = b"") -> None:
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        bases = array("Q", map(xxh3_64_intdigest, map(salt.__add__, names)))  # `host_base` of each, in C
        order = _order(bases, names)
        self._bases = array("Q", map(bases.__getitem__, order))
        self._keys = tuple(map(names.__getitem__, order))
        self._shared: BaseArray | None = None
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

    def nodes_many(self, topics: Iterable[bytes | str], k: int) -> "npt.NDArray[np.int32]":
        """Returns the `nodes` of many decoded topics: indices into `keys`, shape (topics, min(k, hosts)).

        Raises ValueError if `k` is below 1.

        >>> ring = HashRing(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"])
        >>> found = ring.nodes_many(["weather", "traffic"], k=2)
        >>> found.shape
        (2, 2)
        >>> [ring.keys[index] for index in found[0]]
        [b'192.0.2.1', b'192.0.2.4']
        """
        import numpy as np

        return self.nodes_of_hashes(np.fromiter(map(topic_hash, topics), np.uint64), k)

    def nodes_of_hashes(self, topic_hashes: "Words", k: int) -> "npt.NDArray[np.int32]":
        """Does `nodes_many` for positions on the ring (`topic_hash`). `topic_hashes` has shape (topics,)."""
        return self._array().nodes_of_hashes(topic_hashes, self._clamped(k))

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
        for rank, index in enumerate(self._nearest(position, self._clamped(k))):
            here = point_before(self._bases[index], position)
            distance = position - here & U64_MAX
            hosts.append(RankedHost(rank, self._keys[index], here >> OFFSET_BITS, here, distance))
        return Explanation(hashed, position, tuple(hosts))

    def _look_up(self, hashed: bytes, k: int) -> tuple[bytes, ...]:
        found = self._older.get((hashed, k))
        if found is None:
            indices = self._nearest(xxh3_64_intdigest(hashed, seed=TOPIC_SEED), self._clamped(k))
            found = self._keys_at(indices)
        # Two generations: an entry not asked for during a whole generation is forgotten. Each step is one
        # operation on a dict or an attribute, so a race between threads can only lose an entry.
        if len(self._cache) >= min(CACHE_ENTRIES_MAX, CACHE_KEYS_MAX // (len(found) + 1)):
            self._older, self._cache = self._cache, {}
        self._cache[hashed, k] = found
        return found

    def _keys_at(self, indices: list[int]) -> tuple[bytes, ...]:
        # itemgetter is a third faster than a comprehension, but gives a single item bare.
        return itemgetter(*indices)(self._keys) if len(indices) > 1 else tuple(self._keys[i] for i in indices)

    def _nearest(self, position: int, k: int) -> list[int]:
        """Returns indices of the `k` (0 .. hosts) nearest hosts before `position`, nearest first."""
        if len(self) > PLAIN_HOSTS_MAX:
            found: list[int] = self._array().nearest(position, k).tolist()
            return found
        # Of equal points the one with the larger base is first, and bases ascend.
        nearest = sorted(
            (position - point_before(base, position) & U64_MAX, -index)
            for index, base in enumerate(self._bases)
        )
        return [-index for _, index in nearest[:k]]

    def _array(self) -> "BaseArray":
        if self._shared is None:
            from kcast.hashring.arrays import BaseArray

            self._shared = BaseArray(self._bases)
        return self._shared

    def _clamped(self, k: int) -> int:
        if k < 1:
            raise ValueError(f"k is {k}: a topic needs at least 1 host")
        return min(k, len(self))


def _order(bases: "array[int]", names: Sequence[bytes]) -> Sequence[int]:
    """Returns the order by bases, and by keys among equal ones. Raises ValueError if a key occurs twice."""
    if len(names) > PLAIN_HOSTS_MAX:
        from kcast.hashring.arrays import order_of_bases

        order = order_of_bases(bases)
        if order is not None:
            return order
    ordered = sorted(range(len(names)), key=lambda index: (bases[index], names[index]))
    _refuse_duplicates([names[index] for index in ordered])
    return ordered


def _refuse_duplicates(ordered: list[bytes]) -> None:
    for key, following in pairwise(ordered):
        if key == following:
            raise ValueError(f"key {key!r} occurs twice: a view names each host once")
