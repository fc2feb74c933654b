"""What blocks add up to, and how many independent trials that is worth."""

import numpy as np
import pytest

from kcast.hashring.effective_size import cluster_sums, effective_size, independent_trials
from kcast.spark.simulation.counts import (
    CLUSTERINGS,
    COLUMNS,
    Counts,
    close_block,
    count_delivered,
    effective_trials,
    no_counts,
)


def outcomes(seed: int, blocks: int, shape: tuple[int, int, int]) -> list[np.ndarray]:
    """Blocks of outcomes (partners, topics, draws) that repeat by draw, topic and block."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(blocks):
        partners, topics, draws = shape
        odds = rng.random() + rng.random((1, topics, 1)) + rng.random((1, topics, draws))
        made.append(rng.random((partners, topics, draws)) < np.clip(odds / 3, 0, 1))
    return made


def added(blocks: list[np.ndarray]) -> Counts:
    total = no_counts()
    for delivered in blocks:
        counts = no_counts()
        count_delivered(counts, delivered)
        close_block(counts)
        total = {name: total[name] + counts[name] for name in COLUMNS}
    return total


def clusters(blocks: list[np.ndarray], clustering: str) -> list[tuple[int, int]]:
    """Trials and successes of each cluster, cell by cell."""
    found: dict[tuple[int, ...], list[bool]] = {}
    for block, delivered in enumerate(blocks):
        for place, came in np.ndenumerate(delivered):
            partner, topic, draw = place
            key = {
                "draw": (block, topic, draw),
                "partner": (block, topic, partner),
                "topic": (block, topic),
                "block": (block,),
            }[clustering]
            found.setdefault(key, []).append(bool(came))
    return [(len(all_), sum(all_)) for all_ in found.values()]


def test_moments_are_those_of_the_clusters() -> None:
    for shape in ((2, 3, 4), (1, 1, 5), (5, 1, 1), (3, 4, 1)):
        blocks = outcomes(7, 6, shape)
        total = added(blocks)
        for clustering in CLUSTERINGS:
            parts = clusters(blocks, clustering)
            assert total["outcomes"] == sum(n for n, _ in parts)
            assert total["delivered"] == sum(x for _, x in parts)
            assert total[f"{clustering}_clusters"] == len(parts)
            assert total[f"{clustering}_nn"] == sum(n * n for n, _ in parts)
            assert total[f"{clustering}_nx"] == sum(n * x for n, x in parts)
            assert total[f"{clustering}_xx"] == sum(x * x for _, x in parts)


def test_the_effective_count_is_the_least_of_all_clusterings() -> None:
    blocks = outcomes(1, 8, (3, 4, 5))
    sums = {clustering: cluster_sums(clusters(blocks, clustering)) for clustering in CLUSTERINGS}
    found = effective_trials(added(blocks))
    assert found == effective_size(sums, trials_if_alike=8)
    least = min(map(independent_trials, sums.values()))
    assert found.interval_trials() <= least < 8 * 60 / 2, "the outcomes were made to repeat"


def test_only_blocks_count_where_all_or_nothing_came() -> None:
    for outcomes in (np.ones((3, 4, 5), np.bool_), np.zeros((3, 4, 5), np.bool_)):
        assert effective_trials(added([outcomes] * 8)).interval_trials() == 8


def test_sums_beyond_double_precision_stay_exact() -> None:
    # 10**8 outcomes each, of which the last differs by one delivery: its spread drowns in 53 bits.
    n = 10**8
    counts = no_counts() | {"outcomes": 2 * n, "delivered": 2 * n - 1}
    for clustering in CLUSTERINGS:
        counts |= {
            f"{clustering}_clusters": 2,
            f"{clustering}_nn": 2 * n * n,
            f"{clustering}_nx": n * n + n * (n - 1),
            f"{clustering}_xx": n * n + (n - 1) ** 2,
        }
    # p = 1 - 1/2n; both clusters are 1/2 away from n p; n_eff = 2n 2n p (1 - p) / (1/2) / 2 = 2n - 1.
    assert effective_trials(counts).variance_trials == pytest.approx(2 * n - 1, rel=1e-12)
