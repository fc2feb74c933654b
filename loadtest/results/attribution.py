"""Which (message, subscriber) pairs were delivered, and for each that was not, the one cause.

A message can reach a subscriber by any server that the publisher sent it to and that the subscriber holds a
lease at: each of these is a *path*. The capture shows how far the message came on each path, and what stopped
it there; if nothing is recorded, the path is unexplained. A missed pair has the cause of the path on which
its message came furthest (`Cause` is in that order). Where the two sides have no server in common, the pair
has the cause of that: a draw, or views that differ.

    publish x intent -> pairs
    pub_tx, server_rx -> how far a message came at each server, once for all subscribers
    deliver -> what became of it at each subscriber
    lease -> whether a lease stood, for messages that a server had and a subscriber did not get

Rules for facts that contradict each other or coincide:

- A server had a message if its tap says so, and a subscriber if a copy is recorded, whatever else there is.
- A server also had a message if any subscriber got a copy from it: the tap of a killed server lacks the end.
- Lease changes in the same ns as a message come before it: a server routes at the end of a turn.
- Of several sends to one server the one that came furthest counts, and losses count before cuts.
- Datagrams that the load test cut off have that recorded as their fate. Only kills and stalls are looked up
  by time, with a margin (`facts`).

It is numpy over packed integer keys, in chunks of a million paths: 200,000 pairs on 8 servers take seconds.

The same rules are implemented again on Spark, in `kcast.spark.walk`, for captures that do not fit into
memory. Whoever changes a rule changes both: tests/spark/walk/test_pairs.py holds them equal, pair by pair, on
random and on simulated captures. A third, slow implementation in tests/loadtest/results/test_random.py judges
both.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.policy import Policy
from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, OPENED, PASSED, STANDING
from kcast.loadtest.results.causes import SECOND_NS, UNEXPLAINED, Cause
from kcast.loadtest.results.facts import RealDowntimes, ServerLives, Views, overflows
from kcast.loadtest.results.joins import Groups, Ints, expanded, last_before, places
from kcast.loadtest.results.tables import Array, Capture, Columns, columns

CHUNK_PATHS = 1 << 20

_NO_PATH = -1
_RECEIVED = 100  # the server had the message: what became of it then is another stage for each subscriber
_NEVER = np.iinfo(np.int64).max

Stages = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Attribution:
    """What became of each pair. Arrays have one element per pair, in the order of message and subscriber.

    `latencies_ns` is from the time at which the message was to be published to its first copy within the
    deadline, -1 without one. `paths` counts paths by cause, those of delivered pairs too. `copies` is the
    number of copies that subscribers got of the pairs, late ones included.
    """

    topics: Array
    t_intended_ns: Ints
    msg_ids: Ints
    sub_ids: Array
    causes: Stages
    latencies_ns: Ints
    paths: dict[Cause, int]
    copies: int

    def __len__(self) -> int:
        return len(self.causes)

    @property
    def delivered(self) -> Array:
        """Whether each pair was delivered within the deadline."""
        is_delivered: Array = self.causes == Cause.DELIVERED
        return is_delivered

    @property
    def misses(self) -> dict[Cause, int]:
        """Number of missed pairs by cause, for causes that occurred."""
        counts = np.bincount(self.causes, minlength=len(Cause))
        return {
            cause: int(counts[cause]) for cause in Cause if counts[cause] and cause is not Cause.DELIVERED
        }

    @property
    def unexplained(self) -> int:
        """Number of pairs missed for no reason that is recorded."""
        return sum(self.misses.get(cause, 0) for cause in UNEXPLAINED)


def attribute(capture: Capture, *, chunk_paths: int = CHUNK_PATHS) -> Attribution:
    """Follows all paths of all pairs; `chunk_paths` of them are in memory at a time. Raises CaptureError."""
    return _Walk(capture).attribution(chunk_paths)


class _Walk:
    """The tables of a capture, with messages, subscribers and servers numbered densely from 0."""

    def __init__(self, capture: Capture) -> None:
        scenario = capture.scenario
        self.policy: Policy = scenario.policy
        self.deadline_ns = round(scenario.deadline_s * SECOND_NS)
        self.ttl_ns = scenario.ttl_s * SECOND_NS
        # A subscriber may leave a dead server for another (`avoid_dead`); its lease there then expires.
        self.may_leave = scenario.avoid_dead and self.policy.subscribe < self.policy.k
        self._read_messages(capture)
        self._read_pairs(capture)
        tables = self._read_server_sides(capture)
        self.views = Views(capture, self.server_count)
        self.downs, self.lives = RealDowntimes(capture), ServerLives(capture)
        self._read_overflows(capture)
        self._read_copies(capture)
        self._place_messages(*tables)
        self._read_leases(capture)
        self._read_asked(capture)

    # --- Messages, pairs, copies ---------------------------------------------------------------------

    def _read_messages(self, capture: Capture) -> None:
        publish = columns(capture, "publish", "msg_id", "pub_id", "topic_id", "t_intended_ns")
        ids, first = np.unique(publish["msg_id"], return_index=True)
        first = first[ids >= 0]
        self.ids = ids[ids >= 0]
        self.pub_of = publish["pub_id"][first].astype(np.int64)
        self.topic_of = publish["topic_id"][first].astype(np.int64)
        self.intended = publish["t_intended_ns"][first]

    def _read_pairs(self, capture: Capture) -> None:
        intent = columns(capture, "intent", "sub_id", "topic_id", "t_from_ns", "t_to_ns")
        self.subs = np.unique(intent["sub_id"]).astype(np.int64)
        order = np.argsort(intent["topic_id"], kind="stable")
        topics = intent["topic_id"][order].astype(np.int64)
        low, high = (np.searchsorted(topics, self.topic_of, side=side) for side in ("left", "right"))
        messages, numbers = expanded(high - low)
        rows = order[low[messages] + numbers]
        at = self.intended[messages]
        is_due = (intent["t_from_ns"][rows] <= at) & (at < intent["t_to_ns"][rows])
        messages, rows = messages[is_due], rows[is_due]
        # A subscriber may have several windows; a message in two of them is one pair.
        self.pair_keys = np.unique(messages * len(self.subs) + places(self.subs, intent["sub_id"][rows]))
        self.pair_msg, self.pair_sub = np.divmod(self.pair_keys, max(1, len(self.subs)))
        self.topic_count = 1 + int(max(self.topic_of.max(initial=0), intent["topic_id"].max(initial=0)))

    def _read_server_sides(self, capture: Capture) -> tuple[Columns, Columns]:
        tx = columns(capture, "pub_tx", "msg_id", "server_id", "t_tx_ns", "injected")
        rx = columns(capture, "server_rx", "msg_id", "server_id", "boot_id", "pub_id", "t_rx_ns")
        tables = (
            *(tx["server_id"], rx["server_id"]),
            *(columns(capture, name, "server_id")["server_id"] for name in ("subscribe", "deliver", "lease")),
        )
        self.server_count = 1 + int(max(ids.max(initial=0) for ids in tables))
        return tx, rx

    def _read_overflows(self, capture: Capture) -> None:
        client = columns(capture, "client_stat", "client_id", "t_ns", "kernel_drops", "send_errors")
        member = columns(capture, "member", "client_id", "pub_id", "sub_id")
        clients, rows = np.unique(member["client_id"].astype(np.int64), return_index=True)
        found = places(clients, client["client_id"])
        is_known = found >= 0
        drops, errors = (client[name][is_known] for name in ("kernel_drops", "send_errors"))
        at, found = client["t_ns"][is_known], rows[found[is_known]]
        of_sub = places(self.subs, member["sub_id"][found].astype(np.int64))
        self.client_overflows = overflows(of_sub, at, drops)
        self.send_errors = overflows(member["pub_id"][found].astype(np.int64), at, errors)
        server = columns(capture, "server_stat", "server_id", "t_ns", "kernel_drops")
        self.server_overflows = overflows(server["server_id"], server["t_ns"], server["kernel_drops"])

    def _read_copies(self, capture: Capture) -> None:
        """Sets what became of the copies of each pair by each server."""
        deliver = columns(capture, "deliver", "msg_id", "sub_id", "server_id", "t_user_ns", "injected")
        messages, subs = places(self.ids, deliver["msg_id"]), places(self.subs, deliver["sub_id"])
        is_ours = (messages >= 0) & (deliver["server_id"] >= 0)
        forwarded = messages[is_ours] * self.server_count + deliver["server_id"][is_ours]
        self.forwarded = Groups(forwarded)
        self.first_forwarded = self.forwarded.least(deliver["t_user_ns"][is_ours])
        pairs = places(self.pair_keys, messages * len(self.subs) + subs)
        is_due = (messages >= 0) & (subs >= 0) & (pairs >= 0) & (deliver["server_id"] >= 0)
        pairs, servers = pairs[is_due], deliver["server_id"][is_due].astype(np.int64)
        fates, times = deliver["injected"][is_due], deliver["t_user_ns"][is_due]
        arrived = (fates == PASSED) | (fates == DUPLICATE)
        self.copy_count = int(arrived.sum())
        groups = Groups(pairs * self.server_count + servers)
        first = groups.least(np.where(arrived, times, _NEVER))
        pairs, servers = np.divmod(groups.keys, self.server_count)
        intended = self.intended[self.pair_msg[pairs]]
        in_time = (first != _NEVER) & (first - intended <= self.deadline_ns)
        was_halted = self.downs.halted.overlap(servers, intended, first)
        self.copy_keys = groups.keys
        self.copy_stages = np.select(
            [in_time, (first != _NEVER) & ~was_halted, first != _NEVER, groups.some(fates == LOST)],
            [Cause.DELIVERED, Cause.LATE, Cause.HALTED, Cause.LOSS_OUT],
            Cause.DOWN_OUT,
        ).astype(np.int8)
        self.latencies = np.full(len(self.pair_keys), -1, dtype=np.int64)
        by_pair = Groups(pairs[in_time])
        self.latencies[by_pair.keys] = by_pair.least((first - intended)[in_time])

    # --- How far messages came at servers ------------------------------------------------------------

    def _place_messages(self, tx: Columns, rx: Columns) -> None:
        """Sets what became of each message at each server that it was sent to, for all subscribers alike."""
        tx = self._of_messages(tx)
        rx = self._with_forwarded(tx, rx)
        self.admitted_at = self._first_admissions(rx)
        rx = self._of_messages(rx)
        sent, had = Groups(tx["key"]), Groups(rx["key"])
        self.rx, self.had = rx, had
        self.at_keys = np.union1d(sent.keys, had.keys)
        self.at_msg, self.at_server = np.divmod(self.at_keys, self.server_count)
        bounds = np.searchsorted(self.at_msg, np.arange(len(self.ids) + 1))
        self.at_from, self.at_count = bounds[:-1], np.diff(bounds)
        self.at_last = np.full(len(self.at_keys), np.iinfo(np.int64).min)
        for groups, times in ((sent, tx["t_tx_ns"]), (had, rx["t_rx_ns"])):
            index = places(self.at_keys, groups.keys)
            self.at_last[index] = np.maximum(self.at_last[index], groups.most(times))
        self.at_stages = np.full(len(self.at_keys), _RECEIVED, dtype=np.int8)
        missing = places(had.keys, self.at_keys) < 0
        groups_missing = places(sent.keys, self.at_keys[missing])
        owners, rows = sent.rows_of(groups_missing)
        stages = self._stages_of_sendings({name: values[rows] for name, values in tx.items()})
        # Rows are in the order of their groups, and no group is empty.
        starts = np.searchsorted(owners, np.arange(len(groups_missing)))
        if len(starts):
            self.at_stages[missing] = np.maximum.reduceat(stages, starts)

    def _with_forwarded(self, tx: Columns, rx: Columns) -> Columns:
        """`rx`, with rows for messages that servers forwarded, and so had, but that their taps lack."""
        keys, times = self.forwarded.keys, self.first_forwarded
        messages, servers = np.divmod(keys, self.server_count)
        is_alive, boots = self.lives.at(servers, times)
        had = np.unique(self._of_messages(rx)["key"])
        more = is_alive & (places(had, keys) < 0) & (places(np.unique(tx["key"]), keys) >= 0)
        rows = {
            **{"msg_id": self.ids[messages[more]], "server_id": servers[more], "boot_id": boots[more]},
            **{"pub_id": self.pub_of[messages[more]], "t_rx_ns": times[more]},
        }
        return {name: np.concatenate((rx[name], rows[name])) for name in rx}

    def _of_messages(self, table: Columns) -> Columns:
        """The rows of known messages and servers; adds `msg`, the message's number, and `key`, of both."""
        messages = places(self.ids, table["msg_id"])
        is_known = (messages >= 0) & (table["server_id"] >= 0)
        kept = {name: values[is_known] for name, values in table.items()}
        kept["msg"] = messages[is_known]
        kept["server_id"] = kept["server_id"].astype(np.int64)
        kept["key"] = kept["msg"] * self.server_count + kept["server_id"]
        return kept

    @staticmethod
    def _first_admissions(rx: Columns) -> dict[str, Array]:
        """The time at which each life of a server first accepted a line from each publisher."""
        order = np.lexsort((rx["t_rx_ns"], rx["pub_id"], rx["boot_id"]))
        boots, pubs, times = (rx[name][order] for name in ("boot_id", "pub_id", "t_rx_ns"))
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = (boots[1:] != boots[:-1]) | (pubs[1:] != pubs[:-1])
        return {"boots": boots[is_first], "pubs": pubs[is_first], "times": times[is_first]}

    def _stages_of_sendings(self, tx: Columns) -> Stages:
        """What stopped sends whose message the server did not get."""
        servers, at, pubs = tx["server_id"], tx["t_tx_ns"], self.pub_of[tx["msg"]]
        return np.select(
            [
                tx["injected"] == LOST,
                tx["injected"] == CUT_OFF,
                self.downs.killed_or_halted.contain(servers, at),
                ~self.lives.are_tapped(servers),
                self._were_unvouched(servers, at, pubs),
                self.send_errors.contain(pubs, at),
                self.server_overflows.contain(servers, at),
            ],
            [
                *(Cause.LOSS_IN, Cause.DOWN, Cause.DOWN, Cause.UNTAPPED),
                *(Cause.UNVOUCHED, Cause.SEND_ERROR, Cause.OVERFLOW_IN),
            ],
            Cause.NETWORK_IN,
        ).astype(np.int8)

    def _were_unvouched(self, servers: Ints, at: Ints, pubs: Ints) -> Array:
        """Whether a server had restarted and accepted nothing yet from the publisher.

        Publishers find out within a second, or by the answer to a datagram with an old cookie.
        """
        restarted, boots = self.lives.restarted(servers, at)
        admitted = self.admitted_at
        every_boot = np.unique(admitted["boots"])
        pub_count = 1 + int(max(admitted["pubs"].max(initial=0), pubs.max(initial=0)))
        known = admitted["pubs"] >= 0
        keys = places(every_boot, admitted["boots"][known]) * pub_count + admitted["pubs"][known]
        order = np.argsort(keys)
        found = places(keys[order], places(every_boot, boots) * pub_count + pubs)
        if not len(keys):
            return restarted
        had_before = (found >= 0) & (admitted["times"][known][order][found] <= at)
        return restarted & ~had_before

    # --- Leases --------------------------------------------------------------------------------------

    def _read_leases(self, capture: Capture) -> None:
        lease = columns(capture, "lease", "server_id", "boot_id", "sub_id", "topic_id", "t_ns", "change")
        subs = places(self.subs, lease["sub_id"])
        is_known = (subs >= 0) & (lease["topic_id"] >= 0) & (lease["topic_id"] < self.topic_count)
        kept = {name: values[is_known] for name, values in lease.items()}
        stands = (kept["change"] == OPENED) | (kept["change"] == STANDING)
        # Of changes at one time an end comes before a beginning: a lease that has just expired is reopened.
        order = np.argsort(stands, kind="stable")
        kept, self.lease_stands = {name: values[order] for name, values in kept.items()}, stands[order]
        self.boots = np.unique(kept["boot_id"])
        holders = self._holder_keys(subs[is_known][order], kept["topic_id"].astype(np.int64))
        self.lease_keys = places(self.boots, kept["boot_id"]) * (len(self.subs) * self.topic_count) + holders
        self.lease_times = kept["t_ns"]
        self.ever_keys = (holders * self.server_count + kept["server_id"])[self.lease_stands]
        self.ever_times = self.lease_times[self.lease_stands]

    def _holder_keys(self, subs: Ints, topics: Ints) -> Ints:
        return subs * self.topic_count + topics

    def _read_asked(self, capture: Capture) -> None:
        asked = columns(capture, "subscribe", "sub_id", "topic_id", "server_id", "t_tx_ns")
        subs = places(self.subs, asked["sub_id"])
        is_known = (subs >= 0) & (asked["topic_id"] >= 0) & (asked["topic_id"] < self.topic_count)
        is_known &= asked["server_id"] >= 0
        holders = self._holder_keys(subs, asked["topic_id"].astype(np.int64))[is_known]
        keys = holders * self.server_count + asked["server_id"][is_known]
        times = asked["t_tx_ns"][is_known]
        groups = Groups(keys)
        self.asked_keys, self.asked_first = groups.keys, groups.least(times)
        self.asked_last = groups.most(times)
        self.asked_every = (keys, times) if self.may_leave else (keys[:0], times[:0])
        self.asked_holders = self.asked_keys // self.server_count

    # --- Paths ---------------------------------------------------------------------------------------

    def attribution(self, chunk_paths: int) -> Attribution:
        """Returns what became of all pairs, computed in chunks."""
        causes = np.empty(len(self.pair_keys), dtype=np.int8)
        counts = np.zeros(len(Cause), dtype=np.int64)
        for start, end in self._chunks(chunk_paths):
            causes[start:end], of_paths = self._walk(start, end)
            counts += of_paths
        causes[self.latencies >= 0] = Cause.DELIVERED
        return Attribution(
            topics=self.topic_of[self.pair_msg].astype(np.int32),
            t_intended_ns=self.intended[self.pair_msg],
            msg_ids=self.ids[self.pair_msg],
            sub_ids=self.subs[self.pair_sub].astype(np.int32),
            causes=causes,
            latencies_ns=self.latencies,
            paths={cause: int(counts[cause]) for cause in Cause if counts[cause]},
            copies=self.copy_count,
        )

    def _chunks(self, chunk_paths: int) -> Iterator[tuple[int, int]]:
        """Ranges of pairs that have about `chunk_paths` paths each."""
        per_pair = 1 + self.at_count[self.pair_msg] + self.policy.subscribe
        total = np.cumsum(per_pair)
        ends = np.flatnonzero(np.diff(total // chunk_paths, append=-1)) + 1
        yield from zip([0, *ends.tolist()], ends.tolist(), strict=False)

    def _walk(self, start: int, end: int) -> tuple[Stages, Ints]:
        """The causes of a range of pairs, as if all were missed, and the number of their paths by cause."""
        messages, subs = self.pair_msg[start:end], self.pair_sub[start:end]
        holders = self._holder_keys(subs, self.topic_of[messages])
        pub_views = self.views.of("pub_id", self.pub_of[messages])
        sub_views = self.views.of("sub_id", self.subs[subs])

        # Servers that the message was sent to.
        owners, numbers = expanded(self.at_count[messages])
        at = self.at_from[messages][owners] + numbers
        servers = self.at_server[at]
        copies = places(self.copy_keys, (start + owners) * self.server_count + servers)
        lease_paths = holders[owners] * self.server_count + servers
        asked = places(self.asked_keys, lease_paths)
        is_common = (copies >= 0) | ((asked >= 0) & self._was_asked(asked, at))
        stages = np.where(copies >= 0, self._stages_of_copies(copies), self.at_stages[at])
        apart = np.flatnonzero(~is_common)
        stages[apart] = self._stages_unasked(
            servers[apart], pub_views[owners[apart]], sub_views[owners[apart]]
        )
        beyond = np.flatnonzero(is_common & (stages == _RECEIVED))
        stages[beyond] = self._stages_beyond(
            at[beyond], lease_paths[beyond], subs[owners[beyond]], holders[owners[beyond]]
        )
        untapped = np.flatnonzero(is_common & (stages == Cause.UNTAPPED))
        was_full = self.client_overflows.contain(subs[owners[untapped]], self.at_last[at[untapped]])
        stages[untapped[was_full]] = Cause.OVERFLOW_OUT

        # Servers that only the subscriber used.
        more_owners, more_stages = self._unsent_paths(messages, holders, pub_views, sub_views)

        furthest = np.full(end - start, _NO_PATH, dtype=np.int8)
        np.maximum.at(furthest, owners[is_common], stages[is_common])
        nearest = np.full(end - start, Cause.UNSENT, dtype=np.int8)
        np.maximum.at(nearest, owners[apart], stages[apart])
        np.maximum.at(nearest, more_owners, more_stages)
        counts = np.bincount(stages, minlength=len(Cause)) + np.bincount(more_stages, minlength=len(Cause))
        none_common = np.flatnonzero(furthest == _NO_PATH)
        furthest[none_common] = self._causes_apart(
            messages[none_common], nearest[none_common], pub_views[none_common], sub_views[none_common]
        )
        return furthest, counts

    def _was_asked(self, asked: Ints, at: Ints) -> Array:
        """Whether the subscriber had asked for a lease by the time the message was sent there."""
        if not len(self.asked_keys):
            return np.zeros(len(asked), dtype=np.bool_)
        is_early: Array = self.asked_first[asked] <= self.at_last[at]
        return is_early

    def _stages_of_copies(self, copies: Ints) -> Stages:
        if not len(self.copy_keys):
            return np.zeros(len(copies), dtype=np.int8)
        return self.copy_stages[copies]

    @property
    def _must_meet(self) -> bool:
        """Whether two clients with the same view always use a common server."""
        return self.policy.publish + self.policy.subscribe > self.policy.k

    def _stages_unasked(self, servers: Ints, pub_views: Ints, sub_views: Ints) -> Stages:
        """Causes of paths by servers that the subscriber had not asked for a lease."""
        uses_all = self._must_meet and self.policy.subscribe >= self.policy.k
        return np.select(
            [
                ~self.views.know(sub_views, servers) | (uses_all & (pub_views != sub_views)),
                np.full(len(servers), uses_all),
            ],
            [Cause.VIEW, Cause.UNASKED],
            Cause.DRAW,
        ).astype(np.int8)

    def _unsent_paths(
        self, messages: Ints, holders: Ints, pub_views: Ints, sub_views: Ints
    ) -> tuple[Ints, Stages]:
        """Paths by servers that subscribers asked and the message was not sent to: their pairs and causes."""
        low = np.searchsorted(self.asked_holders, holders)
        high = np.searchsorted(self.asked_holders, holders, side="right")
        owners, numbers = expanded(high - low)
        servers = self.asked_keys[low[owners] + numbers] % self.server_count
        is_unsent = places(self.at_keys, messages[owners] * self.server_count + servers) < 0
        owners, servers = owners[is_unsent], servers[is_unsent]
        uses_all = self._must_meet and self.policy.publish >= self.policy.k
        differ = pub_views[owners] != sub_views[owners]
        stages = np.select(
            [
                ~self.views.know(pub_views[owners], servers) | (uses_all & differ),
                np.full(len(owners), uses_all),
            ],
            [Cause.VIEW, Cause.UNSENT],
            Cause.DRAW,
        ).astype(np.int8)
        return owners, stages

    def _causes_apart(self, messages: Ints, nearest: Stages, pub_views: Ints, sub_views: Ints) -> Stages:
        """Causes of pairs whose two sides have no server in common."""
        draws = np.minimum(self.policy.publish, self.views.sizes(pub_views))
        nothing_sent = self.at_count[messages] == 0
        same_view = pub_views == sub_views
        if not self._must_meet:
            return np.where(nothing_sent, Cause.UNSENT, nearest).astype(np.int8)
        return np.select(
            [nothing_sent, ~same_view, self.at_count[messages] < draws],
            [Cause.UNSENT, Cause.VIEW, Cause.UNSENT],
            Cause.UNASKED,
        ).astype(np.int8)

    def _stages_beyond(self, at: Ints, lease_paths: Ints, subs: Ints, holders: Ints) -> Stages:
        """Causes of paths on which the server had the message and no copy for the subscriber is recorded."""
        owners, rows = self.had.rows_of(places(self.had.keys, self.at_keys[at]))
        times, servers = self.rx["t_rx_ns"][rows], self.rx["server_id"][rows]
        boots = places(self.boots, self.rx["boot_id"][rows])
        keys = boots * (len(self.subs) * self.topic_count) + holders[owners]
        keys[boots < 0] = -1
        last = last_before(self.lease_keys, self.lease_times, keys, times)
        stood = (last >= 0) & self._flag(self.lease_stands, last)
        paths, of = lease_paths[owners], subs[owners]
        stages = np.select(
            [
                stood & self.downs.killed_or_halted.contain(servers, times),
                stood & self.client_overflows.contain(of, times),
                stood,
                self._had_left(paths, times),
                last >= 0,
                last_before(self.ever_keys, self.ever_times, paths, times) >= 0,
            ],
            [
                *(Cause.DOWN_OUT, Cause.OVERFLOW_OUT, Cause.NETWORK_OUT),
                *(Cause.DRAW, Cause.LEASE_EXPIRED, Cause.LEASE_RESTART),
            ],
            Cause.LEASE_NEVER,
        ).astype(np.int8)
        furthest = np.full(len(at), _NO_PATH, dtype=np.int8)
        np.maximum.at(furthest, owners, stages)
        return furthest

    def _had_left(self, paths: Ints, times: Ints) -> Array:
        """Whether a subscriber that may leave servers had not asked this one for a ttl or longer."""
        if not self.may_leave:
            return np.zeros(len(paths), dtype=np.bool_)
        keys, asked_at = self.asked_every
        last = last_before(keys, asked_at, paths, times)
        return (last < 0) | (times - self._time(asked_at, last) > self.ttl_ns)

    @staticmethod
    def _flag(flags: Array, index: Ints) -> Array:
        return flags[index] if len(flags) else np.zeros(len(index), dtype=np.bool_)

    @staticmethod
    def _time(times: Ints, index: Ints) -> Ints:
        return times[index] if len(times) else np.zeros(len(index), dtype=np.int64)
