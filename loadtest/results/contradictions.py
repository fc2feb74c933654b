"""Rows of a capture that cannot all be true: figures made of them would be wrong, and look sound.

Each count is a number of rows. In a sound capture all are 0:

- `orphans`: sendings and copies of messages that `publish` does not have, and second rows of a message there.
  A part of `publish` is missing, or stands for another.
- `too_early`: a server took a message in before it was sent, or a subscriber got a copy before its server
  had the message, by more than the clocks may differ: clocks were not what the table `clock` says. Or a
  subscriber got a copy of a server whose tap has all, and which never had the message.
- `through_outages`: sendings that passed while their server was cut off, that a killed server took in, or
  that were cut off from a server which was not: outages were not when the table `outage` says. Or what the
  scenario's settings deny: sendings during outages, lines lost on purpose, and datagrams doubled.

Rows are compared with those of the same message only: so counts of parts add up.
"""

from typing import NamedTuple

import numpy as np

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, PASSED
from kcast.loadtest.results.attribution import Messages
from kcast.loadtest.results.joins import Groups, Ints, places
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import Array, Columns

CAUSALITY_MARGIN_NS = 1_000_000
"""Between the times that two processes read of one clock for the same datagram."""

_SERVERS = 1 << 32


class Contradictions(NamedTuple):
    """Numbers of rows that contradict others, by what they contradict."""

    orphans: int = 0
    too_early: int = 0
    through_outages: int = 0


def contradictions(around: Surroundings, messages: Messages) -> Contradictions:
    """The contradictions among all rows of some messages."""
    ids = messages["publish"]["msg_id"]
    known = np.unique(ids[ids >= 0])
    orphans = int((ids >= 0).sum()) - len(known)
    for name in ("pub_tx", "deliver"):
        of = messages[name]["msg_id"]
        orphans += int(((of >= 0) & (places(known, of) < 0)).sum())
    return Contradictions(orphans, _too_early(around, messages, known), _through_outages(around, messages))


def _too_early(around: Surroundings, messages: Messages, known: Ints) -> int:
    margin_ns = CAUSALITY_MARGIN_NS + 2 * around.clock_error_ns
    sent = _first(messages["pub_tx"], "t_tx_ns", known)
    taken = _first(messages["server_rx"], "t_rx_ns", known)
    copies = messages["deliver"]
    arrived = (copies["injected"] == PASSED) | (copies["injected"] == DUPLICATE)
    # The tap of a killed server lacks its end: a later life may have what is sent again.
    arrived &= around.lives.have_whole_taps(copies["server_id"].astype(np.int64))
    brought = _keyed({name: values[arrived] for name, values in copies.items()}, "t_user_ns", known)
    early = sum(
        _number(_before(effect, cause) < -margin_ns)
        for effect, cause in ((_keyed(messages["server_rx"], "t_rx_ns", known), sent), (brought, taken))
    )
    return early + _number(places(taken[0], brought[0]) < 0)


def _keyed(table: Columns, time: str, known: Ints) -> tuple[Ints, Ints]:
    """A key for the message and server of each row, and its time; rows of others are left out."""
    numbers, servers = places(known, table["msg_id"]), table["server_id"].astype(np.int64)
    is_known = (numbers >= 0) & (servers >= 0)
    return (numbers * _SERVERS + servers)[is_known], table[time][is_known]


def _first(table: Columns, time: str, known: Ints) -> tuple[Ints, Ints]:
    """The first time of each message and server."""
    keys, times = _keyed(table, time, known)
    groups = Groups(keys)
    return groups.keys, groups.least(times)


def _before(effect: tuple[Ints, Ints], cause: tuple[Ints, Ints]) -> Ints:
    """How long after its cause each effect was, of those whose cause is recorded."""
    found = places(cause[0], effect[0])
    has_cause = found >= 0
    after: Ints = effect[1][has_cause] - cause[1][found[has_cause]]
    return after


def _through_outages(around: Surroundings, messages: Messages) -> int:
    sent, taken, copies = messages["pub_tx"], messages["server_rx"], messages["deliver"]
    scenario, fates = around.scenario, (sent["injected"], copies["injected"])
    denied = [
        _number(fate == what)
        for what, fate, share in (
            (LOST, fates[0], scenario.loss_in),
            (LOST, fates[1], scenario.loss_out),
            *((DUPLICATE, fate, scenario.duplicate) for fate in fates),
        )
        if not share
    ]
    cut_off, killed = around.downs.surely_cut_off, around.downs.surely_killed
    passed = sent["injected"] == PASSED
    cut = sent["injected"] == CUT_OFF
    return (
        _number(cut_off.contain(*_at(sent, "t_tx_ns", passed)))
        + _number(~around.downs.perhaps_cut_off.contain(*_at(sent, "t_tx_ns", cut)))
        + _number(killed.contain(*_at(taken, "t_rx_ns", taken["msg_id"] >= 0)))
        + _number(around.downs.denied.contain(*_at(sent, "t_tx_ns", sent["msg_id"] >= 0)))
        + sum(denied)
    )


def _at(table: Columns, time: str, rows: Array) -> tuple[Ints, Ints]:
    return table["server_id"][rows].astype(np.int64), table[time][rows]


def _number(flags: Array) -> int:
    return int(np.count_nonzero(flags))
