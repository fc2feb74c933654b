"""Samples of memory, and whether they stay flat."""

from collections.abc import Sequence

GROWTH_MAX = 1.05


def growth(samples: Sequence[float]) -> float:
    """The most of the last quarter by the most of the second. What is in the first is warming up.

    Raises ValueError for fewer than 8 samples.
    """
    if len(samples) < 8:
        raise ValueError(f"{len(samples)} samples: 8 are needed at least")
    quarter = len(samples) // 4
    return max(samples[-quarter:]) / max(samples[quarter : 2 * quarter])


def is_flat(samples: Sequence[float]) -> bool:
    """Whether the last quarter needs at most a twentieth more than the second."""
    return growth(samples) <= GROWTH_MAX
