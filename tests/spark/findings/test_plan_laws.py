"""Figures beside the law of the plan: sound runs raise no alarm, and each fault that it should see does."""

from typing import Any

import numpy as np
import pytest

from kcast.loadtest.results.plan_simulator import Runs, simulated
from kcast.loadtest.results.simulated_law import Law
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import audience, balance, cost, reliability
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.plan_laws import Beside, beside, detectable, has_law, verdict
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED
from tests.support.handmade_pairs import cell_of
from tests.support.simulated_sums import simulated_sums

PLAN: dict[str, Any] = {
    **{"servers": 12, "topics": 20, "topics_per_subscriber": 10, "subscribers": 10, "duration_s": 8.0},
    **{"outages": "independent", "outage": 0.1, "loss_in": 0.02, "loss_out": 0.02},
}
README = [Scenario(**PLAN, k=5, k_prime=k, name=f"5-{k}-5") for k in (1, 3)]
MODULES = (reliability, audience, balance, cost)


def verdicts(scenarios: list[Scenario], seed: int, **faults: Any) -> dict[str, set[str]]:
    scenarios = [scenario.with_(seed=seed) for scenario in scenarios]
    sums = simulated_sums(scenarios, seed, as_planned=True, **faults)
    cells = [cell_of(scenario, number) for number, scenario in enumerate(scenarios)]
    tables = {name: rows for module in MODULES for name, rows in module.tables(cells, sums).items()}
    Findings({}, tables=tables)  # all columns, of the types that the tables have
    return {name: {row["verdict"] for row in rows if "verdict" in row} for name, rows in tables.items()}


def test_sound_runs_of_the_readme_raise_no_alarm() -> None:
    # `python -m bench.alarms` has all presets.
    for seed in range(6):
        found = verdicts(README, seed)
        assert not [name for name, seen in found.items() if DISAGREES in seen]
        for name in ("audience", "balance", "cost"):
            assert found[name] & {AGREES, NOT_REFUTED}


def test_a_loss_that_nobody_planned_is_seen_by_audience_and_cost() -> None:
    calm = [scenario.with_(outages="none", outage=0.0) for scenario in README]
    found = verdicts(calm, 1, bad_epochs=1.0, lost_in_bad=0.5)
    for name in ("reliability", "audience", "cost"):
        assert DISAGREES in found[name], name
    assert found["balance"] & {AGREES, NOT_REFUTED}


def test_publishers_who_always_take_the_first_servers_load_them_unevenly() -> None:
    few = Scenario(**PLAN, k=8, k_prime=3, name="8-3-8").with_(servers=40, topics=60, outages="none")
    assert DISAGREES not in verdicts([few], 1)["balance"]
    assert DISAGREES in verdicts([few], 1, first_only=True)["balance"]


def test_a_law_has_its_band_and_its_score() -> None:
    scenario = README[0]

    def share(runs: Runs) -> Any:
        return runs.delivered / runs.pairs

    found = beside(scenario, share, 0.87)
    assert found is not None
    low, high = found.band
    inside = np.mean([low <= value <= high for value in _whole(scenario)])
    assert 0.92 <= inside <= 0.98
    assert abs(found.z) < 1
    assert beside(scenario, share, None) is None
    assert beside(scenario.with_(by="kill"), share, 0.87) is None


def _whole(scenario: Scenario) -> Any:
    runs = simulated(scenario)
    return runs.delivered / runs.pairs


def test_what_never_varies_has_no_law() -> None:
    calm = README[0].with_(outages="none", outage=0.0, loss_in=0.0, loss_out=0.0)
    assert beside(calm, audience.share_reached, 1.0) is None
    assert beside(README[0], audience.share_reached, 0.8) is not None


def test_where_it_matters_how_soon_clients_notice_there_is_no_law() -> None:
    told: tuple[tuple[dict[str, Any], bool], ...] = (
        ({}, True),
        ({"repeat": 2}, True),
        ({"known": 0.75}, True),
        ({"by": "kill"}, False),
        ({"by": "stall"}, False),
        ({"avoid_dead": True}, False),
        ({"epoch_s": 100.0}, False),  # leases end
        ({"outages": "none", "avoid_dead": True, "by": "kill"}, True),
        ({"subscribers": 0}, False),  # locust decides who comes
    )
    for fields, is_known in told:
        assert has_law(README[0].with_(**fields)) == is_known, fields


def test_to_agree_a_test_must_have_been_able_to_see() -> None:
    law = Law(0.9, 1e-4, 0.0, 400)
    assert verdict(None, 1, 0.1) == NO_THEORY
    assert verdict(Beside(law, 1.0), 1, 0.1) == AGREES
    assert verdict(Beside(law, 1.0), 1, 0.01) == NOT_REFUTED
    assert verdict(Beside(law, 3.5), 1, 0.1) == DISAGREES
    assert verdict(Beside(law, 3.5), 100, 0.1) == AGREES  # one of a hundred tests
    assert verdict(Beside(law, -3.5), 1, 0.1, only_above=True) == AGREES
    # At 1 %, nine of ten runs that are off by 3.86 standard deviations are refused (2.58 + 1.28).
    assert detectable(4.0, 0.01) == pytest.approx(2 * 3.857, abs=0.01)
