from collections.abc import Iterable
from math import exp
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from kcast.hashring.intervals import wilson
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.given_events import Misses
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.reliability import score, tables
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED
from tests.support.handmade_pairs import Columns, cell_of, reliability_sums, simulate_pairs
from tests.support.simulated_runs import simulate_run

Row = dict[str, Any]
Found = dict[str, list[Row]]

CLUSTER: dict[str, Any] = {
    **{"servers": 40, "topics": 10, "topics_per_subscriber": 5, "subscribers": 10, "publishers": 2},
    **{"rate": 40.0, "duration_s": 15.0, "epoch_s": 1.0},
}
OUTAGES: dict[str, Any] = {"outages": "independent", "outage": 0.1}
LOSSES: dict[str, Any] = {"loss_in": 0.02, "loss_out": 0.02}
POLICIES: tuple[dict[str, Any], ...] = (
    {"k": 8, "k_prime": 1},
    {"k": 8, "k_prime": 3},
    {"k": 8, "k_prime": 1, "side": "subscribe"},
    {"k": 8, "k_prime": 3, "side": "subscribe"},
    {"scheme": "CH", "k": 1},
    {"scheme": "CH", "k": 3},
)


def scenarios(**fields: Any) -> list[Scenario]:
    return [
        Scenario(**(CLUSTER | OUTAGES | LOSSES | policy | fields), name=f"policy-{number}")
        for number, policy in enumerate(POLICIES)
    ]


def analysed(cells: Iterable[tuple[Scenario, Columns]], **more: Any) -> Found:
    sums: dict[str, list[Row]] = {"clusterings": [], "chances": [], "lost": []}
    numbered: list[Cell] = []
    for number, (scenario, columns) in enumerate(cells):
        numbered.append(cell_of(scenario, number))
        for name, rows in reliability_sums(columns).items():
            sums[name] += [row | {"cell": number} for row in rows]
    found = tables(numbered, sums, **more)
    Findings({}, tables=found)  # all columns, of the types that the tables have
    return found


def one(scenario: Scenario, columns: Columns, **more: Any) -> tuple[Row, dict[str, Row]]:
    found = analysed([(scenario, columns)], **more)
    return found["reliability"][0], {row["theory"]: row for row in found["joint"]}


def joint_of(found: Found) -> dict[str, Row]:
    return {row["theory"]: row for row in found["joint"]}


def miss(columns: Columns, share: float, seed: int, cause: Cause = Cause.NETWORK_OUT) -> Columns:
    """The same, with so many of the pairs missed that were delivered."""
    rng = np.random.default_rng(seed)
    causes = columns["cause"].copy()
    causes[(causes == Cause.DELIVERED) & (rng.random(len(causes)) < share)] = cause
    return {**columns, "cause": causes}


# --- Sound runs, and others --------------------------------------------------------------------------


def test_sound_runs_agree_and_the_joint_test_raises_no_more_alarms_than_it_may() -> None:
    p_values: dict[str, list[float]] = {"given_events": [], "beforehand": []}
    disagree = covered = inside = cells = 0
    for seed in range(30):
        runs = [(s, simulate_pairs(s, 100 * seed + n)) for n, s in enumerate(scenarios())]
        found = analysed(runs)
        for row in found["joint"]:
            p_values[row["theory"]].append(row["p_value"])
        disagree += any(row["verdict"] == DISAGREES for row in found["reliability"])
        for row in found["reliability"]:
            cells += 1
            covered += row["low"] <= row["beforehand"] <= row["high"]
            inside += row["given_events_low"] <= row["share"] <= row["given_events_high"]
    assert disagree <= 2  # of 30, at 1 %
    assert 0.91 * cells < inside
    assert 0.80 * cells < covered  # 15 epochs only: see kcast.loadtest.results.pair_clusters
    for theory, values in p_values.items():
        assert sum(p < 0.01 for p in values) <= 2, theory
        assert sum(p < 0.1 for p in values) <= 9, theory
    # And is no deaf test either.
    assert sum(p < 0.5 for p in p_values["given_events"]) > 7


def test_three_of_a_thousand_lost_beyond_the_plan_do_not_agree() -> None:
    larger = {"rate": 140.0, "duration_s": 30.0}
    runs = [(s, simulate_pairs(s, 1000 + n)) for n, s in enumerate(scenarios(**larger))]
    sound = analysed(runs)
    assert {row["verdict"] for row in sound["reliability"]} == {AGREES}
    assert sound["joint"][0]["verdict"] == AGREES
    broken = analysed([(s, miss(columns, 0.003, 9)) for s, columns in runs])
    assert broken["joint"][0]["p_value"] < 1e-6
    assert broken["joint"][0]["verdict"] == DISAGREES
    # Where little is lost by plan a single cell tells.
    verdicts = [row["verdict"] for row in broken["reliability"]]
    assert verdicts[1] == verdicts[3] == verdicts[5] == DISAGREES
    # The outages' luck hides it from the other.
    assert joint_of(broken)["beforehand"]["verdict"] == AGREES


def test_a_draw_less_than_planned_is_told_by_theory_beforehand() -> None:
    scenario = Scenario(**(CLUSTER | OUTAGES | LOSSES), k=8, k_prime=2)
    fast = scenario.with_(epoch_s=0.1)
    row, joint = one(fast.with_(k_prime=3), simulate_pairs(fast, 1))
    assert row["verdict"] == AGREES  # the chances that were left did as they should
    assert joint["beforehand"]["verdict"] == DISAGREES
    assert row["beforehand"] > row["high"]


def test_the_interval_is_on_the_effective_sample_size() -> None:
    scenario = scenarios()[0]
    row, _ = one(scenario, simulate_pairs(scenario, 3))
    assert row["design_effect"] == row["pairs"] / row["trials"] > 1
    assert row["clusters"] == "epoch"
    assert (row["low"], row["high"]) == wilson(row["share"] * row["trials"], row["trials"])
    assert row["low"] < row["share"] < row["high"]


def test_one_epoch_tells_of_others_as_the_plan_does_and_nothing_without_a_plan() -> None:
    changes: tuple[dict[str, Any], ...] = ({}, {"by": "kill"}, {"repeat": 2})
    for fields in changes:
        scenario = scenarios()[0].with_(epoch_s=15.0, **fields)
        columns = simulate_run(scenario, 4)
        row, joint = one(scenario, columns)
        assert joint["beforehand"]["scenarios"] == (fields != {"by": "kill"})  # which theory knows roughly
        assert "one epoch of outages only" not in row["note"]
        row, joint = one(scenario.with_(subscribers=0, repeat=2), columns)  # locust decides who comes
        assert joint["beforehand"]["verdict"] == NO_THEORY
        assert "one epoch of outages only" in row["note"]


def test_that_no_bunch_was_lost_is_no_alarm_where_few_are_expected() -> None:
    few = Misses(12.0, 7, 50.0, 500.0)
    assert score(few, 7) == pytest.approx(NormalDist().inv_cdf(exp(-0.5) / 2))
    hardly = Misses(0.001, 0, 0.01, 0.1)
    assert abs(score(hardly, 0)) < 0.001
    assert score(hardly, 10) > 3.2


# --- Where there is no luck --------------------------------------------------------------------------


def exact() -> tuple[Scenario, Columns]:
    scenario = Scenario(**(CLUSTER | OUTAGES), k=4, k_prime=1)
    return scenario, simulate_pairs(scenario, 11)


def test_without_losses_all_that_had_a_chance_is_delivered_and_nothing_else() -> None:
    scenario, columns = exact()
    row, joint = one(scenario, columns)
    assert 0 < row["delivered"] < row["pairs"]
    assert row["given_events"] == row["given_events_low"] == row["given_events_high"] == row["share"]
    assert (row["z"], row["verdict"]) == (0.0, AGREES)
    assert (joint["given_events"]["verdict"], joint["given_events"]["p_value"]) == (AGREES, 1.0)
    assert (joint["given_events"]["scenarios"], joint["given_events"]["degrees"]) == (1, 0)


def test_a_single_miss_too_many_does_not_agree_where_nothing_is_to_be_lost() -> None:
    scenario, columns = exact()
    causes = columns["cause"].copy()
    causes[np.flatnonzero(causes == Cause.DELIVERED)[0]] = Cause.NETWORK_OUT
    row, joint = one(scenario, {**columns, "cause": causes})
    assert (row["z"], row["verdict"]) == (None, DISAGREES)
    assert "1 pair was missed though nothing was to be lost" in row["note"]
    assert (joint["given_events"]["verdict"], joint["given_events"]["p_value"]) == (DISAGREES, 0.0)


def test_what_the_machine_missed_counts_as_missed_and_is_no_contradiction() -> None:
    scenario = Scenario(**(CLUSTER | OUTAGES), k=4, k_prime=1)
    row, _ = one(scenario, simulate_pairs(scenario, 11, late=3))
    assert row["delivered"] == one(*exact())[0]["delivered"] - 3
    assert row["verdict"] == AGREES
    assert "3 pairs were missed by the fault of the machine" in row["note"]


def test_the_machine_s_misses_excuse_too_few_but_not_too_many() -> None:
    scenario = Scenario(**(CLUSTER | OUTAGES | LOSSES), k=8, k_prime=5)
    columns = simulate_pairs(scenario, 4)
    late = miss(columns, 0.01, 1, Cause.LATE)
    assert one(scenario, late)[0]["verdict"] == AGREES
    assert one(scenario, miss(columns, 0.01, 1))[0]["verdict"] == DISAGREES
    # All that was lost by plan came nevertheless: that some was late does not excuse it.
    lossy = scenario.with_(k_prime=1, loss_out=0.1)
    columns = simulate_pairs(lossy, 4)
    causes = np.where(columns["cause"] == Cause.LOSS_OUT, Cause.DELIVERED, columns["cause"])
    row, _ = one(lossy, miss({**columns, "cause": causes}, 0.001, 1, Cause.LATE))
    assert row["verdict"] == DISAGREES
    assert row["z"] > 5


def test_what_had_no_chance_cannot_have_come() -> None:
    scenario = Scenario(**(CLUSTER | OUTAGES | LOSSES), k=8, k_prime=1)
    columns = simulate_pairs(scenario, 4)
    causes = columns["cause"].copy()
    causes[np.flatnonzero(columns["chances"] == 0)[:2]] = Cause.DELIVERED
    row, joint = one(scenario, {**columns, "cause": causes})
    assert row["verdict"] == joint["given_events"]["verdict"] == DISAGREES
    assert "2 pairs were delivered through servers that were down" in row["note"]


# --- No verdict --------------------------------------------------------------------------------------


def test_where_theory_has_no_answer_the_note_says_why() -> None:
    told: tuple[tuple[dict[str, Any], bool, str], ...] = (
        ({"by": "stall"}, False, "no theory given what happened: servers that were halted"),
        ({"duplicate": 0.01}, False, "no theory given what happened: which of a datagram"),
        ({"avoid_dead": True}, True, "no theory beforehand: clients that avoid dead servers"),
        ({"by": "kill"}, True, "no theory beforehand: servers are killed again"),
        ({"by": "kill", "ttl_s": 5}, True, "theory beforehand: roughly"),
    )
    scenario = Scenario(**(CLUSTER | OUTAGES | LOSSES), k=8, k_prime=2)
    pairs = simulate_pairs(scenario, 2)
    for fields, given_events, note in told:
        row, joint = one(scenario.with_(**fields), pairs)
        assert (row["given_events"] is not None) == (row["z"] is not None) == given_events, fields
        assert (row["verdict"] == NO_THEORY) == (not given_events)
        assert (joint["given_events"]["p_value"] is not None) == given_events
        assert note in row["note"]
        if fields != {"duplicate": 0.01}:
            assert joint["beforehand"]["verdict"] == NO_THEORY  # there is none, or it is roughly known


def test_cells_that_cannot_be_trusted_get_no_verdict() -> None:
    runs = [(s, simulate_pairs(s, 5 + n)) for n, s in enumerate(scenarios()[:2])]
    broken = miss(runs[0][1], 0.2, 1)
    found = analysed([(runs[0][0], broken), runs[1]], invalid={0})
    first, second = found["reliability"]
    assert (first["z"], first["verdict"]) == (None, NO_THEORY)
    assert first["given_events"] is not None
    assert "cannot be trusted" in first["note"]
    assert "the wider of" in first["note"]  # as `kcast load` says of it
    assert second["verdict"] == AGREES
    assert [row["scenarios"] for row in found["joint"]] == [1, 1]
    assert found["joint"][0]["verdict"] == AGREES


def test_a_cell_without_pairs_says_so() -> None:
    for fields in ({}, OUTAGES, OUTAGES | {"by": "kill"}, {"known": 0.5}):
        found = tables([cell_of(Scenario(**fields))], {"clusterings": [], "chances": [], "lost": []})
        Findings({}, tables=found)
        (row,) = found["reliability"]
        assert (row["pairs"], row["share"], row["low"], row["high"]) == (0, None, 0.0, 1.0)
        assert row["verdict"] == NO_THEORY
        assert row["note"].startswith("nothing was to be delivered")
        assert [row["verdict"] for row in found["joint"]] == [NO_THEORY] * 2


def test_where_theory_is_refused_the_interval_is_the_wider_one() -> None:
    scenario = Scenario(**(CLUSTER | LOSSES), k=5, k_prime=3).with_(duration_s=40.0, rate=10.0)
    trouble: dict[str, Any] = {"bad_epochs": 0.15, "lost_in_bad": 0.5}
    runs = [simulate_run(scenario, seed, **trouble) for seed in range(30)]
    rows = [one(scenario, columns)[0] for columns in runs]
    true = sum(row["share"] for row in rows) / len(rows)
    assert all(row["verdict"] == DISAGREES for row in rows)
    assert all("the wider of" in row["note"] for row in rows)
    # Of 95, less three standard deviations; by the plan alone it was 39.
    assert sum(row["low"] <= true <= row["high"] for row in rows) >= 0.82 * 30
    sound, _ = one(scenario, simulate_run(scenario, 1))
    assert sound["clusters"] != "epoch"
    assert "the wider of" not in sound["note"]


def test_a_loss_of_a_few_subscribers_is_in_the_interval() -> None:
    scenario = Scenario(**(CLUSTER | LOSSES), k=5, k_prime=3).with_(subscribers=20, duration_s=20.0)
    runs = [simulate_run(scenario, seed, bad_subscribers=0.1, lost_in_bad=0.2) for seed in range(30)]
    rows = [one(scenario, columns)[0] for columns in runs]
    true = sum(row["share"] for row in rows) / len(rows)
    assert sum(row["clusters"] == "subscriber" for row in rows) > 20
    # Without clusters of subscribers it was 51.
    assert sum(row["low"] <= true <= row["high"] for row in rows) >= 0.9 * 30


def test_to_agree_a_difference_that_matters_must_have_been_seen() -> None:
    scenario = Scenario(**(CLUSTER | LOSSES), k=8, k_prime=1)
    large, _ = one(scenario, simulate_pairs(scenario, 1))
    assert (large["verdict"], large["detectable"] < 0.04) == (AGREES, True)
    tiny = scenario.with_(duration_s=0.5, publishers=1)
    row, joint = one(tiny, simulate_pairs(tiny, 3))
    assert row["verdict"] == joint["given_events"]["verdict"] == NOT_REFUTED
    assert row["detectable"] > 0.04  # as much as is missed
    none = scenario.with_(loss_in=0.0, loss_out=0.0)
    row, _ = one(none, simulate_pairs(none, 1))
    assert row["detectable"] == 1 / row["pairs"]  # where nothing is left to chance, one pair tells


# --- The joint test ----------------------------------------------------------------------------------


def test_cells_of_one_seed_share_their_outages_and_count_as_one() -> None:
    runs = [(s, simulate_pairs(s, 50 + n)) for n, s in enumerate(scenarios())]
    found = analysed(runs)
    joint = {row["theory"]: row for row in found["joint"]}
    squares = [row["z"] ** 2 for row in found["reliability"]]
    assert joint["given_events"]["statistic"] == pytest.approx(sum(squares))
    assert joint["given_events"]["degrees"] == len(runs)
    assert joint["given_events"]["p_value"] == pytest.approx(chi2.sf(sum(squares), len(runs)))
    assert (joint["beforehand"]["scenarios"], joint["beforehand"]["degrees"]) == (6, 1)
    twice = [(s.with_(name="policy-0"), columns) for s, columns in runs]  # of runs with the same losses
    assert analysed(twice)["joint"][0]["degrees"] == 1
    others = [(s.with_(seed=1 + n // 3), columns) for n, (s, columns) in enumerate(runs)]
    assert joint_of(analysed(others))["beforehand"]["degrees"] == 2
    quiet = [s.with_(outages="none", outage=0.0) for s in scenarios()]
    apart = joint_of(analysed([(s, simulate_pairs(s, n)) for n, s in enumerate(quiet)]))["beforehand"]
    assert apart["degrees"] == apart["scenarios"] == 6


def test_order_of_cells_and_of_sums_changes_nothing() -> None:
    runs = [(s, simulate_pairs(s, 50 + n)) for n, s in enumerate(scenarios()[:3])]
    sums: dict[str, list[Row]] = {"clusterings": [], "chances": [], "lost": []}
    for number, (_, columns) in enumerate(runs):
        for name, rows in reliability_sums(columns).items():
            sums[name] += [row | {"cell": number} for row in rows]
    cells = [cell_of(scenario, number) for number, (scenario, _) in enumerate(runs)]
    backwards = {name: rows[::-1] for name, rows in sums.items()}
    assert tables(cells, backwards) == tables(cells, sums)
