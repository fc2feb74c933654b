"""What a block gives: whole numbers, which add up in any order to the same.

Outcomes are not independent: those of one draw share its servers, those of one topic and epoch the servers
that are down, those of one block all of them. So besides the sums there are, for each of these ways to
cluster them, the clusters and three sums over them, of n n, n x and x x, with n the outcomes of a cluster and
x those delivered. They say exactly how much the outcomes are worth (`effective_trials`).
"""

from collections.abc import Mapping

from kcast.hashring.effective_size import ClusterSums, EffectiveSize, effective_size
from kcast.spark.simulation.chance import Flags

SUMS = (
    *("outcomes", "delivered", "messages", "subscribers"),
    # `sendings` of messages to servers, `taken` in by servers that were up, `forwarded` to subscribers, of
    # which `copies` came; `leases` of all subscribers; `servers` and those of them `up`, over all epochs.
    *("sendings", "taken", "forwarded", "copies", "leases", "servers", "up"),
)
CLUSTERINGS = ("draw", "partner", "topic", "block")
"""By who drew and who did not, each in one topic and epoch; by topic and epoch; by block."""

MOMENTS = ("clusters", "nn", "nx", "xx")
COLUMNS = (*SUMS, *(f"{clustering}_{moment}" for clustering in CLUSTERINGS for moment in MOMENTS))

Counts = dict[str, int]


def no_counts() -> Counts:
    """Nothing yet."""
    return dict.fromkeys(COLUMNS, 0)


def count_delivered(counts: Counts, delivered: Flags) -> None:
    """Adds an epoch's outcomes, shape (partners, topics, draws), but for the clusters of blocks."""
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
    """Makes all outcomes so far one cluster. `counts` is of one block."""
    n, x = counts["outcomes"], counts["delivered"]
    _add_clusters(counts, "block", 1, n, x, x * x)


def _add_clusters(counts: Counts, clustering: str, clusters: int, n: int, x: int, xx: int) -> None:
    counts[f"{clustering}_clusters"] += clusters
    counts[f"{clustering}_nn"] += clusters * n * n
    counts[f"{clustering}_nx"] += n * x
    counts[f"{clustering}_xx"] += xx


def effective_trials(counts: Mapping[str, int]) -> EffectiveSize:
    """How many independent trials tell as much (`kcast.hashring.effective_size`).

    If everything, or nothing, was delivered nothing is known of the spread, and it is the number of blocks,
    which surely are independent.
    """
    trials, successes = counts["outcomes"], counts["delivered"]
    sums = {}
    for clustering in CLUSTERINGS:
        clusters, nn, nx, xx = (counts[f"{clustering}_{moment}"] for moment in MOMENTS)
        sums[clustering] = ClusterSums(clusters, trials, successes, nn, nx, xx)
    return effective_size(sums, counts["block_clusters"])
