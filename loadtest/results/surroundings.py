"""What a capture tells besides its messages: who should have received, who held which leases, what was down.

All of it is known once a scenario has ended, and is small: it grows with subscribers, servers and seconds,
not with messages. So it can be sent to wherever some of the messages are judged (`attribution.judge`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.capture.schema import OPENED, STANDING
from kcast.loadtest.results.causes import SECOND_NS
from kcast.loadtest.results.facts import RealDowntimes, ServerLives, Views, clock_error_ns, overflows
from kcast.loadtest.results.joins import Bools, Groups, Ints, Spans, last_before, places
from kcast.loadtest.results.tables import Array, Capture, Columns, columns
from kcast.loadtest.scenario import Scenario


class Surroundings:
    """The rows of a capture's tables other than publish, pub_tx, server_rx and deliver, ready to be asked.

    `server_count`: servers are numbered 0 .. server_count - 1. `subs`: the ids of all subscribers, sorted.
    `clock_error_ns`: the largest error of a clock. `intent`: the table, sorted by topic. Raises CaptureError.
    """

    def __init__(self, capture: Capture) -> None:
        self.scenario: Scenario = capture.scenario
        self.deadline_ns = round(capture.scenario.deadline_s * SECOND_NS)
        lease = columns(capture, "lease", "server_id", "boot_id", "sub_id", "topic_id", "t_ns", "change")
        asked = columns(capture, "subscribe", "sub_id", "topic_id", "server_id", "t_tx_ns")
        known = (int(table["server_id"].max(initial=-1)) for table in (lease, asked))
        self.server_count = max(1, capture.scenario.servers, *(1 + last for last in known))
        entry = columns(capture, "entry", "sub_id", "msg_id")
        self.entries = set(zip(entry["sub_id"].tolist(), entry["msg_id"].tolist(), strict=True))
        self.intent = _by_topic(columns(capture, "intent", "sub_id", "topic_id", "t_from_ns", "t_to_ns"))
        self.subs: Ints = np.unique(self.intent["sub_id"]).astype(np.int64)
        self.topic_count = 1 + int(self.intent["topic_id"].max(initial=0))
        self.views = Views(capture, self.server_count)
        self.downs, self.lives = RealDowntimes(capture), ServerLives(capture)
        self.leases = _Leases(self, lease)
        self.asked = _Asked(self, asked)
        self._read_overflows(capture)
        self.clock_error_ns = clock_error_ns(capture)

    def _read_overflows(self, capture: Capture) -> None:
        client = columns(capture, "client_stat", "client_id", "t_ns", "kernel_drops", "send_errors")
        member = columns(capture, "member", "client_id", "pub_id", "sub_id")
        order = np.lexsort((member["sub_id"], member["pub_id"], member["client_id"]))
        clients, first = np.unique(member["client_id"][order].astype(np.int64), return_index=True)
        rows = order[first]
        found = places(clients, client["client_id"])
        is_known = found >= 0
        drops, errors = (client[name][is_known] for name in ("kernel_drops", "send_errors"))
        at, found = client["t_ns"][is_known], rows[found[is_known]]
        of_sub = places(self.subs, member["sub_id"][found].astype(np.int64))
        self.client_overflows: Spans = overflows(of_sub, at, drops)
        self.send_errors: Spans = overflows(member["pub_id"][found].astype(np.int64), at, errors)
        server = columns(capture, "server_stat", "server_id", "t_ns", "kernel_drops")
        self.server_overflows: Spans = overflows(server["server_id"], server["t_ns"], server["kernel_drops"])

    def holders(self, subs: Ints, topics: Ints) -> Ints:
        """Returns a key for each subscriber (its number in `subs`) and topic."""
        return subs * self.topic_count + topics

    def known(self, table: Columns) -> tuple[Bools, Ints]:
        """Returns which rows are of a known subscriber, topic and server, and the subscribers' numbers."""
        subs, topics, servers = places(self.subs, table["sub_id"]), table["topic_id"], table["server_id"]
        return (subs >= 0) & (topics >= 0) & (topics < self.topic_count) & (servers >= 0), subs


def _by_topic(intent: Columns) -> Columns:
    order = np.argsort(intent["topic_id"], kind="stable")
    return {name: values[order] for name, values in intent.items()}


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Beginnings and ends by key: `stands` says which it is. Keys need not be sorted."""

    keys: Ints
    times: Ints
    stands: NDArray[np.bool_]

    def stood(self, keys: Ints, times: Ints) -> tuple[Bools, Bools]:
        """Returns whether each key stood at a time, and whether anything had happened to it by then."""
        last = last_before(self.keys, self.times, keys, times)
        if not len(self.keys):
            return last >= 0, last >= 0
        return (last >= 0) & self.stands[last], last >= 0


class _Leases:
    """Where leases stood, by the servers' taps. `holders` and `servers` are of paths."""

    def __init__(self, of: Surroundings, lease: Columns) -> None:
        is_known, subs = of.known(lease)
        kept = {name: values[is_known] for name, values in lease.items()}
        stands = (kept["change"] == OPENED) | (kept["change"] == STANDING)
        # A server may have routed a message before a lease began in the same turn, which has the same time.
        kept["t_ns"] = kept["t_ns"] + stands
        order = np.argsort(~stands, kind="stable")  # what began 1 ns earlier comes before what ends
        kept = {name: values[order] for name, values in kept.items()}
        self._boots = np.unique(kept["boot_id"])
        self._holder_count = max(1, len(of.subs)) * of.topic_count
        holders = of.holders(subs[is_known][order], kept["topic_id"].astype(np.int64))
        keys = places(self._boots, kept["boot_id"]) * self._holder_count + holders
        self._changes = Lifetimes(keys, kept["t_ns"], stands[order])
        begun = stands[order]
        self._ever_keys = (holders * of.server_count + kept["server_id"])[begun]
        self._ever_times = kept["t_ns"][begun]

    def stood(self, boots: Array, holders: Ints, times: Ints) -> tuple[Bools, Bools]:
        """Returns whether a lease stood in a life of its server, and whether that had it at any time
        before."""
        lives = places(self._boots, boots)
        keys = np.where(lives < 0, -1, lives * self._holder_count + holders)
        return self._changes.stood(keys, times)

    def had_begun(self, keys: Ints, times: Ints) -> Bools:
        """Returns whether a lease (holders x servers) had begun by a time, in any life of its server."""
        found: Bools = last_before(self._ever_keys, self._ever_times, keys, times) >= 0
        return found


def may_leave(scenario: Scenario) -> bool:
    """Whether a subscriber may leave a dead server for another (`avoid_dead`); its lease there then
    expires."""
    return scenario.avoid_dead and scenario.policy.subscribe < scenario.policy.k


class _Asked:
    """When subscribers asked for leases. `keys` are holders x servers, sorted, with the `first` time of
    each."""

    def __init__(self, of: Surroundings, asked: Columns) -> None:
        is_known, subs = of.known(asked)
        holders = of.holders(subs, asked["topic_id"].astype(np.int64))[is_known]
        keys = holders * of.server_count + asked["server_id"][is_known]
        times = asked["t_tx_ns"][is_known]
        groups = Groups(keys)
        self.keys, self.first = groups.keys, groups.least(times)
        self.holders = self.keys // of.server_count
        self._may_leave = may_leave(of.scenario)
        self._ttl_ns = of.scenario.ttl_s * SECOND_NS
        self._every = (keys, times) if self._may_leave else (keys[:0], times[:0])

    def by(self, keys: Ints, times: Ints) -> Bools:
        """Returns whether a lease had been asked for by a time."""
        if not len(self.keys):
            return np.zeros(len(keys), dtype=np.bool_)
        found = places(self.keys, keys)
        had: Bools = (found >= 0) & (self.first[found] <= times)
        return had

    def had_left(self, keys: Ints, times: Ints) -> Bools:
        """Returns whether a subscriber that may leave servers had not asked this one for a ttl or longer."""
        if not self._may_leave:
            return np.zeros(len(keys), dtype=np.bool_)
        every, at = self._every
        last = last_before(every, at, keys, times)
        if not len(every):
            return last < 0
        left: Bools = (last < 0) | (times - at[last] > self._ttl_ns)
        return left
