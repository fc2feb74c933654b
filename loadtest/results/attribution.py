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

Messages are independent: `judge` takes the rows of any of them, and what surrounds all (`Surroundings`). So
`kcast load` judges a capture at once, and Spark judges it part by part. The only thing that messages tell of
each other is when a restarted server first accepted a line of a publisher (`admissions`).

Rules for facts that contradict each other or coincide:

- A server had a message if its tap says so, and a subscriber if a copy is recorded, whatever else there is.
- A server also had a message if any subscriber got a copy from it: the tap of a killed server lacks the end.
- All that a server does in a turn has one time, in whatever order it was done. So a lease that ended in the
  ns of a message did not stand, and one that began then did so only if a copy says so.
- Of several sends to one server the one that came furthest counts, and losses count before cuts.
- Datagrams that the load test cut off have that recorded as their fate. Only kills and stalls are looked up
  by time, with a margin (`facts`).
- Rows of servers that the scenario does not have are passed over.

It is numpy over packed integer keys, in chunks of a million paths: 200,000 pairs on 8 servers take seconds.
A slow implementation, row by row, in tests/loadtest/results/test_random.py judges it.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from kcast.hashring.policy import Policy
from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, PASSED
from kcast.loadtest.results.admissions import Admissions
from kcast.loadtest.results.attributed import Attribution as Attribution
from kcast.loadtest.results.attributed import Stages
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.joins import Bools, Groups, Ints, expanded, places
from kcast.loadtest.results.leg_lines import leg_lines
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import Array, Capture, Columns, columns

CHUNK_PATHS = 1 << 20

MESSAGE_COLUMNS = {
    "publish": ("msg_id", "pub_id", "topic_id", "t_intended_ns"),
    "pub_tx": ("msg_id", "server_id", "t_tx_ns", "injected"),
    "server_rx": ("msg_id", "server_id", "boot_id", "pub_id", "topic_id", "t_rx_ns"),
    "deliver": ("msg_id", "sub_id", "server_id", "t_user_ns", "injected"),
}
"""The tables of messages, with the columns that are needed here."""

_NO_PATH = -1
_RECEIVED = 100  # the server had the message: what became of it then is another stage for each subscriber
_NEVER = np.iinfo(np.int64).max

# Sendings lost for these causes were chances: the server was up, and would have taken them in.
_UP = (Cause.UNTAPPED, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.NETWORK_IN)
_FORWARDED = (Cause.OVERFLOW_OUT, Cause.NETWORK_OUT)
_ON_NETWORK = (Cause.UNTAPPED, Cause.NETWORK_IN, Cause.NETWORK_OUT)
_NO_ROWS = np.zeros(0, dtype=np.int64)

Messages = Mapping[str, Columns]
"""All rows of some messages, by the tables and columns of MESSAGE_COLUMNS."""


def attribute(capture: Capture, *, chunk_paths: int = CHUNK_PATHS) -> Attribution:
    """Follows all paths of all pairs; `chunk_paths` of them are in memory at a time. Raises CaptureError."""
    return judge(Surroundings(capture), messages_of(capture), chunk_paths=chunk_paths)


def messages_of(capture: Capture) -> Messages:
    """Returns all messages of a capture. Raises CaptureError."""
    return {name: columns(capture, name, *names) for name, names in MESSAGE_COLUMNS.items()}


def judge(
    surroundings: Surroundings,
    messages: Messages,
    *,
    admitted: Admissions | None = None,
    chunk_paths: int = CHUNK_PATHS,
) -> Attribution:
    """What became of the pairs of these messages. `admitted` are those of all messages, if these are not
    all."""
    walk = Walk(surroundings, messages)
    walk.judge_sendings(admitted or walk.admissions())
    return walk.attribution(chunk_paths)


def admissions(surroundings: Surroundings, messages: Messages) -> Admissions:
    """When each life of a server first accepted a line of each publisher, among these messages."""
    return Walk(surroundings, messages).admissions()


def at_servers(
    surroundings: Surroundings, messages: Messages, admitted: Admissions | None = None
) -> Iterator[tuple[int, int, Cause | None]]:
    """Returns each message and server that it was at, and what stopped it there; None: the server had it."""
    walk = Walk(surroundings, messages)
    walk.judge_sendings(admitted or walk.admissions())
    for message, server, stage in zip(walk.at_msg, walk.at_server, walk.at_stages, strict=True):
        yield int(walk.ids[message]), int(server), None if stage == _RECEIVED else Cause(int(stage))


class Walk:
    """The rows of some messages, with messages, subscribers and servers numbered densely from 0.

    `received` is the stage of a message at a server that had it.
    """

    received = _RECEIVED

    def __init__(self, surroundings: Surroundings, messages: Messages) -> None:
        self.around = surroundings
        self.subs, self.server_count = surroundings.subs, surroundings.server_count
        self.policy: Policy = surroundings.scenario.policy
        self._number_messages(messages["publish"])
        self._pair()
        self._read_copies(messages["deliver"])
        self._place_messages(messages["pub_tx"], messages["server_rx"])

    # --- Messages, pairs, copies ---------------------------------------------------------------------

    def _number_messages(self, publish: Columns) -> None:
        # Of several rows of a message, which a sound capture has not, the same always counts.
        order = np.lexsort([publish[name] for name in ("topic_id", "pub_id", "t_intended_ns")])
        ids, first = np.unique(publish["msg_id"][order], return_index=True)
        first = order[first[ids >= 0]]
        self.ids = ids[ids >= 0]
        self.pub_of = publish["pub_id"][first].astype(np.int64)
        self.topic_of = publish["topic_id"][first].astype(np.int64)
        self.intended = publish["t_intended_ns"][first]

    def _pair(self) -> None:
        intent = self.around.intent
        low, high = (
            np.searchsorted(intent["topic_id"], self.topic_of, side=side) for side in ("left", "right")
        )
        messages, numbers = expanded(high - low)
        rows = low[messages] + numbers
        at = self.intended[messages]
        is_due = (intent["t_from_ns"][rows] <= at) & (at < intent["t_to_ns"][rows])
        messages, rows = messages[is_due], rows[is_due]
        # A subscriber may have several windows; a message in two of them is one pair.
        self.pair_keys = np.unique(messages * len(self.subs) + places(self.subs, intent["sub_id"][rows]))
        self.pair_msg, self.pair_sub = np.divmod(self.pair_keys, max(1, len(self.subs)))

    def _read_copies(self, deliver: Columns) -> None:
        """Sets what became of the copies of each pair by each server."""
        messages, subs = places(self.ids, deliver["msg_id"]), places(self.subs, deliver["sub_id"])
        is_known = self._is_known(deliver["server_id"])
        is_ours = (messages >= 0) & is_known
        forwarded = messages[is_ours] * self.server_count + deliver["server_id"][is_ours]
        self.forwarded = Groups(forwarded)
        self.first_forwarded = self.forwarded.least(deliver["t_user_ns"][is_ours])
        pairs = places(self.pair_keys, messages * len(self.subs) + subs)
        is_due = is_ours & (subs >= 0) & (pairs >= 0)
        pairs, servers = pairs[is_due], deliver["server_id"][is_due].astype(np.int64)
        fates, times = deliver["injected"][is_due], deliver["t_user_ns"][is_due]
        arrived = (fates == PASSED) | (fates == DUPLICATE)
        self.copies_of = np.bincount(pairs[arrived], minlength=len(self.pair_keys))
        # Servers sent these, whether or not they were lost then.
        self.passing = np.bincount(pairs[(fates == PASSED) | (fates == LOST)], minlength=len(self.pair_keys))
        groups = Groups(pairs * self.server_count + servers)
        first = groups.least(np.where(arrived, times, _NEVER))
        pairs, servers = np.divmod(groups.keys, self.server_count)
        intended = self.intended[self.pair_msg[pairs]]
        in_time = (first != _NEVER) & (first - intended <= self.around.deadline_ns)
        was_halted = self.around.downs.halted.overlap(servers, intended, first)
        was_mute = self.around.downs.mute.contain(servers, groups.least(times))
        self.copy_keys = groups.keys
        self.copy_stages = np.select(
            [in_time, (first != _NEVER) & ~was_halted, first != _NEVER, groups.some(fates == LOST)],
            [Cause.DELIVERED, Cause.LATE, Cause.HALTED, Cause.LOSS_OUT],
            np.where(was_mute, Cause.MUTE, Cause.DOWN_OUT),
        ).astype(np.int8)
        self.heard = np.bincount(pairs[in_time], minlength=len(self.pair_keys))
        self.latencies = np.full(len(self.pair_keys), -1, dtype=np.int64)
        by_pair = Groups(pairs[in_time])
        self.latencies[by_pair.keys] = by_pair.least((first - intended)[in_time])

    def _is_known(self, servers: Array) -> Bools:
        known: Bools = (servers >= 0) & (servers < self.server_count)
        return known

    # --- How far messages came at servers ------------------------------------------------------------

    def _place_messages(self, tx: Columns, rx: Columns) -> None:
        """Sets at which servers each message was, and which of these had it."""
        tx = self._of_messages(tx)
        self.all_rx = rx = self._with_forwarded(tx, rx)
        self.tx, self.rx = tx, self._of_messages(rx)
        self.sent, self.had = Groups(tx["key"]), Groups(self.rx["key"])
        self.at_keys = np.union1d(self.sent.keys, self.had.keys)
        self.at_msg, self.at_server = np.divmod(self.at_keys, self.server_count)
        bounds = np.searchsorted(self.at_msg, np.arange(len(self.ids) + 1))
        self.at_from, self.at_count = bounds[:-1], np.diff(bounds)
        self.at_last = np.full(len(self.at_keys), np.iinfo(np.int64).min)
        for groups, times in ((self.sent, tx["t_tx_ns"]), (self.had, self.rx["t_rx_ns"])):
            index = places(self.at_keys, groups.keys)
            self.at_last[index] = np.maximum(self.at_last[index], groups.most(times))

    def _with_forwarded(self, tx: Columns, rx: Columns) -> Columns:
        """`rx`, with rows for messages that servers forwarded, and so had, but that their taps lack."""
        keys, times = self.forwarded.keys, self.first_forwarded
        messages, servers = np.divmod(keys, self.server_count)
        is_alive, boots = self.around.lives.at(servers, times)
        had = np.unique(self._of_messages(rx)["key"])
        more = is_alive & (places(had, keys) < 0) & (places(np.unique(tx["key"]), keys) >= 0)
        rows = {
            **{"msg_id": self.ids[messages[more]], "server_id": servers[more], "boot_id": boots[more]},
            **{"pub_id": self.pub_of[messages[more]], "t_rx_ns": times[more]},
        }
        return {name: np.concatenate((rx[name], rows[name])) for name in rows}

    def _of_messages(self, table: Columns) -> Columns:
        """The rows of known messages and servers; adds `msg`, the message's number, and `key`, of both."""
        messages = places(self.ids, table["msg_id"])
        is_known = (messages >= 0) & self._is_known(table["server_id"])
        kept = {name: values[is_known] for name, values in table.items()}
        kept["msg"] = messages[is_known]
        kept["server_id"] = kept["server_id"].astype(np.int64)
        kept["key"] = kept["msg"] * self.server_count + kept["server_id"]
        return kept

    def admissions(self) -> Admissions:
        """When each life of a server first accepted a line of each publisher."""
        rx = self.all_rx
        return Admissions.earliest(rx["boot_id"], rx["pub_id"].astype(np.int64), rx["t_rx_ns"])

    def judge_sendings(self, admitted: Admissions) -> None:
        """Sets what became of each message at each server that it was at, for all subscribers alike."""
        self.at_stages = np.full(len(self.at_keys), _RECEIVED, dtype=np.int8)
        missing = places(self.had.keys, self.at_keys) < 0
        groups_missing = places(self.sent.keys, self.at_keys[missing])
        owners, rows = self.sent.rows_of(groups_missing)
        stages = self._stages_of_sendings({name: values[rows] for name, values in self.tx.items()}, admitted)
        # Rows are in the order of their groups, and no group is empty.
        starts = np.searchsorted(owners, np.arange(len(groups_missing)))
        if len(starts):
            self.at_stages[missing] = np.maximum.reduceat(stages, starts)
        self._find_tries(rows, stages)

    def _stages_of_sendings(self, tx: Columns, admitted: Admissions) -> Stages:
        """What stopped sends whose message the server did not get."""
        servers, at, pubs = tx["server_id"], tx["t_tx_ns"], self.pub_of[tx["msg"]]
        around = self.around
        # Publishers find out within a second, or by the answer to a datagram with an old cookie.
        restarted, boots = around.lives.restarted(servers, at)
        return np.select(
            [
                tx["injected"] == LOST,
                tx["injected"] == CUT_OFF,
                around.downs.killed_or_halted.contain(servers, at),
                ~around.lives.are_tapped(servers),
                restarted & ~admitted.had_been(boots, pubs, at),
                around.send_errors.contain(pubs, at),
                around.server_overflows.contain(servers, at),
            ],
            [
                *(Cause.LOSS_IN, Cause.DOWN, Cause.DOWN, Cause.UNTAPPED),
                *(Cause.UNVOUCHED, Cause.SEND_ERROR, Cause.OVERFLOW_IN),
            ],
            Cause.NETWORK_IN,
        ).astype(np.int8)

    def _find_tries(self, missing: Ints, stages: Stages) -> None:
        """Sets the sendings that could have reached subscribers, though no copy tells of them.

        Those are lost by plan while the server was up, and (`missing`, with their `stages`) those that passed
        to a server that was up and does not have the message.
        """
        lost = np.flatnonzero(self.tx["injected"] == LOST)
        at = self.tx["server_id"][lost], self.tx["t_tx_ns"][lost]
        lost = lost[~self.around.downs.killed_or_halted.contain(*at)]
        passed = missing[(self.tx["injected"][missing] == PASSED) & np.isin(stages, _UP)]
        rows = np.concatenate((lost, passed))
        self.tries = Groups(self.tx["key"][rows])
        self.try_times = self.tx["t_tx_ns"][rows]
        self.try_was_lost = np.arange(len(rows)) < len(lost)

    # --- Paths ---------------------------------------------------------------------------------------

    def attribution(self, chunk_paths: int) -> Attribution:
        """Returns what became of all pairs, computed in chunks."""
        causes = np.empty(len(self.pair_keys), dtype=np.int8)
        chances = self.passing.astype(np.int64)
        counts = np.zeros(len(Cause), dtype=np.int64)
        on_network = [(_NO_ROWS, _NO_ROWS, np.zeros(0, dtype=np.bool_))]
        for start, end in self._chunks(chunk_paths):
            causes[start:end], more, of_paths, lines = self._walk(start, end)
            chances[start:end] += more
            counts += of_paths
            on_network.append(lines)
        pairs, at, has_copy = (np.concatenate(column) for column in zip(*on_network, strict=True))
        if self.around.entries:
            both = zip(self.subs[self.pair_sub].tolist(), self.ids[self.pair_msg].tolist(), strict=True)
            held = np.array([pair in self.around.entries for pair in both], dtype=np.bool_)
            causes[held & (self.copies_of == 0)] = Cause.BY_HISTORY
        causes[self.latencies >= 0] = Cause.DELIVERED
        return Attribution(
            topics=self.topic_of[self.pair_msg].astype(np.int32),
            pub_ids=self.pub_of[self.pair_msg].astype(np.int32),
            t_intended_ns=self.intended[self.pair_msg],
            msg_ids=self.ids[self.pair_msg],
            sub_ids=self.subs[self.pair_sub].astype(np.int32),
            causes=causes,
            latencies_ns=self.latencies,
            copies_of=self.copies_of,
            heard=self.heard,
            chances=chances,
            paths={cause: int(counts[cause]) for cause in Cause if counts[cause]},
            legs=leg_lines(self, pairs, at, has_copy),
        )

    def _chunks(self, chunk_paths: int) -> Iterator[tuple[int, int]]:
        """Ranges of pairs that have about `chunk_paths` paths each."""
        per_pair = 1 + self.at_count[self.pair_msg] + self.policy.subscribe
        total = np.cumsum(per_pair)
        ends = np.flatnonzero(np.diff(total // chunk_paths, append=-1)) + 1
        yield from zip([0, *ends.tolist()], ends.tolist(), strict=False)

    def _walk(self, start: int, end: int) -> tuple[Stages, Ints, Ints, tuple[Ints, Ints, Bools]]:
        """The causes of a range of pairs, as if all were missed; their chances by paths of which no copy
        tells; the number of their paths by cause; and those that ended on the network or brought a copy, as
        `leg_lines` takes them."""
        around = self.around
        messages, subs = self.pair_msg[start:end], self.pair_sub[start:end]
        holders = around.holders(subs, self.topic_of[messages])
        pub_views = around.views.of("pub_id", self.pub_of[messages])
        sub_views = around.views.of("sub_id", self.subs[subs])

        # Servers that the message was sent to.
        owners, numbers = expanded(self.at_count[messages])
        at = self.at_from[messages][owners] + numbers
        servers = self.at_server[at]
        copies = places(self.copy_keys, (start + owners) * self.server_count + servers)
        lease_paths = holders[owners] * self.server_count + servers
        is_common = (copies >= 0) | around.asked.by(lease_paths, self.at_last[at])
        stages = np.where(copies >= 0, self._stages_of_copies(copies), self.at_stages[at])
        apart = np.flatnonzero(~is_common)
        stages[apart] = self._stages_unasked(
            servers[apart], pub_views[owners[apart]], sub_views[owners[apart]]
        )
        chances = np.zeros(len(owners), dtype=np.int64)
        beyond = np.flatnonzero(is_common & (stages == _RECEIVED))
        stages[beyond], chances[beyond] = self._beyond(
            at[beyond], lease_paths[beyond], subs[owners[beyond]], holders[owners[beyond]]
        )
        untapped = np.flatnonzero(is_common & (stages == Cause.UNTAPPED))
        was_full = around.client_overflows.contain(subs[owners[untapped]], self.at_last[at[untapped]])
        stages[untapped[was_full]] = Cause.OVERFLOW_OUT
        common = np.flatnonzero(is_common)
        chances[common] += self._tried(at[common], holders[owners[common]], copies[common] >= 0)
        on_network = common[(copies[common] >= 0) | np.isin(stages[common], _ON_NETWORK)]
        lines = start + owners[on_network], at[on_network], copies[on_network] >= 0

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
        of_pairs = np.bincount(owners, weights=chances, minlength=end - start).astype(np.int64)
        return furthest, of_pairs, counts, lines

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
                ~self.around.views.know(sub_views, servers) | (uses_all & (pub_views != sub_views)),
                np.full(len(servers), uses_all),
            ],
            [Cause.VIEW, Cause.UNASKED],
            Cause.DRAW,
        ).astype(np.int8)

    def _unsent_paths(
        self, messages: Ints, holders: Ints, pub_views: Ints, sub_views: Ints
    ) -> tuple[Ints, Stages]:
        """Paths by servers that subscribers asked and the message was not sent to: their pairs and causes."""
        low = np.searchsorted(self.around.asked.holders, holders)
        high = np.searchsorted(self.around.asked.holders, holders, side="right")
        owners, numbers = expanded(high - low)
        servers = self.around.asked.keys[low[owners] + numbers] % self.server_count
        is_unsent = places(self.at_keys, messages[owners] * self.server_count + servers) < 0
        owners, servers = owners[is_unsent], servers[is_unsent]
        uses_all = self._must_meet and self.policy.publish >= self.policy.k
        differ = pub_views[owners] != sub_views[owners]
        stages = np.select(
            [
                ~self.around.views.know(pub_views[owners], servers) | (uses_all & differ),
                np.full(len(owners), uses_all),
            ],
            [Cause.VIEW, Cause.UNSENT],
            Cause.DRAW,
        ).astype(np.int8)
        return owners, stages

    def _causes_apart(self, messages: Ints, nearest: Stages, pub_views: Ints, sub_views: Ints) -> Stages:
        """Causes of pairs whose two sides have no server in common."""
        draws = np.minimum(self.policy.publish, self.around.views.sizes(pub_views))
        nothing_sent = self.at_count[messages] == 0
        same_view = pub_views == sub_views
        if not self._must_meet:
            return np.where(nothing_sent, Cause.UNSENT, nearest).astype(np.int8)
        return np.select(
            [nothing_sent, ~same_view, self.at_count[messages] < draws],
            [Cause.UNSENT, Cause.VIEW, Cause.UNSENT],
            Cause.UNASKED,
        ).astype(np.int8)

    def _beyond(self, at: Ints, lease_paths: Ints, subs: Ints, holders: Ints) -> tuple[Stages, Ints]:
        """Paths on which the server had the message and no copy for the subscriber is recorded.

        Returns their causes, and how often each was forwarded all the same.
        """
        around = self.around
        owners, rows = self.had.rows_of(places(self.had.keys, self.at_keys[at]))
        times, servers = self.rx["t_rx_ns"][rows], self.rx["server_id"][rows]
        stood, had_changed = around.leases.stood(self.rx["boot_id"][rows], holders[owners], times)
        paths, of = lease_paths[owners], subs[owners]
        stages = np.select(
            [
                stood & around.downs.killed_or_halted.contain(servers, times),
                stood & around.client_overflows.contain(of, times),
                stood,
                around.asked.had_left(paths, times),
                had_changed,
                around.leases.had_begun(paths, times),
            ],
            [
                *(Cause.DOWN_OUT, Cause.OVERFLOW_OUT, Cause.NETWORK_OUT),
                *(Cause.DRAW, Cause.LEASE_EXPIRED, Cause.LEASE_RESTART),
            ],
            Cause.LEASE_NEVER,
        ).astype(np.int8)
        furthest = np.full(len(at), _NO_PATH, dtype=np.int8)
        np.maximum.at(furthest, owners, stages)
        return furthest, np.bincount(owners[np.isin(stages, _FORWARDED)], minlength=len(at))

    def _tried(self, at: Ints, holders: Ints, have_copies: Bools) -> Ints:
        """The number of `tries` on each of these paths while the subscriber's lease stood; at a server
        without a tap, after it was asked for."""
        paths = np.flatnonzero(places(self.tries.keys, self.at_keys[at]) >= 0)
        owners, rows = self.tries.rows_of(places(self.tries.keys, self.at_keys[at[paths]]))
        owners = paths[owners]
        is_one = self.try_was_lost[rows] | ~have_copies[owners]
        owners, rows = owners[is_one], rows[is_one]
        servers, times = self.at_server[at[owners]], self.try_times[rows]
        around = self.around
        is_alive, boots = around.lives.at(servers, times)
        stood, _ = around.leases.stood(boots, holders[owners], times)
        was_asked = around.asked.by(holders[owners] * self.server_count + servers, times)
        could = np.where(around.lives.are_tapped(servers), is_alive & stood, was_asked)
        return np.bincount(owners[could], minlength=len(at))
