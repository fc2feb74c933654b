"""Pearson's type III by three moments."""

from math import exp
from statistics import NormalDist

import pytest
from scipy.special import gammaincc

from kcast.spark.findings.skewed import Skewed


def test_without_skewness_it_is_the_normal_distribution() -> None:
    normal = Skewed(10.0, 4.0, 0.0)
    for value in (4.0, 9.0, 10.0, 13.0):
        assert normal.score(value) == pytest.approx((value - 10) / 2)
    assert normal.quantile(0.975) == pytest.approx(10 + 2 * 1.959964, abs=1e-5)


def test_it_is_a_gamma_distribution() -> None:
    # Of shape 4 and scale 3, turned round too.
    for sign in (1, -1):
        skewed = Skewed(sign * 12.0, 36.0, sign * 2 * 4 * 27.0)
        for value in (2.0, 12.0, 30.0, 60.0):
            z = sign * -NormalDist().inv_cdf(float(gammaincc(4, value / 3)))
            assert skewed.score(sign * value) == pytest.approx(z, rel=1e-6)
        for p in (0.001, 0.3, 0.999):
            assert skewed.score(skewed.quantile(p)) == pytest.approx(NormalDist().inv_cdf(p))


@pytest.mark.parametrize("bunches", [0.05, 0.5, 3.0, 30.0])
def test_few_bunches_raise_no_more_alarms_than_they_may(bunches: float) -> None:
    """Ten misses each, so many on average: how often the score is beyond what one in 1000 is."""
    skewed = Skewed(10 * bunches, 100 * bunches, 1000 * bunches)
    limit = NormalDist().inv_cdf(0.9995)
    term, alarms, plain = exp(-bunches), 0.0, 0.0
    for count in range(200):
        alarms += term * (abs(skewed.score(10 * count)) > limit)
        plain += term * (abs(skewed.standard(10 * count)) > limit)
        term *= bunches / (count + 1)
    assert alarms < 0.002
    if bunches < 1:
        assert plain > 0.001  # what a normal distribution would have told


def test_far_away_it_counts_standard_deviations() -> None:
    assert Skewed(0.0, 1.0, 0.0).score(50.0) == 50
    assert Skewed(0.0, 1.0, 0.5).score(-50.0) == -50
