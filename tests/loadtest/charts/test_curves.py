"""loadtest/charts/svg.py and curves.py: what is drawn, and where."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from kcast.loadtest.charts import curves, svg
from kcast.loadtest.charts.scales import Linear, percents, shares, whole_numbers


def parsed(drawings: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(f"<all>{drawings}</all>"))


@pytest.mark.parametrize("shape", range(svg.SHAPES + 1))
def test_marks_are_around_their_place(shape: int) -> None:
    drawing = svg.Drawing(svg.WIDE, 100, "x")
    drawing.dot(50, 40, shape, "dot", size=5)
    (path,) = parsed(drawing.html())[0]
    numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.get("d", ""))]
    if shape % svg.SHAPES:
        xs, ys = numbers[::2], numbers[1::2]
        assert (min(xs) + max(xs)) / 2 == pytest.approx(50, abs=0.2)
        assert all(abs(y - 40) < 7 for y in ys)
    else:
        assert numbers[:2] == [45, 40]


def test_shapes_differ() -> None:
    drawn = set()
    for shape in range(svg.SHAPES):
        drawing = svg.Drawing(svg.WIDE, 100, "x")
        drawing.dot(50, 40, shape, "dot")
        drawn.add(drawing.html())
    assert len(drawn) == svg.SHAPES


def test_words_in_drawings_are_escaped() -> None:
    drawing = svg.Drawing(svg.NARROW, 10, 'a<b & "c"')
    drawing.write(0, 0, "<&>")
    drawing.line(0, 0, 1, 1, "grid", "a < b")
    (root,) = parsed(drawing.html())
    assert root.get("aria-label") == 'a<b & "c"'
    assert [element.text for element in root.iter("text")] == ["<&>"]
    assert [element.text for element in root.iter("title")] == ["a < b"]


def test_curves_that_meet_are_moved_apart() -> None:
    def one(style: int) -> curves.Series:
        return curves.Series(style, [curves.MeasuredPoint(1, 0.5), curves.MeasuredPoint(2, 0.8)])

    axes = curves.Axes(whole_numbers([1, 2]), percents(), "x", "y")
    for root in parsed(curves.chart([one(1), one(1)], axes, "label")):
        marks = [path.get("d", "") for path in root.iter("path")]
        assert len(marks) == len(set(marks)) == 4
    alone, _ = parsed(curves.chart([one(1)], axes, "label"))
    assert len(list(alone.iter("path"))) == 2


def test_an_interval_always_holds_its_point() -> None:
    axes = curves.Axes(whole_numbers([1]), shares([0.9, 0.9999]), "x", "y")
    point = curves.MeasuredPoint(1, 1.0, 0.99, 0.9999)
    for root in parsed(curves.chart([curves.Series(0, [point])], axes, "label")):
        whisker = next(one for one in root.iter("line") if one.get("class") == "whisker")
        top = min(float(one.get("y1", "")) for one in root.iter("line") if one.get("class") == "grid")
        assert min(float(whisker.get("y1", "")), float(whisker.get("y2", ""))) == top


# Pictures that stand alone.

SERIES = [
    curves.Series(0, [curves.MeasuredPoint(x, 1.0) for x in (1, 2, 3)]),
    curves.Series(
        2,
        [
            curves.MeasuredPoint(1, 0.66, None, None, 0.67, 0.62, 0.72, note="66.00 % arrived"),
            curves.MeasuredPoint(2, 0.91, None, None, 0.9, 0.87, 0.93),
        ],
        [curves.TheoryLine([(1, 0.67), (2, 0.9)], "for_servers")],
    ),
]
AXES = curves.Axes(
    whole_numbers([1, 2, 3]), Linear(0.5, 1, [(0.5, "50 %"), (1, "100 %")]), "across", "up & down"
)


def picture() -> str:
    legend = [(svg.swatch(0, "dot s0"), "all up"), (svg.EXPECTED, "a<b")]
    return curves.picture(SERIES, AXES, "What & why", "1 < 2", legend)


def test_a_picture_says_what_it_shows() -> None:
    told = [
        element.text for element in ElementTree.fromstring(picture()).iter("{http://www.w3.org/2000/svg}text")
    ]
    for words in ("What & why", "1 < 2", "all up", "a<b", "across", "up & down", "100 %", "66.00 % arrived"):
        assert words in told


def boxes(element: ElementTree.Element, x: float = 0, y: float = 0) -> Iterator[tuple[float, ...]]:
    """Left, top, right and bottom of whatever is drawn in an element that lies at x and y."""

    def number(name: str, otherwise: float = 0.0) -> float:
        told = element.get(name, "")
        return float(told) if re.fullmatch(r"-?[\d.]+", told) else otherwise

    moved = re.fullmatch(r"translate\((-?[\d.]+),(-?[\d.]+)\)", element.get("transform", ""))
    if moved:
        x, y = x + float(moved[1]), y + float(moved[2])
    match element.tag.rpartition("}")[2]:
        case "line":
            xs, ys = (number("x1"), number("x2")), (number("y1"), number("y2"))
            yield x + min(xs), y + min(ys), x + max(xs), y + max(ys)
        case "rect" if element.get("class") != "back":
            left, top = x + number("x"), y + number("y")
            yield left, top, left + number("width"), top + number("height")
        case "circle":
            yield x + number("cx"), y + number("cy"), x + number("cx"), y + number("cy")
        case "text" if not element.get("transform"):
            yield x + number("x"), y + number("y"), x + number("x"), y + number("y")
        case "path":
            places = [float(one) for one in re.findall(r"-?[\d.]+", element.get("d", ""))[:2]]
            yield x + places[0], y + places[1], x + places[0], y + places[1]
    for child in element:
        yield from boxes(child, x, y)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.66, 0.9, 0.999, 1.0])
def test_everything_lies_within_the_picture(share: float) -> None:
    point = curves.MeasuredPoint(1, share, max(0, share - 0.03), share, share, share, min(1, share + 0.03))
    for scale in (Linear(0, 1, [(0, "0 %"), (1, "100 %")]), shares([share, 0.9])):
        series = [curves.Series(0, [point], [curves.TheoryLine([(1, share), (3, 1.0)], "for_servers")])]
        axes = curves.Axes(whole_numbers([1, 2, 3]), scale, "across", "up")
        root = ElementTree.fromstring(curves.picture(series, axes, "What", "why", [(svg.EXPECTED, "a")] * 3))
        drawn = list(boxes(root))
        assert len(drawn) > 20
        for left, top, right, bottom in drawn:
            assert 0 <= left <= right <= float(root.get("width", "")), (left, right)
            assert 0 <= top <= bottom <= float(root.get("height", "")), (top, bottom)


def test_a_picture_stands_alone_and_knows_dark() -> None:
    assert "prefers-color-scheme:dark" in picture()
    assert re.findall(r"(?:href|src|url|@import|<script)[^>]*", picture()) == []
    assert re.findall(r"https?://[^\"]+", picture()) == ["http://www.w3.org/2000/svg"]


def test_points_and_ranges_stand_at_their_height() -> None:
    root = ElementTree.fromstring(picture())

    def of_class(name: str) -> list[ElementTree.Element]:
        return [element for element in root.iter() if element.get("class") == name]

    bottom, top = (float(line.get("y1", "")) for line in of_class("grid"))
    bands = [band for band in of_class("band") if band.get("rx") == "3"][1:]  # the first is the legend's
    ends = [(float(band.get("y", "")), float(band.get("height", ""))) for band in bands]
    highs = [0.5 + 0.5 * (bottom - y - 1.5) / (bottom - top) for y, _ in ends]
    lows = [0.5 + 0.5 * (bottom - y - height + 1.5) / (bottom - top) for y, height in ends]
    assert highs == pytest.approx([0.72, 0.93], abs=0.001)
    assert lows == pytest.approx([0.62, 0.87], abs=0.001)
