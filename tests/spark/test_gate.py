"""spark/gate.py: conditions of --fail-if, which fail only what is certain."""

from math import inf

import pytest

from kcast.spark import gate
from kcast.spark.findings.findings import Findings
from kcast.spark.gate import FULFILLED, NO_SCENARIO, NOT_CERTAIN, NOT_FULFILLED
from kcast.spark.report.page import page
from tests.support.report_findings import findings, scenarios, with_losses

GRID = scenarios("k-prime")


def test_conditions_are_read() -> None:
    for text, expected in {
        "delivered < 99.9 %": ("*", "delivered", "<", 0.999),
        "  delivered<99.9%  ": ("*", "delivered", "<", 0.999),
        "p99 > 50 ms": ("*", "p99", ">", 50),
        "p99.9 > 1.5 s": ("*", "p99.9", ">", 1500),
        "P50>800us": ("*", "p50", ">", 0.8),
        "5-3-*: copies > 3.2": ("5-3-*", "copies", ">", 3.2),
        "run:1/x: lines > 7": ("run:1/x", "lines", ">", 7),
        "loss.in > 0.5 %": ("*", "loss.in", ">", 0.005),
    }.items():
        text_of, *found, bound = gate.parse(text)
        assert (*found, pytest.approx(bound)) == expected and text_of == text.strip()


def test_what_is_no_condition_is_told_with_what_to_write() -> None:
    no_sign = ("", "delivered", "delivered <= 99 %", "delivered < -1 %")
    no_value = ("deliverd < 99 %", "delivered < 0.99", "delivered < 101 %", "p99 > 5 min", "copies > 3 %")
    for text in (*no_sign, *no_value):
        with pytest.raises(gate.ConditionError) as error:
            gate.parse(text)
        assert "write one such as 'delivered < 99.9 %'" in str(error.value)
        assert "figures are delivered in %, audience in %, p50 in ms" in str(error.value)


def test_only_a_whole_interval_beyond_the_bound_fulfils() -> None:
    for ends, below, above in (
        ((0.7, 0.85), FULFILLED, NOT_FULFILLED),
        ((0.7, 0.9), NOT_CERTAIN, NOT_FULFILLED),
        ((0.85, 0.95), NOT_CERTAIN, NOT_CERTAIN),
        ((0.9, 0.97), NOT_FULFILLED, NOT_CERTAIN),
        ((0.92, 0.97), NOT_FULFILLED, FULFILLED),
        ((0.9, 0.9), NOT_FULFILLED, NOT_FULFILLED),
    ):
        assert gate.parse("delivered < 90 %").answer((0.9, *ends)) == below
        assert gate.parse("delivered > 90 %").answer((0.9, *ends)) == above


def test_each_scenario_that_is_meant_is_judged_by_what_can_be_trusted() -> None:
    made = findings(GRID, invalid=[1], latency_invalid=[2])
    names = [scenario.name for scenario in GRID]
    _, found = gate.judged(made, ["copies > 0", f"{names[0]}: p99 < 0 s", "z*: copies > 3"])
    assert [(one.scenario, one.answer, one.fails) for one in found] == [
        *((name, NOT_CERTAIN if name == names[1] else FULFILLED, name != names[1]) for name in names),
        *((names[0], NOT_FULFILLED, False), ("z*", NO_SCENARIO, True)),
    ]
    assert f"there are {', '.join(names)}" in found[-1].words
    _, found = gate.judged(made, ["p99 < 1000 s"])
    assert [one.answer for one in found] == [FULFILLED, NOT_CERTAIN, NOT_CERTAIN, FULFILLED]
    assert "its latency is not valid" in found[2].words


def test_estimates_are_those_of_the_tables() -> None:
    made = findings(GRID)
    every = made.table("scenarios")
    for row in made.table("reliability"):
        found = gate.estimated(made, every[row["cell"]], "delivered")
        assert found == (row["share"], row["low"], row["high"])
    for row in made.table("latency"):
        for figure, column in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms")):
            if row["since"] == "intended":
                found = gate.estimated(made, every[row["cell"]], figure)
                assert found and found[1] <= found[0] == row[column] <= found[2]
    for row in made.table("cost"):
        found = gate.estimated(made, every[row["cell"]], "copies")
        assert found == (row["copies_per_pair"],) * 3


def test_loss_of_the_network_is_a_figure_where_it_is_known() -> None:
    legs = {"in": (0.01, 0.005, 0.02), "out": None, "both": (0.03, 0.02, 0.05)}
    found = with_losses(findings(GRID), 1, legs)
    _, outcomes = gate.judged(found, ["loss > 1 %", "loss.in > 1 %", "loss.out > 1 %"])
    own = [outcome for outcome in outcomes if outcome.scenario == GRID[1].name]
    assert [outcome.answer for outcome in own] == [FULFILLED, NOT_CERTAIN, NOT_CERTAIN]
    assert own[2].words == "loss.out was not measured"


def test_a_percentile_has_the_interval_of_order_statistics() -> None:
    # Conover's example: of 16 values, the 3rd and the 13th hold the median with at least 95 %.
    buckets = [(number * 1_000_000, 1) for number in range(1, 17)]
    assert gate.percentile(buckets, 0.5, 16) == (8, 4, 12)
    assert gate.percentile(buckets, 0.99, 16)[2] == inf, "so few values say nothing of the 99th"
    many = [(number * 1_000_000, 10) for number in range(1, 10_001)]
    value, low, high = gate.percentile(many, 0.5, 100_000)
    assert value == 5000 and (5000 - low, high - 5000) == pytest.approx((31, 31), abs=2)
    _, wide, _ = gate.percentile(many, 0.5, 1000)
    assert 5000 - wide == pytest.approx(310, abs=10), "ten pairs of a message are no ten values"


def test_outcomes_stand_in_the_report() -> None:
    found, outcomes = gate.judged(findings(GRID), ["delivered < 1 %", "x: p99 > 3 ms"])
    assert [one.answer for one in outcomes] == [*[NOT_FULFILLED] * len(GRID), NO_SCENARIO]
    again = Findings.from_json(found.to_json())
    assert again.about[gate.ABOUT] == [one._asdict() for one in outcomes]
    assert "no scenario is named x" in page(again)
    assert gate.ABOUT not in gate.judged(again, [])[0].about
    assert str(outcomes[-1]).startswith("--fail-if 'x: p99 > 3 ms': NO SUCH SCENARIO in x: ")
