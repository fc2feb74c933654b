from math import inf, sqrt

import numpy as np
import pytest

from kcast.hashring.effective_size import (
    ClusterSums,
    EffectiveSize,
    cluster_sums,
    effective_size,
    independent_trials,
)
from kcast.hashring.intervals import student_quantile, student_tail, wilson
from tests.support.forms import Seeds

NOTHING = ClusterSums(0, 0, 0, 0, 0, 0)


class TestStudent:
    @pytest.mark.parametrize(
        ("confidence", "degrees", "t"),
        [
            (0.95, 1, 12.7062),
            (0.95, 4, 2.77645),
            (0.95, 30, 2.04227),
            (0.99, 9, 3.24984),
            (0.95, inf, 1.95996),
        ],
    )
    def test_quantiles_of_tables(self, confidence: float, degrees: float, t: float) -> None:
        assert student_quantile(confidence, degrees) == pytest.approx(t, rel=1e-5)

    @pytest.mark.parametrize("degrees", [1, 2, 7, 1000, 10**7])
    @pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
    def test_the_quantile_is_the_tail_turned_round(self, confidence: float, degrees: float) -> None:
        tail = student_tail(student_quantile(confidence, degrees), degrees)
        assert tail == pytest.approx(1 - confidence, rel=1e-6)

    @pytest.mark.parametrize(("t", "tail"), [(0, 1), (2, 0.0455003), (-2, 0.0455003), (8, 1.24419e-15)])
    def test_the_tail_without_end_of_degrees_is_the_normal_one(self, t: float, tail: float) -> None:
        assert student_tail(t, inf) == pytest.approx(tail, rel=1e-5)


class TestIndependent:
    def test_it_is_the_ratio_of_variances(self, seeds: Seeds) -> None:
        for seed in seeds(1, 5):
            rng = np.random.default_rng(seed)
            n = rng.integers(1, 50, 30)
            x = rng.binomial(n, rng.random(30))
            p = x.sum() / n.sum()
            spread = 30 / 29 * ((x - n * p) ** 2).sum()
            found = independent_trials(cluster_sums(zip(n.tolist(), x.tolist(), strict=True)))
            assert found == pytest.approx(n.sum() ** 2 * p * (1 - p) / spread, rel=1e-10), seed

    def test_clusters_that_are_all_alike_are_worth_all_trials(self) -> None:
        assert independent_trials(cluster_sums([(4, 2)] * 5)) == 20
        assert independent_trials(cluster_sums([(10, 5), (20, 10)])) == 30

    def test_sums_beyond_double_precision_stay_exact(self) -> None:
        n = 10**8
        # Of two clusters the second has one success fewer.
        found = independent_trials(cluster_sums([(n, n), (n, n - 1)]))
        assert found == pytest.approx(2 * n - 1, rel=1e-12)

    def test_clusters_of_a_known_correlation(self) -> None:
        """Few subscribe: a subscriber keeps its draw, so its messages share their fate."""
        rng = np.random.default_rng(10)
        clusters, each, loss = 4000, 50, 0.2
        up = (rng.random((clusters, 2)) < 0.7).sum(axis=1)
        missed = rng.binomial(each, loss**up)
        trials = independent_trials(cluster_sums((each, each - int(x)) for x in missed))
        once, twice = (0.3 + 0.7 * loss) ** 2, (0.3 + 0.7 * loss * loss) ** 2
        correlation = (twice - once * once) / (once * (1 - once))
        assert clusters * each / trials == pytest.approx(1 + (each - 1) * correlation, rel=0.1)


class TestEffective:
    def test_sums_are_over_clusters_that_have_trials(self) -> None:
        assert cluster_sums([(3, 1), (0, 0), (2, 2)]) == (2, 5, 3, 13, 7, 5)
        assert cluster_sums([]) == NOTHING

    def test_the_widest_interval_counts(self) -> None:
        split = cluster_sums([(10, 10), (10, 0)] * 5)  # each cluster has all or none
        spread = cluster_sums([(1, 1), (1, 0)] * 50)
        found = effective_size({"message": spread, "epoch": split}, 100)
        assert (found.name, found.degrees, found.single) == ("epoch", 9, ())
        assert found.variance_trials == pytest.approx(9)  # 10 clusters, and a degree of freedom less

    def test_few_clusters_may_make_it_wider_than_many_that_vary_more(self) -> None:
        few, many = cluster_sums([(50, 30), (50, 20)]), cluster_sums([(2, 2), (2, 0)] * 25)
        assert independent_trials(few) < independent_trials(many)
        alike = cluster_sums([(50, 26), (50, 24)])
        assert independent_trials(alike) > independent_trials(many)
        assert (
            effective_size({"many": many, "alike": alike}, 1).name == "alike"
        )  # by Student's t with 1 degree

    def test_trials_that_share_nothing_are_worth_themselves(self) -> None:
        found = effective_size({"message": cluster_sums([(1, 1)] * 24 + [(1, 0)] * 16)}, 1)
        assert found.interval(0.6) == wilson(24, 40)

    def test_one_cluster_tells_nothing_and_is_named(self) -> None:
        whole, several = cluster_sums([(20, 10)]), cluster_sums([(2, 1)] * 10)
        found = effective_size({"epoch": whole, "message": several}, 1)
        assert (found.name, found.single) == ("message", ("epoch",))
        assert effective_size({"epoch": whole}, 1).interval(0.5) == (0, 1)

    def test_where_all_or_none_succeeded_the_caller_knows(self) -> None:
        for successes in (0, 5):
            found = effective_size({"message": cluster_sums([(5, successes)] * 8)}, 7)
            assert (found.variance_trials, found.degrees, found.interval_trials()) == (7, inf, 7)
        assert found.interval(1.0) == (wilson(7, 7)[0], 1.0)

    def test_without_trials_nothing_is_known(self) -> None:
        for sums in ({}, {"message": NOTHING}):
            assert effective_size(sums, 1).variance_trials == 0
            assert effective_size(sums, 1).interval(0.0) == (0, 1)

    def test_an_interval_is_as_wide_as_students(self) -> None:
        found = EffectiveSize(1e6, 4, "epoch")
        low, high = found.interval(0.5)
        assert high - 0.5 == pytest.approx(2.77645 * sqrt(0.25 / 1e6), rel=1e-4)
        assert 0.5 - low == pytest.approx(high - 0.5)
        wider = found.interval(0.5, 0.99)
        assert wider[1] - 0.5 == pytest.approx(4.60409 * sqrt(0.25 / 1e6), rel=1e-4)
        assert found.interval_trials() == pytest.approx(1e6 * (1.95996 / 2.77645) ** 2, rel=1e-4)
