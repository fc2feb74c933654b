from collections import Counter
from typing import Any

import numpy as np
import pytest

from kcast.hashring import model
from kcast.hashring.intervals import wilson
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.audience import tables, theory
from kcast.spark.findings.findings import Findings
from tests.support.handmade_pairs import cell_of, simulate_pairs

OUTAGES: dict[str, Any] = {"outages": "independent", "outage": 0.1, "loss_in": 0.02, "loss_out": 0.03}
DEAF = {"cell": 0, "messages": 4, "duration_ns": 1_500_000_000, "sub_id": 3, "topic_id": 0}


def size(subscribers: int, messages: int, reached: int, nobody: int = 0) -> dict[str, int]:
    values = {"messages": messages, "all_reached": reached, "none_reached": nobody}
    return {"cell": 0, "subscribers": subscribers, **values}


def test_messages_are_the_trials_where_no_server_is_down() -> None:
    sums = {
        "audience_sizes": [size(2, 30, 20, 1), size(5, 10, 4, 0)],
        "audience_clusterings": [],
        "deaf": [DEAF],
    }
    found = tables([cell_of(Scenario(loss_in=0.1)), cell_of(Scenario(), 1)], sums)
    Findings({}, tables=found)
    (row,) = found["audience"]
    assert (row["messages"], row["all_reached"], row["none_reached"]) == (40, 24, 1)
    assert (row["subscribers"], row["share"]) == (2.75, 0.6)
    assert (row["low"], row["high"]) == wilson(24, 40)
    assert (row["longest_deaf_messages"], row["longest_deaf_s"]) == (4, 1.5)
    assert (row["deaf_subscriber"], row["deaf_topic"]) == (3, 0)


def test_epochs_are_the_trials_where_servers_are_and_there_is_no_plan() -> None:
    clusters = {"clusters": 4, "messages": 40, "all_reached": 20}
    # Epochs of ten messages, all of which reached all, or none.
    of_epochs = {
        "cell": 0,
        "clustering": "epoch",
        **clusters,
        "squares": 400,
        "products": 200,
        "success_squares": 200,
    }
    sums: dict[str, Any] = {
        "audience_sizes": [size(2, 40, 20)],
        "audience_clusterings": [of_epochs],
        "deaf": [],
    }
    killed = Scenario(**OUTAGES, by="kill", subscribers=0)  # locust decides who comes
    (row,) = tables([cell_of(killed)], sums)["audience"]
    # Worth 4 trials, less one, with a spread that is known from 4: Student's t is 3.182, and not 1.960.
    worth = 3 * (1.959964 / 3.182446) ** 2
    assert (row["low"], row["high"]) == pytest.approx(wilson(worth / 2, worth), rel=1e-6)
    assert row["longest_deaf_messages"] == row["longest_deaf_s"] == 0
    assert row["deaf_subscriber"] is None
    # Of one epoch nothing tells how others would be.
    sums["audience_clusterings"] = [of_epochs | {"clusters": 1}]
    (row,) = tables([cell_of(killed)], sums)["audience"]
    assert row["low"] is row["high"] is None


def test_when_all_reached_all_nothing_above_is_left_out() -> None:
    sums = {"audience_sizes": [size(2, 40, 40)], "audience_clusterings": [], "deaf": []}
    (row,) = tables([cell_of(Scenario())], sums)["audience"]
    assert (row["share"], row["high"]) == (1.0, 1.0)
    assert row["low"] < 1


def test_theory_is_the_model_s_over_all_sizes() -> None:
    scenario = Scenario(servers=40, k=8, k_prime=3, **OUTAGES)
    small, large = (model.audience(8, 3, 8, size, 0.9, 0.02, 0.03) for size in (2, 50))
    assert theory(scenario, {2: 30, 50: 10}) == pytest.approx(0.75 * small + 0.25 * large)
    assert theory(scenario.with_(by="kill"), {2: 30}) is None


@pytest.mark.parametrize("side", ["publish", "subscribe"])
def test_a_simulated_run_is_as_the_theory_says(side: Any) -> None:
    load: dict[str, Any] = {"topics": 40, "topics_per_subscriber": 20, "publishers": 4, "rate": 100.0}
    scenario = Scenario(servers=40, k=8, k_prime=3, side=side, epoch_s=0.05, **load, **OUTAGES)
    pairs = simulate_pairs(scenario, 1)
    _, numbers = np.unique(pairs["msg_id"], return_inverse=True)
    sizes = np.bincount(numbers)
    reached = np.bincount(numbers, pairs["cause"] == Cause.DELIVERED) == sizes
    assert reached.mean() == pytest.approx(theory(scenario, Counter(sizes.tolist())), abs=0.015)


def test_of_few_topics_without_outages_messages_are_the_trials() -> None:
    scenario = Scenario(k=8, k_prime=2, topics=2, topics_per_subscriber=2, loss_out=0.1)
    for side in ("publish", "subscribe"):
        row = simulated_row(scenario.with_(duration_s=2.0, side=side), 1)
        told = wilson(row["all_reached"], row["messages"])
        assert (row["low"], row["high"]) == pytest.approx(told, abs=0.01), side


def test_of_few_epochs_the_luck_of_outages_is_told_and_that_of_subscribers_draws_as_well() -> None:
    few: dict[str, Any] = {"servers": 20, "topics": 2, "topics_per_subscriber": 2, "epoch_s": 20.0}
    publish = Scenario(k=8, k_prime=2, **few, **OUTAGES)
    row = simulated_row(publish, 1)
    assert row["high"] - row["low"] < 0.3
    subscribe = simulated_row(publish.with_(side="subscribe", topics=1, topics_per_subscriber=1), 1)
    assert subscribe["high"] - subscribe["low"] > 0.5  # one topic, and nobody's draw changes


@pytest.mark.parametrize(
    ("policy", "topics", "epochs"),
    [
        ({"scheme": "CH", "k": 2}, 20, 1),
        ({"k": 8, "k_prime": 2}, 4, 3),
        ({"k": 8, "k_prime": 3, "side": "subscribe"}, 20, 10),
    ],
)
def test_intervals_cover_what_theory_says(policy: dict[str, Any], topics: int, epochs: int) -> None:
    load: dict[str, Any] = {"topics": topics, "topics_per_subscriber": topics // 2}
    load |= {"publishers": 4, "rate": 10.0}
    scenario = Scenario(
        servers=20, subscribers=8, epoch_s=2.0, duration_s=2.0 * epochs, **policy, **load, **OUTAGES
    )
    runs, covered = 100, 0
    for seed in range(runs):
        row = simulated_row(scenario, seed)
        covered += row["low"] <= row["theory"] <= row["high"]
    # Of 95, less four standard deviations.
    assert covered >= 86


def simulated_row(scenario: Scenario, seed: int) -> dict[str, Any]:
    pairs = simulate_pairs(scenario, seed)
    _, first, numbers = np.unique(pairs["msg_id"], return_index=True, return_inverse=True)
    sizes = np.bincount(numbers)
    reached = np.bincount(numbers, pairs["cause"] == Cause.DELIVERED) == sizes
    topics, epochs = pairs["topic_id"][first].astype(np.int64), pairs["epoch"][first]
    clusterings = []
    for name, keys in (("topic and epoch", topics << 32 | epochs), ("epoch", epochs), ("topic", topics)):
        _, own = np.unique(keys, return_inverse=True)
        n, x = np.bincount(own), np.bincount(own[reached], minlength=own.max() + 1)
        totals = {
            "messages": n,
            "all_reached": x,
            "squares": n * n,
            "products": n * x,
            "success_squares": x * x,
        }
        of_name: dict[str, Any] = {column: int(values.sum()) for column, values in totals.items()}
        clusterings.append({"cell": 0, "clustering": name, "clusters": len(n), **of_name})
    by_size = [
        size(int(each), int((sizes == each).sum()), int(reached[sizes == each].sum()))
        for each in np.unique(sizes)
    ]
    sums = {"audience_sizes": by_size, "audience_clusterings": clusterings, "deaf": []}
    (row,) = tables([cell_of(scenario)], sums)["audience"]
    return row
