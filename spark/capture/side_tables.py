"""The tables of a cell besides those of its messages, without the rows that tell nothing new.

Leases, outages and servers' lives grow with what happens in a load, clients and topics not even with that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kcast.loadtest.capture.schema import DUPLICATE, TABLES
from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.loadtest.results.joins import Bools
from kcast.loadtest.results.tables import Columns
from kcast.loadtest.scenario import Scenario

SIDE_TABLES = tuple(name for name in TABLES if name not in MESSAGE_COLUMNS)

_ROWS = 100_000  # of which the telling ones are chosen together
_TYPES = {"string": pa.string(), "list<int32>": pa.list_(pa.int32())}


Chooser = Callable[[Columns, int, int], Bools]
"""Which rows are to be kept, with a load between two times."""


@dataclass(frozen=True, slots=True)
class SideTables:
    """The side tables of a cell, as a `kcast.loadtest.results.tables.Capture` without messages.

    `renewals` are lines that ask for leases, sent during the load, of which `subscribe` has no rows.
    """

    scenario: Scenario
    status: str
    tables: Mapping[str, pa.Table]
    renewals: int = 0

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns a table; it has no rows if nothing is known of it."""
        found = self.tables.get(table)
        if found is None:
            found = no_rows(table)
        return found if columns is None else found.select(list(columns))


def no_rows(table: str) -> pa.Table:
    """An empty table with a table's columns."""
    schema = pa.schema(
        [(column.name, _TYPES.get(column.type) or getattr(pa, column.type)()) for column in TABLES[table]]
    )
    return schema.empty_table()


class TellingRows:
    """The rows of a side table that tell something new: all others may go without a figure being another.

    Rows are added in the order of time. Of what is read once a second, `kept` has the readings in which a
    counter changed, and those before them. Of lines that ask for a lease it has each lease's first; the
    others, if sent within the `window` of the load, are counted as `renewals`. What comes before and after
    the window is kept. With `keeps_all`, for clients that may leave a server, all of `subscribe` is.
    """

    def __init__(self, table: str, window: tuple[int, int] | None, *, keeps_all: bool) -> None:
        self._table, self._window = table, window
        self._choose = None if window is None else _CHOOSE.get(table)
        if keeps_all and table == "subscribe":
            self._choose = None
        self._kept, self._added = no_rows(table), 0
        self.renewals = 0

    def add(self, rows: pa.Table) -> None:
        """Adds the rows of a file."""
        self._kept = pa.concat_tables([self._kept, rows])
        self._added += len(rows)
        if self._added >= _ROWS:
            self.kept()

    def kept(self) -> pa.Table:
        """Returns what is kept of all rows so far."""
        self._added = 0
        if self._choose is not None and len(self._kept) and self._window is not None:
            columns: Columns = {name: np.asarray(self._kept[name]) for name in self._kept.column_names}
            chosen = self._choose(columns, *self._window)
            if self._table == "subscribe":
                gone = ~chosen & (columns["t_tx_ns"] >= self._window[0])
                self.renewals += int(np.count_nonzero(gone & (columns["injected"] != DUPLICATE)))
            self._kept = self._kept.filter(pa.array(chosen))
        return self._kept


def _first_asked(rows: Columns, _: int, to_ns: int) -> Bools:
    """The first line of each lease, and what was asked from the end of the load on."""
    keys = [rows[name] for name in ("server_id", "topic_id", "sub_id")]
    order = np.lexsort((rows["t_tx_ns"], *keys))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    chosen = rows["t_tx_ns"] >= to_ns
    chosen[order[is_first]] = True
    return chosen


def _changes(key: str, counters: Sequence[str]) -> Chooser:
    """What chooses the readings in which a counter changed, and the one before and the last of each key."""

    def choose(rows: Columns, from_ns: int, to_ns: int) -> Bools:
        _, keys = np.unique(rows[key], return_inverse=True)
        ties = [rows[name] for name in ("copies", *counters) if name in rows]
        order = np.lexsort((*ties, rows["t_ns"], keys))
        is_new = np.diff(keys[order], prepend=-1) != 0
        for name in counters:
            is_new |= np.diff(rows[name][order], prepend=0) != 0
        if "copies" in rows:  # impossible readings
            is_new |= np.diff(rows["copies"][order], prepend=0) < 0
            is_new |= (rows["deliveries"] + rows["duplicates"] > rows["copies"])[order]
        chosen = (rows["t_ns"] <= from_ns) | (rows["t_ns"] > to_ns)
        chosen[order] |= is_new | np.append(is_new[1:], True)
        if "lag_max_ns" in rows:
            chosen[np.argmax(np.where(chosen, -1, rows["lag_max_ns"]))] = True
        return chosen

    return choose


_CHOOSE: dict[str, Chooser] = {
    "subscribe": _first_asked,
    "client_stat": _changes("client_id", ("kernel_drops", "send_errors", "slow_consumer")),
    "server_stat": _changes("server_id", ("kernel_drops",)),
    "process_stat": _changes("process", ("rows_lost",)),
}
