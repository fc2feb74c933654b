"""How far two views differ in placement, and how evenly one view spreads topics. Measured on samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from kcast.hashring.hashing import GOLDEN, topic_hash
from kcast.hashring.mixing import Words, mix_in_place
from kcast.hashring.ring import HashRing

SAMPLES_DEFAULT = 10_000


@dataclass(frozen=True, slots=True)
class RingDiff:
    """How far two views differ in placement, over `topics` topics with `k` hosts each."""

    only_here: tuple[bytes, ...]
    """Keys that only the first view has."""
    only_there: tuple[bytes, ...]
    """Keys that only the second view has."""
    topics: int
    k: int
    touched: float
    """Share of topics whose set of hosts differs."""
    swapped: float
    """Mean number of replaced hosts per topic."""
    first_moved: float
    """Share of topics whose nearest host differs."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly `samples` topics with `k` hosts each are spread over the hosts."""

    hosts: int
    k: int
    samples: int
    mean: float
    """Mean load: topics per host."""
    cv: float
    """Coefficient of variation: the standard deviation of the loads over their mean."""
    cv_of_chance: float
    """The `cv` that a perfectly even ring shows by chance with this many samples."""
    peak_to_mean: float
    """The largest load over the mean."""
    least_to_mean: float
    """The smallest load over the mean."""


def diff(
    here: HashRing,
    there: HashRing,
    k: int,
    topics: Iterable[bytes | str] | None = None,
    samples: int = SAMPLES_DEFAULT,
) -> RingDiff:
    """Compares two views: over `topics` if given, else over `samples` positions spread over the ring.

    Raises ValueError if `k` or `samples` is below 1.

    >>> here = HashRing([f"192.0.2.{i}" for i in range(1, 11)])
    >>> there = HashRing([f"192.0.2.{i}" for i in range(2, 11)])
    >>> seen = diff(here, there, k=3)
    >>> seen.only_here
    (b'192.0.2.1',)
    >>> f"{seen.touched:.2f} of the topics had that host"  # 0.30 is expected
    '0.29 of the topics had that host'
    """
    if topics is None:
        positions = sample_positions(samples)
    else:
        positions = np.fromiter(map(topic_hash, topics), np.uint64)
    index = {key: i for i, key in enumerate(here.keys)}
    translated = np.array([index.setdefault(key, len(index)) for key in there.keys], np.int32)
    rows_here = here.nodes_of_hashes(positions, k)
    rows_there = translated[there.nodes_of_hashes(positions, k)]
    both = np.sort(np.concatenate((rows_here, rows_there), axis=1), axis=1)
    common = np.count_nonzero(both[:, 1:] == both[:, :-1], axis=1)
    swapped = max(rows_here.shape[1], rows_there.shape[1]) - common
    if len(here) and len(there):
        moved = rows_here[:, 0] != rows_there[:, 0]
    else:
        moved = np.full(len(positions), len(here) != len(there))
    topic_count = max(1, len(positions))
    return RingDiff(
        only_here=tuple(sorted(set(here.keys) - set(there.keys))),
        only_there=tuple(sorted(set(there.keys) - set(here.keys))),
        topics=len(positions),
        k=k,
        touched=int(np.count_nonzero(swapped)) / topic_count,
        swapped=int(swapped.sum()) / topic_count,
        first_moved=int(np.count_nonzero(moved)) / topic_count,
    )


def balance(ring: HashRing, k: int, samples: int = SAMPLES_DEFAULT) -> Balance:
    """Places `samples` topics spread over the ring, and measures how evenly the hosts are loaded.

    Raises LookupError if the ring is empty, ValueError if `k` or `samples` is below 1.

    >>> even = balance(HashRing([f"192.0.2.{i}" for i in range(1, 11)]), k=3)
    >>> even.mean
    3000.0
    >>> f"the busiest host has {even.peak_to_mean:.2f} times the mean"
    'the busiest host has 1.03 times the mean'
    """
    if not len(ring):
        raise LookupError("the ring has no hosts: there is nothing to balance")
    positions = sample_positions(samples)
    found = ring.nodes_of_hashes(positions, k)
    loads = np.bincount(found.ravel(), minlength=len(ring))
    mean = float(loads.mean())
    return Balance(
        hosts=len(ring),
        k=found.shape[1],
        samples=len(positions),
        mean=mean,
        cv=float(loads.std()) / mean,
        cv_of_chance=sqrt((1 - found.shape[1] / len(ring)) / mean),
        peak_to_mean=float(loads.max()) / mean,
        least_to_mean=float(loads.min()) / mean,
    )


def sample_positions(samples: int) -> Words:
    """Returns the first outputs of SplitMix64 from 0: positions spread like topics, always the same.

    Raises ValueError if `samples` is below 1.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}: at least 1 is needed")
    words = np.arange(1, samples + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    mix_in_place(words, np.empty_like(words))
    return words
