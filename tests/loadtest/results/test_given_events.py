"""Theory given what happened: the misses of runs whose events are known."""

from math import comb, exp, fsum
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearson3

from kcast.loadtest.results.given_events import (
    Chances,
    Misses,
    expected_misses,
    given_events,
    messages_per_lost_datagram,
    why_none,
)
from kcast.loadtest.results.loss_estimates import estimated
from kcast.loadtest.scenario import Scenario
from tests.support.forms import few_of
from tests.support.handmade_pairs import reliability_sums, simulate_pairs

OUTAGES: dict[str, Any] = {"outages": "independent", "outage": 0.1, "loss_in": 0.02, "loss_out": 0.03}


def classes_of(scenario: Scenario, seed: int = 1, **more: Any) -> tuple[list[Chances], int]:
    """What is counted of a simulated run, and how many pairs it missed."""
    rows = reliability_sums(simulate_pairs(scenario, seed, **more))["chances"]
    names = ("low", "high", "products", "pairs", "delivered", "faults", "cubes")
    classes = [Chances(*(row[name] for name in names)) for row in rows]
    return classes, sum(each.pairs - each.delivered for each in classes)


SMALL: dict[str, Any] = {
    **{"servers": 20, "topics": 6, "topics_per_subscriber": 3, "subscribers": 8, "publishers": 2},
    **{"rate": 20.0, "duration_s": 10.0, "outages": "independent", "outage": 0.2},
    **{"loss_in": 0.1, "loss_out": 0.05},
}
POLICIES: list[dict[str, Any]] = [
    {"k": 6, "k_prime": 2},
    {"k": 6, "k_prime": 2, "side": "subscribe"},
    {"scheme": "CH", "k": 2},
    {"scheme": "R", "loss_in": 0.6},
]


def test_one_pair_misses_with_the_chances_it_had() -> None:
    scenario = Scenario(loss_in=0.1, loss_out=0.2)
    q = 1 - 0.9 * 0.8
    found = expected_misses(scenario, [Chances(2, 2, 50, 50, 40, 0, 50), Chances(0, 0, 9, 9, 0, 0, 9)])
    assert found.mean == pytest.approx(50 * q**2 + 9)
    assert found.certain == 9
    assert found.variance == pytest.approx(50 * q**2 * (1 - q**2))
    assert found.third == pytest.approx(50 * q**2 * (1 - q**2) * (1 - 2 * q**2))


def test_without_loss_there_is_no_luck() -> None:
    found = expected_misses(Scenario(), [Chances(2, 2, 500, 50, 40, 0, 5000), Chances(0, 2, 5)])
    assert (found.mean, found.variance, found.band(50)) == (0, 0, (1.0, 1.0))


@pytest.mark.parametrize(("loss_in", "loss_out"), [(0.1, 0.0), (0.0, 0.2), (0.1, 0.2)])
def test_a_message_s_moments_are_those_of_all_its_outcomes(loss_in: float, loss_out: float) -> None:
    """Few publish: three subscribers of two sendings each, all outcomes of which are gone through."""
    scenario = Scenario(k=5, k_prime=2, loss_in=loss_in, loss_out=loss_out)
    pmf = dict.fromkeys(range(4), 0.0)
    for came in range(3):
        p = comb(2, came) * (1 - loss_in) ** came * loss_in ** (2 - came)
        for missed in range(4):
            each = loss_out**came
            pmf[missed] += p * comb(3, missed) * each**missed * (1 - each) ** (3 - missed)
    mean = fsum(n * p for n, p in pmf.items())
    # Five such messages.
    found = expected_misses(scenario, [Chances(2, 2, 5 * 9, 15, 0, 0, 5 * 27)])
    assert found.mean == pytest.approx(5 * mean)
    assert found.variance == pytest.approx(5 * fsum((n - mean) ** 2 * p for n, p in pmf.items()))
    assert found.third == pytest.approx(5 * fsum((n - mean) ** 3 * p for n, p in pmf.items()))


@pytest.mark.parametrize("policy", few_of(POLICIES, 1))
def test_simulated_runs_scatter_as_told(policy: dict[str, Any]) -> None:
    scenario = Scenario(**(SMALL | policy))
    scores, inside = [], 0
    for seed in range(100):
        classes, missed = classes_of(scenario, seed)
        pairs = sum(each.pairs for each in classes)
        found = given_events(scenario, classes, estimated({}, 1))
        scores.append((missed - found.mean) / found.variance**0.5)
        low, high = found.band(pairs)
        inside += low <= 1 - missed / pairs <= high
    # Standard errors are 0.10, 0.07 and 2.2.
    assert abs(np.mean(scores)) < 0.3
    assert 0.75 < np.std(scores) < 1.25
    assert inside >= 88


def test_its_distribution_is_pearson_s_of_type_three() -> None:
    for skew in (-1.5, -0.3, -0.001, 0.0, 0.006, 0.1, 1.0, 8.0):
        misses = Misses(1000.0, 0, 100.0, skew * 1000.0)
        law = pearson3(skew, 1000, 10)
        for p in (0.001, 0.025, 0.5, 0.975, 0.999):
            assert misses.quantile(p) == pytest.approx(law.ppf(p), abs=0.02 if abs(skew) < 0.005 else 1e-6)


def test_messages_that_share_datagrams_have_more_luck_in_common() -> None:
    classes = [Chances(2, 2, 450, 150, 100, 0, 1350)]
    alone, bunched = (expected_misses(Scenario(loss_in=0.1), classes, size) for size in (1.0, 1.5))
    assert bunched.mean == alone.mean
    assert bunched.variance == pytest.approx(1.5 * alone.variance)
    assert messages_per_lost_datagram([]) == messages_per_lost_datagram([(0, 0), (7, 7)]) == 1
    assert messages_per_lost_datagram([(10, 10), (3, 5)]) == pytest.approx(5 / 3)


def test_few_bunches_may_well_not_come() -> None:
    assert Misses(7.0, 7, 0.0, 0.0).certain_only_probability == 1
    few = Misses(12.0, 7, 50.0, 500.0)
    assert few.certain_only_probability == pytest.approx(exp(-0.5))
    assert few.band(100)[1] == pytest.approx(0.93)  # all that had a chance came


def test_where_chances_are_not_known_it_says_why() -> None:
    assert "halted" in why_none(Scenario(**OUTAGES, by="stall"))
    assert "extra copy" in why_none(Scenario(duplicate=0.1))
    assert why_none(Scenario(**OUTAGES, by="kill", avoid_dead=True, known=0.9, repeat=2)) == ""
    assert why_none(Scenario(by="stall")) == ""
