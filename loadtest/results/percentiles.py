"""Percentiles of times, and the whole spectrum up to the longest, as wrk2 prints it.

Times are rounded to three significant figures, as in HDR histograms: so 0.123 ms and 12.3 s stand in one
table with the same relative precision, and results do not depend on how many times there were. Percentiles
are by nearest rank: each is a value that occurred.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT_FIGURES = 3
TICKS_PER_HALVING = 5  # lines of the spectrum for each halving of the share that is above
NS_PER_MS = 1_000_000

_Whole = Sequence[int] | NDArray[np.int64]

_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_UNITS_NS = 10 ** np.arange(16, dtype=np.int64)  # what the last of three figures may count


class SpectrumLine(NamedTuple):
    """One line of a spectrum: `total` times, at least `share` (0 .. 1) of all, are at most `value_ms`."""

    value_ms: float
    share: float
    total: int

    @property
    def inverse(self) -> float | None:
        """1 / (1 - share): one in this many took longer; None where none did."""
        return None if self.share >= 1 else 1 / (1 - self.share)


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
        found = (_line(values, below, share).value_ms for share in _SHARES)
        return cls(count, float(f"{sum_ns / count / NS_PER_MS:.3g}"), *found)


@dataclass(frozen=True, slots=True)
class TimeDistribution(Percentiles):
    """Percentiles, and the spectrum of all times."""

    spectrum: tuple[SpectrumLine, ...] = ()

    @classmethod
    def of(cls, times_ns: NDArray[np.int64]) -> Self:
        """Returns the distribution of times in ns; those below 0 count as 0."""
        if not len(times_ns):
            return cls()
        times_ns = np.maximum(times_ns, 0)
        values_ns, counts = np.unique(rounded(times_ns), return_counts=True)
        values, below = values_ns / NS_PER_MS, np.cumsum(counts)
        spectrum = tuple(_line(values, below, share) for share in shares(len(times_ns)))
        return replace(cls.of_counts(values_ns, counts, int(times_ns.sum())), spectrum=spectrum)

    def as_json(self) -> dict[str, Any]:
        """Returns all fields; the spectrum as lists of value in ms, share and total."""
        return asdict(self) | {"spectrum": [list(line) for line in self.spectrum]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Returns what `as_json` was called on."""
        return cls(**values | {"spectrum": tuple(SpectrumLine(*line) for line in values["spectrum"])})


def rounded(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns times, none below 0, to three significant figures; halves are rounded up.

    It computes in whole numbers, so that equal times are equal however many there are.
    """
    units = _UNITS_NS[
        np.searchsorted(_UNITS_NS[1:] * 10 ** (SIGNIFICANT_FIGURES - 1), times_ns, side="right")
    ]
    whole: NDArray[np.int64] = (times_ns + units // 2) // units * units
    return whole


def shares(count: int) -> list[float]:
    """Returns the shares of the lines of a spectrum of `count` times: ever closer to 1, and 1."""
    result: list[float] = []
    while not result or result[-1] < 1 - 1 / count:
        halving, tick = divmod(len(result), TICKS_PER_HALVING)
        result.append(1 - (1 - tick / (2 * TICKS_PER_HALVING)) / 2**halving)
    return [*result, 1.0]


def _line(values: NDArray[np.float64], below: NDArray[np.int64], share: float) -> SpectrumLine:
    total = int(below[-1])
    # Without the margin, which is what floats are exact to, 0.7 of 10 could be more than 7.
    rank = max(1, int(np.ceil(share * total - 1e-15 * total)))
    index = int(np.searchsorted(below, rank))
    return SpectrumLine(float(values[index]), share, int(below[index]))
