from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcast.hashring import intervals, model
from kcast.loadtest.results.prediction import independent_path, miss_by_down, overlap_pmf, predict
from kcast.loadtest.results.summary import summarise
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import simulate

LOSSES: dict[str, Any] = {"loss_in": 0.02, "loss_out": 0.03}
ONCE = 0.98 * 0.97


def share(**fields: Any) -> float:
    found = predict(Scenario(servers=100, **fields)).share
    assert found is not None
    return found


def test_independent_outages_are_the_model_s_delivery() -> None:
    path = model.path(0.1, 0.02, 0.03)
    for side in ("publish", "subscribe"):
        found = share(k=8, k_prime=3, side=side, outages="independent", outage=0.1, **LOSSES)
        assert found == pytest.approx(model.delivery(8, 3, 8, path))
    assert share(scheme="CH", k=5, outages="independent", outage=0.1, **LOSSES) == pytest.approx(
        model.delivery(5, 5, 5, path)
    )
    assert share(scheme="S", outages="independent", outage=0.1) == pytest.approx(0.9)


def test_the_random_scheme_draws_among_all() -> None:
    few = Scenario(scheme="R", servers=100).policy.publish
    path = model.path(0.1, 0.02, 0.03)
    found = share(scheme="R", outages="independent", outage=0.1, **LOSSES)
    assert found == pytest.approx(model.delivery(100, few, few, path))
    # Few views make the choice smaller: all twenty, twice each.
    twice = model.path(0.1, 0.02, 0.03, sends=2)
    found_few = share(scheme="R", known=0.2, repeat=2, outages="independent", outage=0.1, **LOSSES)
    assert found_few == pytest.approx(model.delivery(100, 20, 20, twice))
    # Larger ones make no difference to a random choice.
    assert share(scheme="R", known=0.7, outages="independent", outage=0.1, **LOSSES) == pytest.approx(found)


def test_exactly_so_many_down_is_hypergeometric() -> None:
    assert share(k=8, k_prime=3, outages="exact", down=10) == pytest.approx(
        1 - model.miss_exactly_down(100, 10, 3)
    )
    assert share(k=8, k_prime=1, outages="rolling") == pytest.approx(0.99)
    assert share(k=8, k_prime=3, outages="zones", zones=10, outage=0.1) == pytest.approx(
        1 - sum(p * model.miss_exactly_down(100, 10 * zones, 3) for zones, p in pmf(10, 0.1))
    )


def test_mute_servers_leave_the_draws_that_miss_them_all() -> None:
    for k_prime, down in [(2, 8), (4, 4), (8, 8)]:
        found = predict(
            Scenario(servers=16, k=16, k_prime=k_prime, outages="exact", down=down, by="mute", epoch_s=1e5)
        )
        assert found.share == pytest.approx(1 - comb(down, k_prime) / comb(16, k_prime)) and not found.note


def pmf(trials: int, chance: float) -> list[tuple[int, float]]:
    least, terms = intervals.binomial(trials, chance)
    return list(enumerate(terms, least))


def test_repeats_go_to_fresh_servers_first() -> None:
    lossy: dict[str, Any] = {"k": 8, "outages": "independent", "outage": 0.1} | LOSSES
    once = model.path(0.1, 0.02, 0.03)
    assert share(k_prime=2, repeat=3, **lossy) == pytest.approx(1 - (1 - once) ** 6)
    # All have it twice.
    twice = model.path(0.1, 0.02, 0.03, sends=2)
    assert share(k_prime=4, repeat=4, **lossy) == pytest.approx(model.delivery(8, 8, 8, twice))
    assert share(k_prime=2, side="subscribe", repeat=2, **lossy) == pytest.approx(
        model.delivery(8, 8, 2, twice)
    )
    # Nine sendings: one server of the eight has it twice.
    assert 1 - share(k_prime=3, repeat=3, **lossy) == pytest.approx((1 - once) ** 7 * (1 - twice))
    # Ten to five: a subscriber of one of the eight holds it at one that has it twice or once.
    found = share(scheme="RCH", k_prime=1, side="subscribe", repeat=1, **lossy)
    assert found == pytest.approx(once)


def test_views_that_differ_cost_what_the_model_says() -> None:
    # Large views are the model's.
    jaccard = 0.9 / 1.1
    found = predict(Scenario(servers=3000, k=8, k_prime=3, known=0.9, **LOSSES))
    assert found.share == pytest.approx(model.delivery_divergent(8, 3, jaccard, ONCE), abs=1e-4)
    assert found.note == ""
    assert overlap_pmf(5000, 2500, 5) == pytest.approx(model.overlap_pmf(5, 0.5 / 1.5), abs=1e-3)


def test_views_of_a_small_cluster_overlap_more() -> None:
    rng = np.random.default_rng(4)
    count = 20_000
    for servers, known, k in ((12, 7, 5), (5, 3, 3), (6, 6, 2), (30, 9, 2)):
        # Servers are numbered in the topic's order.
        views = np.sort(np.argsort(rng.random((2, count, servers)), axis=2)[:, :, :known], axis=2)[:, :, :k]
        common = (views[0][:, :, None] == views[1][:, None, :]).any(axis=2).sum(axis=1)
        seen = np.bincount(common, minlength=k + 1) / count
        found = overlap_pmf(servers, known, k)
        assert sum(found) == pytest.approx(1)
        assert np.abs(seen - found).max() < 4 * 0.5 / np.sqrt(count)


def test_restarts_cost_leases() -> None:
    cut = {"k": 8, "k_prime": 1, "outages": "independent", "outage": 0.1, "epoch_s": 10.0, "ttl_s": 6}
    gap = model.restart_gap(2.0, 100.0, 0.0)
    assert share(**cut, by="kill") == pytest.approx(0.9 * (1 - gap))


def test_the_chance_by_servers_down_is_the_model_s() -> None:
    scenario = Scenario(k=5, k_prime=3, **LOSSES)
    path = model.path(0.0, 0.02, 0.03)
    for down, miss in enumerate(miss_by_down(scenario, 5)):
        assert 1 - miss == pytest.approx(model.delivery_given_down(5, 3, 5, down, path))
    holder = Scenario(k=6, k_prime=2, side="subscribe", loss_out=0.1)
    assert miss_by_down(holder, 2) == pytest.approx([0.1**2, 0.1, 1])


def test_where_the_models_of_audiences_fit() -> None:
    outages: dict[str, Any] = {"outages": "independent", "outage": 0.1, **LOSSES}
    assert independent_path(Scenario(**outages)) == pytest.approx(model.path(0.1, 0.02, 0.03))
    assert independent_path(Scenario(loss_in=0.1, avoid_dead=True)) == pytest.approx(0.9)
    for fields in ({"avoid_dead": True}, {"by": "kill"}, {"known": 0.9}, {"repeat": 2}, {"duplicate": 0.1}):
        assert independent_path(Scenario(**outages, **fields)) is None
    assert independent_path(Scenario(**outages | {"outages": "zones"})) is None


def test_outages_that_outlast_leases_are_predicted_roughly() -> None:
    scenario = Scenario(outages="rolling", ttl_s=6, renewals=3.0, epoch_s=4.0)
    assert predict(scenario).note == ""
    assert "leases end in outages" in predict(scenario.with_(epoch_s=4.1)).note
    assert predict(scenario.with_(outages="none", epoch_s=100.0)).note == ""


def test_where_theory_has_no_answer_it_says_why() -> None:
    without: tuple[dict[str, Any], ...] = (
        {"avoid_dead": True, "outages": "rolling"},
        {"by": "stall", "outages": "independent", "outage": 0.1},
        {"scheme": "S", "known": 0.9},
        {"known": 0.04},
        # Leases stand 20 s after a kill at the latest, and servers are up for 10 s.
        {"by": "kill", "outages": "independent", "outage": 0.2, "loss_in": 0.02},
    )
    for fields in without:
        found = predict(Scenario(servers=100, **fields))
        assert found.share is None, fields
        assert found.note


@pytest.mark.parametrize(
    "policy", [{"k_prime": 1}, {"k_prime": 2}, {"k_prime": 2, "side": "subscribe"}, {"scheme": "CH", "k": 2}]
)
def test_a_simulated_run_does_as_predicted(tmp_path: Path, policy: dict[str, Any]) -> None:
    cut: dict[str, Any] = {
        "outages": "independent",
        "outage": 0.2,
        "epoch_s": 0.05,
        "loss_in": 0.05,
        "loss_out": 0.05,
    }
    load = {"servers": 60, "topics": 100, "publishers": 5, "rate": 500.0, "duration_s": 10.0}
    scenario = Scenario(**(cut | load | policy), subscribers=20, topics_per_subscriber=5)
    summary = summarise(simulate(tmp_path, scenario, seed=3))
    assert summary.predicted is not None
    # The interval has 95 %; this is three of its standard errors.
    assert abs(summary.share - summary.predicted) < (summary.high - summary.low) / 2 * 3 / 1.96
    assert summary.high - summary.low < 0.03
    assert np.isclose(summary.copies_per_pair, expected_copies(scenario), rtol=0.05)


def expected_copies(scenario: Scenario) -> float:
    policy = scenario.policy
    # Down when it is published, or a moment later when it is forwarded: the same epoch, nearly always.
    return model.copies(policy.k, policy.publish, policy.subscribe, 0.8, 0.05, 0.05)
