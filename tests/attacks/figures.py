"""Figures that rows of the attack suite give, and bars that they are held to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """On which side of its bar a figure may be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"
    TOLD = "no bar"


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, in `unit`, and its bar."""

    name: str
    value: float
    side: Side
    bar: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the figure is on the right side of its bar."""
        if self.side is Side.AT_LEAST:
            return self.value >= self.bar
        return self.side is Side.TOLD or self.value <= self.bar

    def __str__(self) -> str:
        if self.side is Side.TOLD:
            return f"{self.name}: {amount(self.value, self.unit)}"
        mark = "met" if self.is_met else "MISSED"
        return (
            f"{self.name}: {amount(self.value, self.unit)} "
            f"({self.side.value} {amount(self.bar, self.unit)}: {mark})"
        )


def at_least(name: str, value: float, bar: float, unit: str = "") -> Figure:
    """Returns a figure that must not be below its bar."""
    return Figure(name, value, Side.AT_LEAST, bar, unit)


def at_most(name: str, value: float, bar: float, unit: str = "") -> Figure:
    """Returns a figure that must not be above its bar."""
    return Figure(name, value, Side.AT_MOST, bar, unit)


def told(name: str, value: float, unit: str = "") -> Figure:
    """Returns a figure that is told beside others, without a bar."""
    return Figure(name, value, Side.TOLD, 0.0, unit)


def amount(value: float, unit: str) -> str:
    """Returns a number as people read it.

    >>> amount(99.95, "%"), amount(0.000132, "s"), amount(928020, "B"), amount(3, "")
    ('99.95 %', '0.000132 s', '928,020 B', '3')
    """
    if float(value).is_integer() or 1000 <= abs(value) < float("inf"):
        text = f"{value:,.0f}"
    elif abs(value) >= 10:
        text = f"{value:.2f}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def percent(part: float, whole: float) -> float:
    """Returns a part of a whole in percent; 0 where there is no whole, since nothing was shown then."""
    return 100 * part / whole if whole else 0.0


def median(values: Sequence[float]) -> float:
    """Returns the middle value, the lower of two; infinity where there is none: what never came is late."""
    if not values:
        return float("inf")
    return sorted(values)[(len(values) - 1) // 2]
