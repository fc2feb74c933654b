"""Logs for asyncio."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from kcast.client.driving.aio_items import refuse_other_loop
from kcast.client.driving.arguments import HistoryOptions
from kcast.client.driving.engine import Engine
from kcast.client.driving.logs import Act, LogBase
from kcast.client.history.cursor import Since
from kcast.client.history.entries import Entry, Synced


class Log(LogBase):
    """A log (`Client.history`); use it with `async with`, or `close` it."""

    def __init__(
        self, engine: Engine, topic: str | bytes, store: str | Path | None, options: HistoryOptions
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        super().__init__(engine, topic, store, options, self._call_soon, self._changed.set, self._end)

    async def synced(self, timeout_s: float = 5.0) -> Synced:
        """Waits until it has all that the others have that it knows of, and returns what it has found out;
        after `timeout_s` seconds also where it is not complete. Raises ClientClosed."""
        found: asyncio.Future[Synced] = self._future()
        self._wait_synced(found, timeout_s)
        return await found

    async def append(self, payload: str | bytes, confirm: int = 0, timeout_s: float = 5.0) -> Entry:
        """Adds an entry, and returns it once it is on disk here; then it leaves.

        - `confirm`: number of others that are to have it on their disk, too; none by default.
        - `timeout_s`: seconds to wait for that, 5 by default.

        Raises NotKept where fewer have said so in time: the entry stands. Raises MessageTooLarge, Backlog and
        ClientClosed.
        """
        entry: asyncio.Future[Entry] = self._future()
        self._append(entry, payload, confirm, timeout_s)
        return await entry

    async def entries(
        self, since: Since = "all", last: int | None = None, live: bool = True
    ) -> AsyncIterator[Entry]:
        """Yields entries: those that are there in the order of their ids, then each as it comes, its parents
        before it. Each is told once.

        - `since`: seconds ago, an id, `all` or `new`; all by default.
        - `last`: only so many of those that are there; by default all.
        - `live`: False ends it with the last one that is there.
        """
        cursor = self._cursor(since, last)
        while not self._over.is_set():
            refuse_other_loop(self._engine, self._loop)
            self._changed.clear()
            found = self._take(cursor)
            for entry in found:
                yield entry
            if not found:
                if not live:
                    return
                await self._changed.wait()
        self._engine.refuse_failed()

    async def close(self) -> None:
        """Ends it; what was appended is on disk then."""
        refuse_other_loop(self._engine, self._loop)
        if self._engine.is_open and not self._over.is_set():
            self._engine.layers.use(self._epochs, self._close)
            await self._over.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _future(self) -> "asyncio.Future[Any]":
        refuse_other_loop(self._engine, self._loop)
        self._engine.require_open()
        return self._loop.create_future()

    def _call_soon(self, act: Act) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(act)

    def _end(self) -> None:
        self._over.set()
        self._changed.set()
