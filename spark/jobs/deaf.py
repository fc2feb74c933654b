"""The longest run of messages that one subscriber missed.

A run is of messages of one topic, in the order of (t_intended_ns, msg_id), that one subscriber should have
received and missed, without another of the topic's messages between them. Nothing can be added up here: a run
may be in several parts. So the counts are the messages and misses themselves, and those of a topic are
brought together to be summed up.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.joins import Ints
from kcast.loadtest.results.tables import Columns
from kcast.spark.jobs.job import NOT_USED, Counts, Job, Kind, Merged, Part, Row

# Each message with subscribers (sub: NOT_USED), and each miss of one.
ORDER = Kind(40, ("topic", "sub", "t_ns", "msg"), ())


def count(part: Part) -> Iterator[Counts]:
    """The kind ORDER of a part."""
    found = part.found
    _, first = np.unique(found.msg_ids, return_index=True)
    nobody = np.full(len(first), NOT_USED)
    yield Counts(ORDER, (found.topics[first], nobody, found.t_intended_ns[first], found.msg_ids[first]), ())
    lost = np.flatnonzero(~found.delivered)
    keys = (found.topics, found.sub_ids, found.t_intended_ns, found.msg_ids)
    yield Counts(ORDER, [key[lost] for key in keys], ())


def deaf(merged: Merged) -> Iterator[Row]:
    """The longest run of each topic in which a pair was missed: `messages` in it, `duration_ns` from the
    first of them to the last, `sub_id`, `topic_id`.

    Of equally long ones the one that lasts longer counts, then that of the lower numbers.
    """
    rows = merged.of(ORDER)
    is_miss = rows["sub"] != NOT_USED
    if not is_miss.any():
        return
    at = _places(rows, is_miss)
    topics, subs, times = (rows[name][is_miss] for name in ("topic", "sub", "t_ns"))
    order = np.lexsort((at, subs, topics))
    topics, subs, times, at = topics[order], subs[order], times[order], at[order]
    begins = np.ones(len(at), dtype=np.bool_)
    begins[1:] = (topics[1:] != topics[:-1]) | (subs[1:] != subs[:-1]) | (at[1:] != at[:-1] + 1)
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(at)) - 1
    lengths, lasted = ends - starts + 1, times[ends] - times[starts]
    topics, subs = topics[starts], subs[starts]
    best = np.lexsort((subs, -lasted, -lengths, topics))
    _, chosen = np.unique(topics[best], return_index=True)
    for run in best[chosen].tolist():
        yield {
            "cell": merged.around.cell,
            **{"messages": int(lengths[run]), "duration_ns": int(lasted[run])},
            **{"sub_id": int(subs[run]), "topic_id": int(topics[run])},
        }


def _places(rows: Columns, is_miss: NDArray[np.bool_]) -> Ints:
    """The place of each miss's message among all messages of its topic."""
    order = np.lexsort((rows["sub"], rows["msg"], rows["t_ns"], rows["topic"]))
    numbers = np.cumsum(~is_miss[order])  # each message comes before its misses
    places = np.empty(len(order), dtype=np.int64)
    places[order] = numbers
    return places[is_miss]


JOB = Job("deaf", (ORDER,), count, {"deaf": deaf}, by_first_key=True)
