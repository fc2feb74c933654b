"""Percentiles of latencies that were all kept."""

from array import array
from collections.abc import Iterable
from math import ceil

PERCENTS = (50.0, 99.0, 99.9)


def percentiles(latencies_us: Iterable[int], percents: Iterable[float] = PERCENTS) -> list[int | None]:
    """Returns the latency that each percentage of them does not exceed; None where too few are there to tell.

    A percentile is told if at least one latency would be above it: p99.9 takes a thousand.
    """
    ordered = array("q", sorted(latencies_us))
    found: list[int | None] = []
    for percent in percents:
        above = round(len(ordered) * (100 - percent) / 100, 6)
        found.append(ordered[ceil(len(ordered) - above) - 1] if above >= 1 else None)
    return found
