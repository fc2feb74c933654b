"""Percentiles of times.

Times are rounded to three significant figures, as in HDR histograms: so 0.123 ms and 12.3 s stand in one
table with the same relative precision, and results do not depend on how many times there were. Percentiles
are by nearest rank: each is a value that occurred.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT_FIGURES = 3
NS_PER_MS = 1_000_000

_Whole = Sequence[int] | NDArray[np.int64]

_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_UNITS_NS = 10 ** np.arange(16, dtype=np.int64)  # what the last of three figures may count


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of times, in milliseconds to three significant figures; all 0 without times."""

    count: int = 0
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0

    @classmethod
    def of_counts(cls, values_ns: _Whole, counts: _Whole, sum_ns: int) -> Self:
        """Returns the percentiles of `rounded` times: ascending values in ns, and how often each occurs.

        `sum_ns` is the sum of the times before rounding, for their mean.
        """
        if not len(values_ns):
            return cls()
        values, below = np.asarray(values_ns) / NS_PER_MS, np.cumsum(counts)
        count = int(below[-1])
        found = (_at(values, below, share) for share in _SHARES)
        return cls(count, float(f"{sum_ns / count / NS_PER_MS:.3g}"), *found)

    @classmethod
    def of(cls, times_ns: NDArray[np.int64]) -> Self:
        """Returns the percentiles of times in ns; those below 0 count as 0."""
        times_ns = np.maximum(times_ns, 0)
        values_ns, counts = np.unique(rounded(times_ns), return_counts=True)
        return cls.of_counts(values_ns, counts, int(times_ns.sum()))

    def as_json(self) -> dict[str, Any]:
        """Returns all fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Returns what `as_json` was called on; versions up to 0.4 wrote more."""
        return cls(**{each.name: values[each.name] for each in fields(cls)})


def rounded(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns times, none below 0, to three significant figures; halves are rounded up.

    It computes in whole numbers, so that equal times are equal however many there are.
    """
    units = _UNITS_NS[
        np.searchsorted(_UNITS_NS[1:] * 10 ** (SIGNIFICANT_FIGURES - 1), times_ns, side="right")
    ]
    whole: NDArray[np.int64] = (times_ns + units // 2) // units * units
    return whole


def _at(values: NDArray[np.float64], below: NDArray[np.int64], share: float) -> float:
    """Returns the least value that is not exceeded by at least this share of all."""
    total = int(below[-1])
    # Without the margin, which is what floats are exact to, 0.7 of 10 could be more than 7.
    rank = max(1, int(np.ceil(share * total - 1e-15 * total)))
    return float(values[int(np.searchsorted(below, rank))])
