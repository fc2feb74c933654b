from math import inf
from typing import Any

import numpy as np
import pytest

from hashring.clusters import Clusters, Effective, clusters_of
from loadtest.results.luck import (
    EPOCH,
    HOLDER,
    MESSAGE,
    OUTAGES,
    TOPIC_EPOCH,
    clusterings,
    measured,
    not_told,
    of_pairs,
)
from loadtest.results.outages import is_planned, planned_trials
from loadtest.results.prediction import delivery_by_down, predict
from loadtest.scenario import Scenario
from tests.handmade_pairs import Columns, reliability_sums, simulate_pairs

DOWN: dict[str, Any] = {"outages": "independent", "outage": 0.1}
PLANS: tuple[dict[str, Any], ...] = (
    DOWN | {"k": 4, "k_prime": 1},
    DOWN | {"k": 4, "k_prime": 2, "loss_out": 0.1},
    DOWN | {"scheme": "CH", "k": 2},
    DOWN | {"scheme": "R", "outage": 0.8},
    {"k": 4, "k_prime": 2, "outages": "exact", "down": 4},
    {"k": 4, "k_prime": 1, "outages": "rolling"},
    {"k": 4, "k_prime": 2, "outages": "zones", "outage": 0.25},
)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_outages_vary_the_share_as_planned(plan: dict[str, Any]) -> None:
    """Epochs of some topics with unequal weights, of which only the outages are drawn."""
    scenario = Scenario(**plan, servers=12, topics=5, topics_per_subscriber=5)
    rng = np.random.default_rng(5)
    chances, weights, runs = np.array(delivery_by_down(scenario)), np.array([9, 5, 3, 2, 1]), 40_000
    k = len(chances) - 1
    places = np.argsort(rng.random((runs, 5, 12)), axis=2)[:, :, :k]
    down = np.zeros((runs, 12), dtype=np.bool_)
    if scenario.outages == "independent":
        down = rng.random((runs, 12)) < scenario.outage
    elif scenario.outages == "zones":
        down = (rng.random((runs, 4)) < 0.25)[:, np.arange(12) % 4]
    else:
        number = scenario.down if scenario.outages == "exact" else 1
        down = np.argsort(rng.random((runs, 12)), axis=1) < number
    own = down[np.arange(runs)[:, None, None], places].sum(axis=2)
    shares = (chances[own] * weights).sum(axis=1) / weights.sum()
    # One epoch; so many of them have so many times the trials.
    topics, epoch = (clusters_of((int(n), 0) for n in of) for of in (weights, [weights.sum()]))
    p = float(shares.mean())
    assert p == pytest.approx(predict(scenario).share, abs=4 * shares.std() / np.sqrt(runs))
    trials = planned_trials(scenario, delivery_by_down(scenario), topics, epoch)
    assert trials == pytest.approx(p * (1 - p) / shares.var(), rel=0.1)
    ten, ten_epochs = (Clusters(*(10 * value for value in of)) for of in (topics, epoch))
    assert planned_trials(scenario, delivery_by_down(scenario), ten, ten_epochs) == pytest.approx(10 * trials)


def test_outages_are_only_told_where_theory_is_exact() -> None:
    assert all(is_planned(Scenario(**plan)) for plan in PLANS)
    told: dict[str, Any] = DOWN | {"epoch_s": 2.0, "ttl_s": 60}
    for changed in (
        {"outages": "none"},
        {"by": "kill"},
        {"by": "stall"},
        {"avoid_dead": True},
        {"known": 0.9},
        {"epoch_s": 100.0},  # leases end
        {"k": 40, "servers": 100},
    ):
        assert not is_planned(Scenario(**told | changed)), changed


def sums_of(pairs: Columns) -> dict[str, Clusters]:
    names = ("clusters", "pairs", "delivered", "squares", "products", "hits")
    return {
        row["clustering"]: Clusters(*(row[name] for name in names))
        for row in reliability_sums(pairs)["clusterings"]
    }


def test_design_effects_of_outages_and_of_the_rest_add_up() -> None:
    scenario = Scenario(**DOWN, k=8, k_prime=2, loss_out=0.02)
    sums = sums_of(simulate_pairs(scenario, 1))
    found = of_pairs(scenario, sums)
    planned = planned_trials(scenario, delivery_by_down(scenario), sums[TOPIC_EPOCH], sums[EPOCH])
    rest = measured(scenario.with_(outages="none"), {MESSAGE: sums[MESSAGE]})
    assert found.name == OUTAGES
    assert found.degrees == inf
    assert planned < rest.trials
    assert 1 / found.trials >= 1 / planned + 1 / rest.worth()
    # Without outages, or where theory of them is rough, all is measured.
    assert of_pairs(scenario.with_(outages="none"), sums).name == MESSAGE
    rough = of_pairs(scenario.with_(by="kill"), sums)
    assert rough == measured(scenario.with_(by="kill"), sums)
    assert rough.name in (TOPIC_EPOCH, EPOCH)


def test_a_plan_without_pairs_is_worth_nothing() -> None:
    nothing = Clusters(0, 0, 0, 0, 0, 0)
    scenario = Scenario(**DOWN)
    assert of_pairs(scenario, dict.fromkeys(clusterings(scenario), nothing)).trials == 0


def test_what_was_all_delivered_is_worth_the_sets_of_servers_that_have_none_in_common() -> None:
    scenario = Scenario(**DOWN, by="kill", servers=12, k=4)
    sums = {
        name: clusters_of([(each, each)] * (1200 // each))
        for name, each in ((MESSAGE, 2), (HOLDER, 4), (TOPIC_EPOCH, 60), (EPOCH, 300))
    }
    assert measured(scenario, sums).worth() == 4 * 3  # of 20 topics and epochs
    assert measured(scenario.with_(k=12), sums).worth() == 4
    assert measured(scenario.with_(outages="zones"), sums).worth() == 4
    assert measured(scenario.with_(outages="none"), sums).worth() == 600
    few = sums | {TOPIC_EPOCH: clusters_of([(200, 200)] * 6)}
    assert measured(scenario, few).worth() == 6


def test_clusters_of_which_there_is_one_are_named() -> None:
    assert not_told(Effective(5, 4, MESSAGE)) == ""
    assert not_told(Effective(5, 4, MESSAGE, (MESSAGE,))) == ""
    told = not_told(Effective(5, 4, MESSAGE, (EPOCH, "topic", "publisher")))
    assert told.startswith("there was one epoch of outages, topic and publisher only")


@pytest.mark.parametrize("epochs", [1, 3, 10])
@pytest.mark.parametrize(
    "policy",
    [{"scheme": "CH", "k": 1}, {"k": 8, "k_prime": 3}, {"k": 8, "k_prime": 1, "side": "subscribe"}],
    ids=str,
)
def test_intervals_cover_the_true_share_however_few_epochs_there_are(
    policy: dict[str, Any], epochs: int
) -> None:
    scenario = Scenario(
        **DOWN, **policy, loss_in=0.005, loss_out=0.005, servers=20, topics=30, topics_per_subscriber=6,
        subscribers=10, publishers=4, rate=10, epoch_s=2.0, duration_s=2.0 * epochs,
    )  # fmt: skip
    true, runs, covered = predict(scenario).share, 100, 0
    assert true is not None
    for seed in range(runs):
        pairs = simulate_pairs(scenario, seed)
        sums = sums_of(pairs)
        low, high = of_pairs(scenario, sums).interval(sums[MESSAGE].successes / sums[MESSAGE].trials)
        covered += low <= true <= high
    # Of 95, less four standard deviations.
    assert covered >= 86


def test_what_no_run_has_seen_yet_has_a_wide_interval() -> None:
    # All twelve servers down at once: 1e-12 of epochs. Ten of them that went well do not show it.
    scenario = Scenario(**DOWN, scheme="CH", k=12, servers=12)
    topics, epochs = clusters_of([(10, 10)] * 200), clusters_of([(200, 200)] * 10)
    assert planned_trials(scenario, delivery_by_down(scenario), topics, epochs) == pytest.approx(10, rel=1e-3)
