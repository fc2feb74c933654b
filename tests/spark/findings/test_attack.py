from itertools import combinations
from typing import Any

import pytest

from kcast.hashring import model
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.attack import delivered, tables, theory
from kcast.spark.findings.findings import Findings
from tests.support.handmade_pairs import cell_of, simulate_pairs

OUTAGES: dict[str, Any] = {"outages": "independent", "outage": 0.1, "loss_in": 0.02, "loss_out": 0.03}


def test_blocking_at_random_is_all_ways_to_block() -> None:
    heard = {0: 2, 1: 5, 3: 7}
    for blocked in range(6):
        ways = list(combinations(range(5), blocked))
        left = sum(
            count * sum(not set(range(servers)) <= set(way) for way in ways)
            for servers, count in heard.items()
        )
        assert delivered(heard, 5, blocked) == pytest.approx(left / len(ways) / 14)


def test_theory_without_an_attack_is_the_model_s_delivery_and_none_is_left_at_the_end() -> None:
    scenario = Scenario(servers=40, k=8, k_prime=3, **OUTAGES)
    path = model.path(0.1, 0.02, 0.03)
    assert theory(scenario, 0) == pytest.approx(model.delivery(8, 3, 8, path))
    assert theory(scenario, 8) == pytest.approx(0, abs=1e-12)
    # Of K much larger than K' it is the note's: half of the servers blocked halve the path.
    large = Scenario(servers=4000, k=2000, k_prime=3, **OUTAGES)
    assert theory(large, 1000) == pytest.approx(1 - (1 - path / 2) ** 3, abs=1e-3)
    assert theory(scenario.with_(known=0.9), 1) is None


@pytest.mark.parametrize("side", ["publish", "subscribe"])
def test_a_simulated_run_is_as_the_theory_says(side: Any) -> None:
    load: dict[str, Any] = {"topics": 40, "topics_per_subscriber": 20, "publishers": 4, "rate": 50.0}
    scenario = Scenario(servers=40, k=8, k_prime=3, side=side, epoch_s=0.1, **load, **OUTAGES)
    heard: dict[int, int] = {}
    for servers in simulate_pairs(scenario, 1)["heard"].tolist():
        heard[servers] = heard.get(servers, 0) + 1
    rows = [{"cell": 0, "heard": servers, "pairs": pairs} for servers, pairs in heard.items()]
    found = tables([cell_of(scenario)], {"heard": rows})
    Findings({}, tables=found)
    assert [row["blocked"] for row in found["attack"]] == list(range(9))
    for row in found["attack"]:
        assert row["delivered"] == pytest.approx(row["theory"], abs=0.01)


def test_many_servers_are_told_in_steps_and_cells_without_pairs_not_at_all() -> None:
    scenario = Scenario(servers=160, k=80, k_prime=3)
    cells = [cell_of(scenario), cell_of(scenario, 1)]
    found = tables(cells, {"heard": [{"cell": 0, "heard": 3, "pairs": 10}]})["attack"]
    assert {row["cell"] for row in found} == {0}
    assert (found[0]["blocked"], found[-1]["blocked"], len(found)) == (0, 80, 65)
    assert (found[0]["delivered"], found[-1]["delivered"]) == (1, 0)
