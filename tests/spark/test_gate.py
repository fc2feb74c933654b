"""spark/gate.py: conditions of --fail-if, which fail only what is certain."""

from dataclasses import replace
from math import inf

import pytest

from kcast.spark import gate
from kcast.spark.findings.findings import Findings
from kcast.spark.gate import FULFILLED, NO_SCENARIO, NOT_CERTAIN, NOT_FULFILLED, Estimate
from kcast.spark.report.page import page
from tests.support.report_findings import findings, scenarios, with_losses

GRID = scenarios("k-prime")


@pytest.mark.parametrize(
    ("text", "scenario", "figure", "is_upper", "bound"),
    [
        ("delivered < 99.9 %", "*", "delivered", False, 0.999),
        ("  delivered<99.9%  ", "*", "delivered", False, 0.999),
        ("p99 > 50 ms", "*", "p99", True, 50),
        ("p99.9 > 1.5 s", "*", "p99.9", True, 1500),
        ("P50>800us", "*", "p50", True, 0.8),
        ("5-3-*: copies > 3.2", "5-3-*", "copies", True, 3.2),
        ("run:1/x: lines > 7", "run:1/x", "lines", True, 7),
        ("loss.in > 0.5 %", "*", "loss.in", True, 0.005),
    ],
)
def test_conditions_are_read(text: str, scenario: str, figure: str, is_upper: bool, bound: float) -> None:
    found = gate.parse(text)
    assert (found.scenario, found.figure, found.is_upper) == (scenario, figure, is_upper)
    assert found.bound == pytest.approx(bound)
    assert found.text == text.strip()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write one such as 'delivered < 99.9 %'"),
        ("delivered", "write one such as"),
        ("delivered <= 99 %", "write one such as"),
        ("delivered < -1 %", "write one such as"),
        ("deliverd < 99 %", "there is no figure deliverd: use one of delivered, audience, p50"),
        (
            "delivered < 0.99",
            "the bound has no unit, and delivered means pairs delivered in time: give",
        ),
        ("delivered < 101 %", "delivered is a share: give 0 to 100 %"),
        ("p99 > 5 min", "the bound is in min"),
        (
            "copies > 3 %",
            "the bound is in %, and copies means copies that come for a pair: give a num",
        ),
    ],
)
def test_what_is_no_condition_is_told_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(gate.ConditionError) as error:
        gate.parse(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("estimate", "below", "above"),
    [
        (Estimate(0.8, 0.7, 0.85), FULFILLED, NOT_FULFILLED),
        (Estimate(0.8, 0.7, 0.9), NOT_CERTAIN, NOT_FULFILLED),
        (Estimate(0.9, 0.85, 0.95), NOT_CERTAIN, NOT_CERTAIN),
        (Estimate(0.95, 0.9, 0.97), NOT_FULFILLED, NOT_CERTAIN),
        (Estimate(0.95, 0.92, 0.97), NOT_FULFILLED, FULFILLED),
        (Estimate(0.9, 0.9, 0.9), NOT_FULFILLED, NOT_FULFILLED),
        (Estimate(0.8, 0.7, 0.85, "it is not valid"), NOT_CERTAIN, NOT_CERTAIN),
    ],
)
def test_only_a_whole_interval_beyond_the_bound_fulfils(estimate: Estimate, below: str, above: str) -> None:
    assert gate.parse("delivered < 90 %").answer(estimate) == below
    assert gate.parse("delivered > 90 %").answer(estimate) == above


def test_each_scenario_that_is_meant_is_judged() -> None:
    two = {"a": {"copies": Estimate(2, 2, 2)}, "b": {"copies": Estimate(4, 4, 4)}, "c": {}}
    conditions = [gate.parse("copies > 3"), gate.parse("a: copies > 3"), gate.parse("z*: copies > 3")]
    found = gate.judge(conditions, two)
    assert [(one.scenario, one.answer, one.fails) for one in found] == [
        *(("a", NOT_FULFILLED, False), ("b", FULFILLED, True), ("c", NOT_CERTAIN, False)),
        *(("a", NOT_FULFILLED, False), ("z*", NO_SCENARIO, True)),
    ]
    assert "there are a, b, c" in found[-1].words


def test_estimates_are_those_of_the_tables() -> None:
    found = findings(GRID, invalid=[1], latency_invalid=[2])
    names = {number: scenario.name for number, scenario in enumerate(GRID)}
    made = gate.estimates(found, names)
    assert list(made) == [scenario.name for scenario in GRID]
    for row in found.table("reliability"):
        estimate = made[names[row["cell"]]]["delivered"]
        assert estimate[:3] == (row["share"], row["low"], row["high"])
        assert bool(estimate.doubt) == (row["cell"] == 1)
    for row in found.table("latency"):
        if row["since"] == "intended":
            own = made[names[row["cell"]]]
            for figure, column in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms")):
                value, low, high, doubt = own[figure]
                assert value == row[column] and low <= value <= high
                assert bool(doubt) == (row["cell"] in (1, 2))
    for row in found.table("cost"):
        assert made[names[row["cell"]]]["copies"].value == row["copies_per_pair"]


def test_loss_of_the_network_is_a_figure_where_it_is_known() -> None:
    legs = {"in": (0.01, 0.005, 0.02), "out": None, "both": (0.03, 0.02, 0.05)}
    found = with_losses(findings(GRID), 1, legs)
    _, outcomes = gate.judged(found, ["loss > 1 %", "loss.in > 1 %", "loss.out > 1 %"])
    own = [outcome for outcome in outcomes if outcome.scenario == GRID[1].name]
    assert [outcome.answer for outcome in own] == [FULFILLED, NOT_CERTAIN, NOT_CERTAIN]
    assert [outcome.words.replace("\N{NO-BREAK SPACE}", " ") for outcome in own] == [
        "loss is 3.00 %, 95 % interval 2.00 % to 5.00 %",
        "loss.in is 1.00 %, 95 % interval 0.50 % to 2.00 %",
        "loss.out was not measured",
    ]


def test_a_percentile_has_the_interval_of_order_statistics() -> None:
    # Conover's example: of 16 values, the 3rd and the 13th hold the median with at least 95 %.
    buckets = [(number * 1_000_000, 1) for number in range(1, 17)]
    assert gate.percentile(buckets, 0.5, 16) == (8, 4, 13)
    assert gate.percentile(buckets, 0.99, 16)[2] == inf, "so few values say nothing of the 99th"
    many = [(number * 1_000_000, 10) for number in range(1, 10_001)]
    value, low, high = gate.percentile(many, 0.5, 100_000)
    assert (
        value == 5000 and 5000 - low == pytest.approx(31, abs=2) and high - 5000 == pytest.approx(31, abs=2)
    )
    _, wide, _ = gate.percentile(many, 0.5, 1000)
    assert 5000 - wide == pytest.approx(310, abs=10), "ten pairs of a message are no ten values"


def test_outcomes_stand_in_the_report() -> None:
    found, outcomes = gate.judged(findings(GRID), ["delivered < 1 %", "x: p99 > 3 ms"])
    assert [one.answer for one in outcomes] == [*[NOT_FULFILLED] * len(GRID), NO_SCENARIO]
    again = Findings.from_json(found.to_json())
    assert again.about[gate.ABOUT] == [one.as_json() for one in outcomes]
    assert "Conditions of this test" in page(again) and "no scenario is named x" in page(again)
    assert "Conditions of this test" not in page(gate.judged(again, [])[0])
    assert replace(found, about={}).tables == findings(GRID).tables
    assert str(outcomes[-1]).startswith("--fail-if 'x: p99 > 3 ms': NO SUCH SCENARIO in x: ")
