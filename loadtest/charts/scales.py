"""Scales: the place of a value on an axis, as a fraction of its length, and the marks along it. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Protocol

from kcast.loadtest.charts.words import number

Ticks = Sequence[tuple[float, str]]


class Scale(Protocol):
    """An axis from 0 to 1."""

    @property
    def ticks(self) -> Ticks:
        """Values, and the words at them."""

    def at(self, value: float) -> float:
        """The place of a value; values off the axis are put at its end."""


def _within(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))


@dataclass(frozen=True, slots=True)
class Linear:
    """An even scale from `low` to `high`."""

    low: float
    high: float
    ticks: Ticks

    def at(self, value: float) -> float:
        """The place of a value."""
        return _within((value - self.low) / (self.high - self.low))


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """A logarithmic scale from `low` to `high`, both above 0."""

    low: float
    high: float
    ticks: Ticks

    def at(self, value: float) -> float:
        """The place of a value."""
        if value <= 0:
            return 0.0
        return _within(log10(value / self.low) / log10(self.high / self.low))


@dataclass(frozen=True, slots=True)
class Nines:
    """A scale for shares, logarithmic in what is missing to 1: 90 %, 99 % and 99.9 % are equally far apart.

    1 itself would be infinitely far; it has a place of its own at the end, after a gap.
    """

    low: float
    nearest: float
    """The greatest share below 1 that has a place."""
    ticks: Ticks = field(default=())

    END = 0.93
    """The place of `nearest`; the gap before 1 is above it."""

    def at(self, value: float) -> float:
        """The place of a share."""
        if value >= 1:
            return 1.0
        first, last = -log10(1 - self.low), -log10(1 - self.nearest)
        return self.END * _within((-log10(1 - value) - first) / (last - first))


def nines_words(scale: Scale) -> str:
    """What to know of an axis of nines; empty for another scale."""
    if not isinstance(scale, Nines):
        return ""
    return (
        "The axis is logarithmic in what is missed: 90 %, 99 % and 99.9 % are equally far apart. 100 % has a "
        "place of its own, behind a gap for what too few pairs can tell from it. "
    )


_NINES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, *(1 - 10.0**-n for n in range(2, 13)))
_LABELS_MAX = 8


def shares(values: Iterable[float], trials: float = 1e12) -> Scale:
    """Returns a scale for shares: by nines if some come close to 1, else even from 0 to 1.

    The scale ends where `trials` no longer tell a share from 1; theory beyond that is put at its end.
    """
    found = sorted(values)
    finest = 1 - 0.3 / max(trials, 1.0)
    below = [value for value in found if value <= finest]
    if not below or below[-1] < 0.975:
        return percents()
    nearest = min(1 - (1 - below[-1]) / 1.6, 1 - 1e-12)
    margin = 1 - (1 - found[0]) * 1.15
    decade = 1 - 10 * (1 - nearest)  # a smaller range would exaggerate small differences
    low = max((share for share in _NINES if share <= max(0.0, min(margin, decade))), default=0.0)
    marks = [share for share in sorted(set(_NINES)) if low <= share <= nearest]
    if len(marks) > _LABELS_MAX:
        marks = [share for share in marks if _is_round(share)] or marks
    return Nines(low, nearest, (*((share, _percent_mark(share)) for share in marks), (1.0, "100 %")))


def _is_round(share: float) -> bool:
    """Whether a share is 0, 90, 99, 99.9 % ..."""
    return share == 0 or abs(log10(1 - share) - round(log10(1 - share))) < 1e-6


def _percent_mark(share: float) -> str:
    return f"{share * 100:.10f}".rstrip("0").rstrip(".") + " %"


def percents() -> Linear:
    """Returns an even scale for shares from 0 to 1."""
    return Linear(0, 1, [(share, f"{share * 100:.0f} %") for share in (0, 0.2, 0.4, 0.6, 0.8, 1.0)])


def from_zero(values: Iterable[float], unit: str = "", marks: int = 5) -> Linear:
    """Returns an even scale from 0 to just above the greatest value, marked at round numbers."""
    most = max((value for value in values if value > 0), default=1.0)
    step = _round_step(most / marks)
    steps = ceil(most * 1.0001 / step)
    return Linear(
        0, steps * step, [(index * step, number(index * step, 2) + unit) for index in range(steps + 1)]
    )


def _round_step(least: float) -> float:
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.9999)


def decades(values: Iterable[float], label: Callable[[float], str], fine_below: float = 2.6) -> Logarithmic:
    """Returns a logarithmic scale around all values above 0, marked at powers of ten.

    Where these are few, 2 and 5 times the powers of ten are marked too.
    """
    found = [value for value in values if value > 0] or [1.0]
    low, high = min(found) / 1.15, max(found) * 1.15
    if high / low < 4:
        middle = (low * high) ** 0.5
        low, high = middle / 2, middle * 2
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    factors = (1, 2, 5) if log10(high / low) < fine_below else (1,)
    marks = [factor * 10.0**power for power in powers for factor in factors]
    return Logarithmic(low, high, [(mark, label(mark)) for mark in marks if low <= mark <= high])


def whole_numbers(values: Iterable[int]) -> Linear:
    """Returns an even scale for a few values of K', which are its marks."""
    found = sorted(set(values))
    return Linear(found[0] - 0.5, found[-1] + 0.5, [(float(mark), str(mark)) for mark in found])
