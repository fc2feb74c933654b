"""The closed forms against known figures and against simulation."""

import random
import subprocess
import sys
from math import comb, exp, fsum, log, pi, sqrt

import numpy as np
import numpy.typing as npt
import pytest

from kcast.hashring import intervals, model
from tests.support.forms import Seeds

K, K_PRIME = 1000, 3  # the example of the 2004 note


def near(estimate: float, expected: float, trials: int, sds: float = 4.5) -> bool:
    """Whether a simulated share of `trials` is within so many standard deviations of the expected one."""
    return abs(estimate - expected) <= sds * sqrt(max(expected * (1 - expected), 1 / trials) / trials)


def draws(rng: np.random.Generator, rows: int, population: int, count: int) -> np.ndarray:
    """Random subsets as a table of booleans, shape (rows, population), `count` true in each."""
    return rng.random((rows, population)).argsort(axis=1) < count


def test_model_needs_no_numpy() -> None:
    code = "import sys, kcast.hashring.model; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestPath:
    def test_sigma(self) -> None:
        assert model.sigma(3, 0.1) == pytest.approx(0.999)
        assert model.sigma(2, 0.0) == 1
        assert model.sigma(0.4, 0.0) == pytest.approx(0.4)

    @pytest.mark.parametrize(("renewals", "loss"), [(3, 0.3), (2.4, 0.3), (0.7, 0.2), (1, 0.5)])
    def test_sigma_simulated(self, renewals: float, loss: float) -> None:
        """Renewals at whole times, TTL `renewals`; live if one of the last TTL's got through."""
        rng = np.random.default_rng(1)
        trials = 200_000
        came = rng.random((trials, 4)) >= loss
        now = rng.random(trials)  # since the latest renewal, of which came[:, 0] tells
        age = now[:, None] + np.arange(4)
        live = (came & (age < renewals)).any(axis=1).mean()
        assert near(live, model.sigma(renewals, loss), trials)

    @pytest.mark.parametrize("dedup", [False, True])
    @pytest.mark.parametrize("sends", [1, 3])
    def test_path_simulated(self, sends: int, dedup: bool) -> None:
        rng = np.random.default_rng(2)
        trials = 200_000
        in_came = rng.random((trials, sends)) >= 0.3
        got: npt.NDArray[np.bool_]
        if dedup:
            got = np.any(in_came, axis=1) & (rng.random(trials) >= 0.2)
        else:
            got = np.any(in_came & (rng.random((trials, sends)) >= 0.2), axis=1)
        got &= (rng.random(trials) >= 0.1) & (rng.random(trials) < 0.95)
        assert near(got.mean(), model.path(0.1, 0.3, 0.2, 0.95, sends, dedup), trials)

    def test_restart_gap_simulated(self) -> None:
        rng = np.random.default_rng(3)
        interval, up, loss, trials = 10.0, 5000.0, 0.25, 200_000
        waits = interval * (rng.random(trials) + rng.geometric(1 - loss, trials) - 1)
        assert waits.mean() / up == pytest.approx(model.restart_gap(interval, up, loss), rel=0.01)


class TestPolicies:
    def test_the_note(self) -> None:
        """99.9 % with K' = 3 of servers that are independent and 90 % reliable, from either side."""
        assert model.delivery(K, K_PRIME, K, 0.9) == pytest.approx(0.999)
        assert model.delivery(K, K, K_PRIME, 0.9) == pytest.approx(0.999)
        assert model.delivery(1, 1, 1, 0.9) == pytest.approx(0.9)
        assert model.delivery(3, 3, 3, 0.9) == pytest.approx(0.999)

    @pytest.mark.parametrize(("loss", "delivered"), [(0.01, 0.99836), (0.05, 0.99338)])
    def test_with_loss_on_each_leg(self, loss: float, delivered: float) -> None:
        path = model.path(0.1, loss, loss)
        assert model.delivery(K, K_PRIME, K, path) == pytest.approx(delivered, abs=5e-6)

    @pytest.mark.parametrize(
        ("k", "m", "delivered"),
        [(100_000, 316, 0.594), (100_000, 632, 0.973), (100_000, 876, 0.99905), (1000, 84, 0.99896)],
    )
    def test_both_sides_draw(self, k: int, m: int, delivered: float) -> None:
        assert model.delivery(k, m, m, 0.9) == pytest.approx(delivered, abs=6e-4 if m < 700 else 6e-6)

    def test_random_is_about_exponential(self) -> None:
        assert model.hyp_miss(100_000, 632, 632, 0.9) == pytest.approx(exp(-0.9 * 632**2 / 1e5), rel=0.03)

    def test_the_sides_must_not_be_mixed(self) -> None:
        assert model.delivery(K, 3, 3, 0.9) == pytest.approx(0.0081, abs=5e-5)

    @pytest.mark.parametrize(
        ("k", "m", "n"), [(9, 4, 3), (20, 20, 7), (7, 5, 6), (5, 0, 5), (1, 1, 1), (0, 0, 0)]
    )
    def test_hypergeometric_against_factorials(self, k: int, m: int, n: int) -> None:
        least, pmf = model.hypergeometric(k, m, n)
        exact = {
            h: comb(m, h) * comb(k - m, n - h) / comb(k, n) for h in range(min(m, n) + 1) if n - h <= k - m
        }
        assert list(range(least, least + len(pmf))) == list(exact)
        assert pmf == pytest.approx(list(exact.values()), rel=1e-12)

    def test_hypergeometric_of_many(self) -> None:
        least, pmf = model.hypergeometric(100_000, 876, 876)
        exact = [comb(876, h) * comb(99_124, 876 - h) / comb(100_000, 876) for h in range(20)]
        assert pmf[:20] == pytest.approx(exact, rel=1e-11)
        assert fsum(h * p for h, p in enumerate(pmf, least)) == pytest.approx(876**2 / 1e5, rel=1e-12)

    @pytest.mark.parametrize("sizes", [(5, 6, 2), (5, 2, 6), (5, -1, 2), (5, 2, -1)])
    def test_draws_beyond_the_hosts(self, sizes: tuple[int, int, int]) -> None:
        with pytest.raises(ValueError, match="must be within"):
            model.delivery(*sizes, 0.9)

    @pytest.mark.parametrize(("k", "m", "n"), [(5, 3, 5), (5, 5, 3), (4, 4, 4), (8, 4, 5), (12, 3, 4)])
    def test_simulated(self, k: int, m: int, n: int) -> None:
        rng = np.random.default_rng(k * 100 + m * 10 + n)
        trials = 100_000
        common = draws(rng, trials, k, m) & draws(rng, trials, k, n)
        got = (common & (rng.random((trials, k)) < 0.6)).any(axis=1).mean()
        assert near(got, model.delivery(k, m, n, 0.6), trials)


class TestDependentFailures:
    @pytest.mark.parametrize(("k", "m", "n"), [(5, 3, 5), (5, 5, 3), (5, 5, 5), (6, 4, 3)])
    @pytest.mark.parametrize("down", [0, 2, 4])
    def test_given_down_simulated(self, k: int, m: int, n: int, down: int) -> None:
        rng = np.random.default_rng(down * 1000 + k * 100 + m * 10 + n)
        trials = 60_000
        common = draws(rng, trials, k, m) & draws(rng, trials, k, n)
        common[:, :down] = False
        got = (common & (rng.random((trials, k)) < 0.8)).any(axis=1).mean()
        assert near(got, model.delivery_given_down(k, m, n, down, 0.8), trials)

    def test_given_down_exactly(self) -> None:
        assert [1 - model.delivery_given_down(5, 3, 5, h) for h in range(6)] == pytest.approx(
            [0, 0, 0, 0.1, 0.4, 1], abs=1e-12
        )
        assert [model.delivery_given_down(5, 5, 3, h) for h in range(6)] == pytest.approx(
            [model.delivery_given_down(5, 3, 5, h) for h in range(6)]
        )
        for down in range(5):
            assert model.delivery_given_down(5, 5, 5, down, 0.7) == pytest.approx(1 - 0.3 ** (5 - down))

    def test_given_down_averages_to_the_unconditional(self) -> None:
        for k, m, n in ((5, 3, 5), (7, 7, 2), (6, 4, 3)):
            whole = fsum(
                comb(k, h) * 0.1**h * 0.9 ** (k - h) * model.delivery_given_down(k, m, n, h, 0.95)
                for h in range(k + 1)
            )
            assert whole == pytest.approx(model.delivery(k, m, n, 0.9 * 0.95), abs=1e-12)

    def test_exactly_so_many_down(self) -> None:
        assert model.miss_exactly_down(100, 10, 3) == pytest.approx(comb(10, 3) / comb(100, 3))
        assert model.miss_exactly_down(100, 10, 3) == pytest.approx(0.00074, abs=5e-6)
        assert model.miss_exactly_down(20, 2, 3) == 0
        assert model.miss_exactly_down(20, 20, 3) == 1
        assert model.miss_exactly_down(10, 0, 3, 0.9) == pytest.approx(0.001)

    @pytest.mark.parametrize(
        ("rho", "delivered"), [(0.01, 0.9987), (0.05, 0.9973), (0.1, 0.9950), (0.3, 0.9809)]
    )
    def test_shared_availability(self, rho: float, delivered: float) -> None:
        assert 1 - model.betabin_miss(0.9, rho, 3) == pytest.approx(delivered, abs=6e-5)

    def test_shared_availability_at_the_ends(self) -> None:
        assert 1 - model.betabin_miss(0.9, 0.1, 5) == pytest.approx(0.9994, abs=5e-5)
        assert model.betabin_miss(0.9, 0, 3, 0.8) == pytest.approx((1 - 0.72) ** 3)
        assert model.betabin_miss(0.9, 1, 3, 0.8) == pytest.approx(0.1 + 0.9 * 0.2**3)
        assert model.betabin_miss(0.9, 1e-6, 3, 0.8) == pytest.approx((1 - 0.72) ** 3, rel=1e-4)
        assert model.betabin_miss(0.9, 0.2, 4, 1 - 1e-13) == pytest.approx(model.betabin_miss(0.9, 0.2, 4))

    def test_shared_availability_simulated(self) -> None:
        rng = np.random.default_rng(4)
        trials, rho = 200_000, 0.2
        scale = (1 - rho) / rho
        availability = rng.beta(0.8 * scale, 0.2 * scale, trials)
        missed = (rng.random((trials, 3)) >= 0.9 * availability[:, None]).all(axis=1).mean()
        assert near(missed, model.betabin_miss(0.8, rho, 3, 0.9), trials)

    def test_zones(self) -> None:
        assert 1 - model.zone_miss(10, 0.1, 1, 3) == pytest.approx(0.9956, abs=5e-5)
        assert 1 - model.zone_miss(3, 0.1, 1, 3) == pytest.approx(0.982, abs=5e-4)
        rng = np.random.default_rng(5)
        trials = 100_000
        dark = rng.random((trials, 4)) < 0.3
        zone = rng.integers(0, 4, (trials, 3))
        got = ~np.take_along_axis(dark, zone, 1) & (rng.random((trials, 3)) < 0.8)
        assert near((~got.any(axis=1)).mean(), model.zone_miss(4, 0.3, 0.8, 3), trials)


class TestAudience:
    @pytest.mark.parametrize(("k", "m", "n"), [(5, 3, 5), (5, 5, 3), (5, 5, 5), (6, 4, 4)])
    def test_simulated(self, k: int, m: int, n: int) -> None:
        rng = np.random.default_rng(k * 100 + m * 10 + n)
        trials, subscribers = 20_000, 10
        has = draws(rng, trials, k, m) & (rng.random((trials, k)) < 0.9 * 0.95)
        all_got = np.ones(trials, bool)
        for _ in range(subscribers):
            held = draws(rng, trials, k, n) & (rng.random((trials, k)) < 0.97 * 0.9)
            all_got &= (has & held).any(axis=1)
        assert near(all_got.mean(), model.audience(k, m, n, subscribers, 0.9, 0.05, 0.1, 0.97), trials)

    def test_opposite_shapes_of_failure(self) -> None:
        """Without loss few publish loses 0.1 % of messages whole; few subscribe nearly always some pairs."""
        assert model.audience(K, 3, K, 1000, 0.9) == pytest.approx(0.999)
        assert model.audience(K, 3, K, 1000, 0.9, 0.01, 0.01) == pytest.approx(0.942, abs=5e-4)
        independent = model.delivery(K, K, 3, model.path(0.1, 0.01, 0.01)) ** 1000
        assert independent == pytest.approx(0.194, abs=5e-4)
        shared = model.audience(K, K, 3, 1000, 0.9, 0.01, 0.01)
        assert shared == pytest.approx(0.2096, abs=5e-5)  # subscribers share the hosts that are up

    def test_audience_of_one_is_delivery(self) -> None:
        for k, m, n in ((5, 3, 5), (9, 9, 2), (8, 5, 5)):
            path = model.path(0.1, 0.02, 0.03, 0.9)
            assert model.audience(k, m, n, 1, 0.9, 0.02, 0.03, 0.9) == pytest.approx(
                model.delivery(k, m, n, path), abs=1e-12
            )


class TestCopiesAndCost:
    def test_the_example(self) -> None:
        copies = model.copies(K, 3, K, 0.9, 0, 0)
        assert copies == pytest.approx(2.7)
        assert model.duplicates(copies, 0.999) == pytest.approx(1.70, abs=0.005)
        assert model.copies(K, 84, 84, 0.9, 0, 0) == pytest.approx(6.35, abs=0.005)

    def test_copies_simulated(self) -> None:
        rng = np.random.default_rng(6)
        trials, k = 50_000, 6
        common = draws(rng, trials, k, 4) & draws(rng, trials, k, 3) & (rng.random((trials, k)) < 0.9 * 0.95)
        came = sum((common & (rng.random((trials, k)) < 0.8 * 0.7)).sum(axis=1) for _ in range(2))
        assert came.mean() == pytest.approx(model.copies(k, 4, 3, 0.9, 0.2, 0.3, 0.95, 2), rel=0.02)

    def test_cost(self) -> None:
        spent = model.cost(5, 3, 5, 100, 2.0, 20.0, sends=2, up=0.9, loss_in=0.1, live=0.5)
        assert spent.published == 12
        assert spent.renewals == 25
        assert spent.forwarded == pytest.approx(2 * 100 * 3 * 0.9 * 0.5 * 2 * 0.9)

    @pytest.mark.parametrize(
        ("subscribers", "rate"), [(10, 0.2), (10, 0.4), (10, 0.6), (1000, 1.0), (0, 0.1)]
    )
    def test_the_cheaper_side(self, subscribers: int, rate: float) -> None:
        few_publish = model.cost(9, 3, 9, subscribers, rate, 20.0, up=0.9)
        few_subscribe = model.cost(9, 9, 3, subscribers, rate, 20.0, up=0.9)
        assert few_publish.forwarded == pytest.approx(few_subscribe.forwarded)
        saved = (few_subscribe.published + few_subscribe.renewals) - (
            few_publish.published + few_publish.renewals
        )
        assert saved == pytest.approx(6 * (rate - subscribers / 20))
        assert model.few_publish_is_cheaper(subscribers, rate, 20.0) == (saved > 0)

    def test_capacity(self) -> None:
        for subscribers in (0, 5, 1000):
            assert model.capacity(100_000, K, 3, K, subscribers) == pytest.approx(33_333, abs=1)
        few_subscribe = [round(model.capacity(100_000, K, K, 3, s)) for s in (0, 333, 1000)]
        assert few_subscribe == [100, 16_708, 25_025]
        assert model.capacity(100_000, K, 84, 84, 0) == pytest.approx(1190, abs=1)
        assert model.capacity(1, 1, 1, 1, 7) == 1


class TestAttacks:
    def test_blocking(self) -> None:
        shares = [model.blocked_share(d, 3, 0.9) for d in (0.9, 0.5, 0.1, 0.9999)]
        assert shares == pytest.approx([0.405, 0.771, 0.962, 0], abs=5e-4)
        assert model.delivery(K, 3, K, 0.9 * (1 - shares[1])) == pytest.approx(0.5)


class TestDivergentViews:
    @staticmethod
    def jaccard(common: float) -> float:
        return common / (2 - common)

    @pytest.mark.parametrize(("k", "jaccard"), [(1, 0.5), (3, 0.3), (50, 0.8), (1000, 9 / 11)])
    def test_overlap_is_a_distribution(self, k: int, jaccard: float) -> None:
        pmf = model.overlap_pmf(k, jaccard)
        assert len(pmf) == k + 1
        assert fsum(pmf) == pytest.approx(1, abs=1e-9)
        if k >= 50:
            common = 2 * jaccard / (1 + jaccard)
            mean = fsum(h * p for h, p in enumerate(pmf)) / k
            assert mean == pytest.approx(common - common * sqrt((1 - common) / (pi * k)), abs=5e-4)
        assert model.overlap_pmf(k, 0)[0] == model.overlap_pmf(k, 1)[k] == 1

    @pytest.mark.parametrize(("k", "jaccard"), [(1, 0.5), (4, 0.6), (20, 0.9)])
    def test_overlap_simulated(self, k: int, jaccard: float) -> None:
        rng = np.random.default_rng(k)
        trials = 30_000
        kind = rng.random((trials, 6 * k + 40))
        here, there = kind < (1 + jaccard) / 2, (kind < jaccard) | (kind >= (1 + jaccard) / 2)
        ours = here & (here.cumsum(axis=1) <= k) & there & (there.cumsum(axis=1) <= k)
        seen = np.bincount(ours.sum(axis=1), minlength=k + 1) / trials
        for share, expected in zip(seen, model.overlap_pmf(k, jaccard), strict=True):
            assert near(share, expected, trials)

    def test_delivery(self) -> None:
        j = self.jaccard
        assert model.delivery_divergent(K, 3, j(0.9), 0.9) == pytest.approx(0.9926, abs=6e-5)
        assert model.delivery_divergent(3, 3, j(0.9), 0.9) == pytest.approx(0.9883, abs=5e-5)
        assert model.delivery_divergent(3, 3, j(0.5), 0.9) == pytest.approx(0.7526, abs=5e-5)
        limit = 1 - (1 - 0.9 * 0.5) ** 3
        assert limit == pytest.approx(0.834, abs=5e-4)
        assert model.delivery_divergent(K, 3, j(0.5), 0.9) == pytest.approx(0.8285, abs=5e-5)
        assert model.delivery_divergent(K, 3, 1, 0.9) == pytest.approx(0.999)
        assert model.delivery_divergent(5, 3, 0, 0.9) == 0


class TestBestTtl:
    @pytest.mark.parametrize(("flow", "length_s"), [(1.0, 600.0), (10.0, 3600.0), (0.01, 60.0), (5.0, 20.0)])
    @pytest.mark.parametrize("renewals", [1, 3])
    def test_is_the_least_on_a_grid(self, flow: float, length_s: float, renewals: int) -> None:
        best = model.best_ttl(flow, length_s, renewals)
        least = model.wasted_traffic(best, flow, length_s, renewals)
        grid = (exp(i / 50) for i in range(1, 560))
        assert least <= min(model.wasted_traffic(ttl, flow, length_s, renewals) for ttl in grid) * (1 + 1e-9)

    def test_square_root_law_of_long_subscriptions(self) -> None:
        assert model.best_ttl(10, 3600, 3) == pytest.approx(sqrt(3 * 3600 / (10 * (1 - 1 / 6))), rel=1e-3)
        assert model.best_ttl(0.5, 1e7, 2) == pytest.approx(sqrt(2 * 1e7 / (0.5 * 0.75)), rel=1e-2)
        assert model.best_ttl(1, 600, 3, packets_per_renewal=4) == pytest.approx(
            2 * model.best_ttl(1, 600, 3), rel=0.02
        )

    def test_bounds(self) -> None:
        assert model.best_ttl(0, 60) == 86_400
        assert model.best_ttl(1e9, 60) == 1
        assert model.best_ttl(1, 600, ttl_min_s=60, ttl_max_s=90) == 60
        assert model.best_ttl(1e-6, 600, interval_max_s=25, ttl_max_s=1000) == pytest.approx(75, rel=1e-3)
        with pytest.raises(ValueError, match="least <= most"):
            model.best_ttl(1, 60, ttl_min_s=9, ttl_max_s=8)

    @pytest.mark.parametrize(("ttl_s", "renewals"), [(30.0, 1), (30.0, 3), (400.0, 2)])
    def test_waste_simulated(self, ttl_s: float, renewals: int) -> None:
        rng = np.random.default_rng(9)
        lengths = rng.exponential(100.0, 400_000)
        outlived = ttl_s - lengths % (ttl_s / renewals)
        waste = 2.0 * outlived.mean() / 100.0 + renewals / ttl_s
        assert waste == pytest.approx(model.wasted_traffic(ttl_s, 2.0, 100.0, renewals), rel=0.01)

    def test_series_meets_the_closed_form(self) -> None:
        left, right = (model.wasted_traffic(ttl, 1.0, 1e6, 1) - 1 / ttl for ttl in (99.999, 100.001))
        assert left == pytest.approx(right, rel=1e-4)
        assert model.wasted_traffic(1e6, 1.0, 1.0) == pytest.approx(1e6, rel=1e-5)


class TestIntervals:
    def test_check_values(self) -> None:
        assert intervals.wilson(999, 1000) == pytest.approx((0.994357, 0.999823), abs=1e-6)
        assert intervals.wilson(99_900, 100_000) == pytest.approx((0.998784, 0.999178), abs=1e-6)
        assert intervals.wilson(0, 10) == pytest.approx((0, 0.277533), abs=1e-6)
        assert intervals.wilson(0, 0) == (0, 1)

    @pytest.mark.parametrize("rate", [0.02, 0.3, 0.9, 0.995])
    def test_coverage(self, rate: float) -> None:
        """Exact, over all outcomes: Wilson covers about as often as it says."""
        trials = 60
        pmf = [comb(trials, x) * rate**x * (1 - rate) ** (trials - x) for x in range(trials + 1)]
        ranges = [intervals.wilson(x, trials) for x in range(trials + 1)]
        assert fsum(p for p, (low, high) in zip(pmf, ranges, strict=True) if low <= rate <= high) >= 0.9


class TestDeliveredPairs:
    """The sum of subscribers * Binomial(messages, p): every message reaches its whole audience or none."""

    @staticmethod
    def brute(groups: list[tuple[int, float, int]]) -> dict[int, float]:
        pmf = {0: 1.0}
        for messages, chance, weight in groups:
            for _ in range(messages):
                after: dict[int, float] = {}
                for pairs, p in pmf.items():
                    after[pairs] = after.get(pairs, 0) + p * (1 - chance)
                    after[pairs + weight] = after.get(pairs + weight, 0) + p * chance
                pmf = after
        return pmf

    def test_exact_distribution(self, seeds: Seeds) -> None:
        for seed in seeds(1, 8):
            rng = random.Random(seed)
            scale = rng.choice((1, 1, 2, 6))
            groups = [
                (
                    rng.randint(0, 6),
                    rng.choice((0, 1, 0.5, 0.9, 0.999, rng.random())),
                    scale * rng.randint(0, 9),
                )
                for _ in range(rng.randint(1, 7))
            ]
            pmf, found = self.brute(groups), intervals.delivered_pairs(groups)
            values = sorted(pmf)
            mean = fsum(x * p for x, p in pmf.items())
            assert found.mean == pytest.approx(mean)
            assert found.sd == pytest.approx(
                sqrt(fsum((x - mean) ** 2 * p for x, p in pmf.items())), abs=1e-6
            )
            assert (found.least, found.most) == (min(x for x in pmf if pmf[x]), max(x for x in pmf if pmf[x]))
            assert found.total == sum(n * w for n, _, w in groups)
            found_pmf = {found.first + i * found.step: p for i, p in enumerate(found.pmf)}
            assert [found_pmf.pop(x, 0.0) for x in values] == pytest.approx(
                [pmf[x] for x in values], abs=1e-12
            )
            assert sum(found_pmf.values()) == 0
            for confidence in (0.3, 0.9, 0.9999):
                low, high = found.interval(confidence)
                tail = (1 - confidence) / 2
                assert (
                    fsum(p for y, p in pmf.items() if y < low)
                    <= tail
                    < fsum(p for y, p in pmf.items() if y <= low)
                )
                assert (
                    fsum(p for y, p in pmf.items() if y > high)
                    <= tail
                    < fsum(p for y, p in pmf.items() if y >= high)
                )

    def test_certain_groups_have_no_width(self) -> None:
        sure = intervals.delivered_pairs([(50, 1.0, 7), (30, 0.0, 20), (0, 0.5, 3), (5, 0.5, 0)])
        assert sure.interval() == (350, 350)
        assert (sure.mean, sure.sd, sure.total) == (350, 0, 950)
        assert (sure.first, sure.pmf) == (350, (1.0,))
        nothing = intervals.delivered_pairs([])
        assert (nothing.interval(), nothing.mean, nothing.total) == ((0, 0), 0, 0)

    def test_clustering_widens_the_interval(self) -> None:
        alone = intervals.delivered_pairs([(6000, 0.95, 1)])
        grouped = intervals.delivered_pairs([(200, 0.95, 30)])
        assert alone.mean == pytest.approx(grouped.mean)
        assert grouped.sd == pytest.approx(alone.sd * sqrt(30))
        widths = [high - low for low, high in (alone.interval(), grouped.interval())]
        assert widths[1] > 4.5 * widths[0]

    def test_coverage_of_the_size_of_a_demo(self) -> None:
        rng = np.random.default_rng(12)
        groups = [(50, (1.0, 0.9, 0.6, 0.99)[i % 4], 1 + i * 29 // 39) for i in range(40)]
        found = intervals.delivered_pairs(groups)
        assert found.trimmed < 1e-12
        assert fsum(found.pmf) == pytest.approx(1, abs=1e-12)
        sums = np.sum([w * rng.binomial(n, p, 20_000) for n, p, w in groups], axis=0)
        assert sums.mean() == pytest.approx(found.mean, abs=4.5 * found.sd / sqrt(20_000))
        assert sums.std() == pytest.approx(found.sd, rel=0.03)
        for confidence in (0.9, 0.99, 0.9999):
            low, high = found.interval(confidence)
            inside = ((sums >= low) & (sums <= high)).mean()
            assert inside >= confidence - 4.5 * sqrt(confidence * (1 - confidence) / 20_000)
            z = {0.9: 1.645, 0.99: 2.576, 0.9999: 3.891}[confidence]
            assert high - low == pytest.approx(2 * z * found.sd, rel=0.06)

    def test_beyond_what_was_trimmed_it_gives_the_possible(self) -> None:
        found = intervals.delivered_pairs([(2000, 0.5, 3)])
        assert 0 < found.trimmed < 1e-14
        assert found.interval(1 - 1e-15) == (0, 6000)
        low, high = found.interval(1 - 1e-12)
        assert 2400 < low < 2600
        assert low + high == 6000

    @pytest.mark.parametrize(
        "group", [(-1, 0.5, 1), (1, -0.1, 1), (1, 1.1, 1), (1, 0.5, -1), (1, float("nan"), 1)]
    )
    def test_no_such_group(self, group: tuple[int, float, int]) -> None:
        with pytest.raises(ValueError, match="no such group"):
            intervals.delivered_pairs([group])

    @pytest.mark.parametrize("confidence", [0, 1, 1.5, -1])
    def test_no_such_confidence(self, confidence: float) -> None:
        with pytest.raises(ValueError, match=r"such as 0\.9999"):
            intervals.delivered_pairs([(3, 0.5, 2)]).interval(confidence)

    def test_binomial(self) -> None:
        least, pmf = intervals.binomial(30, 0.4)
        assert least == 0
        assert pmf == pytest.approx(
            [comb(30, x) * 0.4**x * 0.6 ** (30 - x) for x in range(len(pmf))], rel=1e-12
        )
        least, pmf = intervals.binomial(5000, 0.9)
        assert 4000 < least < 4500
        assert fsum(pmf) == pytest.approx(1, abs=1e-12)
        assert log(max(pmf)) == pytest.approx(-0.5 * log(2 * np.pi * 450), abs=1e-3)
