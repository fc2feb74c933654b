"""What a capture records beside the messages: outages, overflowing sockets, servers' lives, clients' views.

Each class answers a question about a server or client at a time, for arrays of these.
"""

import numpy as np

from kcast.loadtest.results.causes import EDGE_NS, SECOND_NS, TAP_UNWRITTEN_NS
from kcast.loadtest.results.joins import Groups, Ints, Spans, last_before, places
from kcast.loadtest.results.tables import Array, Capture, columns, views

OUTAGE_MARGIN_NS = 100_000_000
"""How far inside of an outage, or outside of all, a datagram contradicts it: clients keep their own time."""

_REAL = ("kill", "stall")


class RealDowntimes:
    """When servers were killed, stalled or cut off. Whether a datagram was cut off, its recorded fate tells.

    `killed_or_halted` begins at the last record of a tap that a kill cut short, if that is shortly before the
    kill: it is unknown what the server received after that record. `halted` are the stalls alone, and `mute`
    the times when servers were that.
    `surely_cut_off` and `surely_killed` lack the first and last OUTAGE_MARGIN_NS of isolations and kills;
    `perhaps_cut_off` has as much more. `denied` are outages that the scenario's settings do not have.
    """

    def __init__(self, capture: Capture) -> None:
        outage = columns(capture, "outage", "server_id", "t_down_ns", "t_up_ns", "kind")
        is_real = np.isin(outage["kind"], _REAL)
        is_stall = outage["kind"] == "stall"
        servers = outage["server_id"].astype(np.int64)
        froms, tos = outage["t_down_ns"], outage["t_up_ns"]
        begins = np.minimum(froms - EDGE_NS, self._last_records(capture, servers, froms))
        self.killed_or_halted = Spans(servers[is_real], begins[is_real], tos[is_real] + EDGE_NS)
        self.halted = Spans(servers[is_stall], froms[is_stall] - EDGE_NS, tos[is_stall] + EDGE_NS)
        self.mute = _spans(servers, froms - EDGE_NS, tos + EDGE_NS, outage["kind"] == "mute")
        margin_ns = OUTAGE_MARGIN_NS + 2 * clock_error_ns(capture)
        is_cut, is_kill = outage["kind"] == "isolation", outage["kind"] == "kill"
        # All that were killed together have one t_up_ns: that of the last one to be up again.
        ends = np.where(is_kill, np.minimum(tos, self._next_lives(capture, servers, froms)), tos)
        begin, end = froms + margin_ns, ends - margin_ns
        self.surely_cut_off, self.surely_killed = (
            _spans(servers, begin, end, is_kind & (begin <= end)) for is_kind in (is_cut, is_kill)
        )
        self.perhaps_cut_off = _spans(servers, froms - margin_ns, tos + margin_ns, is_cut)
        is_denied = (outage["kind"] != capture.scenario.by) | (not capture.scenario.has_outages)
        self.denied = _spans(servers, froms, tos, is_denied)

    @staticmethod
    def _next_lives(capture: Capture, servers: Ints, froms: Ints) -> Ints:
        """When the tap of each server began again after it was killed; far away where it did not."""
        life = columns(capture, "server_life", "server_id", "t_from_ns")
        own, begins = life["server_id"].astype(np.int64), life["t_from_ns"]
        # The first beginning after a time is the last before it, with time turned round.
        found = last_before(own, -begins, servers, -froms - 1)
        never = np.full(len(servers), np.iinfo(np.int64).max)
        return np.where(found < 0, never, begins[found]) if len(begins) else never

    @staticmethod
    def _last_records(capture: Capture, servers: Ints, froms: Ints) -> Ints:
        """The last time in the tap of each killed server, but at most TAP_UNWRITTEN_NS before the kill."""
        life = columns(capture, "server_life", "server_id", "t_to_ns", "ended")
        is_cut = life["ended"] == 0
        ends = life["t_to_ns"][is_cut]
        last = last_before(life["server_id"][is_cut].astype(np.int64), ends, servers, froms + EDGE_NS)
        if not len(ends):
            return froms
        return np.where(last < 0, froms, np.maximum(ends[last], froms - TAP_UNWRITTEN_NS))


def clock_error_ns(capture: Capture) -> int:
    """Returns the largest error of a clock."""
    return int(np.abs(columns(capture, "clock", "error_ns")["error_ns"]).max(initial=0))


def _spans(servers: Ints, froms: Ints, tos: Ints, rows: Array) -> Spans:
    return Spans(servers[rows], froms[rows], tos[rows])


def overflows(ids: Array, times: Array, counts: Array) -> Spans:
    """Returns the spans in which a counter, read once a second, rose, with a second before and after; by id.

    A counter that is less than before has started again at 0, with a new socket. Before its first reading it
    was 0.
    """
    order = np.lexsort((counts, times, ids))
    keys, at, count = ids[order].astype(np.int64), times[order], counts[order]
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    before = np.concatenate((at[:1], at[:-1]))
    rise = np.diff(count, prepend=0)
    rises = np.where(is_first | (rise < 0), count, rise) > 0
    since = np.where(is_first, at - SECOND_NS, before)
    return Spans(keys[rises], since[rises] - SECOND_NS, at[rises] + SECOND_NS)


class ServerLives:
    """Which servers keep a tap, and which life each server was in at a time.

    `were_restarted`: whether any server had more than one life.
    """

    def __init__(self, capture: Capture) -> None:
        life = columns(capture, "server_life", "server_id", "boot_id", "t_from_ns")
        order = np.argsort(life["boot_id"])  # of lives that began at one time, the same is always the last
        life = {name: values[order] for name, values in life.items()}
        self._servers = life["server_id"].astype(np.int64)
        self._boots = life["boot_id"]
        self._froms = life["t_from_ns"]
        first = Groups(self._servers)
        self._tapped = first.keys
        self._first_froms = first.least(self._froms)
        self.were_restarted = bool((first.counts > 1).any())
        whole = columns(capture, "server_life", "server_id", "lost_lines", "ended")
        is_cut = (whole["ended"] == 0) | (whole["lost_lines"] > 0)
        self._whole = np.setdiff1d(first.keys[first.counts == 1], whole["server_id"][is_cut])

    def are_tapped(self, servers: Ints) -> Array:
        """Returns whether each of these servers keeps a tap."""
        return places(self._tapped, servers) >= 0

    def have_whole_taps(self, servers: Ints) -> Array:
        """Returns whether each server had one life, of which its tap has all."""
        return places(self._whole, servers) >= 0

    def at(self, servers: Ints, times: Ints) -> tuple[Array, Array]:
        """Returns whether each server had begun a life by a time, and the boot id of that life."""
        if not len(self._servers):
            return np.zeros(len(servers), dtype=np.bool_), np.zeros(len(servers), dtype=np.int64)
        last = last_before(self._servers, self._froms, servers, times)
        return last >= 0, self._boots[last]

    def restarted(self, servers: Ints, times: Ints) -> tuple[Array, Array]:
        """Returns whether each server had restarted by a time, and the boot id of the life it was in."""
        if not len(self._servers):
            return np.zeros(len(servers), dtype=np.bool_), np.zeros(len(servers), dtype=np.int64)
        last = last_before(self._servers, self._froms, servers, times)
        began = self._first_froms[places(self._tapped, servers)]
        return (last >= 0) & (self._froms[last] > began), self._boots[last]


class Views:
    """Which servers each publisher's and subscriber's client knew; all servers if that is not recorded."""

    def __init__(self, capture: Capture, servers: int) -> None:
        member, knows = views(capture)
        width = max(servers, knows.shape[1])
        padded = np.zeros((len(knows) + 1, width), dtype=np.bool_)
        padded[: len(knows), : knows.shape[1]] = knows
        padded[-1] = True
        # The last row, which knows all servers, is for clients that are not in the table.
        self._knows, inverse = np.unique(padded, axis=0, return_inverse=True)
        self._views = inverse.reshape(-1).astype(np.int64)
        self._rows = {name: _rows_by_id(member[name]) for name in ("pub_id", "sub_id")}

    def of(self, side: str, ids: Ints) -> Ints:
        """Returns the number of each client's view, equal for equal views; `side` is "pub_id" or "sub_id"."""
        keys, rows = self._rows[side]
        found = places(keys, ids)
        if not len(keys):
            return np.full(len(ids), self._views[-1])
        return np.where(found < 0, self._views[-1], self._views[rows[found]])

    def know(self, numbers: Ints, servers: Ints) -> Array:
        """Returns whether each view has the server beside it."""
        known: Array = self._knows[numbers, servers]
        return known

    def sizes(self, numbers: Ints) -> Ints:
        """Returns the number of servers in each view."""
        counts: Ints = self._knows.sum(axis=1)[numbers]
        return counts


def _rows_by_id(ids: Array) -> tuple[Ints, Ints]:
    keys, rows = np.unique(ids.astype(np.int64), return_index=True)
    return keys[keys >= 0], rows[keys >= 0]
