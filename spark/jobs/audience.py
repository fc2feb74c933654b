"""Messages that reached all their subscribers."""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.results import effective_trials, planned_variance
from kcast.loadtest.results.joins import Groups, group_sums
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

_REACHED = ("messages", "all_reached")

SIZES = Kind(30, ("subscribers",), (*_REACHED, "none_reached"))
# The clusters of each clustering.
CLUSTERS = {
    planned_variance.TOPIC_EPOCH: Kind(31, ("topic", "epoch"), _REACHED, is_summarised=True),
    planned_variance.EPOCH: Kind(33, ("epoch",), _REACHED, is_summarised=True),
    effective_trials.TOPIC: Kind(34, ("topic",), _REACHED, is_summarised=True),
    effective_trials.PUBLISHER: Kind(32, ("pub",), _REACHED, is_summarised=True),
}


def count(part: Part) -> Iterator[Counts]:
    """All kinds of a part. All pairs of a message must be in one part."""
    found = part.found
    missed = ~found.delivered
    by_message = Groups(found.msg_ids)
    first = by_message.rows[by_message.starts]
    subscribers = by_message.counts
    (_, (misses,)) = group_sums((found.msg_ids,), (missed,))
    ones = np.ones(len(first), dtype=np.int64)
    all_reached, none_reached = misses == 0, misses == subscribers
    keys = {"topic": found.topics[first], "epoch": part.epochs[first], "pub": found.pub_ids[first]}
    yield counted(SIZES, (subscribers,), (ones, all_reached, none_reached))
    for kind in CLUSTERS.values():
        yield counted(kind, [keys[name] for name in kind.keys], (ones, all_reached))


# --- Sums --------------------------------------------------------------------------------------------


def sizes(merged: Merged) -> Iterator[Row]:
    """A row for each number of `subscribers` of a message: `messages`, and those of them that reached all of
    their subscribers (`all_reached`), or none (`none_reached`)."""
    return merged.rows(SIZES)


def clusterings(merged: Merged) -> Iterator[Row]:
    """A row for each clustering: sums over its clusters of n messages, x of which reached all
    (`cluster_sums`)."""
    for name, kind in CLUSTERS.items():
        for row in merged.rows(kind):
            yield {"cell": row.pop("cell"), "clustering": name, **row}


JOB = Job(
    name="audience",
    kinds=(SIZES, *CLUSTERS.values()),
    count=count,
    sums={"audience_sizes": sizes, "audience_clusterings": clusterings},
)
