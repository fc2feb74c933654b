"""Messages that reached all their subscribers."""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.results import effective_trials, planned_variance
from kcast.loadtest.results.joins import Groups, group_sums
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, cluster_sums, counted

_REACHED = ("messages", "all_reached")

SIZES = Kind(30, ("subscribers",), (*_REACHED, "none_reached"))
TOPICS = Kind(31, ("topic", "epoch"), _REACHED)
PUBLISHERS = Kind(32, ("pub",), _REACHED)


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
    topics, epochs = found.topics[first], part.epochs[first]
    yield counted(SIZES, (subscribers,), (ones, all_reached, none_reached))
    yield counted(TOPICS, (topics, epochs), (ones, all_reached))
    yield counted(PUBLISHERS, (found.pub_ids[first],), (ones, all_reached))


# --- Sums --------------------------------------------------------------------------------------------


def sizes(merged: Merged) -> Iterator[Row]:
    """A row for each number of `subscribers` of a message: `messages`, and those of them that reached all of
    their subscribers (`all_reached`), or none (`none_reached`)."""
    return merged.rows(SIZES)


def clusterings(merged: Merged) -> Iterator[Row]:
    """A row for each clustering: sums over its clusters of n messages, x of which reached all
    (`cluster_sums`)."""
    topics, publishers = merged.of(TOPICS), merged.of(PUBLISHERS)
    for name, table, keys in (
        (planned_variance.TOPIC_EPOCH, topics, TOPICS.keys),
        (planned_variance.EPOCH, topics, ("epoch",)),
        (effective_trials.TOPIC, topics, ("topic",)),
        (effective_trials.PUBLISHER, publishers, PUBLISHERS.keys),
    ):
        if len(table["messages"]):
            by = [table[key] for key in keys]
            sums = cluster_sums(by, table["messages"], table["all_reached"], _REACHED)
            yield {"cell": merged.around.cell, "clustering": name, **sums}


JOB = Job(
    name="audience",
    kinds=(SIZES, TOPICS, PUBLISHERS),
    count=count,
    sums={"audience_sizes": sizes, "audience_clusterings": clusterings},
)
