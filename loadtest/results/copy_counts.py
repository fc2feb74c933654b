"""What clients counted (`client_stat`), held against the rows of `deliver`.

A client's recorder stands right before the client: of each copy that goes on to it, the recorder makes a row,
and the client adds one to `copies`. So what the client counted from the beginning of the load until its last
reading is the number of its rows until then. Three things make that an inequality:

- A reading may be taken between a row's time and its counting, by as much as the process stood still. So a
  row must be counted only if it is older than the reading by `MARGIN_NS` and the longest stall.
- Clients also count lines of which no row is made, those of publishers that warm up. A client to which none
  came for `QUIET_NS` before the load has had them all. Others got at most one copy of each that a server took
  in on one of their topics (two with duplicates), as servers' taps tell. Where no tap tells of any (locust,
  the demo, servers that someone else runs) more may have come at any time; and where rows were not kept,
  copies may be missing. Then only surplus rows are looked for.
- Servers that someone else runs may have two addresses, and a client does not count what comes from the one
  that it does not use at that moment. Locust's users come and go under numbers that are used again. In both
  cases the backend is "file", and nothing is compared.

Rows count by subscriber, and lines by topic: so counts of parts add up.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kcast.loadtest.capture.schema import DUPLICATE, PASSED
from kcast.loadtest.results.facts import clock_error_ns
from kcast.loadtest.results.joins import Ints, group_sums, last_before, places
from kcast.loadtest.results.tables import Capture, Columns, columns

MARGIN_NS = 500_000_000
"""Between the time of a row and the reading in which it is counted for certain, besides stalls."""
QUIET_NS = 500_000_000
NAMED_MAX = 4

_LATEST = np.iinfo(np.int64).max


class CopyRows(NamedTuple):
    """What messages tell of copies. Rows by subscriber: those `settled` before the margin of its last
    reading, and all `until` that reading. Lines that are none of this run's, by topic."""

    subs: Ints
    settled: Ints
    until: Ints
    topics: Ints
    foreign: Ints


class Miscounts(NamedTuple):
    """How `client_stat` and `deliver` differ; 0 in a sound capture. `miscounted` are some of the clients."""

    copies_missing: int = 0
    copies_surplus: int = 0
    readings_altered: int = 0
    miscounted: tuple[int, ...] = ()


class Readings:
    """What the clients of subscribers counted, by subscriber (`subs`, sorted). Raises CaptureError.

    `counted` are a client's copies between the last reading before the load, if it has one (`has_begin`), and
    its last reading at all, at `last_ns`. `is_quiet`: none came shortly before the load.
    """

    def __init__(self, capture: Capture) -> None:
        member = columns(capture, "member", "client_id", "sub_id")
        stat = columns(capture, "client_stat", "client_id", "t_ns", "copies", "deliveries", "duplicates")
        # Of lines between logs there are no rows.
        is_counted = capture.scenario.backend != "file" and not capture.scenario.offline
        is_own = np.full(len(member["sub_id"]), is_counted)
        for name in ("client_id", "sub_id"):  # a number that was used again tells of nobody
            _, numbers, uses = np.unique(member[name], return_inverse=True, return_counts=True)
            is_own &= (uses[numbers] == 1) & (member[name] >= 0)
        clients, subs = (member[name][is_own].astype(np.int64) for name in ("client_id", "sub_id"))
        order = np.argsort(clients)
        clients, subs = clients[order], subs[order]
        of_client = places(clients, stat["client_id"])
        order = np.lexsort((stat["copies"], stat["t_ns"], of_client))
        order = order[of_client[order] >= 0]
        keys, stat = of_client[order], {name: values[order] for name, values in stat.items()}
        self.altered_clients, self.altered = _altered(clients[keys], stat)

        every = np.arange(len(clients))
        froms = columns(capture, "window", "t_from_ns")["t_from_ns"]
        begin_ns = int(froms.min(initial=_LATEST)) - clock_error_ns(capture)
        last, first = (
            last_before(keys, stat["t_ns"], every, np.full(len(every), at_ns))
            for at_ns in (_LATEST, begin_ns if len(froms) else 0)
        )
        since_ns = _unchanged_since(keys, stat)
        by_sub = np.argsort(subs)
        by_sub = by_sub[last[by_sub] >= 0]
        first, last = first[by_sub], last[by_sub]
        self.subs, self.clients = subs[by_sub], clients[by_sub]
        self.has_begin = (first >= 0) & bool(len(froms))
        self.is_quiet = self.has_begin & (stat["t_ns"][first] - since_ns[first] >= QUIET_NS)
        self.counted: Ints = stat["copies"][last] - np.where(self.has_begin, stat["copies"][first], 0)
        self.last_ns: Ints = stat["t_ns"][last]
        stalls = columns(capture, "process_stat", "lag_max_ns")["lag_max_ns"]
        self.settled_ns: Ints = self.last_ns - MARGIN_NS - int(stalls.max(initial=0))


def _altered(clients: Ints, stat: Columns) -> tuple[Ints, int]:
    """The clients of readings that are less than the one before, or than what they are made up of; and how
    many such readings there are. They are in the order of clients and times."""
    falls = (np.diff(stat["copies"], prepend=0) < 0) & (np.diff(clients, prepend=-1) == 0)
    wrong = falls | (stat["deliveries"] + stat["duplicates"] > stat["copies"])
    return clients[wrong], int(np.count_nonzero(wrong))


def _unchanged_since(keys: Ints, stat: Columns) -> Ints:
    """When each client had the copies of a reading at first; readings are in the order of keys and times."""
    is_new = (np.diff(keys, prepend=-1) != 0) | (np.diff(stat["copies"], prepend=0) != 0)
    begins = np.maximum.accumulate(np.where(is_new, np.arange(len(keys)), 0))
    since_ns: Ints = stat["t_ns"][begins]
    return since_ns


def copy_rows(readings: Readings, messages: Mapping[str, Columns]) -> CopyRows:
    """What some messages tell of copies, or all of them."""
    deliver, taken = messages["deliver"], messages["server_rx"]
    of_sub = places(readings.subs, deliver["sub_id"])
    came = (of_sub >= 0) & ((deliver["injected"] == PASSED) | (deliver["injected"] == DUPLICATE))
    of_sub, at_ns = of_sub[came], deliver["t_user_ns"][came]
    until = np.bincount(of_sub[at_ns <= readings.last_ns[of_sub]], minlength=len(readings.subs))
    settled = np.bincount(of_sub[at_ns <= readings.settled_ns[of_sub]], minlength=len(readings.subs))
    any_came = until > 0
    topics = taken["topic_id"][taken["msg_id"] < 0]
    (foreign_topics,), (foreign,) = group_sums([topics], [np.ones(len(topics))])
    return CopyRows(readings.subs[any_came], settled[any_came], until[any_came], foreign_topics, foreign)


def miscounts(capture: Capture, readings: Readings, rows: CopyRows, *, is_whole: bool) -> Miscounts:
    """How the rows of all messages differ from what clients counted.

    `is_whole`: recorders and taps have lost nothing. Raises CaptureError.
    """
    settled, until = (np.zeros(len(readings.subs), dtype=np.int64) for _ in range(2))
    found = places(readings.subs, rows.subs)
    settled[found], until[found] = rows.settled, rows.until
    surplus = np.maximum(0, settled - readings.counted)
    missing = np.zeros_like(surplus)
    if is_whole and len(rows.topics):
        missing = np.maximum(0, readings.counted - until - _without_rows(capture, readings, rows))
        missing[~readings.has_begin] = 0
    wrong = np.union1d(readings.clients[(surplus > 0) | (missing > 0)], readings.altered_clients)
    return Miscounts(
        int(missing.sum()), int(surplus.sum()), readings.altered, tuple(wrong[:NAMED_MAX].tolist())
    )


def _without_rows(capture: Capture, readings: Readings, rows: CopyRows) -> Ints:
    """The number of copies, at most, of which each client was to make no row."""
    asked = columns(capture, "subscribe", "sub_id", "topic_id")
    (subs, topics), _ = group_sums([asked["sub_id"], asked["topic_id"]], [])
    order = np.argsort(rows.topics)
    of_topic, of_sub = places(rows.topics[order], topics), places(readings.subs, subs)
    may_come = (of_topic >= 0) & (of_sub >= 0)
    most = np.zeros(len(readings.subs), dtype=np.int64)
    np.add.at(most, of_sub[may_come], rows.foreign[order][of_topic[may_come]])
    most[readings.is_quiet] = 0
    return most * 2 if capture.scenario.duplicate else most
