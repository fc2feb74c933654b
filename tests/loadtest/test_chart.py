"""loadtest/chart.py: what is drawn, and where."""

import re
from xml.etree import ElementTree

import pytest

from kcast.loadtest.chart import Curve, Point, Role, format_share, svg, text

SPACE = "{http://www.w3.org/2000/svg}"
CURVES = [
    Curve(Role.UP, "all up, measured", (Point(1, 1.0), Point(2, 1.0), Point(3, 1.0))),
    Curve(Role.DOWN, "4 of 12 down, measured", (Point(1, 0.66), Point(2, 0.91), Point(3, 0.98))),
    Curve(
        Role.PREDICTED,
        "4 of 12 down, predicted",
        (Point(1, 0.67, 0.62, 0.72), Point(2, 0.9, 0.87, 0.93), Point(3, 0.98, 0.97, 0.99)),
    ),
    Curve(Role.RECOVERED, "recovered, measured", (Point(1, 1.0), Point(2, 1.0), Point(3, 1.0))),
]


def parsed(curves: list[Curve], title: str = "Title", subtitle: str = "Subtitle") -> ElementTree.Element:
    return ElementTree.fromstring(svg(curves, title, subtitle))


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SPACE}text")]


# SVG.


def test_the_drawing_says_what_it_shows() -> None:
    found = texts(parsed(CURVES, "Measured & predicted", "a<b"))
    for expected in (*(curve.name for curve in CURVES), "Measured & predicted", "a<b", "1", "2", "3", "100%"):
        assert expected in found
    assert "pairs delivered, % of expected" in found
    assert {"66.00 %", "91.00 %", "98.00 %"} <= set(found)


def test_the_drawing_stands_alone_and_knows_dark() -> None:
    drawing = svg(CURVES, "Title", "Subtitle")
    assert "prefers-color-scheme:dark" in drawing
    assert re.findall(r"(?:href|src|url|@import|<script)[^>]*", drawing) == []
    assert re.findall(r"https?://[^\"]+", drawing) == ["http://www.w3.org/2000/svg"]


def test_measured_points_stand_at_their_height() -> None:
    root = parsed(CURVES)
    dots = [float(dot.get("cy", "")) for dot in of_class(root, "dot down")[1:]]  # the first is the legend's
    up = float(of_class(root, "dot up")[1].get("cy", ""))
    grid = [float(line.get("y1", "")) for line in of_class(root, "grid")]
    assert up == min(grid), "100 % is the top"
    bottom, top = max(grid), min(grid)
    shares = [0.5 + 0.5 * (bottom - y) / (bottom - top) for y in dots]
    assert shares == pytest.approx([0.66, 0.91, 0.98], abs=0.001)


def test_ranges_are_drawn_around_the_prediction() -> None:
    root = parsed(CURVES)
    whiskers = [line for line in of_class(root, "whisker predicted") if line.get("x1") == line.get("x2")][1:]
    grid = [float(line.get("y1", "")) for line in of_class(root, "grid")]
    scale = 0.5 / (max(grid) - min(grid))
    lows = [0.5 + (max(grid) - float(line.get("y1", ""))) * scale for line in whiskers]
    highs = [0.5 + (max(grid) - float(line.get("y2", ""))) * scale for line in whiskers]
    assert lows == pytest.approx([0.62, 0.87, 0.97], abs=0.001)
    assert highs == pytest.approx([0.72, 0.93, 0.99], abs=0.001)


@pytest.mark.parametrize("share", [0.0, 0.004, 0.5, 0.96, 1.0])
def test_everything_lies_within_the_drawing(share: float) -> None:
    root = parsed([Curve(Role.DOWN, "down", (Point(1, share, max(0.0, share - 0.03), share),))])
    for element in root.iter():
        for name, most in (("x", 760), ("cx", 760), ("x1", 760), ("y", 500), ("cy", 500), ("y1", 500)):
            assert 0 <= float(element.get(name, "0")) <= most


# Characters.


def rows(drawn: str) -> list[str]:
    return drawn.rstrip("\n").split("\n")


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_chart_fits_a_terminal(ascii_only: bool) -> None:
    drawn = text(CURVES, ascii_only)
    assert max(map(len, rows(drawn))) <= 80
    assert len(rows(drawn)) == 1 + 3 * 4
    assert drawn.isascii() == ascii_only


def test_bars_are_as_long_as_their_share() -> None:
    bars = [row.count("#") for row in rows(text(CURVES, ascii_only=True)) if "#" in row]
    assert bars == [50, 33, 50, 50, 46, 50, 50, 49, 50]
    assert [row.count("█") for row in rows(text(CURVES)) if "4 of 12 down" in row] == [33, 45, 49]


def test_predictions_are_marks_in_their_range() -> None:
    marked = [row for row in rows(text(CURVES, ascii_only=True)) if "predicted" in row]
    assert [row.split("predicted")[1].split()[0] for row in marked] == ["[-|--]", "[-|]", "[|"]
    offset = rows(text(CURVES, ascii_only=True))[1].index("#")
    assert [row.index("[") - offset for row in marked] == [31, 43, 48]


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0.00"), (1e-9, "0.01"), (0.5, "50.00"), (0.98765, "98.77"), (0.999999, "99.99"), (1, "100.00")],
)
def test_only_all_is_shown_as_all(share: float, shown: str) -> None:
    assert format_share(share) == shown
