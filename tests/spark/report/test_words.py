"""spark/report/words.py, .scales, .svg, .rows and .curves: figures in words, and places on axes."""

import re
from collections.abc import Callable
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

import pytest

from kcast.spark.report import curves, rows, scales, svg, words
from kcast.spark.report.scales import Linear, Log, Nines, decades, from_zero, percents, shares, whole_numbers

# Words.


@pytest.mark.parametrize(
    ("share", "told"),
    [
        *((0.0, "0 %"), (1.0, "100 %"), (0.5, "50.00 %"), (0.99774, "99.77 %"), (0.8622, "86.22 %")),
        *((0.99993, "99.993 %"), (0.999995, "99.9995 %"), (0.00012, "0.01 %"), (0.00002, "0.002 %")),
        *((1 - 1e-9, "> 99.99999 %"), (1e-9, "< 0.00001 %"), (0.99999999999, "> 99.99999 %")),
        (None, "–"),
    ],
)
def test_percent(share: float | None, told: str) -> None:
    assert words.percent(share).replace("\N{NO-BREAK SPACE}", " ") == told


def test_percent_never_says_all_or_nothing_of_what_is_less_or_more() -> None:
    chance = Random(5)
    for _ in range(2000):
        tiny = 10 ** chance.uniform(-15, -0.31)
        assert words.percent(1 - tiny) != words.percent(1.0), tiny
        assert words.percent(tiny) != words.percent(0.0), tiny


@pytest.mark.parametrize(
    ("form", "value", "told"),
    [
        (words.number, 0.0, "0"),
        (words.number, 1234567.0, "1,234,567"),
        (words.number, 2.5, "2.5"),
        (words.number, 0.012345, "0.0123"),
        (words.number, 33333.4, "33,333"),
        (words.number, float("inf"), "∞"),
        (words.times, 62.0, "62×"),
        (words.milliseconds, 2.19, "2.19 ms"),
        (words.milliseconds, 3.0, "3.00 ms"),
        (words.milliseconds, 131.0, "131 ms"),
        (words.milliseconds, 1200.0, "1.20 s"),
        (words.milliseconds, 0.085, "85.0 µs"),
        (words.milliseconds, 0.0, "0 ms"),
        (words.brief_milliseconds, 10.0, "10 ms"),
        (words.seconds, 0.35, "0.35 s"),
        (words.seconds, 735.0, "12 min 15 s"),
        (words.seconds, 120.0, "2 min"),
        (words.probability, 0.42, "0.42"),
        (words.probability, 1e-9, "< 0.001"),
        (words.signed, -1.234, "−1.23"),
        (words.signed, 0.5, "+0.50"),
        (words.brief_percent, 0.025, "2.5 %"),
    ],
)
def test_figures(form: Callable[[float], str], value: float, told: str) -> None:
    assert form(value).replace("\N{NO-BREAK SPACE}", " ") == told


def test_lists_and_spans() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(list("abcdef")) == "a, b, c and 3 more"
    assert words.span([3, 1, 2], str) == "from 1 to 3"
    assert words.span([2, 2], str) == "2"
    assert words.count(1, "cell") == "1\N{NO-BREAK SPACE}cell"
    assert words.count(1200, "cell") == "1,200\N{NO-BREAK SPACE}cells"


# Scales.


def test_nines_are_equally_far_apart_and_one_is_beyond_a_gap() -> None:
    scale = shares([0.9, 0.99999, 1.0])
    assert isinstance(scale, Nines)
    steps = [after - before for before, after in pairwise([scale.at(1 - 10.0**-n) for n in range(1, 6)])]
    assert steps == pytest.approx([steps[0]] * 4)
    assert scale.at(1.0) == 1.0
    assert scale.at(1 - 1e-15) == Nines.END, "what is nearer than any value seen is in the gap"


def test_shares_that_are_far_from_one_are_even() -> None:
    assert isinstance(shares([0.3, 0.9]), Linear)
    assert isinstance(shares([0.3, 1.0]), Linear)
    assert isinstance(shares([]), Linear)


def test_shares_reach_as_far_as_trials_can_tell() -> None:
    scale = shares([0.9, 0.999, 1 - 1e-11], trials=1000)
    assert isinstance(scale, Nines)
    assert scale.nearest < 1 - 1e-5


def test_every_scale_keeps_order_and_has_its_values_within() -> None:
    chance = Random(11)
    for _ in range(300):
        values = sorted(1 - 10 ** chance.uniform(-7, 0) for _ in range(chance.randrange(1, 9)))
        others = sorted(10 ** chance.uniform(-3, 5) for _ in range(chance.randrange(1, 9)))
        whole = sorted({round(10 ** chance.uniform(0, 4)) for _ in range(chance.randrange(1, 9))})
        for scale, own in (
            (shares(values), values),
            (from_zero(others), others),
            (decades(others, str), others),
            (whole_numbers(whole), [float(one) for one in whole]),
        ):
            places = [scale.at(value) for value in own]
            assert places == sorted(places), (scale, own)
            assert all(0 <= place <= 1 for place in places)
            assert len(set(places)) == len(set(own)) or isinstance(scale, Nines)
            assert scale.ticks, (scale, own)
            marks = [scale.at(value) for value, _ in scale.ticks]
            assert marks == sorted(marks)
            assert len(marks) <= 20


def test_scales_are_marked_at_round_numbers() -> None:
    assert [label for _, label in from_zero([7.8]).ticks] == ["0", "2", "4", "6", "8"]
    assert [label for _, label in percents().ticks][::5] == ["0 %", "100 %"]
    log = decades([1.4, 220.0], words.number)
    assert isinstance(log, Log)
    assert [label for _, label in log.ticks] == ["2", "5", "10", "20", "50", "100", "200"]
    assert [label for _, label in whole_numbers([1, 2, 3, 5, 8]).ticks] == ["1", "2", "3", "5", "8"]
    assert [label for _, label in shares([0.86, 0.999]).ticks][-1] == "100 %"


# Drawings.


def parsed(drawings: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(f"<all>{drawings}</all>"))


@pytest.mark.parametrize("shape", range(svg.SHAPES + 1))
def test_marks_are_around_their_place(shape: int) -> None:
    drawing = svg.Drawing(svg.WIDE, 100, "x")
    drawing.dot(50, 40, shape, "dot", size=5)
    (path,) = parsed(str(drawing))[0]
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
        drawn.add(str(drawing))
    assert len(drawn) == svg.SHAPES


def test_words_in_drawings_are_escaped() -> None:
    drawing = svg.Drawing(svg.NARROW, 10, 'a<b & "c"')
    drawing.write(0, 0, "<&>")
    drawing.line(0, 0, 1, 1, "grid", "a < b")
    (root,) = parsed(str(drawing))
    assert root.get("aria-label") == 'a<b & "c"'
    assert [element.text for element in root.iter("text")] == ["<&>"]
    assert [element.text for element in root.iter("title")] == ["a < b"]


def test_rows_put_marks_where_values_are() -> None:
    row = rows.Row(
        "name",
        [
            rows.Band(0.2, 0.6),
            rows.Whisker(0.25, 0.5),
            rows.Tick(0.4),
            rows.Dot(0.4),
            rows.Bar(0.0, 0.2, "f0"),
        ],
        "40 %",
    )
    for root in parsed(rows.chart([row], percents(), "axis", "label")):
        grid = [float(line.get("x1", "")) for line in root.iter("line") if line.get("class") == "grid"]
        left, right = grid[0], grid[-1]

        def x(share: float, left: float = left, right: float = right) -> float:
            return left + share * (right - left)

        (band,) = (one for one in root.iter("rect") if one.get("class") == "band")
        assert float(band.get("x", "")) == pytest.approx(x(0.2) - 1, abs=0.1)
        assert float(band.get("width", "")) == pytest.approx(x(0.6) - x(0.2) + 2, abs=0.1)
        (tick,) = (one for one in root.iter("line") if one.get("class") == "theory")
        assert float(tick.get("x1", "")) == pytest.approx(x(0.4), abs=0.1)
        whisker = next(one for one in root.iter("line") if one.get("class") == "whisker")
        assert float(whisker.get("x1", "")) == pytest.approx(x(0.25), abs=0.1)
        assert float(whisker.get("x2", "")) == pytest.approx(x(0.5), abs=0.1)
        assert {"name", "40 %"} <= {one.text for one in root.iter("text")}


def test_many_specks_are_one_path_of_bounded_length() -> None:
    chance = Random(3)
    specks = rows.Specks([chance.random() for _ in range(100_000)])
    drawings = rows.chart([rows.Row("all", [specks])], percents(), "axis", "label")
    assert len(drawings) < 40_000
    for root in parsed(drawings):
        (path,) = (one for one in root.iter("path") if one.get("class") == "specks")
        steps = [int(one) for one in re.findall(r"m(\d+) 0", path.get("d", ""))]
        assert all(step > 0 for step in steps)
        assert sum(steps) < float(root.get("width", ""))


def test_long_names_stand_above_their_marks() -> None:
    short = rows.chart([rows.Row("short", [rows.Dot(0.5)])], percents(), "axis", "label")
    long = rows.chart([rows.Row("long-" * 12, [rows.Dot(0.5)])], percents(), "axis", "label")
    heights = [[float(root.get("height", "")) for root in parsed(drawn)] for drawn in (short, long)]
    assert heights[1][0] > heights[0][0]
    assert heights[1][1] == heights[0][1], "as they do on phones anyway"


def test_curves_that_meet_are_moved_apart() -> None:
    def one(style: int) -> curves.Series:
        return curves.Series(style, [curves.Point(1, 0.5), curves.Point(2, 0.8)])

    axes = curves.Axes(whole_numbers([1, 2]), percents(), "x", "y")
    for root in parsed(curves.chart([one(1), one(1)], axes, "label")):
        marks = [path.get("d", "") for path in root.iter("path")]
        assert len(marks) == len(set(marks)) == 4
    alone, _ = parsed(curves.chart([one(1)], axes, "label"))
    assert len(list(alone.iter("path"))) == 2


def test_an_interval_always_holds_its_point() -> None:
    axes = curves.Axes(whole_numbers([1]), scales.shares([0.9, 0.9999]), "x", "y")
    point = curves.Point(1, 1.0, 0.99, 0.9999)
    for root in parsed(curves.chart([curves.Series(0, [point])], axes, "label")):
        whisker = next(one for one in root.iter("line") if one.get("class") == "whisker")
        top = min(float(one.get("y1", "")) for one in root.iter("line") if one.get("class") == "grid")
        assert min(float(whisker.get("y1", "")), float(whisker.get("y2", ""))) == top
