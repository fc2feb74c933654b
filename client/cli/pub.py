"""`kcast pub`: publishes a message, or one per line of standard input."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

import click

from kcast.client.aio import Client
from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    Number,
    Output,
    argument_bytes,
    cluster_option,
    count_of,
    errors_as_lines,
    fail,
    load_cluster_to_use,
    nobody_answers,
    say,
    text_fields,
    to_json,
    topic_argument,
)
from kcast.client.cluster import Cluster
from kcast.client.errors import MessageTooLarge
from kcast.client.events import FamilyMissing, Outcome, Published, ServerLost, ServerReturned

OUTSTANDING_MAX = 256  # publishes that await receipts
RATE_DEFAULT = 1000.0  # a second
LATENESS_MAX_S = 0.02  # what a stream that fell behind its rate may catch up with at once

LINE_KEPT_BYTES = 65_536
_READ_BYTES = 65_536


@click.command("pub", short_help="publish a message, or one per line of standard input")
@click.argument("topic")
@click.argument("words", nargs=-1, metavar="[MESSAGE]")
@cluster_option
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="R",
    help="Send each message R times, to other servers first.",
)
@click.option(
    "--rate",
    type=Number(min=0),
    default=RATE_DEFAULT,
    show_default=True,
    metavar="X",
    help="At most X lines of standard input a second; 0 is as fast as receipts come.",
)
@click.option("--raw", is_flag=True, help="Without the envelope: publisher and number.")
@click.option("--json", "as_json", is_flag=True, help="What became of each message, as a JSON object a line.")
def command(
    topic: str,
    words: tuple[str, ...],
    cluster_file: str | None,
    repeat: int,
    rate: float,
    raw: bool,
    as_json: bool,
) -> None:
    """Publish MESSAGE, or without it each line of standard input as a message of its own.

    A message that begins with a minus sign goes after `--`. Lines may hold any bytes; an empty line is an
    empty message. A line that is too large is told with its number and sizes, and the others are sent.
    Where no server has answered since the start, the rest of the input is not read.

    With --json the keys are line (null for MESSAGE), topic (topic_base64 where it is not UTF-8), seq (null
    with --raw), receipts, and servers: server to outcome, which is receipt, no-answer, refused, sent or
    queue-full.

    The exit code is 0 if every message got a receipt from at least one server, else 1; 130 after Ctrl-C.

    \b
    Examples: one message, and a file line by line
      kcast pub --cluster lab.cluster weather/oslo 'rain, 4 degrees'
      kcast pub --cluster lab.cluster text/license < LICENSE
    """
    if len(words) > 1:
        extra = " ".join(words[1:])
        raise click.UsageError(f"Got unexpected words ({extra}): quote a message of several words.")
    with errors_as_lines("pub", closed_pipe_exit=EXIT_FAILURE):
        name = topic_argument(topic)
        cluster = load_cluster_to_use("pub", cluster_file)
        if words:
            lines = _just(argument_bytes(words[0]))
        elif sys.stdin is None:
            fail("pub", "standard input is closed: give MESSAGE, or something to read")
        else:
            if sys.stdin.isatty():
                say("pub", "each line is a message; Ctrl-D ends")
            lines = read_lines(sys.stdin.fileno())
        stream = _Stream(cluster, name, repeat, rate, raw, Output() if as_json else None)
        try:
            asyncio.run(stream.run(lines))
        except KeyboardInterrupt:
            stream.summarise()
            sys.exit(EXIT_INTERRUPTED)
        except OSError as error:
            if stream.taken and not isinstance(error, BrokenPipeError):
                stream.summarise()
            raise
        sys.exit(stream.summarise())


# --- Lines -------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line of input without its LF. Of one longer than 64 KiB only the size is known, and `data` empty."""

    number: int | None
    data: bytes
    size_bytes: int


async def _just(message: bytes) -> AsyncIterator[Line]:
    yield Line(None, message, len(message))


async def read_lines(fd: int) -> AsyncIterator[Line]:
    """The lines of a descriptor, as they come, without stopping the loop; a last one without LF counts."""
    number, size_bytes = 1, 0
    kept = bytearray()
    while chunk := await _read(fd):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            size_bytes += len(part)
            kept += part
            yield Line(number, bytes(kept) if size_bytes <= LINE_KEPT_BYTES else b"", size_bytes)
            number, size_bytes = number + 1, 0
            kept.clear()
        size_bytes += len(rest)
        if size_bytes <= LINE_KEPT_BYTES:
            kept += rest
        else:
            kept.clear()
    if size_bytes:
        yield Line(number, bytes(kept) if size_bytes <= LINE_KEPT_BYTES else b"", size_bytes)


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:  # a file: it cannot be watched, and never makes one wait
        return _read_now(fd)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return _read_now(fd)


def _read_now(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard input") from None


# --- Publishing --------------------------------------------------------------------------------------


class NobodyAnswers(Exception):
    """No server has answered since the start: to go on would only take long."""


@dataclass
class _Stream:
    """Publishes lines, so many at a time that receipts keep up, and no faster than wanted."""

    cluster: Cluster
    topic: bytes
    repeat: int
    rate: float
    raw: bool
    output: Output | None
    receipts: Counter[int] = field(default_factory=Counter)  # receipts of a message -> messages
    unheard: Counter[Outcome] = field(default_factory=Counter)  # outcomes of messages without a receipt
    taken: int = 0
    too_large: int = 0
    gave_up: bool = False
    servers: tuple[str, ...] = ()

    async def run(self, lines: AsyncIterator[Line]) -> None:
        """Publishes all lines; returns when the fate of all is known."""
        async with Client(self.cluster) as client:
            self.servers = tuple(server.name for server in client.core.view.servers(self.topic))
            places = asyncio.Semaphore(OUTSTANDING_MAX)
            pace = _Pace(self.rate)
            failure: BaseException | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(self._watch(client))
                    async for line in lines:
                        await places.acquire()
                        await pace.wait()
                        self.taken += 1
                        publishing = tasks.create_task(self._publish(client, line))
                        publishing.add_done_callback(lambda _: places.release())
                    for _ in range(OUTSTANDING_MAX):
                        await places.acquire()
                    watching.cancel()
            except* NobodyAnswers:
                self.gave_up = True
            except* OSError as errors:
                failure = errors.exceptions[0]
            if failure is not None:  # raised within `except*` it would come out in a group again
                raise failure from None

    async def _publish(self, client: Client, line: Line) -> None:
        try:
            if line.size_bytes > LINE_KEPT_BYTES:
                raise MessageTooLarge(
                    f"message too large: {line.size_bytes} bytes; a datagram takes some 1000"
                )
            published = await client.publish(self.topic, line.data, repeat=self.repeat, raw=self.raw)
        except MessageTooLarge as error:
            self.too_large += 1
            say("pub", str(error) if line.number is None else f"line {line.number}: {error}")
            return
        self.receipts[published.receipts] += 1
        if not published.receipts:
            self.unheard.update(set(published.servers.values()))
        if self.output is not None:
            await self.output.write(to_json(_fields(line, published)).encode() + b"\n")

    async def _watch(self, client: Client) -> None:
        lost: set[str] = set()
        async for event in client.events():
            match event:
                case ServerReturned(server):
                    lost.discard(server)
                case ServerLost(server) | FamilyMissing(server):
                    if isinstance(event, FamilyMissing):
                        say("pub", f"cannot reach {server}: no IPv{event.family} here")
                    lost.add(server)
                    if lost == client.core.server_states().keys():
                        if not any(self.receipts):
                            raise NobodyAnswers
                        say("pub", f"{nobody_answers(self.cluster, self.servers)}; still trying")

    def summarise(self) -> int:
        """Tells what became of all; the exit code."""
        sent = self.taken - self.too_large
        awaited = 0 if self.gave_up else sent - self.receipts.total()
        unheard = sent - self.receipts.total() + self.receipts[0] - awaited
        heard = sorted(count for count in self.receipts if count)
        if not sent and not self.too_large:
            say("pub", "published 0 messages")
        if heard:
            least, most = heard[0], heard[-1]
            each = f"{count_of(most, 'server')}" if least == most else f"{least} to {most} servers"
            say(
                "pub", f"published {count_of(sent - unheard - awaited, 'message')}: receipts from {each} each"
            )
        if unheard:
            which = count_of(unheard, "message") if unheard == sent else f"{unheard} of {sent} messages"
            rest = "; what was to come was not read" if self.gave_up and sent > 1 else ""
            say("pub", f"{which} got no receipt: {self._why()}{rest}")
        if awaited:
            say("pub", f"{count_of(awaited, 'message')} had no receipt yet")
        if self.too_large and sent:
            say("pub", f"{count_of(self.too_large, 'line')} too large, not sent")
        return EXIT_FAILURE if unheard or awaited or self.too_large else 0

    def _why(self) -> str:
        if self.unheard[Outcome.REFUSED]:
            return f"refused for its rate (by {', '.join(self.servers)}); send slower, see --rate"
        return nobody_answers(self.cluster, self.servers)


class _Pace:
    """Spreads a stream evenly over time; a moment lost is caught up with, a longer pause is not."""

    def __init__(self, rate: float) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._next_at = 0.0

    async def wait(self) -> None:
        """Returns when the next one may go."""
        if not self._interval_s:
            return
        now = asyncio.get_running_loop().time()
        self._next_at = max(self._next_at, now - LATENESS_MAX_S)
        if self._next_at > now:
            await asyncio.sleep(self._next_at - now)
        self._next_at += self._interval_s


def _fields(line: Line, published: Published) -> dict[str, object]:
    return {
        "line": line.number,
        **text_fields("topic", published.topic),
        "seq": published.seq,
        "receipts": published.receipts,
        "servers": {server: str(outcome) for server, outcome in published.servers.items()},
    }
