"""How many pairs of each topic and of each subscriber were missed, and for which cause most of them."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from kcast.loadtest.results.causes import Cause
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

ROWS_MAX = 500
"""Most topics, and most subscribers, of a scenario in the sums: those with most misses."""

TOPICS = Kind(100, ("topic", "cause"), ("pairs",))
SUBSCRIBERS = Kind(101, ("subscriber", "cause"), ("pairs",))


def count(part: Part) -> Iterator[Counts]:
    """Both kinds of a part."""
    found = part.found
    ones = np.ones(len(found), dtype=np.int64)
    yield counted(TOPICS, (found.topics, found.causes), (ones,))
    yield counted(SUBSCRIBERS, (found.sub_ids, found.causes), (ones,))


def by_topic(merged: Merged) -> Iterator[Row]:
    """A row for each `topic` with misses, as `_most` has them."""
    return _most(merged, TOPICS)


def by_subscriber(merged: Merged) -> Iterator[Row]:
    """A row for each `subscriber` with misses, as `_most` has them."""
    return _most(merged, SUBSCRIBERS)


def _most(merged: Merged, kind: Kind) -> Iterator[Row]:
    """`pairs`, `misses`, the `cause` of most misses and how many (`cause_misses`), of what has most misses.

    Of equally frequent causes it is the one nearer to the publisher. Of equal misses the lower number is
    first.
    """
    key = kind.keys[0]
    causes: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for row in merged.rows(kind):
        causes[row[key]][row["cause"]] += row["pairs"]
    found = []
    for number, of_cause in causes.items():
        pairs, delivered = of_cause.total(), of_cause.pop(Cause.DELIVERED, 0)
        if pairs > delivered:
            cause, misses = min(of_cause.items(), key=lambda one: (-one[1], one[0]))
            found.append((delivered - pairs, number, pairs, cause, misses))
    for less, number, pairs, cause, misses in sorted(found)[:ROWS_MAX]:
        yield {
            **{"cell": merged.around.cell, key: number, "pairs": pairs, "misses": -less},
            **{"cause": cause, "cause_misses": misses},
        }


JOB = Job(
    "misses",
    (TOPICS, SUBSCRIBERS),
    count,
    {"misses_by_topic": by_topic, "misses_by_subscriber": by_subscriber},
)
