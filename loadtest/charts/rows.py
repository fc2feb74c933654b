"""Charts of rows: one for each scenario, with marks on a common axis. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kcast.loadtest.charts import svg
from kcast.loadtest.charts.scales import Scale
from kcast.loadtest.charts.svg import AXIS_PX, Drawing, Svg

Place = Callable[[float], float]
"""Gives the place across of a value."""
Mark = Callable[[Place, float], Svg]
"""Draws a mark around the line `y` of its row."""

_WORDS_PX, _GAP_PX = 20.0, 10.0


class ChartRow(NamedTuple):
    """A row: its label, its value in digits, its marks, and the number of its colour.

    A row that is not `is_valid` is drawn hollow.
    """

    label: str
    value: str
    marks: Sequence[Mark]
    style: int = 0
    is_valid: bool = True


def chart(rows: Sequence[ChartRow], scale: Scale, axis: str, label: str, marks_px: float = 22) -> Drawing:
    """Draws rows below each other. `label` describes the chart in words; marks are `marks_px` high."""
    is_narrow = any(svg.text_px(row.label + row.value) > svg.NARROWEST_PX for row in rows)
    words_px = _WORDS_PX * (1 + is_narrow)  # values stand below labels where both have no room
    each = words_px + marks_px + _GAP_PX
    bottom = each * len(rows)
    drawn = svg.axis_along(scale, lambda fraction: fraction, 0, bottom, axis)
    for number, row in enumerate(rows):
        top = each * number
        drawn.append(svg.write(svg.shortened(row.label), 0, top + 14, "label"))
        drawn.append(svg.write(row.value, "100%", top + words_px - 6, "value", "end"))
        middle = top + words_px + marks_px / 2
        looks = f"s{row.style}" + ("" if row.is_valid else " invalid")
        drawn.append(svg.group(*(one(scale.at, middle) for one in row.marks), name=looks))
    return Drawing(label, bottom + AXIS_PX, drawn)


def dot(value: float, shape: int = 0, name: str = "dot", title: str = "") -> Mark:
    """A measured value."""
    return lambda x, y: svg.at(x(value), svg.mark(shape, 0, y, name, title))


def whisker(low: float, high: float) -> Mark:
    """The interval around a measured value."""

    def drawn(x: Place, y: float) -> Svg:
        ends = (svg.at(x(end), svg.line("whisker", 0, y - 4, 0, y + 4)) for end in (low, high))
        return svg.joined((svg.line("whisker", svg.across(x(low)), y, svg.across(x(high)), y), *ends))

    return drawn


def ring(value: float) -> Mark:
    """A ring around a value that contradicts theory."""
    return lambda x, y: svg.element("circle", class_="off", cx=svg.across(x(value)), cy=y, r=9)


def band(low: float, high: float) -> Mark:
    """The range that theory gives."""
    return bar(low, high, "band", height=16)


def tick(value: float, name: str = "theory") -> Mark:
    """The value that theory gives, or a limit."""
    return lambda x, y: svg.line(name, svg.across(x(value)), y - 9, svg.across(x(value)), y + 9)


def bar(low: float, high: float, name: str, title: str = "", height: float = 18) -> Mark:
    """A piece of a bar, from one value to another."""

    def drawn(x: Place, y: float) -> Svg:
        left, width = svg.across(x(low)), svg.across(x(high) - x(low))
        return svg.rect(name, left, y - height / 2, width, height, title)

    return drawn


def specks(values: Iterable[float]) -> Mark:
    """Many values; those less than half a per cent of the width apart are drawn once."""

    def drawn(x: Place, y: float) -> Svg:
        places = [svg.across(place / 200) for place in sorted({round(200 * x(value)) for value in values})]
        return svg.joined(svg.element("circle", class_="speck", cx=place, cy=y, r=3) for place in places)

    return drawn


def ridge(heights: Sequence[tuple[float, float]], height: float) -> Mark:
    """The frequency of values: (value, share of the greatest) in ascending order of values."""

    def drawn(x: Place, y: float) -> Svg:
        places = [(x(value), 1 - share) for value, share in heights]
        outline = [(places[0][0], 1.0), *places, (places[-1][0], 1.0)]
        return svg.stretched("polygon", outline, "ridge", y - height / 2, height, left=0)

    return drawn
