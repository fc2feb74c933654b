"""`kcast pub --history` and `--keep`: adds what is published to the log of its topic."""

import asyncio
import sys
from collections import Counter
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
        self._made, self._too_large = 0, 0
        self._not_kept = Counter[str]()

    def run(self, lines: AsyncIterator[Lines]) -> int:
        """Appends all lines; returns the exit code."""
        try:
            return asyncio.run(self._run(lines))
        except KeyboardInterrupt:
            self._summarise(0)
            sys.exit(EXIT_INTERRUPTED)

    async def _run(self, lines: AsyncIterator[Lines]) -> int:
        age_s = max(AGE_S, 2 * self._timeout_s)
        async with self._begun.client as client:
            async with client.history(self._begun.topic, age_s=age_s, senders=self._begun.senders) as log:
                await self._begun.until_first("pub", self._read(log, lines))
                lost = log.status().on_the_way
            if lost:
                require_server("pub", client)
            return self._summarise(lost)

    async def _read(self, log: Log, lines: AsyncIterator[Lines]) -> None:
        waiting = set[asyncio.Task[None]]()
        async for first, data, size_bytes, _ in lines:
            for number, payload in enumerate([bytes(size_bytes)] if size_bytes else data, first or 0):
                waiting.add(asyncio.create_task(self._append(log, payload, number)))
                if not self._keep or len(waiting) >= OUTSTANDING_MAX:
                    waiting = await _some(waiting)
                await self._left(log, OUTSTANDING_MAX)
        while waiting:
            waiting = await _some(waiting)
        await self._left(log, 0)

    async def _left(self, log: Log, most: int) -> None:
        """Waits until servers have taken all but so many; no longer than the time that is given."""
        clock = asyncio.get_running_loop().time
        until = clock() + self._timeout_s
        while log.status().on_the_way > most and clock() < until:
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _append(self, log: Log, payload: bytes, number: int) -> None:
        try:
            entry = await log.append(payload, self._keep, self._timeout_s)
        except MessageTooLarge as error:
            self._too_large += 1
            say("pub", f"line {number}: {error}" if number else str(error))
            return
        except NotKept as error:
            self._made += 1
            self._not_kept[str(error)] += 1
            return
        self._made += 1
        if self._output is not None:
            await self._output.write(Style(as_json=True).line(Told(self._begun.topic, entry), False))

    def _summarise(self, lost: int) -> int:
        """Says what became of all; returns the exit code."""
        whose = f", kept by {count_of(self._keep, 'other')} or more" if self._keep else ""
        if self._made > lost + self._not_kept.total():
            say("pub", f"added {counted(self._made - lost - self._not_kept.total())}{whose}")
        for why, count in self._not_kept.items():
            say("pub", f"{count} of {counted(self._made)}: {why}")
        if lost and not self._not_kept:
            say(
                "pub", f"{lost} of {counted(self._made)}: no server has taken it within {self._timeout_s:g} s"
            )
        return EXIT_FAILURE if lost or self._not_kept or self._too_large else 0


async def _some(waiting: "set[asyncio.Task[None]]") -> "set[asyncio.Task[None]]":
    """Waits until one of these has ended; returns the others. Raises what it has raised."""
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return others
