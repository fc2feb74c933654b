"""`kcast pub --history` and `--keep`: adds what is published to the log of its topic."""

import asyncio
import sys
from collections.abc import AsyncIterator

from kcast.client.cli.common import EXIT_FAILURE, EXIT_INTERRUPTED, Output, count_of, say
from kcast.client.cli.input import Lines
from kcast.client.cli.layers import Opened, require_server
from kcast.client.cli.logs import counted
from kcast.client.cli.style import Style, Told
from kcast.client.driving.aio_log import Log
from kcast.client.errors import MessageTooLarge
from kcast.client.history.entries import NotKept

OUTSTANDING_MAX = 256  # entries that await others, or a server
AGE_S = 60.0  # for which they are held here at least, so that others can get them
LOOK_INTERVAL_S = 0.01


class Appending:
    """Appends lines in their order. With `keep`, so many others are to have each on their disk in time."""

    def __init__(self, begun: Opened, keep: int, timeout_s: float, output: Output | None) -> None:
        self._begun, self._keep, self._timeout_s, self._output = begun, keep, timeout_s, output
        self._made = self._not_kept = self._too_large = self._lost = 0

    def run(self, lines: AsyncIterator[Lines]) -> int:
        """Appends all lines; returns the exit code."""
        try:
            return asyncio.run(self._run(lines))
        except KeyboardInterrupt:
            self._summarise()
            sys.exit(EXIT_INTERRUPTED)

    async def _run(self, lines: AsyncIterator[Lines]) -> int:
        age_s = max(AGE_S, 2 * self._timeout_s)
        async with self._begun.client as client:
            async with client.history(self._begun.topic, age_s=age_s, senders=self._begun.senders) as log:
                try:
                    await self._begun.until_first("pub", self._read(log, lines))
                finally:
                    self._lost = log.status().on_the_way
            if self._lost:
                require_server("pub", client)
            return self._summarise()

    async def _read(self, log: Log, lines: AsyncIterator[Lines]) -> None:
        waiting = set[asyncio.Task[None]]()
        async for number, payload in _payloads(lines):
            waiting.add(asyncio.create_task(self._append(log, payload, number)))
            if len(waiting) >= OUTSTANDING_MAX:
                waiting = await _some(waiting)
            if not await self._has_left(log, OUTSTANDING_MAX):
                break  # no server takes any: the rest is not read
        while waiting:
            waiting = await _some(waiting)
        if not self._not_kept:
            await self._has_left(log, 0)

    async def _has_left(self, log: Log, most: int) -> bool:
        """Waits until servers have taken all but so many, as long as there is time; returns whether."""
        clock = asyncio.get_running_loop().time
        until = clock() + self._timeout_s
        while (is_more := log.status().on_the_way > most) and clock() < until:
            await asyncio.sleep(LOOK_INTERVAL_S)
        return not is_more

    async def _append(self, log: Log, payload: bytes, number: int) -> None:
        try:
            entry = await log.append(payload, self._keep, self._timeout_s)
        except MessageTooLarge as error:
            self._too_large += 1
            say("pub", f"line {number}: {error}" if number else str(error))
            return
        except NotKept:
            self._not_kept += 1
        else:
            if self._output is not None:
                await self._output.write(Style(as_json=True).line(Told(self._begun.topic, entry), False))
        self._made += 1

    def _summarise(self) -> int:
        """Says what became of all; returns the exit code."""
        missing, all_made = max(self._lost, self._not_kept), counted(self._made)
        others = count_of(self._keep, "other")
        if self._made > missing:
            kept = f", kept by {others} or more" if self._keep else ""
            say("pub", f"added {counted(self._made - missing)}{kept}")
        if self._not_kept:
            who = "'kcast keep --sign' by a key of --from" if self._begun.senders else "'kcast keep'"
            text = f"not kept by {others} within {self._timeout_s:g} s: {who} does that; -W gives it more"
            say("pub", f"{self._not_kept} of {all_made}: {text}")
        elif self._lost:
            say("pub", f"{self._lost} of {all_made}: no server has taken it; -W gives it more time")
        return EXIT_FAILURE if missing or self._too_large else 0


async def _payloads(lines: AsyncIterator[Lines]) -> AsyncIterator[tuple[int, bytes]]:
    """Yields what is to be appended, with the number of its line."""
    async for first, data, size_bytes, _ in lines:
        for each in enumerate([bytes(size_bytes)] if size_bytes else data, first or 0):
            yield each


async def _some(waiting: "set[asyncio.Task[None]]") -> "set[asyncio.Task[None]]":
    """Waits until one of these has ended; returns the others. Raises what it has raised."""
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return others
