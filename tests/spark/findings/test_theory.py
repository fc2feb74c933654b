from math import comb, exp, fsum
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaincc

from kcast.hashring import model
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.pearson3 import Skewed
from kcast.spark.findings.theory_beforehand import beforehand, for_servers, independent_path
from kcast.spark.findings.theory_given_events import (
    Chances,
    Misses,
    expected_misses,
    messages_per_lost_datagram,
    why_none,
)
from tests.support.handmade_pairs import reliability_sums, simulate_pairs

OUTAGES: dict[str, Any] = {"outages": "independent", "outage": 0.1, "loss_in": 0.02, "loss_out": 0.03}


class TestSkewed:
    def test_without_skewness_it_is_the_normal_distribution(self) -> None:
        normal = Skewed(10.0, 4.0, 0.0)
        for value in (4.0, 9.0, 10.0, 13.0):
            assert normal.score(value) == pytest.approx((value - 10) / 2)
        assert normal.quantile(0.975) == pytest.approx(10 + 2 * 1.959964, abs=1e-5)

    def test_it_is_a_gamma_distribution(self) -> None:
        # Of shape 4 and scale 3, turned round too.
        for sign in (1, -1):
            skewed = Skewed(sign * 12.0, 36.0, sign * 2 * 4 * 27.0)
            for value in (2.0, 12.0, 30.0, 60.0):
                above = float(gammaincc(4, value / 3))
                z = sign * -NormalDist().inv_cdf(above)
                assert skewed.score(sign * value) == pytest.approx(z, rel=1e-6)
                assert skewed.above(sign * value) == pytest.approx(above if sign > 0 else 1 - above)
            for p in (0.001, 0.3, 0.999):
                assert skewed.above(skewed.quantile(p)) == pytest.approx(1 - p)

    @pytest.mark.parametrize("bunches", [0.05, 0.5, 3.0, 30.0])
    def test_few_bunches_raise_no_more_alarms_than_they_may(self, bunches: float) -> None:
        """Ten misses each, so many on average: how often the score is beyond what one in 1000 is."""
        skewed = Skewed(10 * bunches, 100 * bunches, 1000 * bunches)
        limit = NormalDist().inv_cdf(0.9995)
        term, alarms, plain = exp(-bunches), 0.0, 0.0
        for count in range(200):
            alarms += term * (abs(skewed.score(10 * count)) > limit)
            plain += term * (abs(10 * count - skewed.mean) / skewed.sd > limit)
            term *= bunches / (count + 1)
        assert alarms < 0.002
        if bunches < 1:
            assert plain > 0.001  # what a normal distribution would have told

    def test_far_away_it_counts_standard_deviations(self) -> None:
        assert Skewed(0.0, 1.0, 0.0).score(50.0) == 50
        assert Skewed(0.0, 1.0, 0.5).score(-50.0) == -50


class TestShares:
    def test_the_unconditional_theory_is_the_model_s(self) -> None:
        path = model.path(0.1, 0.02, 0.03)
        for side in ("publish", "subscribe"):
            scenario = Scenario(servers=12, k=8, k_prime=3, side=side, **OUTAGES)
            assert beforehand(scenario) == pytest.approx(model.delivery(8, 3, 8, path))
        assert beforehand(Scenario(scheme="S", **OUTAGES)) == pytest.approx(path)
        exact: dict[str, Any] = {**OUTAGES, "outages": "exact", "down": 2, "by": "kill", "known": 0.9}
        scenario = Scenario(servers=20, scheme="CH", k=4, **exact)
        assert beforehand(scenario) == pytest.approx(model.delivery(4, 4, 4, path))
        assert for_servers(scenario).share != pytest.approx(beforehand(scenario))
        assert beforehand(Scenario(loss_in=0.02, known=0.8)) == pytest.approx(1 - 0.02**3)

    def test_where_the_note_has_no_model_there_is_none(self) -> None:
        for fields in ({"avoid_dead": True}, {"by": "stall"}):
            assert beforehand(Scenario(**OUTAGES, **fields)) is None
            assert beforehand(Scenario(loss_in=0.1, **fields)) is not None

    def test_where_the_models_of_audience_and_attack_fit(self) -> None:
        assert independent_path(Scenario(**OUTAGES)) == pytest.approx(model.path(0.1, 0.02, 0.03))
        assert independent_path(Scenario(loss_in=0.1, avoid_dead=True)) == pytest.approx(0.9)
        for fields in (
            {"avoid_dead": True},
            {"by": "kill"},
            {"known": 0.9},
            {"repeat": 2},
            {"duplicate": 0.1},
            {"outages": "zones"},
        ):
            assert independent_path(Scenario(**(OUTAGES | fields))) is None


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


class TestChances:
    def test_one_pair_misses_with_the_chances_it_had(self) -> None:
        scenario = Scenario(loss_in=0.1, loss_out=0.2)
        q = 1 - 0.9 * 0.8
        found = expected_misses(scenario, [Chances(2, 2, 50, 50, 40, 0, 50), Chances(0, 0, 9, 9, 0, 0, 9)])
        assert found.mean == pytest.approx(50 * q**2 + 9)
        assert found.certain == 9
        assert found.variance == pytest.approx(50 * q**2 * (1 - q**2))
        assert found.third == pytest.approx(50 * q**2 * (1 - q**2) * (1 - 2 * q**2))

    def test_without_loss_there_is_no_luck(self) -> None:
        found = expected_misses(Scenario(), [Chances(2, 2, 500, 50, 40, 0, 5000), Chances(0, 2, 5)])
        assert (found.mean, found.variance, found.distribution) == (0, 0, None)

    @pytest.mark.parametrize(("loss_in", "loss_out"), [(0.1, 0.0), (0.0, 0.2), (0.1, 0.2)])
    def test_a_message_s_moments_are_those_of_all_its_outcomes(self, loss_in: float, loss_out: float) -> None:
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

    @pytest.mark.parametrize("policy", POLICIES)
    def test_simulated_runs_scatter_as_told(self, policy: dict[str, Any]) -> None:
        scenario = Scenario(**(SMALL | policy))
        scores = []
        for seed in range(100):
            classes, missed = classes_of(scenario, seed)
            scores.append(expected_misses(scenario, classes).score(missed))
        # Standard errors are 0.10 and 0.07.
        assert abs(np.mean(scores)) < 0.3
        assert 0.75 < np.std(scores) < 1.25

    def test_messages_that_share_datagrams_have_more_luck_in_common(self) -> None:
        classes = [Chances(2, 2, 450, 150, 100, 0, 1350)]
        alone, bunched = (expected_misses(Scenario(loss_in=0.1), classes, size) for size in (1.0, 1.5))
        assert bunched.mean == alone.mean
        assert bunched.variance == pytest.approx(1.5 * alone.variance)
        assert messages_per_lost_datagram([]) == messages_per_lost_datagram([(0, 0), (7, 7)]) == 1
        assert messages_per_lost_datagram([(10, 10), (3, 5)]) == pytest.approx(5 / 3)

    def test_few_bunches_may_well_not_come(self) -> None:
        assert Misses(7.0, 7, 0.0, 0.0).certain_only_probability == 1
        few = Misses(12.0, 7, 50.0, 500.0)
        assert few.certain_only_probability == pytest.approx(exp(-0.5))
        assert few.score(7) == pytest.approx(NormalDist().inv_cdf(exp(-0.5) / 2))
        hardly = Misses(0.001, 0, 0.01, 0.1)
        assert abs(hardly.score(0)) < 0.001
        assert hardly.score(10) > 3.2

    def test_where_chances_are_not_known_it_says_why(self) -> None:
        assert "halted" in why_none(Scenario(**OUTAGES, by="stall"))
        assert "extra copy" in why_none(Scenario(duplicate=0.1))
        assert why_none(Scenario(**OUTAGES, by="kill", avoid_dead=True, known=0.9, repeat=2)) == ""
        assert why_none(Scenario(by="stall")) == ""
