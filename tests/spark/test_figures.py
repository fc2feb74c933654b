"""spark/figures.py: the findings as figures of matplotlib."""

import subprocess
import sys

import numpy as np
import pytest

from kcast.spark.figures import FIGURES, SCENARIOS_MAX, figure, png
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES
from kcast.spark.report import write as writing
from kcast.spark.report.pictures import pictures
from tests.spark.report.test_page import MANY
from tests.support.report_findings import findings, scenarios, sixty

FOUND = findings(scenarios("k-prime"), invalid=[1], latency_invalid=[2])


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_drawn_alike_each_time(name: str) -> None:
    first, second = (png(figure(FOUND, name)) for _ in range(2))
    assert first[:8] == b"\x89PNG\r\n\x1a\n" and first == second


def test_each_picture_has_a_name_that_a_later_report_removes() -> None:
    store = findings(scenarios("grid"), simulated=True)
    for name in (*(f"{name}.svg" for name in pictures(store)), *(f"{name}.png" for name in FIGURES)):
        assert writing._PICTURE.fullmatch(name), name


@pytest.mark.parametrize("sample", ["grid", "kills and stalls", "all invalid", "S and R"])
@pytest.mark.parametrize("name", FIGURES)
def test_any_findings_with_captures_can_be_drawn(sample: str, name: str) -> None:
    assert figure(MANY[sample](), name).get_axes()


def test_delivery_stands_at_its_share_and_what_is_not_valid_is_hollow() -> None:
    (axes,) = figure(FOUND, "delivery").get_axes()
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    shares = [row["share"] for row in FOUND.table("reliability")]
    places = [float(np.asarray(dot.get_xdata())[0]) for dot in dots]
    assert places == sorted(places) and (places[-1] == 1) == (shares[-1] == 1)
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True, False, False]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [row["scenario"] for row in FOUND.table("scenarios")]
    assert "99 %" in [label.get_text() for label in axes.get_xticklabels()]


def test_bars_of_causes_are_as_long_as_the_misses() -> None:
    (axes,) = figure(FOUND, "causes").get_axes()
    drawn = sum(patch.get_width() for bars in axes.containers for patch in bars)
    assert drawn == sum(row["misses"] for row in FOUND.table("attribution"))


def test_at_most_a_dozen_scenarios_are_drawn_over_time() -> None:
    assert len(figure(findings(sixty()), "over_time").get_axes()) == 3 * SCENARIOS_MAX


def test_times_in_which_nothing_was_due_leave_a_gap() -> None:
    rows = [row for row in FOUND.table("over_time") if not 2 < row["from_s"] < 4]
    gaps = Findings(FOUND.about, (), {**FOUND.tables, "over_time": rows})
    axes = figure(gaps, "over_time").get_axes()[0]
    (steps,) = axes.patches
    values = steps.get_data().values  # type: ignore[attr-defined]
    assert (values != values).sum() == 1


@pytest.mark.parametrize("name", FIGURES)
def test_where_there_is_nothing_to_draw_it_is_said(name: str) -> None:
    for nothing in (Findings({}), Findings({}, (), {table: [] for table in TABLES})):
        with pytest.raises(ValueError, match=f"the table {FIGURES[name][0]} has no rows"):
            figure(nothing, name)


def test_without_matplotlib_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "from kcast.spark.figures import figure\n"
        "from tests.spark.test_figures import FOUND\n"
        "figure(FOUND, 'delivery')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: matplotlib is missing: ")
    assert "kcast[notebook]" in last
