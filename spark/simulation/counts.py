"""The counts of a block: whole numbers, whose sum does not depend on the order of the blocks.

Outcomes are not independent: those of one draw share its servers, those of one topic and epoch share the
servers that are down, and those of one block share all of them. So besides the totals, the counts hold for
each of these clusterings the number of clusters and three sums over them, of n n, n x and x x, where n is the
number of outcomes of a cluster and x the number delivered. The effective sample size follows exactly from
these (`effective_trials`).
"""

from collections.abc import Mapping

from kcast.hashring.effective_size import ClusterSums, EffectiveSize, effective_size
from kcast.spark.simulation.random_draws import Flags

SUMS = (
    *("outcomes", "delivered", "messages", "subscribers"),
    # `sendings` of messages to servers; lines `taken` in by servers that were up and `forwarded` to
    # subscribers; `copies` that came; `leases` of all subscribers; `states` of servers in all epochs, and
    # those that were `up`.
    *("sendings", "taken", "forwarded", "copies", "leases", "states", "up"),
)
CLUSTERINGS = ("draw", "partner", "topic", "block")
"""Clusters by the side that drew, by the other side, by topic and epoch, and by block."""

MOMENTS = ("clusters", "nn", "nx", "xx")
COLUMNS = (*SUMS, *(f"{clustering}_{moment}" for clustering in CLUSTERINGS for moment in MOMENTS))

Counts = dict[str, int]


def no_counts() -> Counts:
    """Returns zero for every count."""
    return dict.fromkeys(COLUMNS, 0)


def count_delivered(counts: Counts, delivered: Flags) -> None:
    """Adds an epoch's outcomes, shape (partners, topics, draws), except to the clustering by block."""
    partners, _, draws = delivered.shape
    by_draw = delivered.sum(axis=0)
    by_topic = by_draw.sum(axis=1)
    counts["outcomes"] += delivered.size
    counts["delivered"] += int(by_topic.sum())
    for clustering, n, x in (
        ("draw", partners, by_draw),
        ("partner", draws, delivered.sum(axis=2)),
        ("topic", partners * draws, by_topic),
    ):
        flat = x.ravel()
        _add_clusters(counts, clustering, flat.size, n, int(flat.sum()), int((flat * flat).sum()))


def close_block(counts: Counts) -> None:
    """Makes all outcomes of a block one cluster. `counts` are those of this block alone."""
    n, x = counts["outcomes"], counts["delivered"]
    _add_clusters(counts, "block", 1, n, x, x * x)


def _add_clusters(counts: Counts, clustering: str, clusters: int, n: int, x: int, xx: int) -> None:
    counts[f"{clustering}_clusters"] += clusters
    counts[f"{clustering}_nn"] += clusters * n * n
    counts[f"{clustering}_nx"] += n * x
    counts[f"{clustering}_xx"] += xx


def effective_trials(counts: Mapping[str, int]) -> EffectiveSize:
    """The effective sample size (`kcast.hashring.effective_size`).

    If all outcomes, or none, were delivered, the spread is unknown, and the number of blocks counts: blocks
    are independent.
    """
    trials, successes = counts["outcomes"], counts["delivered"]
    sums = {}
    for clustering in CLUSTERINGS:
        clusters, nn, nx, xx = (counts[f"{clustering}_{moment}"] for moment in MOMENTS)
        sums[clustering] = ClusterSums(clusters, trials, successes, nn, nx, xx)
    return effective_size(sums, counts["block_clusters"])
