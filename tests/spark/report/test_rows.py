"""spark/report/rows.py: marks in rows."""

import re
from random import Random
from xml.etree import ElementTree

import pytest

from kcast.loadtest.charts.scales import percents
from kcast.spark.report import rows


def parsed(drawings: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(f"<all>{drawings}</all>"))


def test_rows_put_marks_where_values_are() -> None:
    row = rows.ChartRow(
        "name",
        [
            rows.Band(0.2, 0.6),
            rows.Whisker(0.25, 0.5),
            rows.Tick(0.4),
            rows.Dot(0.4),
            rows.Bar(0.0, 0.2, "q0"),
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
    drawings = rows.chart([rows.ChartRow("all", [specks])], percents(), "axis", "label")
    assert len(drawings) < 40_000
    for root in parsed(drawings):
        (path,) = (one for one in root.iter("path") if one.get("class") == "specks")
        steps = [int(one) for one in re.findall(r"m(\d+) 0", path.get("d", ""))]
        assert all(step > 0 for step in steps)
        assert sum(steps) < float(root.get("width", ""))


def test_long_names_stand_above_their_marks() -> None:
    short = rows.chart([rows.ChartRow("short", [rows.Dot(0.5)])], percents(), "axis", "label")
    long = rows.chart([rows.ChartRow("long-" * 12, [rows.Dot(0.5)])], percents(), "axis", "label")
    heights = [[float(root.get("height", "")) for root in parsed(drawn)] for drawn in (short, long)]
    assert heights[1][0] > heights[0][0]
    assert heights[1][1] == heights[0][1], "as they do on phones anyway"
