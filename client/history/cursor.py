"""The entries of a log one after the other, as its store has them: so no queue can overflow. No clock.

First those come that were there when it began, in the order of ids; then each as it has come to count.
"""

from kcast.client.history.entries import Entry, entry_of
from kcast.client.history.ids import AHEAD_S, CLOCK_MIN, ID_BYTES, parse_id, varint
from kcast.client.history.index import LOWEST, after
from kcast.client.history.tables import Reader

ROWS_MAX = 256

Since = float | str


class Cursor:
    """Reads a store from a bound on; `last` leaves all out but so many of those that are there. With `is_new`
    those that are there are left out."""

    def __init__(self, store: Reader, lo: bytes, last: int | None = None, *, is_new: bool = False) -> None:
        self._store = store
        self._from = lo
        self._ordinal = store.standing().ordinal
        start = lo if last is None else max(lo, store.bound_of_last(last))
        self._lo = None if is_new or last == 0 else start

    def take(self) -> list[Entry]:
        """Returns the next entries, none where there are no more by now."""
        found = list[Entry]()
        while self._lo is not None and not found:
            rows = self._store.rows_from(self._lo, self._ordinal, ROWS_MAX)
            self._lo = after(rows[-1].entry_id) if len(rows) == ROWS_MAX else None
            found = [entry_of(row) for row in rows]
        while not found and (rows := self._store.rows_after(self._ordinal, ROWS_MAX)):
            self._ordinal = rows[-1].ordinal
            found = [entry_of(row) for row in rows if row.entry_id >= self._from]
        return found


def bound_of(since: Since, unix_s: float) -> bytes:
    """Returns the bound from which on there are the entries since then: seconds ago, an id, `all` or `new`.
    Raises ValueError and TypeError."""
    if since == "all":
        return LOWEST
    if since == "new":
        since = AHEAD_S  # another's clock may be behind
    if isinstance(since, str):
        found = parse_id(since)
        if found is None:
            raise ValueError(f"since is {since!r}: give seconds, the 32 characters of an id, 'all' or 'new'")
        return found
    if isinstance(since, bool) or not isinstance(since, int | float):
        raise TypeError(f"since is of type {type(since).__name__}: give seconds, an id, 'all' or 'new'")
    if not since >= 0:
        raise ValueError(f"since is {since}: give 0 or more seconds")
    clock = max(CLOCK_MIN, int((unix_s - min(since, unix_s)) * 1e6))
    return varint(clock).ljust(ID_BYTES, b"\0")
