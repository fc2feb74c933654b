"""How long messages take until a part of their audience is reached.

A part of the audience of a message with n subscribers is reached with the copy in time of the first ceil(part
x n) of them.
"""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.results.joins import Groups
from kcast.loadtest.results.percentiles import rounded
from kcast.spark.findings.tables import PERCENTS
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

# `total_ns` is the sum of the times before they were rounded.
TIMES = Kind(35, ("percent", "value_ns"), ("messages", "total_ns"))


def count(part: Part) -> Iterator[Counts]:
    """The kind TIMES of a part. All pairs of a message must be in one part."""
    found = part.found
    latencies = np.where(found.delivered, np.maximum(found.latencies_ns, 0), np.iinfo(np.int64).max)
    order = np.lexsort((latencies, found.msg_ids))
    by_message = Groups(found.msg_ids[order])
    for percent in PERCENTS:
        needed = -(-percent * by_message.counts // 100)
        times_ns = latencies[order][by_message.starts + needed - 1]
        times_ns = times_ns[times_ns < np.iinfo(np.int64).max]
        ones = np.ones(len(times_ns), dtype=np.int64)
        yield counted(TIMES, (percent * ones, rounded(times_ns)), (ones, times_ns))


def times(merged: Merged) -> Iterator[Row]:
    """The counts: a row for each part of the audience and value."""
    return merged.rows(TIMES)


JOB = Job("reach", (TIMES,), count, {"reach_times": times})
