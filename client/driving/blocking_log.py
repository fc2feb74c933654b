"""Logs for threads."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

from kcast.client.driving.arguments import HistoryOptions
from kcast.client.driving.engine_thread import EngineThread
from kcast.client.driving.logs import LogBase
from kcast.client.history.cursor import Since
from kcast.client.history.entries import Entry, Status, Synced
from kcast.client.publishing.waiters import Waiter


class Log(LogBase):
    """A log (`Client.history`); use it with `with`, or `close` it."""

    def __init__(
        self,
        thread: EngineThread,
        make_waiter: Callable[["Future[Any]"], Waiter],
        topic: str | bytes,
        store: str | Path | None,
        options: HistoryOptions,
    ) -> None:
        self._thread, self._make_waiter = thread, make_waiter
        self._changed = threading.Condition()
        self._changes = 0
        super().__init__(thread.engine, topic, store, options, thread.defer, self._wake_all, self._end)

    def synced(self, timeout_s: float = 5.0) -> Synced:
        """Waits until it has all that the others have that it knows of, and returns what it has found out;
        after `timeout_s` seconds also where it is not complete. Raises ClientClosed."""
        found: Future[Synced] = Future()
        waiter = self._waiting(found)
        self._thread.send_or_defer(lambda: self._wait_synced(waiter, timeout_s), waiter.set_exception)
        return found.result()

    def append(self, payload: str | bytes, confirm: int = 0, timeout_s: float = 5.0) -> Entry:
        """Adds an entry, and returns it once it is on disk here; then it leaves.

        - `confirm`: number of others that are to have it on their disk, too; none by default.
        - `timeout_s`: seconds to wait for that, 5 by default.

        Raises NotKept where fewer have said so in time: the entry stands. Raises MessageTooLarge, Backlog and
        ClientClosed.
        """
        entry: Future[Entry] = Future()
        waiter = self._waiting(entry)
        self._thread.send_or_defer(
            lambda: self._append(waiter, payload, confirm, timeout_s), waiter.set_exception
        )
        return entry.result()

    def entries(self, since: Since = "all", last: int | None = None, live: bool = True) -> Iterator[Entry]:
        """Yields entries: those that are there in the order of their ids, then each as it comes, its parents
        before it. Each is told once.

        - `since`: seconds ago, an id, `all` or `new`; all by default.
        - `last`: only so many of those that are there; by default all.
        - `live`: False ends it with the last one that is there.
        """
        self._thread.refuse_waiting()
        cursor = self._thread.use(lambda: self._cursor(since, last))
        while not self._is_over:
            changes = self._changes
            found = self._thread.use(lambda: self._take(cursor))
            yield from found
            if not found:
                if not live:
                    return
                with self._changed:
                    while self._changes == changes:
                        self._changed.wait()
        self._engine.refuse_failed()

    def pin(self, ids: Iterable[str], is_pinned: bool = True) -> None:
        """Keeps some entries also where the floor rises over them, and gets those of them that are not there
        from others; or no longer."""
        self._thread.use_or_defer(partial(super().pin, ids, is_pinned))

    def status(self) -> Status:
        """Returns how it stands."""
        return self._thread.use(super().status)

    def confirmations(self, entry_id: str) -> int:
        """Returns how many others have said that they have all entries up to this one, and it."""
        return self._thread.use(partial(super().confirmations, entry_id))

    def close(self) -> None:
        """Ends it; what was appended is on disk then."""
        if self._engine.is_open and not self._is_over:
            self._thread.use_or_defer(lambda: self._engine.layers.use(self._epochs, self._close))
            with self._changed:
                self._changed.wait_for(lambda: self._is_over)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _waiting(self, outcome: "Future[Any]") -> Waiter:
        self._engine.require_open()
        self._thread.refuse_waiting()
        return self._make_waiter(outcome)

    def _wake_all(self) -> None:
        self._thread.wake_calls.append(self._notify)

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _end(self) -> None:
        self._thread.wake_calls.append(self._notify)
