"""SVG as markup: elements, marks, axes, and documents that stand alone. Pure.

A place across is a fraction of the drawing's width (`across`), one down is in CSS pixels. So a drawing has no
width of its own: the same one suits phones, wide screens and paper, and its words keep their size.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from html import escape
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

from kcast.client.cli.text import escaped
from kcast.loadtest.charts.scales import Scale

STYLE_FILE = Path(__file__).with_name("charts.css")
"""The looks of drawings, and the colours of light and dark."""

SHAPES = 6
"""Number of marks, and of the colours that go with them (`.s0` and so on)."""

LEFT = 0.13
"""The place across where values begin. The words of the axis upwards stand to its left."""

NARROWEST_PX = 340.0
"""The width of a drawing on a small phone."""

_WIDE_PX, _MARGIN_PX = 820.0, 24.0
_CHAR_PX, _TICKS_APART_PX = 7.0, 15.0
_ALONE = (
    "svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
    "svg .headline{font-size:19px;font-weight:620}.back{fill:var(--paper)}"
)
"""Looks that drawings inherit on a page."""


class Svg(str):
    """Markup. Only `element` makes it: any other string is text, and is escaped where it joins markup.

    So no name from a capture reaches a page unescaped. Templates and notebooks take it as it is.
    """

    __slots__ = ()

    def __html__(self) -> str:
        """The markup, for jinja2."""
        return str(self)

    def _repr_svg_(self) -> str:
        return str(self)


def element(tag: str, *content: str, **attributes: str | float) -> Svg:
    """Returns an element. Of its attributes `_` is `-`, and those that are empty are left out."""
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value != ""
    )
    return Svg(f"<{tag}{told}>{joined(content)}</{tag}>" if any(content) else f"<{tag}{told}/>")


def joined(pieces: Iterable[str]) -> Svg:
    """Returns all pieces as one; text is escaped."""
    return Svg("".join(piece if isinstance(piece, Svg) else _as_text(piece) for piece in pieces))


def _value(value: str | float) -> str:
    return _as_text(value) if isinstance(value, str) else f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


@lru_cache(maxsize=4096)  # a page has most of its words, such as names of classes, hundreds of times
def _as_text(words: str) -> str:
    return escape(visible(words))


def visible(words: str) -> str:
    """Returns words without control characters, line ends excepted: people look at pages with `less`, too,
    and what reverses text would mislead in a browser as well."""
    return "\n".join(map(escaped, words.split("\n")))


def text_px(words: str) -> float:
    """The estimated width of words in pixels, an upper bound for usual fonts."""
    return len(words) * _CHAR_PX


def shortened(words: str) -> str:
    """Words that fit into the narrowest drawing."""
    most = int(NARROWEST_PX / _CHAR_PX)
    return words if len(words) <= most else f"{words[: most - 1]}…"


# --- Shapes: of lengths across, strings are fractions, and numbers are pixels ------------------------


def across(fraction: float) -> str:
    """Returns a place across as a length."""
    return f"{100 * fraction:.2f}".rstrip("0").rstrip(".") + "%"


def line(name: str, x1: str | float, y1: float, x2: str | float, y2: float) -> Svg:
    """A straight line."""
    return element("line", class_=name, x1=x1, y1=y1, x2=x2, y2=y2)


def rect(name: str, x: str | float, y: float, width: str | float, height: float, title: str = "") -> Svg:
    """A rectangle; its `title` is its tooltip."""
    return element("rect", _title(title), class_=name, x=x, y=y, width=width, height=height)


def write(words: str, x: str | float, y: float, name: str = "", anchor: str = "start") -> Svg:
    """Words on the line `y`."""
    return element("text", words, class_=name, x=x, y=y, text_anchor=anchor)


def mark(shape: int, x: float, y: float, name: str, title: str = "", size: float = 5) -> Svg:
    """A mark of one of the `SHAPES`."""
    return element("path", _title(title), class_=name, d=_shape(shape % SHAPES, x, y, size))


def group(*content: Svg, name: str, right_px: float = 0) -> Svg:
    """Shapes of common looks, moved to the right."""
    return element("g", *content, class_=name, transform=f"translate({right_px:g} 0)" if right_px else "")


def at(fraction: float, *content: Svg) -> Svg:
    """Shapes around a place across. Their lengths are pixels from there."""
    return element("svg", *content, x=across(fraction), overflow="visible")


def stretched(
    tag: str, places: Iterable[tuple[float, float]], name: str, top: float, height: float, left: float = LEFT
) -> Svg:
    """A polyline or polygon through places that are fractions: of what is right of `left` and below `top`."""
    points = " ".join(f"{1000 * x:.0f},{1000 * y:.0f}" for x, y in places)
    return element(
        "svg",
        element(tag, class_=name, points=points),
        x=across(left),
        y=top,
        width=across(1 - left),
        height=height,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        overflow="visible",
    )


def _title(words: str) -> Svg:
    return element("title", words) if words else Svg()


# Outlines around 0, 0; the first shape is a circle.
_TRIANGLE = ((0.0, -1.15), (1.1, 0.8), (-1.1, 0.8))
_CROSS = ((0.42, -1.2), (0.42, -0.42), (1.2, -0.42), (1.2, 0.42), (0.42, 0.42), (0.42, 1.2))
_OUTLINES: tuple[Sequence[tuple[float, float]], ...] = (
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    _TRIANGLE,
    ((0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)),
    [(x, -y) for x, y in _TRIANGLE],
    (*_CROSS, *((-x, -y) for x, y in _CROSS)),
)


def _shape(number: int, x: float, y: float, size: float) -> str:
    if number == 0:
        arc = f"a{size:g} {size:g} 0 1 0"
        return f"M{x - size:g} {y:.4g}{arc} {2 * size:g} 0{arc} {-2 * size:g} 0z"
    return f"M{'L'.join(f'{x + dx * size:.4g} {y + dy * size:.4g}' for dx, dy in _OUTLINES[number - 1])}z"


# --- Axes ---------------------------------------------------------------------------------------------


def inset(fraction: float) -> float:
    """The place across of a fraction of what is to the right of `LEFT`."""
    return LEFT + (1 - LEFT) * fraction


def axis_up(scale: Scale, y: Callable[[float], float]) -> list[Svg]:
    """Lines at the marks of a scale, with words on them where there is room, the first at the top."""
    drawn, last = list[Svg](), -inf
    for value, words in sorted(scale.ticks, reverse=True):
        drawn.append(line("grid", 0, y(value), "100%", y(value)))
        if y(value) >= last + _TICKS_APART_PX:
            drawn.append(write(words, 0, y(value) - 4, "tick"))
            last = y(value)
    return drawn


def axis_along(scale: Scale, x: Callable[[float], float], top: float, bottom: float, title: str) -> list[Svg]:
    """Lines at the marks of a scale from `top` to `bottom`, with words below where there is room."""
    drawn, begin_px = list[Svg](), inf
    for value, words in sorted(scale.ticks, reverse=True):
        place = x(scale.at(value))
        drawn.append(line("grid", across(place), top, across(place), bottom + 5))
        anchor, part = ("start", 0.0) if place < 0.03 else ("end", 1.0) if place > 0.97 else ("middle", 0.5)
        own_px = place * NARROWEST_PX - part * text_px(words)
        if own_px + text_px(words) < begin_px - 6:
            drawn.append(write(words, across(place), bottom + 20, "tick", anchor))
            begin_px = own_px
    return [
        *drawn,
        line("axis", 0, bottom, "100%", bottom),
        write(title, "50%", bottom + 40, "title", "middle"),
    ]


AXIS_PX = 48.0
"""The height of what `axis_along` writes below."""


# --- Drawings -----------------------------------------------------------------------------------------


class Drawing(NamedTuple):
    """A drawing: what it shows, in words, and its height in pixels."""

    label: str
    height: float
    content: Sequence[Svg]

    def __html__(self) -> str:
        """The drawing as an element that is as wide as its place on a page."""
        looks = {"class_": "drawing", "role": "img", "aria_label": self.label}
        return element("svg", *self.content, **looks, width="100%", height=self.height)


Legend = Sequence[tuple[Svg, str]]
"""Swatches with their words."""


class Figure(NamedTuple):
    """Drawings with a legend, and words on how to read them."""

    drawings: Sequence[Drawing]
    legend: Legend = ()
    how: str = ""


def document(title: str, subtitle: str, figure: Figure) -> Svg:
    """Returns drawings as one document that stands alone, for light and dark. Several have two columns."""
    columns = min(2, len(figure.drawings))
    width_px = (_WIDE_PX - (columns - 1) * _MARGIN_PX) / columns
    parts = [write(title, 0, 34, "headline"), write(subtitle, 0, 55, "title")]
    for number, (swatch_of, words) in enumerate(figure.legend):
        where = f"translate({number % 2 * _WIDE_PX // 2} {68 + number // 2 * 24})"
        parts.append(element("g", swatch_of, write(words, 36, 12.5), transform=where))
    top = 88.0 + 24 * ceil(len(figure.legend) / 2)
    for start in range(0, len(figure.drawings), columns):
        row = figure.drawings[start : start + columns]
        for column, drawing in enumerate(row):
            area = {"x": column * (width_px + _MARGIN_PX), "y": top, "width": width_px}
            drawn = joined(drawing.content)
            parts.append(element("svg", drawn, **area, height=drawing.height, overflow="visible"))
        top += max(drawing.height for drawing in row) + _MARGIN_PX
    size = {"width": _WIDE_PX + 2 * _MARGIN_PX, "height": top}
    return element(
        "svg",
        element("style", _ALONE + STYLE_FILE.read_text(encoding="utf-8")),
        element("rect", class_="back", width="100%", height="100%"),
        element("g", *parts, transform=f"translate({_MARGIN_PX} 0)"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size['width']:.0f} {top:.0f}",
        **size,
    )


# --- Swatches -----------------------------------------------------------------------------------------


def swatch(shape: int, name: str) -> Svg:
    """The sign before a legend's words: a mark."""
    return _framed(mark(shape, 14, 8, name))


def square(name: str) -> Svg:
    """The sign for a piece of a bar or an area."""
    return _framed(rect(name, 7, 1, 14, 14))


def stroke(name: str, style: str) -> Svg:
    """The sign for a line in the colour of a style."""
    return _framed(element("path", class_=name, d="M1 8h26"), style=style)


def _framed(*content: Svg, style: str = "s5") -> Svg:
    return element("svg", *content, class_=f"swatch {style}", width=28, height=16, aria_hidden="true")


EXPECTED = _framed(rect("band", 6, 1, 16, 14), line("expected", 1, 8, 27, 8), line("theory", 6, 8, 22, 8))
"""Theory with its range."""
BAND = _framed(rect("band", 2, 1, 24, 14))
RING = _framed(element("circle", class_="off", cx=14, cy=8, r=6.5))
INVALID = _framed(group(mark(0, 14, 8, "dot"), name="invalid"))
