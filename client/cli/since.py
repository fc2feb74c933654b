"""`kcast sub --since`: what others hold of topics, and then what comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from kcast.client.cli.common import EXIT_FAILURE, count_of, say
from kcast.client.cli.layers import Opened, require_server
from kcast.client.cli.logs import Since, counted
from kcast.client.cli.style import Told
from kcast.client.cli.text import escaped
from kcast.client.driving.aio_log import Log
from kcast.client.driving.arguments import HistoryOptions

ANSWER_S = 2.0  # within which a holder answers a newcomer, also where a line is lost
SYNC_S = 5.0  # how long entries that come wait for earlier ones


async def feed(queue: "asyncio.Queue[Told]", since: Since, topic: bytes, log: Log) -> None:
    """Puts the entries of a log into a queue: those that are held first, then each as it comes."""
    found = await log.synced(ANSWER_S)
    if found.holders and not found.complete:
        found = await log.synced(SYNC_S)
    while since.last and found.holders and not found.complete:
        found = await log.synced(SYNC_S)  # the last ones come last
    told = f"{counted(found.got)} of {count_of(found.holders, 'holder')}"
    told = told if found.holders else "nobody else holds it"
    say("sub", f"{escaped(topic)}: {told}{'' if found.complete else ', so far'}")
    async for entry in log.entries(*since):
        await queue.put(Told(topic, entry))


async def _taken(queue: "asyncio.Queue[Told]") -> AsyncIterator[Told]:
    while True:
        yield await queue.get()


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
    options["age_s"] = since.age_s
    queue: asyncio.Queue[Told] = asyncio.Queue(1)  # one is printed after the other
    async with begun.client as client, AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(client.history(topic, **options)) for topic in topics]
        feeding = map(partial(feed, queue, since), topics, logs)
        printing = printer.print(_taken(queue)), printer.output.outlive()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await begun.until_first("sub", *printing, *feeding)
        finally:
            begun.report_drops("sub")
        if not printer.printed:
            require_server("sub", client)
        if printer.printed < (printer.wanted or 0):
            say("sub", f"{printer.printed} of {counted(printer.wanted)} came within {timeout_s:g} s")
            return EXIT_FAILURE
        return 0
