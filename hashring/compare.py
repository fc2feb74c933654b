"""How two views differ in placement, and how even one of them is. Measured on sampled topics."""

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
    """How far two views agree on placement. The shares are of `topics` topics, each with `k` hosts."""

    only_here: tuple[bytes, ...]
    only_there: tuple[bytes, ...]
    topics: int
    k: int
    touched: float
    """The share of topics whose set of hosts differs."""
    swapped: float
    """How many hosts of a topic are replaced, on average over all topics."""
    first_moved: float
    """The share of topics whose nearest host differs."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly `samples` topics of `k` hosts each fall on the hosts."""

    hosts: int
    k: int
    samples: int
    mean: float
    """Topics per host."""
    cv: float
    """Standard deviation of the load over its mean."""
    cv_of_chance: float
    """The `cv` that a perfectly even ring would show with so few samples."""
    peak_to_mean: float
    least_to_mean: float


def diff(
    here: HashRing,
    there: HashRing,
    k: int,
    topics: Iterable[bytes | str] | None = None,
    samples: int = SAMPLES_DEFAULT,
) -> RingDiff:
    """Compare two views: over `topics` if given, else over `samples` positions evenly spread on the ring."""
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
    """Place `samples` evenly spread topics and see how evenly their `k` hosts each are loaded.

    Raises LookupError if the ring is empty, ValueError if `samples` is below 1.
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
    """The first outputs of SplitMix64 from 0: positions spread like those of topics, always the same.

    Raises ValueError if `samples` is below 1.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}: at least 1 is needed")
    words = np.arange(1, samples + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    mix_in_place(words, np.empty_like(words))
    return words
