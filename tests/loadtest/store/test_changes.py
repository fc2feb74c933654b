"""loadtest/store/changes.py: changes that are there are found, and few that are not."""

import numpy as np
import pytest

from kcast.loadtest.store.changes import (
    LEVEL,
    changes_of_shares,
    changes_of_times,
    difference_interval,
)

TRIALS = [800.0, 1200.0] * 6


def drawn(levels: list[float], trials: list[float], seed: int) -> list[float]:
    random = np.random.default_rng(seed)
    return [random.binomial(int(n), p) / n for p, n in zip(levels, trials, strict=True)]


def test_a_change_of_a_share_is_found_where_it_is() -> None:
    found = changes_of_shares(drawn([0.99] * 7 + [0.95] * 5, TRIALS, 3), TRIALS)
    assert [change.place for change in found] == [7]
    (change,) = found
    assert change.before == pytest.approx(0.99, abs=0.004) and change.after == pytest.approx(0.95, abs=0.008)
    assert change.low is not None and change.high is not None
    assert change.low < -0.04 < change.high < 0
    assert change.p_value <= LEVEL


def test_several_changes_are_told_with_the_levels_between_them() -> None:
    levels = [0.9] * 4 + [0.97] * 4 + [0.9] * 4
    found = changes_of_shares(drawn(levels, TRIALS, 5), TRIALS)
    assert [change.place for change in found] == [4, 8]
    assert found[0].after == found[1].before == pytest.approx(0.97, abs=0.01)


def test_sound_series_of_shares_have_changes_as_rarely_as_the_level_says() -> None:
    alarms = sum(bool(changes_of_shares(drawn([0.985] * 12, TRIALS, seed), TRIALS)) for seed in range(150))
    assert alarms <= 6, "of 150 at 1 %: more than 6 would come in one of 3000 repetitions of this test"


def test_what_was_drawn_in_clusters_is_no_change() -> None:
    # 8,000 pairs that are worth 100: shares scatter far more than 8,000 independent pairs would.
    trials = [100.0] * 10
    shares = drawn([0.95] * 10, trials, 1)
    assert changes_of_shares(shares, trials) == []
    assert changes_of_shares(shares, [8000.0] * 10) != [], "taken as independent, they would be"


@pytest.mark.parametrize("shares", [[], [0.99], [1.0] * 9, [0.0] * 9])
def test_nothing_and_no_spread_have_no_change(shares: list[float]) -> None:
    assert changes_of_shares(shares, [1000.0] * len(shares)) == []


def test_a_change_of_times_is_found() -> None:
    random = np.random.default_rng(2)
    times = [float(value) for value in random.lognormal(0, 0.08, 14) * ([2.0] * 8 + [3.0] * 6)]
    found = changes_of_times(times)
    assert [change.place for change in found] == [8]
    assert found[0].before == pytest.approx(2, rel=0.1)
    assert found[0].after == pytest.approx(3, rel=0.1)
    assert found[0].low is None


def test_sound_series_of_times_have_changes_as_rarely_as_the_level_says() -> None:
    alarms = 0
    for seed in range(150):
        times = np.random.default_rng(seed).lognormal(1, 0.5, 12)
        alarms += bool(changes_of_times([float(value) for value in times]))
    assert alarms <= 6


@pytest.mark.parametrize("times", [[], [1.0] * 5, [2.0] * 12])
def test_few_times_and_equal_ones_have_no_change(times: list[float]) -> None:
    assert changes_of_times(times) == []


def test_changes_are_the_same_each_time() -> None:
    shares = drawn([0.99] * 7 + [0.95] * 5, TRIALS, 3)
    assert changes_of_shares(shares, TRIALS) == changes_of_shares(shares, TRIALS)


def test_the_interval_of_a_difference_is_newcombes() -> None:
    # The first example of Newcombe (1998), table II, method 10: 56/70 and 48/80.
    low, high = difference_interval(48 / 80, 80, 56 / 70, 70)
    assert low == pytest.approx(0.0524, abs=1e-4)
    assert high == pytest.approx(0.3339, abs=1e-4)
