"""Which lines left for a leg of the network, and which of them it lost, though no scenario asked for it.

A leg is the way from a publisher to a server (*in*), or from a server to a subscriber (*out*). What counts is
only what nothing but the network can have lost: lines that passed the faults of the scenario, between sockets
that dropped nothing meanwhile, to servers that were up. A message counts at a server that it was sent to
once, so that each line comes or does not.

Servers' taps say what came to them. Where there are none, as at servers that someone else runs, copies alone
tell: a server that brought a message to some subscriber had it. So

- a line is lost on the way *in* if it came to none of the server's subscribers, two or more of them;
- a copy is lost on the way *out* if it did not come, and another subscriber's copy by the same server did.

Some messages of which all copies were lost on the way out are among those that seem to be lost on the way in:
`loss_estimates` takes them off, by the `audiences`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kcast.loadtest.capture.schema import NONE, PASSED
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.joins import Bools, Groups, Ints, group_sums
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import Array, Columns

BLOCK = 64
"""Numbers of a publisher's messages in a block. Lines follow each other within a block only, so that parts of
a capture tell the same as the whole."""

STRETCHES = 10
"""The number of stretches of time in a load. Lines of one stretch may share what befalls the network."""

AUDIENCE_MIN = 2
"""Subscribers of a message at a server. If there are fewer, copies do not tell whether it had the message."""

IN, OUT, BOTH = 0, 1, 2
LEGS = {IN: "in", OUT: "out", BOTH: "both"}
"""The legs. *Both* is the way from a publisher to a subscriber by one server."""

COUNTED = ("lines", "lost", "after", "after_lost", "others", "others_lost")
"""What is counted of a leg and a stretch of time:

- `lines`, and of these `lost`;
- `after`: lines that follow a lost one on their leg, in the order of their numbers, among messages of one
  publisher and block; of these `after_lost`;
- `others`: sum over lost lines of the other lines of the same message (on the way out, to the same
  subscriber), which went by other servers; of these `others_lost`.
"""

_NOT_COUNTED, _CAME, _LOST, _UNTAPPED = range(4)


class Walked(Protocol):
    """What `attribution` has found out of messages, pairs, and messages at servers, numbered from 0 each.

    `received` is the stage of a message at a server that had it, the others are values of `Cause`.
    """

    around: Surroundings
    received: int
    ids: Array
    pub_of: Ints
    intended: Array
    subs: Ints
    pair_msg: Ints
    pair_sub: Ints
    tx: Columns
    sent: Groups
    at_keys: Ints
    at_msg: Ints
    at_server: Ints
    at_last: Ints
    at_stages: Array


@dataclass(frozen=True, slots=True)
class LegLines:
    """Lines of a leg, one element each: numbers of message, server and subscriber (NONE on the way in)."""

    msg_ids: Ints
    servers: Ints
    sub_ids: Ints
    t_intended_ns: Ints
    is_lost: Bools


@dataclass(frozen=True, slots=True)
class Legs:
    """The lines of all legs. Of messages at servers without a tap: the number of subscribers that should get
    it there (`audiences`), and whether it came to none (`silent`)."""

    of: Mapping[int, LegLines]
    audiences: Ints
    silent: Bools


def leg_lines(walk: Walked, pairs: Ints, at: Ints, has_copy: Bools) -> Legs:
    """The lines of a walk. Of each path that ended on the network or has a copy: the pair, the message and
    server (an index into `walk.at_keys`), and whether there is a copy."""
    fates = _fates_at_servers(walk)
    kept = fates[at] != _NOT_COUNTED
    if len(walk.around.client_overflows):
        subs = walk.pair_sub[pairs]
        kept &= ~walk.around.client_overflows.contain(subs, walk.at_last[at])
    pairs, at, has_copy = pairs[kept], at[kept], has_copy[kept]
    fate = fates[at]

    asked = np.bincount(at, minlength=len(fates))
    came = np.bincount(at[has_copy], minlength=len(fates))
    untapped = np.flatnonzero((fates == _UNTAPPED) & (asked > 0))
    by_copies = untapped[asked[untapped] >= AUDIENCE_MIN]
    tapped = np.flatnonzero((fates == _CAME) | (fates == _LOST))
    into = np.union1d(tapped, by_copies)
    is_out = (fate == _CAME) | ((fate == _UNTAPPED) & (came[at] - has_copy >= 1))
    lost_in = np.where(fates[into] == _UNTAPPED, came[into] == 0, fates[into] == _LOST)
    nobody = np.full(len(into), NONE, dtype=np.int64)
    return Legs(
        of={
            IN: _lines(walk, walk.at_msg[into], into, nobody, lost_in),
            OUT: _of_pairs(walk, pairs[is_out], at[is_out], ~has_copy[is_out]),
            BOTH: _of_pairs(walk, pairs, at, ~has_copy),
        },
        audiences=asked[untapped],
        silent=came[untapped] == 0,
    )


def _of_pairs(walk: Walked, pairs: Ints, at: Ints, is_lost: Bools) -> LegLines:
    return _lines(walk, walk.pair_msg[pairs], at, walk.subs[walk.pair_sub[pairs]].astype(np.int64), is_lost)


def _lines(walk: Walked, messages: Ints, at: Ints, subs: Ints, is_lost: Bools) -> LegLines:
    return LegLines(walk.ids[messages], walk.at_server[at], subs, walk.intended[messages], is_lost)


def _fates_at_servers(walk: Walked) -> Array:
    """What became of each message at each server that it was at, as far as it counts here."""
    fates = np.full(len(walk.at_keys), _NOT_COUNTED, dtype=np.int8)
    rows = walk.sent.rows[walk.sent.starts[walk.sent.counts == 1]]
    rows = rows[walk.tx["injected"][rows] == PASSED]
    around, servers, times = walk.around, walk.tx["server_id"][rows], walk.tx["t_tx_ns"][rows]
    pubs = walk.pub_of[walk.tx["msg"][rows]]
    may_be_own = (
        around.downs.killed_or_halted.contain(servers, times)
        | around.send_errors.contain(pubs, times)
        | around.server_overflows.contain(servers, times)
    )
    at = np.searchsorted(walk.at_keys, walk.tx["key"][rows[~may_be_own]])
    stages = walk.at_stages[at]
    had = stages == walk.received
    fates[at] = np.select(
        [had, stages == Cause.NETWORK_IN, stages == Cause.UNTAPPED], [_CAME, _LOST, _UNTAPPED], _NOT_COUNTED
    )
    return fates


# --- Counts ------------------------------------------------------------------------------------------


def stretches(t_intended_ns: Ints, t0_ns: int, duration_s: float) -> Ints:
    """The stretch of time of each message, from 0; what was due before the load is in the first."""
    duration_ns = max(1, round(duration_s * 1e9))
    since: Ints = np.maximum(0, t_intended_ns - t0_ns) * STRETCHES // duration_ns
    return since


def counted_lines(lines: LegLines, stretch: Ints) -> tuple[Ints, list[Ints]]:
    """The stretches of time that have lines of a leg, and COUNTED of each."""
    zeros = np.zeros(len(stretch), dtype=np.int64)
    after, after_lost, others, others_lost = zeros.copy(), zeros.copy(), zeros.copy(), zeros.copy()
    if lines.is_lost.any():
        follows, before = _following(lines)
        after[follows] = lines.is_lost[before]
        after_lost[follows] = lines.is_lost[before] & lines.is_lost[follows]
        others, others_lost = _others(lines)
    values = (np.ones_like(zeros), lines.is_lost, after, after_lost, others, others_lost)
    (found,), sums = group_sums((stretch,), values)
    return found, sums


def _following(lines: LegLines) -> tuple[Ints, Ints]:
    """The lines that follow another on their leg, and those that they follow."""
    pubs, blocks = lines.msg_ids >> 32, (lines.msg_ids & 0xFFFFFFFF) // BLOCK
    order = np.lexsort((lines.msg_ids, blocks, pubs, lines.servers, lines.sub_ids))
    keys = [values[order] for values in (blocks, pubs, lines.servers, lines.sub_ids)]
    follows = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    return order[1:][follows], order[:-1][follows]


def _others(lines: LegLines) -> tuple[Ints, Ints]:
    """The number of other lines of the message and subscriber of each lost line, and of those lost; 0 for
    lines that came."""
    order = np.lexsort((lines.sub_ids, lines.msg_ids))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.logical_or.reduce(
        [values[order][1:] != values[order][:-1] for values in (lines.msg_ids, lines.sub_ids)]
    )
    number = np.cumsum(is_first) - 1
    lost = lines.is_lost[order].astype(np.int64)
    sizes, losses = np.bincount(number), np.bincount(number, weights=lost).astype(np.int64)
    others, others_lost = np.empty_like(lost), np.empty_like(lost)
    others[order] = lost * (sizes[number] - 1)
    others_lost[order] = lost * (losses[number] - 1)
    return others, others_lost
