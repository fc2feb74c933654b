"""spark/report/figures.py: the page's drawings as SVG, for notebooks."""

from xml.etree import ElementTree

import pytest

from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES
from kcast.spark.report.figures import FIGURES, figure
from kcast.spark.report.page import page
from tests.support.report_findings import findings, scenarios

FOUND = findings(scenarios("k-prime"), invalid=[1], latency_invalid=[2])


def test_each_figure_is_what_the_page_shows_and_says_so() -> None:
    source = page(FOUND)
    for name, (title, _) in FIGURES.items():
        drawn = figure(FOUND, name)
        assert drawn._repr_svg_() == drawn
        root = ElementTree.fromstring(drawn)
        words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert words[0] == title and "5-5-5" in " ".join(map(str, words))
        marks = [element for element in root.iter() if element.get("class") in ("dot", "bar q0", "course")]
        assert marks, name
    assert source.count('class="ridge"') == figure(FOUND, "latency").count('class="ridge"') == 2


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(KeyError, match="there is no figure pie, only delivery, latency, causes, over_time"):
        figure(FOUND, "pie")
    for nothing in (Findings({}), Findings({}, (), {table: [] for table in TABLES})):
        for name in FIGURES:
            with pytest.raises(ValueError, match=f"nothing to draw: no scenario has what {name} shows"):
                figure(nothing, name)
    with pytest.raises(ValueError, match="nothing to draw"):
        figure(findings(scenarios("k-prime"), latency_invalid=range(4)), "latency")
