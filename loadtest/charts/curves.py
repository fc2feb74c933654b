"""Charts of curves: measured values as points, theory as lines. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from kcast.loadtest.charts.escaping import Html, joined, markup, trusted
from kcast.loadtest.charts.scales import Nines, Scale
from kcast.loadtest.charts.svg import STYLE, WIDE, Drawing, Drawings, Frame, both, text_px

XY = tuple[float, float]

ALONE = trusted("""\
svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;overflow:visible}
svg .headline{font-size:19px;font-weight:620}.back{fill:var(--paper)}
""")
"""Styles that drawings inherit on a page."""


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

    places: Sequence[XY]
    name: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together, with their lines. `style` is the number of a shape and its colour.

    `colour` has classes of another colour than the shape's own.
    """

    style: int
    points: Sequence[MeasuredPoint]
    lines: Sequence[TheoryLine] = ()
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Axes:
    """Both axes and their titles."""

    x: Scale
    y: Scale
    x_title: str
    y_title: str


def chart(
    series: Sequence[Series], axes: Axes, label: str, *, height: int = 400, small: bool = False
) -> Drawings:
    """Draws the chart in both widths. `label` describes it in words. `small` makes marks smaller."""
    return both(lambda frame: _draw(series, axes, label, frame, height, small=small))


def picture(
    series: Sequence[Series], axes: Axes, title: str, subtitle: str, legend: Sequence[tuple[Html, str]]
) -> Html:
    """Draws a document that stands alone, for light and dark. The legend is of swatches and words."""
    height, chart_top = 560, 84 + 24 * ceil(len(legend) / 2)
    entries = (
        markup(
            '<g transform="translate({},{})">{}<text x="36" y="12.5">{}</text></g>',
            str(index % 2 * WIDE.width // 2),
            str(68 + index // 2 * 24),
            swatch,
            words,
        )
        for index, (swatch, words) in enumerate(legend)
    )
    drawn = _draw(series, axes, f"{title}. {subtitle}", WIDE, height - chart_top - 20, small=False)
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 868 {height}" width="868" height="{height}">'
        "<style>{alone}{style}</style>"
        '<rect class="back" width="100%" height="100%"/><g transform="translate(24,0)">'
        '<text class="headline" y="34">{title}</text><text class="title" y="55">{subtitle}</text>'
        '{entries}<g transform="translate(0,{top})">{drawn}</g></g></svg>\n',
        height=str(height),
        alone=ALONE,
        style=STYLE,
        title=title,
        subtitle=subtitle,
        entries=joined(entries),
        top=str(chart_top),
        drawn=drawn,
    )


def clipped(series: Sequence[Series], scale: Scale) -> bool:
    """Whether a line of theory leaves the range of the axis."""
    return isinstance(scale, Nines) and any(
        scale.nearest < y < 1 for one in series for line in one.lines for _, y in line.places
    )


def _draw(
    series: Sequence[Series], axes: Axes, label: str, frame: Frame, height: int, *, small: bool
) -> Html:
    left = 12.0 + max((text_px(words) for _, words in axes.y.ticks), default=0)
    right = frame.width - 8.0
    top, bottom = 30.0, top_of(height, frame)
    drawing = Drawing(frame, bottom + 48, label)
    dodge = (4.0 if frame.is_narrow else 6.5) if not small else 0.0

    def x(value: float) -> float:
        return left + axes.x.at(value) * (right - left)

    def y(value: float) -> float:
        return bottom - axes.y.at(value) * (bottom - top)

    _axes(drawing, axes, x, y, (left, right), (top, bottom))
    shifts = _shifts(series, dodge)
    for one in series:
        with drawing.group(one.colour or f"s{one.style}"):
            for line in one.lines:
                places = [(x(at) + shifts[(id(one), at)], y(value)) for at, value in line.places]
                drawing.polyline(places, line.name)
    for one in series:
        with drawing.group(one.colour or f"s{one.style}"):
            for point in one.points:
                at = x(point.x) + shifts[(id(one), point.x)]
                _point(drawing, point, one.style, at, y, small=small)
    return drawing.html()


def top_of(height: int, frame: Frame) -> float:
    """The y coordinate of the axis below."""
    return height - 48.0 if not frame.is_narrow else min(height, 380) - 48.0


def _shifts(series: Sequence[Series], dodge: float) -> dict[tuple[int, float], float]:
    """Shifts in pixels that keep the points and lines of several series at one place apart."""
    shifts: dict[tuple[int, float], float] = {}
    for at in {x for one in series for x in _xs(one)}:
        there = [one for one in series if at in _xs(one)]
        for index, one in enumerate(there):
            shifts[(id(one), at)] = (index - (len(there) - 1) / 2) * 2 * dodge
    return shifts


def _xs(series: Series) -> set[float]:
    return {point.x for point in series.points} | {x for line in series.lines for x, _ in line.places}


def _axes(
    drawing: Drawing,
    axes: Axes,
    x: Callable[[float], float],
    y: Callable[[float], float],
    across: XY,
    down: XY,
) -> None:
    (left, right), (_, bottom) = across, down
    lowest = bottom + 100
    for value, words in axes.y.ticks:
        drawing.line(left, y(value), right, y(value), "grid")
        if y(value) < lowest - 13:
            drawing.write(left - 8, y(value) + 4.5, words, "tick", "end")
            lowest = y(value)
    drawing.line(left, bottom, right, bottom, "axis")
    end_px = -100.0
    for value, words in axes.x.ticks:
        half = text_px(words) / 2
        drawing.line(x(value), bottom, x(value), bottom + 5, "axis")
        if x(value) - half > end_px + 6:
            drawing.write(x(value), bottom + 21, words, "tick", "middle")
            end_px = x(value) + half
    half = text_px(axes.x_title) / 2
    middle = max(half, min((left + right) / 2, drawing.frame.width - half))
    drawing.write(middle, bottom + 42, axes.x_title, "title", "middle")
    drawing.write(0, 13, axes.y_title, "title")


def _point(
    drawing: Drawing, point: MeasuredPoint, shape: int, at: float, y: Callable[[float], float], *, small: bool
) -> None:
    with drawing.group("point" if point.is_valid else "point invalid"):
        if point.expected_low is not None and point.expected_high is not None:
            high, low = y(point.expected_high), y(point.expected_low)
            drawing.rect(at - 8, high - 1.5, 16, low - high + 3, "band", round_px=3)
        if point.expected is not None:
            drawing.line(at - 8, y(point.expected), at + 8, y(point.expected), "theory")
        if point.low is not None and point.high is not None:
            high, low = y(max(point.high, point.y)), y(min(point.low, point.y))
            drawing.line(at, low, at, high, "whisker")
            for end in (low, high):
                drawing.line(at - 4, end, at + 4, end, "whisker")
        if point.is_off:
            drawing.circle(at, y(point.y), 10.5, "off")
        if at + 12 + text_px(point.note, bold=True) <= drawing.frame.width:
            drawing.write(at + 12, y(point.y) + 18, point.note, "value")
        else:
            drawing.write(at - 12, y(point.y) + 18, point.note, "value", "end")
        drawing.dot(at, y(point.y), shape, "dot", point.title, 3.4 if small else 5)
