"""loadtest/charts/curves.py, rows.py and strips.py: what is drawn, and where."""

import re
from random import Random
from xml.etree import ElementTree

import pytest

from kcast.loadtest.charts import curves, rows, strips
from kcast.loadtest.charts.scales import Linear, percents, shares, whole_numbers
from kcast.loadtest.charts.svg import EXPECTED, Drawing, inset

Element = ElementTree.Element


def parsed(drawing: Drawing) -> Element:
    return ElementTree.fromstring(drawing.__html__())


def of_class(root: Element, name: str) -> list[Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def number(element: Element, name: str) -> float:
    return float(element.get(name, "").removesuffix("%"))


SERIES = [
    curves.Series(0, [curves.MeasuredPoint(x, 1.0) for x in (1, 2, 3)]),
    curves.Series(
        2,
        [
            curves.MeasuredPoint(1, 0.66, 0.6, 0.65, 0.67, 0.62, 0.72, note="66.00 % arrived"),
            curves.MeasuredPoint(3, 0.91, None, None, 0.9, 0.87, 0.93, is_off=True, note="91.00 %"),
        ],
        [curves.TheoryLine([(1, 0.67), (3, 0.9)], "expected")],
    ),
]
AXES = curves.Axes(
    whole_numbers([1, 2, 3]), Linear(0.5, 1, [(0.5, "50 %"), (1, "100 %")]), "across", "up & down"
)


def test_points_ranges_and_lines_of_curves_stand_at_their_places() -> None:
    root = parsed(curves.chart(SERIES, AXES, "label"))
    assert root.get("aria-label") == "label" and root.get("width") == "100%"
    left, *_ = of_class(root, "point")
    assert number(left[0], "x") == pytest.approx(100 * inset(1 / 6), abs=0.01), "1 of 0.5 to 3.5"
    grid = [number(line, "y1") for line in of_class(root, "grid") if line.get("x2") == "100%"]
    bottom, top = max(grid), min(grid)

    def share(y: float) -> float:
        return 0.5 + 0.5 * (bottom - y) / (bottom - top)

    ends = [(number(band, "y"), number(band, "height")) for band in of_class(root, "band")]
    assert [share(y + 1.5) for y, _ in ends] == pytest.approx([0.72, 0.93], abs=0.001)
    assert [share(y + height - 1.5) for y, height in ends] == pytest.approx([0.62, 0.87], abs=0.001)
    assert [share(number(tick, "y1")) for tick in of_class(root, "theory")] == pytest.approx(
        [0.67, 0.9], abs=0.001
    )
    (line,) = of_class(root, "expected")
    assert (share(number(line, "y1")), share(number(line, "y2"))) == pytest.approx((0.67, 0.9), abs=0.001)
    whisker = of_class(root, "whisker")[0]
    assert share(number(whisker, "y2")) == pytest.approx(0.66, abs=0.001), "an interval holds its point"
    assert [share(number(ring, "cy")) for ring in of_class(root, "off")] == pytest.approx([0.91], abs=0.001)
    assert [words.get("text-anchor") for words in of_class(root, "value")] == ["start", "end"], "within"


def test_series_stand_beside_each_other_and_one_alone_at_its_place() -> None:
    moved = re.findall(r"translate\((-?[\d.]+) 0\)", curves.chart(SERIES, AXES, "label").__html__())
    assert [float(one) for one in moved] == [-5, 5]
    assert "translate" not in curves.chart(SERIES[:1], AXES, "label").__html__()


def test_a_picture_says_what_it_shows() -> None:
    root = ElementTree.fromstring(curves.picture(SERIES, AXES, "What & why", "1 < 2", [(EXPECTED, "a<b")]))
    told = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(told) >= {"What & why", "1 < 2", "a<b", "across", "up & down", "100 %", "66.00 % arrived"}


def test_marks_of_rows_stand_where_values_are() -> None:
    marks = [
        *(rows.band(0.2, 0.6), rows.whisker(0.25, 0.5), rows.tick(0.4), rows.dot(0.4, title="tip")),
        *(rows.ring(0.4), rows.bar(0.0, 0.2, "bar q0"), rows.ridge([(0.1, 0.0), (0.3, 1.0)], 44)),
    ]
    root = parsed(rows.chart([rows.ChartRow("name", "40 %", marks)], percents(), "axis", "label"))
    (band,) = of_class(root, "band")
    assert (number(band, "x"), number(band, "width")) == (20, 40)
    whisker = of_class(root, "whisker")[0]
    assert (number(whisker, "x1"), number(whisker, "x2")) == (25, 50)
    assert number(of_class(root, "theory")[0], "x1") == number(of_class(root, "off")[0], "cx") == 40
    assert number(of_class(root, "bar")[0], "width") == 20
    assert of_class(root, "ridge")[0].get("points") == "100,1000 100,1000 300,0 300,1000"
    assert {"name", "40 %", "axis", "tip"} <= {one.text for one in root.iter()}


def test_rows_that_are_not_valid_say_so_and_long_words_have_room() -> None:
    lines = [
        rows.ChartRow("name", "1", [rows.dot(0.5)]),
        rows.ChartRow("other", "2", [rows.dot(0.5)], 1, False),
    ]
    short = parsed(rows.chart(lines, percents(), "axis", "label"))
    assert [len(of_class(short, f"s{style}")) for style in (0, 1)] == [1, 1]
    (invalid,) = of_class(short, "invalid")
    assert "s1" in invalid.get("class", "")
    long = parsed(
        rows.chart([row._replace(label="long-" * 12) for row in lines], percents(), "axis", "label")
    )
    assert number(long, "height") > number(short, "height")
    assert max(len(words.text or "") for words in of_class(long, "label")) < 50


def test_many_specks_are_few_elements() -> None:
    chance = Random(3)
    specks = rows.specks([chance.random() for _ in range(100_000)])
    root = parsed(rows.chart([rows.ChartRow("all", "", [specks])], percents(), "axis", "label"))
    places = [number(speck, "cx") for speck in of_class(root, "speck")]
    assert len(places) == 201 and places == sorted(places)


def test_courses_are_level_in_their_steps_with_gaps_where_nothing_is_known() -> None:
    steps = [(0.0, 1.0, 0.5), (1.0, 2.0, 1.0), (2.0, 3.0, None), (3.0, 4.0, 0.0), (6.0, 8.0, 0.5)]
    down = strips.Strip("down", percents(), 30, [("down", steps[:2])])
    share = strips.Strip("share", shares([0.5]), 80, [("course", steps)], is_valid=False)
    time = Linear(0, 8, [(0, "0"), (8, "8")])
    root = parsed(strips.chart("name", "99 %", [share, down], time, 3, "label"))
    assert [line.get("points") for line in of_class(root, "course")] == [
        *("0,500 125,500 125,0 250,0", "375,1000 500,1000", "750,500 1000,500")
    ]
    assert [area.get("points") for area in of_class(root, "down")] == [
        "0,1000 0,500 125,500 125,0 250,0 250,1000"
    ]
    assert [group.get("class") for group in root.iter("g")] == ["s3 invalid", "s3"]
    assert {"name", "99 %", "share", "down", "8"} <= {words.text for words in root.iter("text")}
