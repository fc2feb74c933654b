"""The logs of a topic, shown as one. A layer, sans-IO. PROTOCOL §9.12.

A sealed topic travels under another name in each epoch of its group, so it has a log for each epoch that is
held: from a minute before the epoch begins, until nothing that was sealed in it is taken any more. Others
have one log, for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from itertools import islice
from math import inf
from operator import attrgetter

from kcast.client.events import Delivery
from kcast.client.history.cursor import ROWS_MAX, Cursor, bound_of_last
from kcast.client.history.entries import Entry, Status, StoreError, Synced
from kcast.client.history.log import Log
from kcast.client.messages.guard_and_writer import Prover
from kcast.client.publishing.waiters import Waiter

LEAD_S = 60.0  # before it begins an epoch's log is open
LOOK_INTERVAL_S = 60.0  # at most: the clock may be set meanwhile
TRY_AGAIN_S = 5.0  # to open an epoch's log, where its file cannot be written
OPENED_MAX = 64  # sealed entries that are opened in one turn: some 10 ms


class Epochs:
    """The logs of a topic by the topics on which its messages travel. `guard` tells these, None where it is
    the topic itself; `open_log` opens the log of one, `tell` is told where that fails (StoreError), and None
    once it does not. `clock_offset_s` is as in `LogHost`."""

    topics: Sequence[bytes] = ()

    def __init__(
        self,
        topic: bytes,
        guard: Prover | None,
        open_log: Callable[[bytes], Log],
        clock_offset_s: Callable[[], float],
        tell: Callable[[str | None], object] = lambda text: None,
    ) -> None:
        self.trouble: str | None = None
        self.logs: dict[bytes, Log] = {}  # in the order of epochs
        self.next_at = -inf
        self.is_over = False
        self._topic, self._guard = topic, guard
        self._open_log, self._clock_offset_s, self._tell = open_log, clock_offset_s, tell
        self._places: Mapping[bytes, bool] = {}

    def hear(self, delivery: Delivery, now: float) -> None:
        """Is never called: it has no topics."""

    def handle_timeout(self, now: float) -> None:
        """Opens the logs of epochs that are held from now on, and closes those of others."""
        offset_s, until_unix_s = self._clock_offset_s(), inf
        self._places = {self._topic: True}
        if self._guard is not None:
            self._places, until_unix_s = self._guard.places(self._topic, now + offset_s, LEAD_S)
        self.next_at = inf if until_unix_s == inf else min(until_unix_s - offset_s, now + LOOK_INTERVAL_S)
        before, self.logs, trouble = self.logs, {}, None
        for place in self._places:
            try:
                self.logs[place] = before.pop(place) if place in before else self._open_log(place)
            except StoreError as error:  # the others go on meanwhile
                trouble, self.next_at = str(error), now + TRY_AGAIN_S
        for log in before.values():
            log.look_for_synced(inf)  # who waits for several is told what this one has found
            log.close(now)
        if trouble != self.trouble:
            self.trouble = trouble
            self._tell(trouble)

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Has nobody who waits."""

    def close(self, now: float) -> None:
        """Ends all logs with the next turn."""
        self.is_over = True
        for log in self.logs.values():
            log.close(now)

    @property
    def in_force(self) -> Log | None:
        """The log to append to; None where no epoch holds."""
        return next((log for place, log in self.logs.items() if self._places.get(place)), None)

    @property
    def begun(self) -> Sequence[Log]:
        """The logs of epochs that have begun."""
        logs, now = list(self.logs.values()), self.in_force
        return logs if now is None else logs[: logs.index(now) + 1]

    def wait_synced(self, waiter: Waiter, timeout_s: float, now: float) -> None:
        """Tells the waiter as `Log.wait_synced` does, of all epochs that have begun."""
        parts = _Parts(waiter, self.begun)
        for log in self.begun:
            log.wait_synced(parts, timeout_s, now)

    def confirmations(self, entry_id: bytes) -> int:
        """Returns what the log says (`Log.confirmations`) that has an entry."""
        found = [log for log in self.logs.values() if log.is_known(entry_id)] or self.begun[-1:]
        return max((log.confirmations(entry_id) for log in found), default=0)

    def pin(self, ids: Sequence[bytes], is_pinned: bool) -> None:
        """Does so in all logs (`Log.pin`): an id is of one of them."""
        for log in self.logs.values():
            log.pin(ids, is_pinned)

    def status(self) -> Status:
        """Returns how all stand together; `committed` is of the newest epoch that has begun."""
        each = [log.status() for log in self.logs.values()]
        *_, last = [log.status() for log in self.begun] or [Status(0, [], "", "", 0, None, 0, None)]
        return last._replace(
            entries=sum(one.entries for one in each),
            heads=sorted(head for one in each for head in one.heads),
            floor=min((one.floor for one in each), default=""),
            digest=",".join(one.digest for one in each),
            holders=max((one.holders for one in each), default=0),
            waiting=sum(one.waiting for one in each),
            on_the_way=sum(one.on_the_way for one in each),
            trouble=self.trouble or last.trouble,
        )


class _Parts:
    """Waits for what several logs have found out, and tells that as one. Of an epoch whose log nobody holds
    there is nothing to be had."""

    def __init__(self, waiter: Waiter, logs: Sequence[Log]) -> None:
        self._waiter, self._logs = waiter, logs
        self._found: list[Synced] = []
        self.done, self.set_exception, self.exception = waiter.done, waiter.set_exception, waiter.exception
        if not logs:
            waiter.set_result(Synced(0, 0, complete=False))

    def set_result(self, found: Synced) -> None:
        """Is told of one."""
        self._found.append(found)
        if len(self._found) == len(self._logs):
            holders, got, _ = zip(*self._found, strict=True)
            complete = [each.complete for each in self._found if each.holders]
            is_all = any(complete) and all(complete) and all(log.hears for log in self._logs)
            self._waiter.set_result(Synced(max(holders), sum(got), is_all))


class Cursors:
    """The entries of all logs as one, as a `Cursor` has those of one log."""

    def __init__(self, epochs: Epochs, lo: bytes, last: int | None = None, *, is_new: bool = False) -> None:
        self._epochs, self._lo = epochs, lo
        logs = list(epochs.logs.values())
        start = lo if last is None else max(lo, bound_of_last([log.store for log in logs], last))
        self._cursors = {
            log: Cursor(log.store, start, is_new=is_new or last == 0, entry_of=log.entry) for log in logs
        }
        self._there = merge(*(each.there() for each in self._cursors.values()), key=attrgetter("id"))

    def take(self) -> list[Entry]:
        """Returns the next entries, none where there are no more by now."""
        for log in self._epochs.logs.values():
            if log not in self._cursors:  # its epoch is new
                self._cursors[log] = Cursor(log.store, self._lo, ordinal=0, entry_of=log.entry)
        is_sealed = any(log.is_sealed for log in self._cursors)
        found = list(islice(self._there, OPENED_MAX if is_sealed else ROWS_MAX))
        cursors = iter(self._cursors.values())
        while not found and (cursor := next(cursors, None)) is not None:
            found = cursor.later(OPENED_MAX if is_sealed else ROWS_MAX)
        return found

    def leave(self, log: Log) -> int:
        """Leaves out a log that is over; returns how many of its entries that have come it has not told."""
        cursor = self._cursors.pop(log, None)
        return 0 if cursor is None else cursor.end()
