"""The entries of a log one after the other, as its store has them: so no queue can overflow. No clock.

First those come that were there when it began, in the order of ids; then each as it has come to count.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from itertools import chain, islice

from kcast.client.history.entries import Entry, Row, entry_of
from kcast.client.history.ids import AHEAD_S, CLOCK_MIN, ID_BYTES, parse_id, varint
from kcast.client.history.index import LOWEST, after
from kcast.client.history.tables import Reader

ROWS_MAX = 256

Since = float | str


class Cursor:
    """Reads a store from a bound on; `last` leaves all out but so many of those that are there. With `is_new`
    those that are there are left out, and with `ordinal` there are those that came to count after it.

    `entry_of` makes entries of rows; None is left out."""

    def __init__(
        self,
        store: Reader,
        lo: bytes,
        last: int | None = None,
        *,
        is_new: bool = False,
        ordinal: int | None = None,
        entry_of: Callable[[Row], Entry | None] = entry_of,
    ) -> None:
        self._store, self._entry_of = store, entry_of
        self._from = lo
        self._ordinal = store.standing().ordinal if ordinal is None else ordinal
        start = lo if last is None else max(lo, bound_of_last([store], last))
        self._next = None if is_new or last == 0 or ordinal is not None else start
        self._is_over = False
        self._there = self.there()

    def take(self) -> list[Entry]:
        """Returns the next entries, none where there are no more by now."""
        return list(islice(self._there, ROWS_MAX)) or self.later()

    def there(self) -> Iterator[Entry]:
        """Yields the entries that are there as it begins."""
        while not self._is_over and (rows := self._page()):
            yield from filter(None, map(self._entry_of, rows))

    def _page(self) -> Sequence[Row]:
        rows = [] if self._next is None else self._store.rows_from(self._next, self._ordinal, ROWS_MAX)
        self._next = after(rows[-1].entry_id) if len(rows) == ROWS_MAX else None
        return rows

    def later(self, entries_max: int = ROWS_MAX) -> list[Entry]:
        """Returns the next of those that have come since, none where there are no more by now."""
        found = list[Entry]()
        while (
            not found and not self._is_over and (rows := self._store.rows_after(self._ordinal, entries_max))
        ):
            self._ordinal = rows[-1].ordinal
            found = list(filter(None, (self._entry_of(row) for row in rows if row.entry_id >= self._from)))
        return found

    def end(self) -> int:
        """Ends it, before its store; returns how many it has not read."""
        self._is_over = True
        unread = self._store.standing().ordinal - self._ordinal
        while rows := self._page():
            unread += len(rows)
        return unread


def bound_of_last(stores: Sequence[Reader], entries: int) -> bytes:
    """Returns the bound from which on stores have that many entries together, or all where they have
    fewer."""
    ids = nlargest(entries, chain.from_iterable(each.last_ids(entries) for each in stores))
    return ids[-1] if ids and len(ids) == entries else LOWEST


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
