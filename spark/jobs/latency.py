"""Latencies: the number of times with each value, to three significant figures.

`since` tells what was timed:

    intended   from when a message was to be published to a pair's first copy in time: no delay is left out
    sent       from when the client was given the message to the same copy
    delay      from when it was to be published to when the client was given it; of messages, not of pairs

Times are rounded in whole numbers (`kcast.loadtest.results.percentiles.rounded`), so that percentiles do not
depend on the order of rows. A decade has 900 values: the counts stay few.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.joins import places
from kcast.loadtest.results.percentiles import rounded
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

INTENDED, SENT, DELAY = "intended", "sent", "delay"

# `since` is the index in _SINCE; `total_ns` the sum of the times before they were rounded, for their mean.
TIMES = Kind(20, ("since", "value_ns"), ("count", "total_ns"))
_SINCE = (INTENDED, SENT, DELAY)


def count(part: Part) -> Iterator[Counts]:
    """The kind TIMES of a part. Times below 0 count as 0."""
    publish, found = part.messages["publish"], part.found
    delivered = found.delivered
    # Of rows of one message the one that was sent first counts.
    order = np.argsort(publish["t_send_ns"], kind="stable")
    ids, first = np.unique(publish["msg_id"][order], return_index=True)
    rows = order[first][places(ids, found.msg_ids[delivered])]
    latencies, intended = found.latencies_ns[delivered], found.t_intended_ns[delivered]
    yield _times(INTENDED, latencies)
    yield _times(SENT, latencies + intended - publish["t_send_ns"][rows])
    yield _times(DELAY, publish["t_send_ns"] - publish["t_intended_ns"])


def _times(since: str, times_ns: NDArray[np.int64]) -> Counts:
    times_ns = np.maximum(times_ns, 0)
    numbers = np.full(len(times_ns), _SINCE.index(since))
    return counted(TIMES, (numbers, rounded(times_ns)), (np.ones_like(times_ns), times_ns))


def buckets(merged: Merged) -> Iterator[Row]:
    """The counts: a row for each `since` and value."""
    for row in merged.rows(TIMES):
        yield row | {"since": _SINCE[row["since"]]}


JOB = Job("latency", (TIMES,), count, {"latency_buckets": buckets})
