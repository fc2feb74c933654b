"""The search for the highest rate that is sustained."""

import pytest

from tests.benchmarks.peers.search import HALVINGS, STEP, STEPS_MAX, highest_rate


@pytest.mark.parametrize("limit", [70.0, 999.0, 1000.0, 1001.0, 4321.0, 14_000.0])
def test_it_finds_the_limit(limit: float) -> None:
    tried: list[float] = []

    def sustains(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = highest_rate(sustains, 1000.0)
    assert limit / STEP ** (1 / 2**HALVINGS) <= found <= limit
    assert found in tried
    assert len(tried) <= 1 + STEPS_MAX + HALVINGS


@pytest.mark.parametrize("is_sustained", [True, False])
def test_a_limit_that_is_far_away_ends_the_search(is_sustained: bool) -> None:
    tried: list[float] = []

    def sustains(rate: float) -> bool:
        tried.append(rate)
        return is_sustained

    assert highest_rate(sustains, 1000.0) == (max(tried) if is_sustained else 0.0)
    assert len(tried) == 1 + STEPS_MAX
