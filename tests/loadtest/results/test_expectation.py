from pathlib import Path
from typing import Any

import pytest

from kcast.hashring import model
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.expectation import Expectation, expect
from kcast.loadtest.results.prediction import delivery_by_down
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import T0, S, World, simulate


def expected(world: World) -> Expectation | None:
    folder = world.folder()
    return expect(folder, attribute(folder))


def test_the_chance_by_servers_down_is_the_model_s() -> None:
    scenario = Scenario(k=5, k_prime=3, loss_in=0.02, loss_out=0.03)
    path = model.path(0.0, 0.02, 0.03)
    for down, chance in enumerate(delivery_by_down(scenario)):
        assert chance == pytest.approx(model.delivery_given_down(5, 3, 5, down, path))
    assert len(delivery_by_down(Scenario(scheme="R", servers=12))) == 13


def test_each_message_has_the_chance_of_its_moment(tmp_path: Path) -> None:
    world = World(tmp_path, k_prime=1, subscribers=1, outages="independent", outage=0.5)
    for at_s in (0.5, 1.0, 1.999, 2.0, 3.0):
        world.message(0, at_s=at_s)
    for server, from_s, to_s in ((0, 1, 2), (1, 1, 3), (2, 0, 1)):
        world.add("outage", server_id=server, t_down_ns=T0 + from_s * S, t_up_ns=T0 + to_s * S)
    found = expected(world)
    assert found is not None
    # Of three servers, one of which is drawn, 1, 2, 2, 1 and none are down.
    assert found.share == pytest.approx((2 / 3 + 1 / 3 + 1 / 3 + 2 / 3 + 1) / 5)
    assert found.low < found.share < found.high


RUN: dict[str, Any] = {
    "servers": 30,
    "topics": 20,
    "subscribers": 20,
    "topics_per_subscriber": 5,
    "rate": 25.0,
}
BAD_LUCK: dict[str, Any] = {
    "outages": "independent",
    "outage": 0.2,
    "epoch_s": 4.0,
    "loss_in": 0.02,
    "loss_out": 0.02,
}


@pytest.mark.parametrize(
    "policy", [{"k_prime": 2}, {"k_prime": 2, "side": "subscribe"}, {"scheme": "CH", "k": 2}]
)
def test_runs_with_few_epochs_are_as_expected_where_luck_hides_the_prediction(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    scenario = Scenario(**(RUN | BAD_LUCK | policy))
    summaries = [summarise(simulate(tmp_path, scenario, seed)) for seed in range(8)]
    assert sum(bool(summary.agrees) for summary in summaries) >= 6
    assert all(z_score(summary) < 4 for summary in summaries)
    without = sum(summary.high - summary.low for summary in summaries)
    assert sum(map(width, summaries)) < 0.6 * without


def z_score(summary: Summary) -> float:
    assert summary.expected is not None
    return abs(summary.share - summary.expected) / (width(summary) / 2) * 1.96


def width(summary: Summary) -> float:
    assert summary.expected_low is not None
    assert summary.expected_high is not None
    return summary.expected_high - summary.expected_low


def test_a_cluster_that_is_not_what_it_should_be_does_not_agree(tmp_path: Path) -> None:
    scenario = Scenario(**(RUN | BAD_LUCK), k_prime=2)
    folder = simulate(tmp_path, scenario)
    assert summarise(folder).agrees
    folder.scenario = scenario.with_(k_prime=3)  # as if a third of what was to be sent were not
    assert summarise(folder).agrees is False


@pytest.mark.parametrize(
    "fields",
    [
        {"known": 0.9},
        {"repeat": 2},
        {"avoid_dead": True, "outages": "rolling"},
        {"by": "kill", "outages": "rolling"},
        {"scheme": "R", "servers": 100},
        {"outages": "rolling", "ttl_s": 3, "epoch_s": 2.1},
    ],
)
def test_where_theory_has_no_answer_there_is_none(tmp_path: Path, fields: dict[str, Any]) -> None:
    world = World(tmp_path, **fields)
    world.message(0)
    assert expected(world) is None


def test_without_all_servers_of_a_topic_there_is_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.message(0, 1)
    world.drop("subscribe", server_id=2)
    assert expected(world) is None
