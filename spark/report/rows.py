"""Charts of rows: one for each scenario or scene, with marks on a common axis. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import Scale
from kcast.loadtest.charts.svg import Drawing, Drawings, Frame, both, shortened, text_px
from kcast.spark.report.cells import NamedCell


@dataclass(frozen=True, slots=True)
class Dot:
    """A measured value."""

    value: float
    shape: int = 0
    name: str = "dot"


@dataclass(frozen=True, slots=True)
class Whisker:
    """The interval around a measured value."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Band:
    """The range that theory gives."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Tick:
    """The value that theory gives, or a limit."""

    value: float
    name: str = "theory"


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring around a value that contradicts theory."""

    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a bar, from one value to another, with `words` in it where there is room."""

    low: float
    high: float
    name: str
    title: str = ""
    words: str = ""

    @property
    def is_pale(self) -> bool:
        """Whether words on it must be dark on a light page."""
        return self.name in ("q2", "q3", "q4")


@dataclass(frozen=True, slots=True)
class Ridge:
    """The frequency of values: (value, height) in ascending order of values, with heights 0 .. 1."""

    heights: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Specks:
    """Many values as specks; specks at the same pixel are drawn once."""

    values: Sequence[float]


Mark = Ring | Dot | Whisker | Band | Tick | Bar | Ridge | Specks


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row: its label, its marks, the value in digits, and its tooltip.

    `heading` begins a group. `style` is the number of a colour. A row that is not `is_valid` is drawn hollow.
    A lane is a lower row; without a label it belongs to the row above.
    """

    label: str
    marks: Sequence[Mark]
    value: str = ""
    title: str = ""
    heading: str = ""
    style: int = 0
    is_valid: bool = True
    is_lane: bool = False


def of_cell(cell: NamedCell, style: int, marks: Sequence[Mark], value: str, title: str) -> ChartRow:
    """Returns the row of a scenario."""
    return ChartRow(cell.name, marks, value, title, style=style, is_valid=cell.is_valid)


_LANE_PX, _LANES_GAP_PX = 19, 9
_HEADING_PX = 30
_WORDS_PX = 18
_AXIS_PX = 42
_TOP_PX = 10
_LABEL_PX_MAX = 240
"""Width of the longest label beside the marks; longer labels stand above them."""
_AXIS_ON_TOP_FROM = 14
"""Least number of rows with the axis above them too."""


def chart(rows: Sequence[ChartRow], scale: Scale, axis: str, label: str, *, tall: bool = False) -> Drawings:
    """Draws the rows in both widths. `label` describes the chart in words; `tall` makes room for hills."""
    return both(lambda frame: _draw(rows, scale, axis, label, frame, tall=tall))


@dataclass(frozen=True, slots=True)
class _PlacedRow:
    """A row and its place: words from `top` on, marks around `middle`."""

    row: ChartRow
    top: float
    middle: float
    height: float


def _placed(
    rows: Sequence[ChartRow], top: float, *, above: bool, tall: bool
) -> tuple[list[_PlacedRow], float]:
    """Places all rows, and returns where they end. With `above`, words are above marks, not beside them."""
    lines, y = [], top
    for row in rows:
        if row.heading:
            y += _HEADING_PX
        if row.is_lane:
            words = (_LANES_GAP_PX + (_WORDS_PX if above else 0)) if row.label else 0
            height = float(_LANE_PX)
        else:
            words = _WORDS_PX if above else 0
            height = float((36 if tall else 24) if above else (44 if tall else 30))
        lines.append(_PlacedRow(row, y, y + words + height / 2, height))
        y += words + height
    return lines, y


def _draw(rows: Sequence[ChartRow], scale: Scale, axis: str, label: str, frame: Frame, *, tall: bool) -> Html:
    widest = max((text_px(row.value, bold=True) for row in rows), default=0)
    has_lanes = any(row.is_lane for row in rows)
    right = frame.width - max(16.0, widest + 18 if widest else 0)
    labels = max((text_px(row.label) for row in rows), default=0)
    above = frame.is_narrow or labels > _LABEL_PX_MAX
    left = 8.0 if above else max(70.0, labels + 14)
    if above and not has_lanes:
        right = frame.width - 10.0
    on_top = len(rows) >= _AXIS_ON_TOP_FROM
    top = _TOP_PX + (18 if on_top else 0)
    lines, bottom = _placed(rows, top, above=above, tall=tall)
    drawing = Drawing(frame, bottom + _AXIS_PX, label)

    def x(value: float) -> float:
        return left + scale.at(value) * (right - left)

    _axis(drawing, scale, axis, x, (left, right), (top, bottom), on_top=on_top)
    for line in lines:
        row = line.row
        if row.heading:
            drawing.write(left if above else 0, line.top - 10, row.heading, "heading")
        _words(drawing, line, left, right, above=above)
        with drawing.group(f"s{row.style}" + ("" if row.is_valid else " invalid")):
            for mark in row.marks:
                _mark(drawing, mark, x, line.middle, line.height, row.title)
    return drawing.html()


def _words(drawing: Drawing, line: _PlacedRow, left: float, right: float, *, above: bool) -> None:
    """Writes a row's label before it and its value after it, or both above it."""
    row, width = line.row, drawing.frame.width
    if not above:
        drawing.write(left - 14, line.middle + 4.5, shortened(row.label, left - 14), "label", "end")
        drawing.write(width, line.middle + 4.5, row.value, "value", "end")
        return
    value_px = 0.0 if row.is_lane else text_px(row.value, bold=True) + 10
    at = line.top + 15 + (_LANES_GAP_PX if row.is_lane else 0)
    drawing.write(left, at, shortened(row.label, width - left - value_px), "label")
    if row.is_lane:
        drawing.write(width, line.middle + 4.5, row.value, "value", "end")
    else:
        drawing.write(right, at, row.value, "value", "end")


def _axis(
    drawing: Drawing,
    scale: Scale,
    words: str,
    x: Callable[[float], float],
    across: tuple[float, float],
    down: tuple[float, float],
    *,
    on_top: bool,
) -> None:
    (left, right), (top, bottom) = across, down
    end_px = -100.0
    for value, label in scale.ticks:
        at = x(value)
        drawing.line(at, top, at, bottom, "grid")
        half = text_px(label) / 2
        begin = min(max(at - half, 0), drawing.frame.width - 2 * half)
        if begin < end_px + 10:
            continue  # no room for its words
        end_px = begin + 2 * half
        for line in (bottom + 17, *((top - 6,) if on_top else ())):
            drawing.write(begin + half, line, label, "tick", "middle")
    drawing.line(left, bottom, right, bottom, "axis")
    drawing.write((left + right) / 2, bottom + 36, words, "title", "middle")


def _mark(
    drawing: Drawing, mark: Mark, x: Callable[[float], float], y: float, height: float, title: str
) -> None:
    match mark:
        case Dot():
            drawing.dot(x(mark.value), y, mark.shape, mark.name, title)
        case Whisker():
            low, high = x(mark.low), x(mark.high)
            drawing.line(low, y, high, y, "whisker")
            for end in (low, high):
                drawing.line(end, y - 4, end, y + 4, "whisker")
        case Band():
            low, high = x(mark.low), x(mark.high)
            drawing.rect(low - 1, y - 8, high - low + 2, 16, "band", round_px=3)
        case Tick():
            drawing.line(x(mark.value), y - 9, x(mark.value), y + 9, mark.name, title)
        case Ring():
            drawing.circle(x(mark.value), y, 9, "off")
        case Bar():
            low, high = x(mark.low), x(mark.high)
            drawing.rect(low, y - 9, high - low, 18, f"bar {mark.name}", mark.title)
            if text_px(mark.words) + 6 <= high - low:
                look = "on-pale" if mark.is_pale else "on-dark"
                drawing.write((low + high) / 2, y + 4, mark.words, look, "middle")
        case Ridge():
            base, rise = y + height / 2 - 4, height - 6
            places = [(x(value), base - rise * share) for value, share in mark.heights]
            drawing.polygon([(places[0][0], base), *places, (places[-1][0], base)], "ridge", title)
        case Specks():
            columns = sorted({round(x(value)) for value in mark.values})
            steps = [columns[0], *(after - before for before, after in pairwise(columns))]
            begun = f"M{steps[0]} {y:.1f}h0"
            drawing.path(begun + "".join(f"m{step} 0h0" for step in steps[1:]), "specks")
