"""Drawings of one scenario over time: strips above each other on one axis of time. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kcast.loadtest.charts import svg
from kcast.loadtest.charts.scales import Scale
from kcast.loadtest.charts.svg import AXIS_PX, Drawing, Svg

Step = tuple[float, float, float | None]
"""From, to, and the value in between; None where there is none."""

_NAME_PX, _TITLE_PX, _TOUCH = 20.0, 26.0, 1e-6


class Strip(NamedTuple):
    """A strip: its title, scale and height, and its courses, each with a CSS class and its steps.

    The area below a course of the class `down` is filled.
    """

    title: str
    scale: Scale
    height: float
    courses: Sequence[tuple[str, Sequence[Step]]]
    is_valid: bool = True


def chart(name: str, value: str, strips: Sequence[Strip], time: Scale, style: int, label: str) -> Drawing:
    """Draws strips below a scenario's name and its value; `style` is the number of a colour."""
    drawn = [svg.write(svg.shortened(name), 0, 14, "heading"), svg.write(value, "100%", 14, "value", "end")]
    bottom = _NAME_PX
    for strip in strips:
        top, bottom = bottom + _TITLE_PX, bottom + _TITLE_PX + strip.height
        looks = f"s{style}" if strip.is_valid else f"s{style} invalid"
        drawn += [svg.write(strip.title, svg.across(svg.inset(0)), top - 9, "title"), *_marks(strip, top)]
        drawn.append(svg.group(*_courses(strip, time, top), name=looks))
    drawn += svg.axis_along(time, svg.inset, bottom, bottom, "seconds since the load began")
    return Drawing(label, bottom + AXIS_PX, drawn)


def _marks(strip: Strip, top: float) -> list[Svg]:
    return svg.axis_up(strip.scale, lambda value: top + (1 - strip.scale.at(value)) * strip.height)


def _courses(strip: Strip, time: Scale, top: float) -> Iterator[Svg]:
    for name, steps in strip.courses:
        for run in _runs(steps):
            places = [
                (time.at(at), 1 - strip.scale.at(value)) for start, end, value in run for at in (start, end)
            ]
            if name == "down":
                ends = [(places[0][0], 1.0), *places, (places[-1][0], 1.0)]
                yield svg.stretched("polygon", ends, name, top, strip.height)
            else:
                yield svg.stretched("polyline", places, name, top, strip.height)


def _runs(steps: Sequence[Step]) -> Iterator[list[tuple[float, float, float]]]:
    """Steps that follow each other without a gap, and have a value."""
    run: list[tuple[float, float, float]] = []
    for start, end, value in steps:
        if run and (value is None or abs(start - run[-1][1]) > _TOUCH):
            yield run
            run = []
        if value is not None:
            run.append((start, end, value))
    if run:
        yield run
