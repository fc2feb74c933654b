"""`kcast pub`: publishes a message, or one per line of standard input."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import click

from kcast.client.aio import Client, Events
from kcast.client.cli import protection
from kcast.client.cli.append import Appending
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
from kcast.client.cli.input import Lines, Run, just, read_lines, read_whole, runs
from kcast.client.cli.layers import Opened
from kcast.client.cli.logs import refuse
from kcast.client.cli.presets import fill_in, tell_of_clear_text
from kcast.client.cli.telling import Telling
from kcast.client.cli.text import text_fields, to_json
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.view import View
from kcast.client.core import ClientCore
from kcast.client.errors import ClientClosed, MessageTooLarge
from kcast.client.events import AllServersLost, Event, MachineSuspended, Outcome, Published, PublishedMany
from kcast.client.messages.lines import room, too_large
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import encode_topic

TOGETHER_MAX = 512  # lines of one publish
FEW = 32  # lines that come together from a slow pipe
MANY_OUTSTANDING_MAX = 16  # publishes of more that await receipts ...
FEW_OUTSTANDING_MAX = 256  # ... and publishes of few
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
    "-l", "--stdin-line", is_flag=True, help="Publish each line of standard input, also where it holds NUL."
)
@value_option(
    "--lines form",
    click.Choice(["message", "topic-message"]),
    "What stands in each line of standard input: as -l, or a topic, a space, and a message.",
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
    "Publish at most X lines of standard input a second; by default as many as servers take.",
    unit="X",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Publish without the envelope, which carries publisher and number. Subscribers may take each repeat "
    "of a raw message for another one.",
)
@click.option("--history", "in_history", is_flag=True, help="Add each message to the topic's log.")
@value_option(
    "--keep",
    click.IntRange(1, 100),
    "As --history, and wait until N others have each on their disk.",
    unit="N",
)
@value_option(
    "-W --timeout timeout_s", Number(0, 3600, min_open=True), "Of --keep and --history.", 5.0, "SECONDS"
)
@click.option("--sign", "is_signed", is_flag=True, help="Sign each message with your key.")
@protection.seal_option("Seal each message for a group, so that only its readers can read it.")
@protection.key_option
@protection.plain_topic_option
@protection.from_option(
    "With --sign or --seal: a key that may publish on a topic with ~ besides yours; may be given repeatedly."
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
    form: str | None,
    repeat: int,
    rate: float | None,
    raw: bool,
    in_history: bool,
    keep: int | None,
    timeout_s: float,
    cover_rate: float | None,
    cover_size: int | None,
    cover_s: float | None,
    as_json: bool,
    **proof: Any,
) -> None:
    """Publish MESSAGE, or each line of standard input as a message of its own.

    Write `--` before a message that begins with a minus sign: kcast pub TOPIC -- -5. An empty line is an
    empty message. What holds a NUL byte is no text, and is published as one message, as with -f, unless -l or
    --lines says that it has lines. With --lines topic-message each line has its topic, in which %20 is a
    space and %25 a %, a space, and the message; give no TOPIC then.

    A message must fit in one datagram: on a topic of 12 bytes any 800 bytes do, and 1071 bytes of text, of
    which each control character and each % counts as three. With --raw any 368 bytes fit. A line that is too
    large is named and left out. If no server ever answers, the rest of the input is not read.

    A receipt says that a server has forwarded the message, not that anybody subscribes. Where servers tell
    that nobody does, a line says so.

    With --sign subscribers can tell whose messages these are; anybody can still read them. With --seal only
    readers of the group can read them, signed inside, and servers see another topic. A topic that begins with
    ~ and the hash of keys needs one of them. docs/sealed.md is the page to follow. What fits is less: signed
    132 bytes of text less and 20 for the time, sealed 628 bytes in all.

    With --cover one line leaves on each tick, a message where one waits, else a dummy that only readers can
    tell from one: so nobody else sees when and whether you say something. The end of the input does not end
    it. What is still seen is that it runs, its rate and its size.

    With --history a message is an entry: it has a clock, and those who hold the topic's log ('kcast keep',
    'kcast sub --since') give it to whoever missed it. Where nobody holds the log, the entry is gone with its
    author: only --keep makes sure that others have it.
    --timeout is for the servers and for the others. With --json an entry is printed as by 'kcast history'.

    With --json the keys are time (in UTC, when the outcome was known), line (null for MESSAGE), topic (or
    topic_base64, if it is not UTF-8), seq (null with --raw), receipts (number of servers that gave one),
    audience (the highest number of subscribers that a server told, null if none did), and servers. The latter
    maps each server to receipt, no-answer, refused, sent or queue-full.

    The exit code is 0 if every message got a receipt from at least one server, and with --keep if N others
    have it in time, else 1; 130 after Ctrl-C.

    \b
    Examples: one message, a file line by line, a message for a group, and cover traffic
      kcast pub --cluster lab.cluster weather/oslo 'rain, 4 degrees'
      kcast pub --cluster lab.cluster text/license < LICENSE
      echo 'weather/oslo rain, 4 degrees' | kcast pub --cluster lab.cluster --lines topic-message
      kcast pub --cluster lab.cluster weather/oslo 'rain, 4 degrees' --seal ops
      kcast pub --cluster lab.cluster weather/oslo --seal ops --cover 1 --size 200 < report
    """
    if len(topics) > 1:
        raise click.UsageError(f"-t is given {len(topics)} times: a message goes to one topic")
    topic, *rest = (*topics, *words) or (None,)
    if form == "topic-message" and (topic is not None or cover_rate is not None):
        raise click.UsageError(
            "with --lines topic-message each line has a topic of its own: leave TOPIC and --cover out"
        )
    if topic is None and form != "topic-message":
        raise click.UsageError("no topic: give TOPIC, or -t TOPIC, or --lines topic-message")
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
        "--lines": form is not None,
    }
    if len(sources := [name for name, is_given in given.items() if is_given]) > 1:
        raise click.UsageError(f"{' and '.join(sources)} exclude each other: give one of them")
    in_history = in_history or keep is not None
    if in_history:
        refuse("--history", "raw", "repeat", "rate", "cover_rate", "form", "plain_topic")
    with errors_as_lines("pub"):
        is_clear_meant = fill_in(proof, cluster_name)
    protection.require_of_writing(raw=raw, **proof)
    cover = covering(
        cover_rate, cover_size, cover_s, repeat=repeat, is_sealed=proof["group_name"] is not None
    )
    text = rest[0] if rest else "" if null_message else message
    with errors_as_lines("pub", closed_pipe_exit=EXIT_FAILURE), ExitStack() as stack:
        name = None if topic is None else topic_argument(topic)
        written = protection.writing("pub", b"any" if name is None else name, **proof)
        cluster = load_cluster_to_use("pub", cluster_name)
        if text is not None:
            lines = just(argument_bytes(text))
        elif file is not None:
            lines = read_whole(stack.enter_context(Path(file).open("rb")).fileno())
        elif sys.stdin is None:
            fail("pub", "standard input is closed: give MESSAGE, or something to read")
        else:
            if sys.stdin.isatty():
                what = "all of it is one message" if stdin_file else f"each line is a {form or 'message'}"
                ends = "ends" if cover is None else "ends what you type, Ctrl-C the cover traffic"
                say("pub", f"{what}; Ctrl-D {ends}")
            fd, is_text = descriptor(sys.stdin, "standard input"), not stdin_line and form is None
            lines = read_whole(fd) if stdin_file else read_lines(fd, is_text=is_text)
        output = Output() if as_json else None
        if proof["group_name"] is None and not is_clear_meant:
            tell_of_clear_text("pub")
        if in_history and name is not None:
            credentials = written.credentials
            client = Client(to_watch(cluster), identity=credentials.identity, group=credentials.group)
            senders = protection.keys_of(proof["senders"]) or None
            begun = Opened(client, name, senders, credentials)
            sys.exit(Appending(begun, keep or 0, timeout_s, output).run(lines))
        stream = _Publisher(cluster, name, repeat, rate or 0.0, raw, output, written, cover)
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
    """Publishes lines, with a bounded number of outstanding receipts, and no faster than wanted. Without a
    `topic`, each line has one."""

    cluster: Cluster
    topic: bytes | None
    repeat: int
    rate: float
    raw: bool
    output: Output | None
    written: protection.Writing
    cover: Covering | None = None
    receipts: Counter[int] = field(default_factory=Counter)  # receipts of a message -> messages
    unsubscribed: int = 0  # messages with receipts, published while nobody was subscribed
    unheard: Counter[Outcome] = field(default_factory=Counter)  # outcomes of messages without a receipt
    taken: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # lines, by what is wrong with them
    publishing: set[asyncio.Task[None]] = field(default_factory=set)
    gave_up: bool = False
    servers: tuple[str, ...] = ()
    core: ClientCore | None = None  # once there is one

    @property
    def together_max(self) -> int:
        """How many lines are published together; then only the sum of their outcomes is known."""
        is_each_told = self.output is not None or self.repeat > 1 or self.cover is not None
        return 1 if is_each_told or self.rate else TOGETHER_MAX

    async def run(self, lines: AsyncIterator[Lines]) -> None:
        """Publishes all lines; returns when the outcome of all is known."""
        credentials, place = self.written.credentials, self.written.place
        identity, group = credentials.identity, credentials.group
        async with Client(to_watch(self.cluster), identity=identity, group=group) as client:
            self.core = client.core
            servers = View(client.cluster).servers(place) if self.topic else client.cluster.servers
            self.servers = tuple(server.name for server in servers)
            if self.cover is not None and self.topic is not None:
                self.cover.begin(client, self.topic, self.written.options)
            failure: BaseException | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    # From before its first turn, which tells what is wrong with a signed list.
                    watching = tasks.create_task(self._watch(client, client.events()))
                    reading = self._read(client, lines, tasks)
                    try:
                        await (reading if self.cover is None else self.cover.run(reading))
                    except (KcastError, OSError):  # of the input: what came before it is published
                        if self.publishing:
                            await asyncio.wait(self.publishing)
                        raise
                    if self.publishing:
                        await asyncio.wait(self.publishing)
                    watching.cancel()
            except* _NobodyAnswers:
                self.gave_up = True
            except* (OSError, KcastError) as errors:
                failure = errors.exceptions[0]
            if failure is not None:  # raised within `except*` it would come out in a group again
                raise failure from None

    async def _read(self, client: Client, chunks: AsyncIterator[Lines], tasks: asyncio.TaskGroup) -> None:
        """Publishes all lines, those that came together at once, as soon as there is a place for them.

        Of many lines there is one publish at first, and more with each outcome: so no server gets far behind
        others, and copies come nearly in order.
        """
        pace = _Pace(self.rate)
        places_of_few, places_of_many = asyncio.Semaphore(FEW_OUTSTANDING_MAX), asyncio.Semaphore(1)
        more = iter(range(MANY_OUTSTANDING_MAX - 1))

        def done(task: asyncio.Task[None], places: asyncio.Semaphore) -> None:
            self.publishing.discard(task)
            places.release()
            if places is places_of_many and next(more, None) is not None:
                places.release()

        async for lines in chunks:
            for run in runs(lines, self.topic, self.together_max):
                places = places_of_few if len(run.payloads) <= FEW else places_of_many
                await places.acquire()
                await pace.wait()
                self.taken += len(run.payloads)
                task = tasks.create_task(self._publish(client, run))
                self.publishing.add(task)
                task.add_done_callback(partial(done, places=places))

    def _leave_out(self, what: str, text: str, number: int | None) -> None:
        self.left_out[what] += 1
        say("pub", text if number is None else f"line {number}: {text}")

    async def _publish(self, client: Client, run: Run) -> None:
        for part, outcome in self._begin(client, run):
            try:
                published = await outcome
            except MessageTooLarge as error:
                self._leave_out("too large", str(error), part.numbers[0])
                continue
            except ClientClosed:
                if self.cover is None:
                    raise
                self.cover.unsent += 1
                continue
            if isinstance(published, PublishedMany) and published.messages == 1:
                published = _of_one(published)
            self._count(published)
            if self.output is not None and isinstance(published, Published):
                await self.output.write(to_json(_fields(part.numbers[0], published)).encode() + b"\n")

    def _begin(self, client: Client, run: Run) -> list[tuple[Run, Awaitable[Published | PublishedMany]]]:
        """Publishes lines, in order; those that are too large are left out. Returns what will be known."""
        if not run.topic:
            self._leave_out("malformed", run.why, run.numbers[0])
            return []
        try:
            if run.size_bytes:
                raise MessageTooLarge(self._too_large(run.size_bytes))
            if self.cover is not None:
                return [(run, self.cover.publish(run.payloads[0]))]
            given: Any = {"raw": self.raw, **self.written.options}
            if self.repeat > 1:
                return [(run, client.publish_nowait(run.topic, *run.payloads, repeat=self.repeat, **given))]
            return [(run, client.publish_many_nowait(run.topic, run.payloads, **given))]
        except MessageTooLarge as error:
            middle = len(run.payloads) // 2
            if middle:
                first, second = run.part(slice(middle)), run.part(slice(middle, None))
                return [*self._begin(client, first), *self._begin(client, second)]
            why = f"; {run.why}, so all of it is one message, as with -f" if run.why else ""
            self._leave_out("too large", f"{error}{why}", run.numbers[0])
            return []

    def _count(self, published: Published | PublishedMany) -> None:
        if isinstance(published, Published):
            by_receipts: Mapping[int, int] = {published.receipts: 1}
            outcomes = set(published.servers.values())
        else:
            by_receipts = published.by_receipts
            outcomes = {outcome for outcome, times in published.outcomes.items() if times}
        self.receipts.update(by_receipts)
        if published.audience == 0:
            self.unsubscribed += sum(by_receipts.values()) - by_receipts.get(0, 0)
        if by_receipts.get(0):
            self.unheard.update(outcomes)

    def _too_large(self, size_bytes: int) -> str:
        """Returns what to say of a line that is larger than what is kept of lines."""
        if self.cover is not None:
            return self.cover.too_large(size_bytes)
        if self.raw and self.topic is not None:
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
        left_out = self.left_out.total()
        sent = self.taken - left_out - unsent
        awaited = 0 if self.gave_up else sent - self.receipts.total()
        unheard = sent - self.receipts.total() + self.receipts[0] - awaited
        heard = sorted(count for count in self.receipts if count)
        if self.cover is not None:
            self.cover.summarise()
        if not sent and not left_out and not unsent:
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
        for what, count in self.left_out.items() if sent else ():
            say("pub", f"{count_of(count, 'line')} {what}, not sent")
        return EXIT_FAILURE if unheard or awaited or left_out or unsent else 0

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


def _of_one(many: PublishedMany) -> Published:
    """Returns the outcome of one message that was published as if there were several."""
    servers = {
        name: Outcome.RECEIPT if Outcome.RECEIPT in counts else next(iter(counts))
        for name, counts in many.servers.items()
    }
    return Published(many.handle, many.topic, many.first_seq, servers, many.audience, many.reasons)


def _fields(number: int | None, published: Published) -> dict[str, object]:
    return {
        "time": utc(time()),
        "line": number,
        **text_fields("topic", published.topic),
        "seq": published.seq,
        "receipts": published.receipts,
        "audience": published.audience,
        "servers": {server: str(outcome) for server, outcome in published.servers.items()},
    }
