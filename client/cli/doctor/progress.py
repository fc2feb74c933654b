"""One line on standard error that says how far a command is, where that is a terminal."""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from kcast.pubsub import clock

INTERVAL_S = 0.2


class Progress:
    """Shows what `describe` returns, given the seconds since the start, until the end. Use `async with`."""

    def __init__(self, describe: Callable[[float], str]) -> None:
        self._describe = describe
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if _is_terminal():
            self._task = asyncio.create_task(self._show())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        _write("\r\x1b[K")

    async def _show(self) -> None:
        began = clock.now()
        while True:
            _write(f"\r{self._describe(clock.now() - began)}\x1b[K")
            await asyncio.sleep(INTERVAL_S)


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.stderr.fileno()) and os.environ.get("TERM", "dumb") != "dumb"
    except (OSError, ValueError, AttributeError):
        return False


def _write(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
