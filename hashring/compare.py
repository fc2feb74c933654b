"""How two views differ in placement, and how even one of them is. Measured on sampled topics."""

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from hashring.hashing import GOLDEN, Words, mix_in_place

if TYPE_CHECKING:
    from hashring.ring import HashRing

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


def diff(here: "HashRing", there: "HashRing", k: int, positions: Words) -> RingDiff:
    """Compare the hosts of the topics at `positions`, an array of shape (topics,), in two views."""
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
    topics = max(1, len(positions))
    return RingDiff(
        only_here=tuple(sorted(set(here.keys) - set(there.keys))),
        only_there=tuple(sorted(set(there.keys) - set(here.keys))),
        topics=len(positions),
        k=k,
        touched=int(np.count_nonzero(swapped)) / topics,
        swapped=int(swapped.sum()) / topics,
        first_moved=int(np.count_nonzero(moved)) / topics,
    )


def balance(ring: "HashRing", k: int, positions: Words) -> Balance:
    """Count how often each host is among the `k` of the topics at `positions`, shape (topics,)."""
    if not len(ring):
        raise LookupError("the ring has no hosts: there is nothing to balance")
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
