"""SVG drawings: shapes with classes; the style sheet determines their looks. Pure.

Lengths are CSS pixels at the intended size of a drawing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from kcast.loadtest.charts.escaping import Html, joined, markup, trusted

STYLE = trusted(Path(__file__).with_name("charts.css").read_text(encoding="utf-8"))
"""The looks of drawings, and the colours of light and dark."""


class Frame(NamedTuple):
    """The width of a drawing in pixels, and whether it is for a phone."""

    width: int
    is_narrow: bool
    look: str
    """Its class: the style sheet shows a `wide` drawing or a `narrow` one, and a `panel` always."""


WIDE = Frame(820, is_narrow=False, look="wide")
NARROW = Frame(358, is_narrow=True, look="narrow")
PANEL = Frame(396, is_narrow=True, look="panel")

SHAPES = 6
"""Number of shapes, and of the colours that go with them (`.s0` and so on)."""

_CHAR_PX, _BOLD_CHAR_PX = 7.0, 7.9  # of an average character at the size of labels


def text_px(words: str, *, bold: bool = False) -> float:
    """The estimated width of words in pixels, an upper bound for usual fonts."""
    return len(words) * (_BOLD_CHAR_PX if bold else _CHAR_PX)


def shortened(words: str, width_px: float) -> str:
    """Returns words, cut to fit into `width_px`."""
    most = max(4, round(width_px / _CHAR_PX))
    return words if len(words) <= most else words[: most - 1].rstrip("-_ ") + "…"


def n(value: float) -> str:
    """Returns a length, to a tenth of a pixel."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


@dataclass(slots=True)
class Drawing:
    """Shapes in the order in which they are painted. The `title` of a shape is its tooltip."""

    frame: Frame
    height: float
    label: str
    parts: list[Html] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, name: str, title: str = "") -> None:
        """Adds a straight line."""
        ends = markup('x1="{}" y1="{}" x2="{}" y2="{}"', *map(n, (x1, y1, x2, y2)))
        self._add("line", name, ends, title)

    def polyline(self, places: Sequence[tuple[float, float]], name: str) -> None:
        """Adds a line through places; a single place draws nothing."""
        self._add("polyline", name, _points(places))

    def polygon(self, places: Sequence[tuple[float, float]], name: str, title: str = "") -> None:
        """Adds the area within a line through places."""
        self._add("polygon", name, _points(places), title)

    def rect(
        self, x: float, y: float, width: float, height: float, name: str, title: str = "", round_px: float = 0
    ) -> None:
        """Adds a rectangle."""
        rounded = markup(' rx="{}"', n(round_px)) if round_px else ""
        size = n(x), n(y), n(max(width, 0)), n(height)
        self._add("rect", name, markup('x="{}" y="{}" width="{}" height="{}"{}', *size, rounded), title)

    def circle(self, x: float, y: float, radius: float, name: str) -> None:
        """Adds a circle."""
        self._add("circle", name, markup('cx="{}" cy="{}" r="{}"', n(x), n(y), n(radius)))

    def path(self, commands: str, name: str) -> None:
        """Adds a path."""
        self._add("path", name, markup('d="{}"', commands))

    def dot(self, x: float, y: float, shape: int, name: str, title: str = "", size: float = 5) -> None:
        """Adds a mark of one of the `SHAPES`."""
        self._add("path", name, markup('d="{}"', _shape(shape, x, y, size)), title)

    def write(self, x: float, y: float, words: str, name: str = "", anchor: str = "start") -> None:
        """Adds words on the line `y`."""
        if not words:
            return
        named = markup(' class="{}"', name) if name else ""
        at = markup(' text-anchor="{}"', anchor) if anchor != "start" else ""
        self.parts.append(markup('<text{}{} x="{}" y="{}">{}</text>', named, at, n(x), n(y), words))

    @contextmanager
    def group(self, name: str) -> Iterator[None]:
        """Puts all shapes drawn within the context into a group of these classes."""
        self.parts.append(markup('<g class="{}">', name))
        yield
        self.parts.append(markup("</g>"))

    def _add(self, element: str, name: str, where: Html, title: str = "") -> None:
        end = markup("><title>{}</title></{}>", title, element) if title else markup("/>")
        self.parts.append(markup('<{} class="{}" {}{}', element, name, where, end))

    def html(self) -> Html:
        """The drawing as an SVG element."""
        return markup(
            '<svg class="{name}" role="img" aria-label="{label}" viewBox="0 0 {width} {height}" '
            'width="{width}" height="{height}">{shapes}</svg>',
            name=self.frame.look,
            label=self.label,
            width=str(self.frame.width),
            height=n(self.height),
            shapes=joined(self.parts),
        )


def _points(places: Sequence[tuple[float, float]]) -> Html:
    return markup('points="{}"', " ".join(f"{n(x)},{n(y)}" for x, y in places))


# Outlines around 0, 0; the first shape is a circle.
_TRIANGLE = ((0.0, -1.15), (1.1, 0.8), (-1.1, 0.8))
_BAR = 0.42  # half the width of the cross's bars
_OUTLINES: tuple[Sequence[tuple[float, float]], ...] = (
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    _TRIANGLE,
    ((0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)),
    [(x, -y) for x, y in _TRIANGLE],
    (
        *((-_BAR, -1.2), (_BAR, -1.2), (_BAR, -_BAR), (1.2, -_BAR), (1.2, _BAR), (_BAR, _BAR)),
        *((_BAR, 1.2), (-_BAR, 1.2), (-_BAR, _BAR), (-1.2, _BAR), (-1.2, -_BAR), (-_BAR, -_BAR)),
    ),
)


def _shape(shape: int, x: float, y: float, size: float) -> str:
    """Returns the path commands of a mark."""
    number = shape % SHAPES
    if number == 0:
        arc = f"a{n(size)} {n(size)} 0 1 0"
        return f"M{n(x - size)} {n(y)}{arc} {n(2 * size)} 0{arc} {n(-2 * size)} 0z"
    corners = (f"{n(x + dx * size)} {n(y + dy * size)}" for dx, dy in _OUTLINES[number - 1])
    return f"M{'L'.join(corners)}z"


def swatch(shape: int, name: str, line: str = "") -> Html:
    """Returns the sign before a legend's words: a mark, on a line if it has one."""
    drawn = markup('<line class="{}" x1="1" y1="8" x2="27" y2="8"/>', line) if line else ""
    mark = markup('<path class="{}" d="{}"/>', name, _shape(shape, 14, 8, 5)) if name else ""
    return _swatch(joined((drawn, mark)))


def stroke(line: str, style: str) -> Html:
    """Returns a legend's swatch for a line of this class, in the colour of a style."""
    return _swatch(markup('<line class="{}" x1="1" y1="8" x2="27" y2="8"/>', line), style)


def _swatch(drawn: Html, style: str = "") -> Html:
    return markup(
        '<svg class="{}" viewBox="0 0 28 16" width="28" height="16" aria-hidden="true">{}</svg>',
        f"swatch {style}".rstrip(),
        drawn,
    )


DASH = _swatch(markup('<line class="theory" x1="14" y1="1" x2="14" y2="15"/>'))
BAND = _swatch(markup('<rect class="band" x="2" y="1" width="24" height="14" rx="3"/>'), "s5")
SPECK = _swatch(markup('<path class="specks" d="M8 8h0m6 0h0m6 0h0"/>'), "s5")
EXPECTED = _swatch(
    markup(
        '<rect class="band" x="6" y="1" width="16" height="14" rx="3"/>'
        '<line class="expected" x1="1" y1="8" x2="27" y2="8"/>'
        '<line class="theory" x1="6" y1="8" x2="22" y2="8"/>'
    ),
    "s5",
)
THEORY = _swatch(markup('<line class="expected" x1="1" y1="8" x2="27" y2="8"/>'))
"""A line of theory."""
RING = _swatch(markup('<circle class="off" cx="14" cy="8" r="6.5"/>'))
INVALID = _swatch(markup('<g class="invalid"><path class="dot" d="{}"/></g>', _shape(0, 14, 8, 5)))


def square(name: str) -> Html:
    """Returns a legend's swatch for a piece of a bar."""
    return _swatch(markup('<rect class="{}" x="7" y="1" width="14" height="14" rx="2"/>', name))


class Drawings(Html):
    """Drawings as a page has them. `alone` are those for a document of their own."""

    alone: tuple[Html, ...]

    @classmethod
    def of(cls, drawn: Html, alone: Iterable[Html]) -> Self:
        """Returns `drawn` with these drawings, which it has within it."""
        made = cls(drawn)
        made.alone = tuple(alone)
        return made


def both(draw: Callable[[Frame], Html]) -> Drawings:
    """Draws for wide screens and paper, and for phones; the style sheet shows one of the two."""
    wide = draw(WIDE)
    return Drawings.of(joined((wide, draw(NARROW))), (wide,))
