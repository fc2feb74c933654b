"""The plan simulator against theory, where there is one, and against another program where there is none."""

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from kcast.hashring import model
from kcast.hashring.effective_size import ClusterSums
from kcast.loadtest.results import plan_simulator
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.plan_simulator import RUNS, Runs, can_simulate, simulate, simulated
from kcast.loadtest.results.planned_variance import planned_variance
from kcast.loadtest.results.prediction import predict, renewal_interval_s
from kcast.loadtest.results.simulated_law import delivered_share, law_of, ratio
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.balance import Cv
from tests.support.forms import few_of
from tests.support.handmade_pairs import cluster_rows
from tests.support.simulated_runs import simulate_run

BASE: dict[str, Any] = {
    **{"servers": 12, "topics": 8, "topics_per_subscriber": 4, "subscribers": 6, "publishers": 3},
    **{"rate": 10.0, "epoch_s": 2.0, "duration_s": 10.0, "loss_in": 0.03, "loss_out": 0.06},
}
DOWN: dict[str, Any] = {"outages": "independent", "outage": 0.1}


@lru_cache(maxsize=16)  # the share and the variance are of the same runs
def run(scenario: Scenario, runs: int = 700, seed: int = 1) -> Runs:
    return simulate(scenario, runs, np.random.default_rng(seed))


def all_reached(of: Runs) -> Any:
    return ratio(of.all_reached, of.messages)


def copies(of: Runs) -> Any:
    return ratio(of.copies, of.pairs)


# --- Beside theory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    few_of(
        [
            {"k": 5, "k_prime": 1},
            DOWN | {"k": 5, "k_prime": 1},
            DOWN | {"k": 5, "k_prime": 2, "side": "subscribe"},
            DOWN | {"scheme": "CH", "k": 2},
            DOWN | {"scheme": "S"},
            DOWN | {"scheme": "R", "outage": 0.6},
            {"k": 5, "k_prime": 1, "outages": "exact", "down": 3},
            {"k": 5, "k_prime": 2, "outages": "zones", "outage": 0.2},
            {"k": 5, "k_prime": 1, "outages": "rolling", "duration_s": 24.0},
            DOWN | {"k": 5, "k_prime": 2, "stratified": True, "outage": 0.3},
            {"k": 5, "k_prime": 2, "outages": "zones", "outage": 0.2, "stratified": True},
            {"k": 5, "k_prime": 2, "known": 0.75},
            {"scheme": "R", "known": 0.5, "outages": "exact", "down": 8},
            # Short intervals: theory has all sendings of a message in one epoch.
            DOWN | {"k": 5, "k_prime": 3, "repeat": 3, "repeat_interval_s": 1e-6, "outage": 0.5},
            DOWN | {"k": 5, "k_prime": 2, "repeat": 2, "side": "subscribe", "repeat_interval_s": 1e-6},
        ],
        4,
    ),
    ids=str,
)
def test_the_share_is_that_of_theory(plan: dict[str, Any]) -> None:
    scenario = Scenario(**(BASE | plan))
    theory = predict(scenario).share
    assert theory is not None
    law = law_of(delivered_share, run(scenario))
    assert law.mean == pytest.approx(theory, abs=4 * np.sqrt(law.variance / 700))


@pytest.mark.parametrize(
    "plan",
    [
        {"k": 5, "k_prime": 1},
        DOWN | {"k": 5, "k_prime": 1},
        DOWN | {"k": 5, "k_prime": 1, "side": "subscribe"},
        DOWN | {"scheme": "CH", "k": 1},
        {"k": 4, "k_prime": 1, "outages": "zones", "outage": 0.2},
        {"k": 4, "k_prime": 1, "outages": "zones", "outage": 0.2, "stratified": True},
        DOWN | {"k": 5, "k_prime": 1, "stratified": True},
    ],
    ids=str,
)
def test_the_variance_is_that_of_theory(plan: dict[str, Any]) -> None:
    scenario = Scenario(**(BASE | plan))
    law = law_of(delivered_share, run(scenario))
    variances = []
    for seed in range(20):  # theory's is for the load of one run
        found = planned_variance(scenario, _sums(scenario, seed))
        assert found is not None
        variances.append(found.miss * (1 - found.miss) / found.trials)
    assert law.variance == pytest.approx(np.mean(variances), rel=0.18)


def test_audiences_copies_and_loads_are_those_of_the_model() -> None:
    scenario = Scenario(**(BASE | DOWN), k=5, k_prime=2).with_(topics_per_subscriber=8)
    found, loss = run(scenario), (0.03, 0.06)
    law = law_of(all_reached, found)
    assert law.mean == pytest.approx(model.audience(5, 2, 5, 6, 0.9, *loss), abs=0.005)
    law = law_of(copies, found)
    assert law.mean == pytest.approx(model.copies(5, 2, 5, 0.9, *loss), rel=0.005)
    assert found.leases.sum(axis=1).tolist() == [6 * 8 * 5] * 700
    lines = found.received.sum() / 700
    assert lines == pytest.approx(3 * 10 * 10 * 2 * 0.9 * 0.97, rel=0.01)
    assert found.forwarded.sum() / 700 == pytest.approx(lines * 6, rel=0.01)


def test_restarts_cost_leases_as_the_model_has_it() -> None:
    plan = BASE | {"k": 1, "k_prime": 1, "loss_in": 0.0, "loss_out": 0.0, "ttl_s": 6, "duration_s": 240.0}
    scenario = Scenario(**plan, outages="rolling", by="kill")
    law = law_of(delivered_share, run(scenario, 100))
    # Servers are up for 11 epochs of 2 s between two outages.
    live = 1 - model.restart_gap(renewal_interval_s(scenario), 22.0, 0.0)
    assert law.mean == pytest.approx(live * 11 / 12, abs=0.003)


@pytest.mark.parametrize(
    "plan",
    [
        {"outage": 0.3, "ttl_s": 2, "epoch_s": 5.0, "duration_s": 100.0, "k": 5, "k_prime": 1},
        {"outage": 0.5, "ttl_s": 60, "epoch_s": 45.0, "duration_s": 900.0, "scheme": "CH", "k": 1},
        {"outage": 0.5, "ttl_s": 60, "epoch_s": 61.0, "duration_s": 900.0, "scheme": "CH", "k": 3},
        {"outage": 0.2, "by": "kill", "duration_s": 10.0, "k": 5, "k_prime": 1},
    ],
    ids=str,
)
def test_where_leases_end_theory_is_nearly_right_or_there_is_none(plan: dict[str, Any]) -> None:
    scenario = Scenario(**(BASE | DOWN | {"rate": 1.0} | plan))
    theory = predict(scenario)
    assert theory.note
    if scenario.by == "kill":  # a renewal takes longer than a server is up: a formula would say 0 %
        assert theory.share is None
    else:
        assert law_of(delivered_share, run(scenario, 60)).mean == pytest.approx(theory.share, abs=0.03)


# --- Beside another program --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    few_of(
        [
            {"k": 3, "k_prime": 2, "repeat": 3, "outages": "zones", "outage": 0.2},
            DOWN | {"k": 5, "k_prime": 2, "side": "subscribe", "by": "kill", "ttl_s": 3, "outage": 0.2},
            DOWN | {"k": 3, "k_prime": 1, "ttl_s": 3, "outage": 0.3},
            DOWN | {"k": 3, "k_prime": 1, "by": "stall", "deadline_s": 1.5, "outage": 0.3},
            {"k": 5, "k_prime": 2, "known": 0.75},
        ],
        1,
    ),
    ids=str,
)
def test_another_program_finds_the_same(plan: dict[str, Any]) -> None:
    scenario, runs = Scenario(**(BASE | plan)), 400
    found = run(scenario)
    shares, reached, brought = np.empty((3, runs))
    for number in range(runs):
        pairs = simulate_run(scenario, number)
        delivered = pairs["cause"] == Cause.DELIVERED
        message = np.unique(pairs["msg_id"], return_inverse=True)[1]
        all_came = np.bincount(message) == np.bincount(message[delivered], minlength=message.max() + 1)
        shares[number], reached[number] = delivered.mean(), all_came.mean()
        brought[number] = pairs["copies"].mean()
    for figure, values in ((delivered_share, shares), (all_reached, reached), (copies, brought)):
        law = law_of(figure, found)
        assert law.mean == pytest.approx(values.mean(), abs=5 * values.std() / np.sqrt(runs))
        assert law.variance == pytest.approx(values.var(), rel=0.33)


# --- How -------------------------------------------------------------------------------------------------


def test_fewer_messages_tell_the_law_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(**(BASE | DOWN), k=3, k_prime=2, side="subscribe").with_(rate=100.0, loss_out=0.2)
    few = run(scenario, 800)
    assert few.kept == pytest.approx(24_000 / (3 * 100 * 10 * 3 * 6))
    monkeypatch.setattr(plan_simulator, "COPIES_MAX", 10**6)
    all_messages = run(scenario, 500, seed=2)
    assert all_messages.kept == 1
    figures: list[Any] = [delivered_share, all_reached, copies, *map(Cv, ("received", "forwarded", "leases"))]
    for figure in figures:
        law, true = law_of(figure, few), law_of(figure, all_messages)
        assert law.mean == pytest.approx(true.mean, abs=5 * np.sqrt(true.variance / 400)), figure
        assert law.variance == pytest.approx(true.variance, rel=0.25), figure


def test_bands_of_a_long_run_are_the_same_for_all_seeds() -> None:
    # 200 s with 14,000 messages: one in 50 of the copies is simulated.
    scenario = Scenario(**(BASE | DOWN), k=5, k_prime=3).with_(rate=25.0, subscribers=30, duration_s=200.0)
    assert run(scenario, 1).kept < 0.02
    figures: list[Any] = [delivered_share, all_reached, copies, Cv("received")]
    for figure in figures:
        laws = [law_of(figure, run(scenario, 300, seed)) for seed in range(6)]
        sds = np.sqrt([law.variance for law in laws])
        assert np.ptp(sds) < 0.3 * sds.mean(), figure  # of 300 runs each: a sd has 4 %
        assert np.ptp([law.mean for law in laws]) < 0.4 * sds.mean(), figure


def test_a_plan_is_simulated_once_and_always_the_same() -> None:
    scenario = Scenario(**(BASE | DOWN), k=5, k_prime=1)
    first = simulated(scenario)
    assert first.pairs.shape == (RUNS,)
    assert simulated(scenario.with_(name="other", seed=9)) is first
    again = simulate(scenario.with_(name="", seed=0), 3, np.random.Generator(np.random.PCG64(20_040_101)))
    assert (again.forwarded == first.forwarded[:3]).all()


def test_where_locust_decides_there_is_no_plan() -> None:
    assert can_simulate(Scenario(mixed=3, publishers=0, subscribers=0))
    assert not can_simulate(Scenario(publishers=0, subscribers=0))


def test_users_that_do_both_have_one_view() -> None:
    scenario = Scenario(**BASE, k=5, k_prime=1, known=0.75)
    both = scenario.with_(publishers=0, subscribers=0, mixed=1, topics_per_subscriber=8)
    same = law_of(delivered_share, run(both.with_(loss_in=0.0, loss_out=0.0), 50))
    assert same.mean == 1  # a single user meets itself
    assert same.variance == 0


def _sums(scenario: Scenario, seed: int) -> dict[str, ClusterSums]:
    names = ("clusters", "pairs", "delivered", "squares", "products", "success_squares")
    rows = cluster_rows(simulate_run(scenario, seed))
    return {row["clustering"]: ClusterSums(*(row[name] for name in names)) for row in rows}
