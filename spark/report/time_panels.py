"""Drawings of one scenario over time: what arrived, servers that were down, and latency, one above the other
on one axis of time. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import Scale
from kcast.loadtest.charts.svg import PANEL, Drawing, shortened, text_px

Places = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot of time, in seconds since the load began, and its values; None where one is not known."""

    from_s: float
    to_s: float
    pairs: int
    share: float | None
    servers_down: float | None
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Scales:
    """The axes, which all panels have in common but for time. `latency` None: no latency is known."""

    time: Scale
    share: Scale
    down: Scale
    latency: Scale | None


@dataclass(frozen=True, slots=True)
class Panel:
    """What is drawn of a scenario. `value` stands beside its name; `style` is the number of its colour."""

    name: str
    value: str
    slots: Sequence[Slot]
    scales: Scales
    style: int
    is_valid: bool
    is_latency_valid: bool
    label: str


_TITLE_PX, _STRIP_TITLE_PX, _AXIS_PX = 20.0, 24.0, 42.0
_SHARE_PX, _DOWN_PX, _LATENCY_PX = 92.0, 34.0, 74.0
_TICKS_APART_PX = 14.0


def panel(of: Panel) -> Html:
    """Draws a panel, 396 pixels wide, for phones and wide screens alike."""
    scales = of.scales
    strips = [("pairs delivered", scales.share, _SHARE_PX), ("servers down", scales.down, _DOWN_PX)]
    if scales.latency is not None:
        strips.append(("latency: median, 99 %", scales.latency, _LATENCY_PX))
    height = _TITLE_PX + sum(_STRIP_TITLE_PX + tall for _, _, tall in strips) + _AXIS_PX
    drawing = Drawing(PANEL, height, of.label)
    left = 10.0 + max(text_px(words) for _, scale, _ in strips for _, words in scale.ticks)
    right = PANEL.width - 8.0

    def x(time_s: float) -> float:
        return left + scales.time.at(time_s) * (right - left)

    value_px = text_px(of.value, bold=True) + 10
    drawing.write(0, 14, shortened(of.name, PANEL.width - value_px), "heading")
    drawing.write(right, 14, of.value, "value", "end")
    bottom = _TITLE_PX
    for number, (title, scale, tall) in enumerate(strips):
        top = bottom + _STRIP_TITLE_PX
        bottom = top + tall
        drawing.write(left, top - 8, title, "title")
        y = _heights(scale, top, bottom)
        _grid(drawing, scale, y, left, right)
        is_valid = of.is_latency_valid if number == 2 else of.is_valid or number == 1
        with drawing.group(f"s{of.style}" if is_valid else f"s{of.style} invalid"):
            if number == 0:
                _steps(drawing, of.slots, "share", x, y, "course")
            elif number == 1:
                _bars(drawing, of.slots, x, y, bottom)
            else:
                _steps(drawing, of.slots, "p99_ms", x, y, "course tail")
                _steps(drawing, of.slots, "p50_ms", x, y, "course")
        drawing.line(left, bottom, right, bottom, "axis")
    _time(drawing, scales.time, x, bottom)
    drawing.write((left + right) / 2, bottom + 37, "seconds since the load began", "title", "middle")
    return drawing.html()


def _heights(scale: Scale, top: float, bottom: float) -> Callable[[float], float]:
    return lambda value: bottom - scale.at(value) * (bottom - top)


def _grid(drawing: Drawing, scale: Scale, y: Callable[[float], float], left: float, right: float) -> None:
    """Lines at the marks of a strip; their words go where there is room, the first at the top."""
    marks = sorted(scale.ticks, key=lambda mark: y(mark[0]))
    lowest = -_TICKS_APART_PX
    for value, words in marks:
        drawing.line(left, y(value), right, y(value), "grid")
        if y(value) >= lowest + _TICKS_APART_PX:
            drawing.write(left - 6, y(value) + 4.5, words, "tick", "end")
            lowest = y(value)


def _time(drawing: Drawing, scale: Scale, x: Callable[[float], float], bottom: float) -> None:
    end_px = -100.0
    for value, words in scale.ticks:
        half = text_px(words) / 2
        drawing.line(x(value), bottom, x(value), bottom + 4, "axis")
        if x(value) - half > end_px + 6 and x(value) + half <= drawing.frame.width:
            drawing.write(x(value), bottom + 18, words, "tick", "middle")
            end_px = x(value) + half


def _steps(
    drawing: Drawing,
    slots: Sequence[Slot],
    column: str,
    x: Callable[[float], float],
    y: Callable[[float], float],
    name: str,
) -> None:
    """A line that is level for as long as each slot lasts, with gaps where nothing is known."""
    for run in _runs(slots, column):
        places: Places = []
        for slot in run:
            value = getattr(slot, column)
            places += [(x(slot.from_s), y(value)), (x(slot.to_s), y(value))]
        drawing.polyline(places, name)


def _runs(slots: Sequence[Slot], column: str) -> Iterator[list[Slot]]:
    """Slots that follow each other without a gap, and have a value."""
    run: list[Slot] = []
    for slot in slots:
        is_next = bool(run) and abs(slot.from_s - run[-1].to_s) < 1e-6
        if run and (not is_next or getattr(slot, column) is None):
            yield run
            run = []
        if getattr(slot, column) is not None:
            run.append(slot)
    if run:
        yield run


def _bars(
    drawing: Drawing,
    slots: Sequence[Slot],
    x: Callable[[float], float],
    y: Callable[[float], float],
    bottom: float,
) -> None:
    """One area for servers that were down, so that no seams show between slots."""
    for run in _runs(slots, "servers_down"):
        places: Places = [(x(run[0].from_s), bottom)]
        for slot in run:
            down = slot.servers_down or 0.0
            places += [(x(slot.from_s), y(down)), (x(slot.to_s), y(down))]
        places.append((x(run[-1].to_s), bottom))
        if any(before != after for before, after in pairwise(at for _, at in places)):
            drawing.polygon(places, "down")
