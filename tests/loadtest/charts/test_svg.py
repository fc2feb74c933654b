"""loadtest/charts/svg.py: text is escaped, nothing else makes markup, and documents stand alone."""

import ast
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from kcast.loadtest.charts import svg
from kcast.loadtest.charts.scales import Linear
from tests.support.checkout import ROOT

FIGURE = svg.Figure(
    [svg.Drawing(f"drawing {number}", 100.0 + number, [svg.mark(0, 5, 5, "dot")]) for number in range(3)],
    [(svg.EXPECTED, "a<b"), (svg.square("q1"), "others"), (svg.INVALID, "not valid")],
)


def test_text_is_escaped_once_and_markup_is_not() -> None:
    drawn = svg.group(svg.write('<b> & "c"', 1, 2, "x"), name='"><script>')
    assert drawn.count("&lt;b&gt; &amp; &quot;c&quot;") == 1 and "<script>" not in drawn
    root = ElementTree.fromstring(svg.joined([drawn]))
    assert root.get("class") == '"><script>'
    assert [element.text for element in root] == ['<b> & "c"']
    assert svg.joined(["<", drawn]) == f"&lt;{drawn}", "what is not markup is text"
    assert svg.element("text", f"{svg.element('b')}").startswith("<text>&lt;b"), "made into a string: text"
    for hostile in ("\x1b[2J", "\r", "\x7f", "\x9b31m", "\u202e"):  # for terminals, and backwards
        assert hostile not in svg.write(f"a{hostile}b", 0, 0)
    assert "a\nb" in svg.write("a\nb", 0, 0)


def test_only_one_module_makes_markup_of_a_string() -> None:
    for folder in ("loadtest", "spark"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            made = [call.func.id for call in calls if isinstance(call.func, ast.Name)].count("Svg")
            assert made == 0 or path.name == "svg.py", path
    templates = "".join(path.read_text() for path in (ROOT / "spark/report").glob("*.j2"))
    assert not re.search(r"\|\s*safe|autoescape|Markup", templates)


def test_marks_differ_and_are_around_their_place() -> None:
    drawn = [svg.mark(shape, 50, 40, "dot") for shape in range(svg.SHAPES)]
    assert len(set(drawn)) == svg.SHAPES
    for mark in drawn[1:]:
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", mark)]
        assert (min(numbers[::2]) + max(numbers[::2])) / 2 == pytest.approx(50, abs=0.2)
        assert all(abs(y - 40) < 7 for y in numbers[1::2])
    assert 'd="M45 40a5' in drawn[0]


def test_the_words_of_marks_have_room_and_the_ends_come_first() -> None:
    scale = Linear(0, 1, [(value / 100, f"{value} %") for value in range(101)])
    along = svg.axis_along(scale, lambda fraction: fraction, 0, 10, "title")
    words = re.findall(r'x="([\d.]+)%" y="30"[^>]*>(\d+) %<', svg.joined(along))
    places = [float(x) * svg.NARROWEST_PX / 100 for x, _ in words]
    assert words[0][1] == "100" and 3 < len(words) < 12
    assert all(one - other > 30 for one, other in pairwise(places))
    up = svg.joined(svg.axis_up(scale, lambda value: 100 - 100 * value))
    heights = [float(y) for y in re.findall(r'<text class="tick" x="0" y="([-\d.]+)"', up)]
    assert heights[0] == -4 and all(after - before >= 15 for before, after in pairwise(heights))


def test_a_document_stands_alone_knows_dark_and_has_its_drawings_beside_each_other() -> None:
    drawn = svg.document("What & why", "1 < 2", FIGURE)
    assert drawn._repr_svg_() == drawn == drawn.__html__()
    assert "prefers-color-scheme:dark" in drawn
    assert re.findall(r"(?:href|src|url|@import|<script)[^>]*", drawn) == []
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    told = [element.text for element in root.iter(f"{space}text")]
    assert told == ["What & why", "1 < 2", "a<b", "others", "not valid"]
    places = [
        (float(one.get("x", "")), float(one.get("y", "")), float(one.get("width", "")))
        for one in root.iter(f"{space}svg")
        if one.get("x")
    ]
    (x, y, width), beside, below = places
    assert beside[:2] == (x + width + 24, y) and below[:2] == (x, y + 101 + 24)
    assert float(root.get("width", "")) == 868 and float(root.get("height", "")) == below[1] + 102 + 24
