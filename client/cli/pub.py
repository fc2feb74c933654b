"""`kcast pub`: publishes a message, or one per line of standard input."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

import click

from kcast.client.aio import Client, Events
from kcast.client.cli import proofs
from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    Number,
    Output,
    argument_bytes,
    cluster_option,
    count_of,
    descriptor,
    errors_as_lines,
    fail,
    load_cluster_to_use,
    nobody_answers,
    say,
    to_watch,
    topic_argument,
    value_option,
)
from kcast.client.cli.cover import Covering, cover_options, covering
from kcast.client.cli.input import LINE_KEPT_BYTES, InputLine, just, read_lines, read_whole
from kcast.client.cli.telling import Telling
from kcast.client.cli.text import text_fields, to_json
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.view import View
from kcast.client.core import ClientCore
from kcast.client.errors import ClientClosed, MessageTooLarge
from kcast.client.events import AllServersLost, Event, MachineSuspended, Outcome, Published
from kcast.client.messages.lines import room, too_large
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import encode_topic

OUTSTANDING_MAX = 256  # publishes that await receipts
RATE_DEFAULT = 1000.0  # a second
LATENESS_MAX_S = 0.02  # a stream that fell behind its rate catches up with at most this at once


@click.command("pub")
@click.argument("words", nargs=-1, metavar="TOPIC [MESSAGE]")
@cluster_option
@click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="The topic, as an option.")
@click.option("-m", "--message", metavar="TEXT", help="The message, as an option.")
@click.option("-n", "--null-message", is_flag=True, help="Publish an empty message.")
@click.option("-f", "--file", metavar="FILE", help="Publish what stands in a file, as one message.")
@click.option("-s", "--stdin-file", is_flag=True, help="Publish all of standard input as one message.")
@click.option(
    "-l", "--stdin-line", is_flag=True, help="Publish each line of standard input, as without a message."
)
@value_option(
    "--repeat",
    click.IntRange(1, 100),
    "Send each message R times, to servers that do not have it yet first.",
    1,
    "R",
)
@value_option(
    "--rate",
    Number(0),
    "Publish at most X lines of standard input a second; 0: as fast as receipts come.",
    RATE_DEFAULT,
    "X",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Publish without the envelope, which carries publisher and number. Subscribers may take each repeat "
    "of a raw message for another one.",
)
@click.option("--sign", "is_signed", is_flag=True, help="Sign each message with your key.")
@proofs.seal_option("Seal each message for a group, so that only its readers can read it.")
@proofs.key_option
@proofs.plain_topic_option
@proofs.from_option(
    "With --sign: a key that may publish on a topic with ~ besides yours; may be given repeatedly."
)
@cover_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print what became of each message, as a JSON object a line."
)
def command(
    words: tuple[str, ...],
    cluster_name: str | None,
    topics: tuple[str, ...],
    message: str | None,
    null_message: bool,
    file: str | None,
    stdin_file: bool,
    stdin_line: bool,
    repeat: int,
    rate: float,
    raw: bool,
    cover_rate: float | None,
    cover_size: int | None,
    cover_s: float | None,
    as_json: bool,
    **proof: Any,
) -> None:
    """Publish MESSAGE, or each line of standard input as a message of its own.

    Write `--` before a message that begins with a minus sign: kcast pub TOPIC -- -5. Lines may hold any
    bytes; an empty line is an empty message. A message must fit in one datagram: on a topic of 12 bytes any
    800 bytes do, and 1071 bytes of text, of which each control character and each % counts as three. With
    --raw any 368 bytes fit. A line that is too large is named and left out. If no server ever answers, the
    rest of the input is not read.

    A receipt says that a server has forwarded the message, not that anybody subscribes. Where servers tell
    that nobody does, a line says so.

    With --sign subscribers can tell whose messages these are; anybody can still read them. With --seal only
    readers of the group can read them, and servers see another topic; messages are signed inside with --sign
    only. Where a group has senders, or the topic begins with ~ and the hash of keys, --sign is needed.
    docs/sealed.md is the page to follow. What fits is less: signed 132 bytes of text less and 20 for the
    time, sealed 724 bytes in all, and 628 sealed and signed.

    With --cover one line leaves on each tick, a message where one waits, else a dummy that only readers can
    tell from one: so nobody else sees when and whether you say something. The end of the input does not end
    it. What is still seen is that it runs, its rate and its size.

    With --json the keys are time (in UTC, when the outcome was known), line (null for MESSAGE), topic (or
    topic_base64, if it is not UTF-8), seq (null with --raw), receipts (number of servers that gave one),
    audience (the highest number of subscribers that a server told, null if none did), and servers. The latter
    maps each server to receipt, no-answer, refused, sent or queue-full.

    The exit code is 0 if every message got a receipt from at least one server, else 1; 130 after Ctrl-C.

    \b
    Examples: one message, a file line by line, a message for a group, and cover traffic
      kcast pub --cluster lab.cluster weather/oslo 'rain, 4 degrees'
      kcast pub --cluster lab.cluster text/license < LICENSE
      kcast pub --cluster lab.cluster weather/oslo 'rain, 4 degrees' --sign --seal ops
      kcast pub --cluster lab.cluster weather/oslo --seal ops --cover 1 --size 200 < report
    """
    if len(topics) > 1:
        raise click.UsageError(f"-t is given {len(topics)} times: a message goes to one topic")
    topic, *rest = (*topics, *words) or (None,)
    if topic is None:
        raise click.UsageError("no topic: give TOPIC, or -t TOPIC")
    if len(rest) > 1:
        raise click.UsageError(
            f"got unexpected words ({' '.join(rest[1:])}): quote a message of several words"
        )
    given = {
        "MESSAGE": bool(rest),
        "-m": message is not None,
        "-n": null_message,
        "-f": file is not None,
        "-s": stdin_file,
        "-l": stdin_line,
    }
    if len(sources := [name for name, is_given in given.items() if is_given]) > 1:
        raise click.UsageError(f"{' and '.join(sources)} exclude each other: give one of them")
    proofs.require_of_writing(raw=raw, **proof)
    cover = covering(
        cover_rate, cover_size, cover_s, repeat=repeat, is_sealed=proof["group_name"] is not None
    )
    text = rest[0] if rest else "" if null_message else message
    with errors_as_lines("pub", closed_pipe_exit=EXIT_FAILURE), ExitStack() as stack:
        name = topic_argument(topic)
        written = proofs.writing("pub", name, **proof)
        cluster = load_cluster_to_use("pub", cluster_name)
        if text is not None:
            lines = just(argument_bytes(text))
        elif file is not None:
            lines = read_whole(stack.enter_context(Path(file).open("rb")).fileno())
        elif sys.stdin is None:
            fail("pub", "standard input is closed: give MESSAGE, or something to read")
        else:
            if sys.stdin.isatty():
                what = "all of it is one message" if stdin_file else "each line is a message"
                ends = "ends" if cover is None else "ends what you type, Ctrl-C the cover traffic"
                say("pub", f"{what}; Ctrl-D {ends}")
            lines = (read_whole if stdin_file else read_lines)(descriptor(sys.stdin, "standard input"))
        stream = _Publisher(cluster, name, repeat, rate, raw, Output() if as_json else None, written, cover)
        try:
            asyncio.run(stream.run(lines))
        except KeyboardInterrupt:
            stream.summarise()
            sys.exit(EXIT_INTERRUPTED)
        except (OSError, KcastError) as error:
            if stream.taken and not isinstance(error, BrokenPipeError):
                stream.summarise()
            raise
        sys.exit(stream.summarise())


# --- Publishing --------------------------------------------------------------------------------------


class _NobodyAnswers(Exception):
    """No server has answered since the start: going on would only take long."""


@dataclass
class _Publisher:
    """Publishes lines, with a bounded number of outstanding receipts, and no faster than wanted."""

    cluster: Cluster
    topic: bytes
    repeat: int
    rate: float
    raw: bool
    output: Output | None
    written: proofs.Writing
    cover: Covering | None = None
    receipts: Counter[int] = field(default_factory=Counter)  # receipts of a message -> messages
    unsubscribed: int = 0  # messages with receipts, published while nobody was subscribed
    unheard: Counter[Outcome] = field(default_factory=Counter)  # outcomes of messages without a receipt
    taken: int = 0
    too_large: int = 0
    gave_up: bool = False
    servers: tuple[str, ...] = ()
    core: ClientCore | None = None  # once there is one

    async def run(self, lines: AsyncIterator[InputLine]) -> None:
        """Publishes all lines; returns when the outcome of all is known."""
        credentials, place = self.written.credentials, self.written.place
        identity, group = credentials.identity, credentials.group
        async with Client(to_watch(self.cluster), identity=identity, group=group) as client:
            self.core = client.core
            self.servers = tuple(server.name for server in View(client.cluster).servers(place))
            places = asyncio.Semaphore(OUTSTANDING_MAX)
            if self.cover is not None:
                self.cover.begin(client, self.topic, self.written.options)
            failure: BaseException | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    # From before its first turn, which tells what is wrong with a signed list.
                    watching = tasks.create_task(self._watch(client, client.events()))
                    reading = self._read(client, lines, tasks, places)
                    if self.cover is None:
                        await reading
                    else:
                        await self.cover.run(reading)
                    for _ in range(OUTSTANDING_MAX):
                        await places.acquire()
                    watching.cancel()
            except* _NobodyAnswers:
                self.gave_up = True
            except* (OSError, KcastError) as errors:
                failure = errors.exceptions[0]
            if failure is not None:  # raised within `except*` it would come out in a group again
                raise failure from None

    async def _read(
        self,
        client: Client,
        lines: AsyncIterator[InputLine],
        tasks: asyncio.TaskGroup,
        places: asyncio.Semaphore,
    ) -> None:
        """Publishes all lines, each once there is a place for it."""
        pace = _Pace(self.rate)
        async for line in lines:
            await places.acquire()
            await pace.wait()
            self.taken += 1
            publishing = tasks.create_task(self._publish(client, line))
            publishing.add_done_callback(lambda _: places.release())

    async def _publish(self, client: Client, line: InputLine) -> None:
        try:
            if line.size_bytes > LINE_KEPT_BYTES:
                raise MessageTooLarge(self._too_large(line.size_bytes))
            if self.cover is not None:
                published = await self.cover.publish(line.data)
            else:
                published = await client.publish_nowait(
                    self.topic, line.data, repeat=self.repeat, raw=self.raw, **self.written.options
                )
        except MessageTooLarge as error:
            self.too_large += 1
            say("pub", str(error) if line.number is None else f"line {line.number}: {error}")
            return
        except ClientClosed:
            if self.cover is None:
                raise
            self.cover.unsent += 1
            return
        self.receipts[published.receipts] += 1
        self.unsubscribed += published.audience == 0
        if not published.receipts:
            self.unheard.update(set(published.servers.values()))
        if self.output is not None:
            await self.output.write(to_json(_fields(line, published)).encode() + b"\n")

    def _too_large(self, size_bytes: int) -> str:
        """Returns what to say of a line that is larger than what is kept of lines."""
        if self.cover is not None:
            return self.cover.too_large(size_bytes)
        if self.raw:
            return too_large(size_bytes, room(encode_topic(self.topic), seq=None))
        return self.written.too_large(size_bytes)

    async def _watch(self, client: Client, events: Events) -> None:
        telling = Telling("pub")
        try:
            async for event in events:
                if text := self._text(client, event):
                    telling.tell(type(event).__name__, text)
        finally:
            telling.end()

    def _text(self, client: Client, event: Event) -> str:
        """Returns what to say of an event; "" for nothing. Raises _NobodyAnswers."""
        match event:
            case MachineSuspended(for_s):
                return f"this machine was suspended for {for_s:.0f} s, and published nothing"
            case AllServersLost():
                if not any(self.receipts) and self.cover is None:
                    raise _NobodyAnswers
                return f"{self._nobody_answers()}; still trying"
        return self.written.credentials.told(event, client.cluster)

    def summarise(self) -> int:
        """Says what became of all messages; returns the exit code."""
        unsent = 0 if self.cover is None else self.cover.unsent
        sent = self.taken - self.too_large - unsent
        awaited = 0 if self.gave_up else sent - self.receipts.total()
        unheard = sent - self.receipts.total() + self.receipts[0] - awaited
        heard = sorted(count for count in self.receipts if count)
        if self.cover is not None:
            self.cover.summarise()
        if not sent and not self.too_large and not unsent:
            say("pub", "published 0 messages")
        if heard:
            least, most = heard[0], heard[-1]
            each = f"{count_of(most, 'server')}" if least == most else f"{least} to {most} servers"
            published = sent - unheard - awaited
            nobody = ""
            if self.unsubscribed:
                nobody = f"; {self.unsubscribed} of them while nobody was subscribed"
            if self.unsubscribed == published:
                nobody = "; nobody is subscribed"
            say("pub", f"published {count_of(published, 'message')}: receipts from {each} each{nobody}")
        if unheard:
            which = count_of(unheard, "message") if unheard == sent else f"{unheard} of {sent} messages"
            rest = "; the rest of the input was not read" if self.gave_up and sent > 1 else ""
            say("pub", f"{which} got no receipt: {self._why()}{rest}")
        if awaited:
            say("pub", f"{count_of(awaited, 'message')} had no receipt yet")
        if self.too_large and sent:
            say("pub", f"{count_of(self.too_large, 'line')} too large, not sent")
        return EXIT_FAILURE if unheard or awaited or self.too_large or unsent else 0

    def _nobody_answers(self) -> str:
        return nobody_answers(self.cluster, self.servers, self.core.sessions.asked_at() if self.core else {})

    def _why(self) -> str:
        if self.unheard[Outcome.REFUSED]:
            return f"the servers ({', '.join(self.servers)}) refuse so many messages a second; lower --rate"
        return self._nobody_answers()


class _Pace:
    """Spreads a stream evenly over time; short delays are made up for, longer pauses are not."""

    def __init__(self, rate: float) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._next_at = 0.0

    async def wait(self) -> None:
        """Returns when the next message may go."""
        if not self._interval_s:
            return
        now = asyncio.get_running_loop().time()
        self._next_at = max(self._next_at, now - LATENESS_MAX_S)
        if self._next_at > now:
            await asyncio.sleep(self._next_at - now)
        self._next_at += self._interval_s


def _fields(line: InputLine, published: Published) -> dict[str, object]:
    return {
        "time": utc(time()),
        "line": line.number,
        **text_fields("topic", published.topic),
        "seq": published.seq,
        "receipts": published.receipts,
        "audience": published.audience,
        "servers": {server: str(outcome) for server, outcome in published.servers.items()},
    }
