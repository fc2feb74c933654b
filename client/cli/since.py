"""`kcast sub --since`: what others hold of topics, and then what comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from time import time
from typing import Any

from kcast.client.cli.common import EXIT_FAILURE, count_of, say
from kcast.client.cli.layers import Opened, require_server
from kcast.client.cli.logs import Since, counted, settled
from kcast.client.cli.style import Told
from kcast.client.cli.text import escaped
from kcast.client.driving.aio_log import Log
from kcast.client.driving.arguments import HistoryOptions
from kcast.client.history.cursor import bound_of
from kcast.client.history.ids import clock_of

ANSWER_S = 2.0  # within which a holder answers a newcomer, also where a line is lost
SYNC_S = 5.0  # how long entries that come wait for earlier ones
AGE_SPARE_S = 3600.0  # by which a slow reader may be late


class Entries:
    """The entries of several logs, as one is printed after the other."""

    def __init__(self, since: Since) -> None:
        self._since = since
        self._queue: asyncio.Queue[Told] = asyncio.Queue(1)

    async def feed(self, topic: bytes, log: Log) -> None:
        """Takes the entries of a log: those that are held first, then each as it comes."""
        found = await settled(log, ANSWER_S)
        if found.holders and not found.complete:
            found = await settled(log, SYNC_S)
        told = f"{counted(found.got)} of {count_of(found.holders, 'holder')}"
        told = told if found.holders else "nobody else holds it"
        say("sub", f"{escaped(topic)}: {told}{'' if found.complete else ', so far'}")
        async for entry in log.entries(*self._since):
            await self._queue.put(Told(topic, entry))

    async def __aiter__(self) -> AsyncIterator[Told]:
        while True:
            yield await self._queue.get()

    async def get(self) -> None:
        """Returns what has come when all has ended: nothing, for others hold it."""


async def run(
    begun: Opened,
    topics: list[bytes],
    since: Since,
    options: HistoryOptions,
    printer: Any,
    timeout_s: float | None,
) -> int:
    """Prints entries, by a printer of `kcast sub`, until enough are printed, or the time is over; returns the
    exit code."""
    if since.last is None and since.since != "all":
        options["age_s"] = max(0.0, time() - clock_of(bound_of(since.since, time())) / 1e6) + AGE_SPARE_S
    entries = Entries(since)
    async with begun.client as client, AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(client.history(topic, **options)) for topic in topics]
        feeding = map(entries.feed, topics, logs)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await begun.until_first("sub", printer.print(entries), printer.output.outlive(), *feeding)
        finally:
            await printer.finish(entries)
            begun.report_drops("sub")
        if not printer.printed:
            require_server("sub", client)
        if printer.printed < (printer.wanted or 0):
            say("sub", f"{printer.printed} of {printer.wanted} came within {timeout_s:g} s")
            return EXIT_FAILURE
        return 0
