"""How long things took: percentiles, and the whole spectrum up to the greatest, as wrk2 prints it.

Values are kept to three significant figures, whatever their size, as in HDR histograms: 0.123 ms and 12.3 s
stand in one table, and what is told does not depend on how many there were.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT_FIGURES = 3
TICKS_PER_HALVING = 5  # lines of the spectrum for each halving of what is above
NS_PER_MS = 1_000_000
_UNITS_NS = 10 ** np.arange(16, dtype=np.int64)  # what the last of three figures may count


class SpectrumLine(NamedTuple):
    """One line of a spectrum: `total` of all, at least `share` of them (0 .. 1), took `value_ms` or less."""

    value_ms: float
    share: float
    total: int

    @property
    def inverse(self) -> float | None:
        """One in how many took longer, 1 / (1 - share); None where none did."""
        return None if self.share >= 1 else 1 / (1 - self.share)


@dataclass(frozen=True, slots=True)
class TimeDistribution:
    """Percentiles of some times, in milliseconds; all 0 of none."""

    count: int = 0
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0
    spectrum: tuple[SpectrumLine, ...] = ()

    @classmethod
    def of(cls, times_ns: NDArray[np.int64]) -> Self:
        """Of times in ns; what is below 0 counts as 0."""
        if not len(times_ns):
            return cls()
        times_ns = np.maximum(times_ns, 0)
        values_ns, counts = np.unique(rounded(times_ns), return_counts=True)
        values, below = values_ns / NS_PER_MS, np.cumsum(counts)
        lines = [_line(values, below, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)]
        p50, p90, p99, p999, most = (line.value_ms for line in lines)
        return cls(
            count=len(times_ns),
            mean_ms=float(f"{int(times_ns.sum()) / len(times_ns) / NS_PER_MS:.3g}"),
            p50_ms=p50,
            p90_ms=p90,
            p99_ms=p99,
            p999_ms=p999,
            max_ms=most,
            spectrum=tuple(_line(values, below, share) for share in shares(len(times_ns))),
        )

    def as_json(self) -> dict[str, Any]:
        """All fields; the spectrum as lists of value in ms, share, total."""
        return asdict(self) | {"spectrum": [list(line) for line in self.spectrum]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What `as_json` told."""
        return cls(**values | {"spectrum": tuple(SpectrumLine(*line) for line in values["spectrum"])})


def rounded(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """To three significant figures, halves up; none is below 0.

    In whole numbers, so that others who do the same (`kcast.spark.jobs.latency`) get the same, to the last
    half.
    """
    units = _UNITS_NS[
        np.searchsorted(_UNITS_NS[1:] * 10 ** (SIGNIFICANT_FIGURES - 1), times_ns, side="right")
    ]
    whole: NDArray[np.int64] = (times_ns + units // 2) // units * units
    return whole


def shares(count: int) -> list[float]:
    """The shares that a spectrum of so many values has lines for: ever closer to 1, and 1."""
    result: list[float] = []
    while not result or result[-1] < 1 - 1 / count:
        halving, tick = divmod(len(result), TICKS_PER_HALVING)
        result.append(1 - (1 - tick / (2 * TICKS_PER_HALVING)) / 2**halving)
    return [*result, 1.0]


def _line(values: NDArray[np.float64], below: NDArray[np.int64], share: float) -> SpectrumLine:
    total = int(below[-1])
    # Without the margin, 0.7 of 10 would be more than 7.
    rank = max(1, int(np.ceil(share * total - 1e-9 * total)))
    index = int(np.searchsorted(below, rank))
    return SpectrumLine(float(values[index]), share, int(below[index]))
