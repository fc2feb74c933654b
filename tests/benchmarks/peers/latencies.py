"""Percentiles of latencies that were all kept."""

from array import array
from collections.abc import Iterable
from math import ceil

PERCENTS = (50.0, 99.0, 99.9)


def percentiles(latencies_us: Iterable[int], percents: Iterable[float] = PERCENTS) -> list[int | None]:
    """Returns the least latency that so many percent do not exceed; None where there are too few to tell.

    A percentile is told if at least one latency lies above it in expectation: p99.9 takes a thousand.
    """
    ordered = array("q", sorted(latencies_us))
    found: list[int | None] = []
    for percent in percents:
        rank = ceil(round(len(ordered) * percent / 100, 9))
        is_told = ordered and len(ordered) * (100 - percent) >= 99.999
        found.append(ordered[max(0, rank - 1)] if is_told else None)
    return found
