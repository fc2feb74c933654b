"""spark/report/over_time.py and coincidence.py: what arrived over time, and whether outages explain it."""

import re
from random import Random

import pytest

from kcast.spark.findings.findings import Findings
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.coincidence import Coincidence, coincidence
from kcast.spark.report.over_time import DRAWN_MAX, panels, section
from kcast.spark.report.page import page
from kcast.spark.report.time_panels import Slot
from tests.spark.report.test_page import changed, part, says
from tests.support.report_findings import findings, scenarios, sixty

ODD = (0.0, 1.0, 2.0, 3.0, 1.0, 0.0, 2.0, 4.0)


def slots(down: tuple[float, ...], shares: tuple[float, ...], each: int = 4) -> tuple[float, list[Slot]]:
    """Epochs of a second, each of `each` slots."""
    return 1.0, [
        Slot(number / each, (number + 1) / each, 100, shares[number // each], down[number // each], 1.0, 2.0)
        for number in range(len(down) * each)
    ]


def test_epochs_with_more_servers_down_in_which_less_arrives_are_found() -> None:
    told = coincidence([slots(ODD, tuple(1 - down / 10 for down in ODD))])
    assert told is not None
    assert told.correlation == pytest.approx(-1)
    assert told.p_value < 0.01


def test_more_slots_of_the_same_epochs_are_no_more_evidence() -> None:
    shares = (0.9, 0.8, 0.95, 0.7, 0.85, 0.9, 0.8, 0.75)
    assert coincidence([slots(ODD, shares, each=2)]) == coincidence([slots(ODD, shares, each=40)])


def test_courses_that_have_nothing_in_common_are_rarely_taken_for_related() -> None:
    chance, found = Random(3), 0
    for _ in range(100):
        down = tuple(float(chance.randint(0, 4)) for _ in range(12))
        told = coincidence([slots(down, tuple(chance.uniform(0.8, 1) for _ in range(12)), each=5)])
        found += told is not None and told.p_value <= 0.05
    assert found <= 11  # of a binomial distribution with 5 %, 99.5 % are at or below


@pytest.mark.parametrize(
    ("down", "shares"),
    [((0.0, 1.0, 2.0, 1.0), (0.9, 0.8, 0.7, 0.8)), ((3.0,) * 8, ODD), (ODD, (1.0,) * 8), ((), ())],
    ids=["few epochs", "always as many down", "all arrived", "nothing"],
)
def test_where_it_cannot_be_told_nothing_is_computed(
    down: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    assert coincidence([slots(down, shares)]) is None


def test_the_sentence_says_that_they_coincide_only_if_they_do() -> None:
    found = findings(scenarios("grid"))
    assert "Less arrived in epochs with more servers down (rank correlation" in says(page(found), "over-time")
    even = changed(found, "over_time", lambda row: row | {"servers_down": 3.0})
    assert "too few, or too equal, to say" in says(page(even), "over-time")
    chance = Random(1)
    apart = changed(found, "over_time", lambda row: row | {"share": chance.uniform(0.9, 1)})
    assert "does not show (rank correlation" in says(page(apart), "over-time")
    none = changed(found, "over_time", lambda row: row | {"servers_down": 0.0})
    assert "No server was down." in says(page(none), "over-time")


def test_the_sentence_names_where_least_arrived() -> None:
    found = findings(scenarios("k-prime"))

    def dip(row: dict[str, object]) -> dict[str, object]:
        is_it = row["cell"] == 1 and row["from_s"] == found.table("over_time")[30]["from_s"]
        return row | {"share": 0.25 if is_it else 0.9, "servers_down": 1.0 if is_it else 0.0}

    told = says(page(changed(found, "over_time", dip)), "over-time")
    name = found.table("scenarios")[1]["scenario"]
    assert re.search(rf"Least arrived in {name} from [\d.]+ to [\d.]+ s: 25.00 %, while 1 server was", told)


def test_what_is_not_valid_is_drawn_broken_and_not_judged() -> None:
    found = findings(scenarios("k-prime"), invalid=range(4))
    told = says(page(found), "over-time")
    assert told.startswith("What arrived cannot be trusted in any of the 4 scenarios")
    made = panels(found, NamedCells.of(found))
    assert not any(one.is_valid or one.is_latency_valid for one in made)
    drawn = part(page(found), "over-time")
    # Delivery and latency; how many servers were down is known all the same.
    assert drawn.count(' invalid"><polyline') == 8 and drawn.count('"><polygon class="down"') >= 1


def test_twelve_scenarios_are_open_and_the_others_folded() -> None:
    drawn = part(page(findings(sixty())), "over-time")
    first, _, rest = drawn.partition("<details>")
    assert first.count('<svg class="panel"') == DRAWN_MAX
    assert rest.partition("</details>")[0].count('<svg class="panel"') == len(sixty()) - DRAWN_MAX


def test_slots_without_a_value_leave_a_gap() -> None:
    found = findings(scenarios("k-prime"))
    cells = NamedCells.of(found)
    whole = section(found, cells)
    gaps = changed(found, "over_time", lambda row: row | ({"p99_ms": None} if 3 < row["from_s"] < 5 else {}))
    broken = section(gaps, cells)
    assert whole is not None and broken is not None
    assert str(broken.html()).count("course tail") == str(whole.html()).count("course tail") + 4


def test_without_the_table_there_is_no_part() -> None:
    found = findings(scenarios("k-prime"))
    rest = {name: rows for name, rows in found.tables.items() if name != "over_time"}
    assert section(Findings(found.about, (), rest), NamedCells.of(found)) is None


def test_the_measure_is_the_mean_over_scenarios() -> None:
    falls = slots(ODD, tuple(1 - down / 10 for down in ODD))
    rises = slots(ODD, tuple(0.5 + down / 10 for down in ODD))
    told = coincidence([falls, rises])
    assert isinstance(told, Coincidence) and told.correlation == pytest.approx(0)
