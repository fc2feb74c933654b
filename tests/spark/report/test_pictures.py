"""spark/report/pictures.py: each drawing of the page is a document that stands alone."""

import re
from xml.etree import ElementTree

import pytest

from kcast.spark.findings.findings import Findings
from kcast.spark.report.page import page
from kcast.spark.report.pictures import pictures
from tests.spark.report.test_page import MANY
from tests.support.report_findings import findings, scenarios

SPACE = "{http://www.w3.org/2000/svg}"
FOUND = findings(scenarios("grid"), invalid=[1], simulated=True)


@pytest.mark.parametrize("name", MANY)
def test_any_findings_make_documents(name: str) -> None:
    for picture in pictures(MANY[name]()).values():
        root = ElementTree.fromstring(picture)
        assert root.tag == f"{SPACE}svg" and root.get("width") and root.get("height")


def test_they_load_nothing_and_know_dark() -> None:
    for picture in pictures(FOUND).values():
        assert "prefers-color-scheme:dark" in picture
        assert re.findall(r"(?:href|src|url|@import|<script)[^>]*", picture) == []


def test_each_wide_drawing_of_the_page_is_in_one() -> None:
    found = pictures(FOUND)
    source = page(FOUND)
    wide = re.findall(r'<svg class="wide".*?</svg>', source, re.S)
    assert len(wide) > 10
    for drawing in wide:
        assert sum(drawing in picture for picture in found.values()) == 1
    assert found["over-time"].count('<svg class="panel"') == len(FOUND.table("scenarios"))
    assert not any("narrow" in picture for picture in found.values())


def test_they_have_titles_and_legends() -> None:
    for name, picture in pictures(FOUND).items():
        words = [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SPACE}text")]
        assert words[0] and words[0][0].isupper(), name
    told = pictures(FOUND)["over-time"]
    for entry in ("Over time", "servers down", "not valid"):
        assert f">{entry}</text>" in told


def test_drawings_lie_within_the_document_beside_each_other() -> None:
    for name, picture in pictures(FOUND).items():
        root = ElementTree.fromstring(picture)
        width, height = float(root.get("width", "")), float(root.get("height", ""))
        (body,) = root.findall(f"{SPACE}g")
        boxes = []
        for group in body.findall(f"{SPACE}g"):
            moved = re.fullmatch(r"translate\(([\d.]+),([\d.]+)\)", group.get("transform", ""))
            drawn = group.find(f"{SPACE}svg")
            assert moved and drawn is not None
            x, y = float(moved[1]), float(moved[2])
            boxes.append((x, y, x + float(drawn.get("width", "")), y + float(drawn.get("height", ""))))
        assert all(48 + right <= width + 1 and bottom <= height for _, _, right, bottom in boxes), name
        big = [box for box in boxes if box[2] - box[0] > 50]
        for one in big:
            for other in big:
                assert (
                    one is other
                    or one[2] <= other[0]
                    or other[2] <= one[0]
                    or (one[3] <= other[1] or other[3] <= one[1])
                ), name


def test_without_findings_there_are_none() -> None:
    assert pictures(Findings({})) == {}
