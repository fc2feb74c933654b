"""Charts of curves: measured values as marks, theory as lines. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kcast.loadtest.charts import svg
from kcast.loadtest.charts.scales import Scale
from kcast.loadtest.charts.svg import AXIS_PX, Drawing, Figure, Legend, Svg

_TOP_PX, _DODGE_PX = 38.0, 10.0
_NOTE_LEFT_FROM = 0.82
"""The place across from which notes stand to the left of their points."""


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured value with its interval, and the value and range that theory gives, if it does."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    expected: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None
    title: str = ""
    is_valid: bool = True
    is_off: bool = False
    """Whether the value contradicts theory; it is then ringed."""
    note: str = ""
    """Words beside the point."""


@dataclass(frozen=True, slots=True)
class TheoryLine:
    """A line of theory; `name` is its CSS class."""

    places: Sequence[tuple[float, float]]
    name: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together, with their lines. `style` is the number of a mark and its colour."""

    style: int
    points: Sequence[MeasuredPoint]
    lines: Sequence[TheoryLine] = ()


@dataclass(frozen=True, slots=True)
class Axes:
    """Both axes and their titles."""

    x: Scale
    y: Scale
    x_title: str
    y_title: str


def chart(series: Sequence[Series], axes: Axes, label: str, height: float = 400) -> Drawing:
    """Draws series beside each other. `label` describes the chart in words."""
    bottom = height - AXIS_PX

    def x(value: float) -> float:
        return svg.inset(axes.x.at(value))

    def y(value: float) -> float:
        return bottom - axes.y.at(value) * (bottom - _TOP_PX)

    drawn = [*svg.axis_up(axes.y, y), *svg.axis_along(axes.x, svg.inset, bottom, bottom, axes.x_title)]
    drawn.append(svg.write(axes.y_title, 0, 13, "title"))
    for number, one in enumerate(series):
        lines = [
            svg.line(theory.name, svg.across(x(x1)), y(y1), svg.across(x(x2)), y(y2))
            for theory in one.lines
            for (x1, y1), (x2, y2) in pairwise(theory.places)
        ]
        points = [_point(point, one.style, x(point.x), y) for point in one.points]
        right_px = (number - (len(series) - 1) / 2) * _DODGE_PX
        drawn.append(svg.group(*lines, *points, name=f"s{one.style}", right_px=right_px))
    return Drawing(label, height, drawn)


def _point(point: MeasuredPoint, shape: int, x: float, y: Callable[[float], float]) -> Svg:
    drawn = list[Svg]()
    if point.expected_low is not None and point.expected_high is not None:
        high, low = y(point.expected_high), y(point.expected_low)
        drawn.append(svg.rect("band", -8, high - 1.5, 16, low - high + 3))
    if point.expected is not None:
        drawn.append(svg.line("theory", -8, y(point.expected), 8, y(point.expected)))
    if point.low is not None and point.high is not None:
        high, low = y(max(point.high, point.y)), y(min(point.low, point.y))
        drawn.append(svg.line("whisker", 0, low, 0, high))
        drawn += [svg.line("whisker", -4, end, 4, end) for end in (low, high)]
    if point.is_off:
        drawn.append(svg.element("circle", class_="off", cx=0, cy=y(point.y), r=10.5))
    if point.note:
        side, anchor = (12, "start") if x < _NOTE_LEFT_FROM else (-12, "end")
        drawn.append(svg.write(point.note, side, y(point.y) + 18, "value", anchor))
    drawn.append(svg.mark(shape, 0, y(point.y), "dot", point.title))
    return svg.group(svg.at(x, *drawn), name="point" if point.is_valid else "point invalid")


def picture(series: Sequence[Series], axes: Axes, title: str, subtitle: str, legend: Legend) -> Svg:
    """Draws a document that stands alone, for light and dark."""
    return svg.document(title, subtitle, Figure([chart(series, axes, f"{title}. {subtitle}")], legend))
