"""`kcast sub`: prints the messages of topics; says on standard error how leases and servers fare."""

import asyncio
import os
import sys
import warnings
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterator
from typing import IO, Any

import click

from kcast.client import events
from kcast.client.aio import Client, FixedWindow, Subscription
from kcast.client.cli import protection
from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    Output,
    cluster_option,
    count_of,
    errors_as_lines,
    load_cluster_to_use,
    nobody_answers,
    say,
    to_watch,
    topic_argument,
    value_option,
)
from kcast.client.cli.format import Format, FormatError
from kcast.client.cli.layers import Opened, limit_option
from kcast.client.cli.logs import Since, refuse, since
from kcast.client.cli.presets import fill_in
from kcast.client.cli.style import Style
from kcast.client.cli.telling import Telling, listed_drops
from kcast.client.cli.text import escaped
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster
from kcast.client.driving.arguments import HistoryOptions, WildcardWarning, explanation, looks_like_a_pattern
from kcast.client.driving.event_log import and_more

HOLD_S = 0.1
NAMED_MAX = 5  # topics whose leases are told apart
ALL = b""  # stands for more topics than these: no topic is empty
LEASES_SETTLING_S = 1.0  # an incomplete count of leases is reported after this time

_LOST: dict[events.Why, str] = {
    "silent": "it does not answer",
    "price": "it asks more work for a lease than any client does",
    "name": "its name leads to no address",
}
_NEVER_HEARD: dict[events.Why, str] = {
    "silent": "no answer from {server}",
    "name": "cannot reach {server}: its name leads to no address",
}


@click.command("sub")
@click.argument("words", metavar="TOPIC...", nargs=-1)
@cluster_option
@click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="A topic, as an option.")
@value_option("--topics-from", click.File("rb"), "Topics from a file, or from -, one a line.", unit="FILE|-")
@value_option("-C --count", click.IntRange(min=1), "End after N messages.", unit="N")
@value_option("-W --timeout timeout_s", Number(0, min_open=True), "End after this time.", unit="SECONDS")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a JSON object, one a line.")
@click.option("-r", "--raw", is_flag=True, help="Print payloads as they are: a LF in one stays a LF.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Print topic and TAB before each payload, for a single topic too."
)
@click.option(
    "--time", "--timestamp", "with_time", is_flag=True, help="Print when each came, and TAB, before all else."
)
@click.option("-F", "--format", "form", metavar="FORMAT", help="Print each message so: '%I %t %p', and more.")
@click.option("-N", "--no-eol", is_flag=True, help="Print no end of line after each message.")
@click.option("--literal", is_flag=True, help="Do not warn of topics that look like a pattern.")
@value_option(
    "--hold hold_s",
    Number(0, 10),
    "How long a message waits for earlier ones of its publisher; 0: print at once.",
    HOLD_S,
    "SECONDS",
)
@value_option(
    "--since",
    str,
    "Print entries since then first, of any holder; -5: the last five.",
    unit="10m|ID|all|-N",
    callback=since,
)
@limit_option("Print no more than COUNT messages of a sender in SECONDS.")
@protection.from_option(
    "Take only messages signed by this key, or one of a file's keys; may be given repeatedly."
)
@protection.seal_option("Take only messages sealed for this group, of which you are a reader.")
@protection.key_option
@protection.plain_topic_option
@protection.back_option
@protection.ahead_option
def command(
    words: tuple[str, ...],
    topics: tuple[str, ...],
    topics_from: IO[bytes] | None,
    cluster_name: str | None,
    count: int | None,
    timeout_s: float | None,
    as_json: bool,
    raw: bool,
    verbose: bool,
    with_time: bool,
    form: str | None,
    no_eol: bool,
    literal: bool,
    hold_s: float,
    since: Since | None,
    limit: FixedWindow | None,
    **proof: Any,
) -> None:
    """Print the messages of topics until Ctrl-C, --count or --timeout.

    Each message is one line: a LF within a payload is printed as \\n (not with --raw or --format). Of several
    topics, the topic and a TAB stand before each payload. Pipes and files get all other bytes as they are; on
    a terminal, and with --format, control characters appear as \\x1b and the like. A topic is one name: there
    are no wildcards. Standard error says how many of the topic's servers hold a lease ("leased on 5 of 5"),
    and what happens to them; with --time it says when.

    --time is in UTC. A format has mosquitto_sub's letters: %I (when it came, in local time), %t (topic), %p
    (payload), %l (its length), %x (in hexadecimal), %m (number among its publisher's), and %s (the server
    that brought it). \\n, \\t, \\0 and \\e are characters.

    With --json the keys are time (in UTC, when it came), topic, payload, publisher and seq (both null if the
    message has no envelope), attributes, server, sender (the key that signed it), group, and sent_at (in UTC,
    when its publisher says that it was sent). The last three are null unless --from, --seal or the topic asks
    for proof. If the bytes are not UTF-8, topic_base64 and payload_base64 stand instead.

    Without --from and --seal anybody may have sent what is printed. --from takes a key, the 43 characters
    that 'kcast key show' prints, or a file of keys, one a line, in which # begins a comment; it is read once.
    Of a topic that begins with ~ and the hash of a key, only what this key has signed is taken, also without
    --from. What was dropped is summed up at the end, by reason; docs/sealed.md has the reasons.

    With --since what others hold of the topics is printed first, then what comes: entries only, which are
    messages with a clock, such as 'kcast pub --history' makes. --time, %I and the key time of --json are then
    when an entry was made; with --json there are id, parents and orphan, and no attributes, server, group and
    sent_at.

    The exit code is 0 after --count messages, or without --count at the end of --timeout. It is 1 if
    --timeout came before --count, or if no server ever answered, and 130 after Ctrl-C.

    \b
    Examples: a subscriber, and a publisher in another terminal; one message, for a script
      kcast sub --cluster lab.cluster weather/oslo weather/bergen --time
      kcast pub --cluster lab.cluster weather/oslo 'rain, 4 degrees'
      kcast sub --cluster lab.cluster -t weather/oslo -C 1 -W 60 -F '%I %p'
      kcast sub --cluster lab.cluster weather/oslo --seal ops --from station-keys.txt
    """
    with errors_as_lines("sub"):
        text = b"" if topics_from is None else topics_from.read().removeprefix(BOM_UTF8)
    listed = [os.fsdecode(line.removesuffix(b"\r")) for line in text.split(b"\n")]
    typed = tuple(dict.fromkeys((*words, *topics, *filter(None, listed))))
    if not typed:
        raise click.UsageError("no topic: give TOPIC, or -t TOPIC, or --topics-from FILE")
    if as_json and (raw or verbose or with_time or no_eol or form is not None):
        raise click.UsageError(
            "--json includes what --raw, --verbose, --time, --format and --no-eol change: leave those out"
        )
    if form is not None and (raw or verbose or with_time):
        raise click.UsageError(
            "--format says all that is printed: leave --raw, --verbose and --time out (%p, %t, %I)"
        )
    with errors_as_lines("sub"):
        fill_in(proof, cluster_name)
    protection.require_of_reading(typed, **proof)
    if since is not None:
        refuse("--since", "hold_s", "back_s", "ahead_s", "plain_topic")
    try:
        shown = None if form is None else Format(form)
    except FormatError as error:
        raise click.UsageError(f"--format: {error}") from None
    with errors_as_lines("sub", closed_pipe_exit=EXIT_FAILURE if count else 0):
        names = [topic_argument(topic) for topic in typed]
        read = protection.reading("sub", names, **proof)
        cluster = load_cluster_to_use("sub", cluster_name)
        for name in filter(looks_like_a_pattern, () if literal else names):
            say("sub", f"{explanation(escaped(name))}; --literal if it is meant")
        with_topic = verbose or (len(names) > 1 and not raw)
        style = Style(as_json, raw, with_topic, with_time, shown, end=b"" if no_eol else b"\n")
        printer = Printer(Output(), count, style)
        if since is not None:
            from kcast.client.cli.since import run

            client = Client(
                to_watch(cluster), identity=read.credentials.identity, group=read.credentials.group
            )
            begun = Opened(client, names[0], None, read.credentials)
            options = HistoryOptions(limit=limit, senders=protection.keys_of(proof["senders"]) or None)
            sys.exit(asyncio.run(run(begun, names, since, options, printer, timeout_s)))
        telling = Telling("sub", with_time=with_time)
        sys.exit(asyncio.run(_run(cluster, names, hold_s, limit, printer, timeout_s, telling, read)))


async def _run(
    cluster: Cluster,
    topics: list[bytes],
    hold_s: float,
    limit: FixedWindow | None,
    printer: "Printer",
    timeout_s: float | None,
    telling: Telling,
    read: protection.Reading,
) -> int:
    identity, group = read.credentials.identity, read.credentials.group
    async with Client(to_watch(cluster), identity=identity, group=group) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WildcardWarning)  # told above
            subscription = client.subscribe(topics, hold_s=hold_s, limit=limit, **read.options)
        watcher = _Watcher(client, subscription, topics, telling, read.credentials)
        ends = printer.print(subscription), printer.output.outlive(), watcher.watch(client.events())
        tasks = [asyncio.create_task(each) for each in ends]
        try:
            done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:  # of several, the first decides
                if task in done:
                    task.result()
                    break
        finally:
            for task in tasks:
                task.cancel()
            subscription.close()  # lets go of what is held
            await printer.finish(subscription)
            watcher.report_drops()
        if not done:
            watcher.report_missing_leases()
        if printer.wanted and printer.printed < printer.wanted:
            whose = f"{printer.printed} of {count_of(printer.wanted, 'message')} came within {timeout_s:g} s"
            say("sub", whose + ("" if watcher.ever_leased else f": {watcher.nobody_answers()}"))
            return EXIT_FAILURE
        if not watcher.ever_leased and not printer.printed:
            say("sub", watcher.nobody_answers())
            return EXIT_FAILURE
        return 0


class Printer:
    """Prints deliveries or entries, and counts them. While that is slow, they stay in their source."""

    def __init__(self, output: Output, wanted: int | None, style: Style) -> None:
        self.wanted = wanted
        self.printed = 0
        self.output = output
        self._style = style
        self._begun: Any = None  # but perhaps not printed

    async def print(self, source: Any) -> None:
        """Prints until enough is printed. Raises BrokenPipeError if nobody reads any more."""
        async for delivery in source:
            self._begun = delivery
            await self.output.write(self._line(delivery))
            self._begun = None
            self.printed += 1
            if self._has_enough():
                return

    async def finish(self, source: Any) -> None:
        """Prints what has come to a source that has ended, as far as that goes without waiting."""
        delivery = self._begun or await source.get()
        while delivery is not None and not self._has_enough():
            if not self.output.write_at_once(self._line(delivery)):
                break
            self.printed += 1
            delivery = await source.get()

    def _has_enough(self) -> bool:
        return self.wanted is not None and self.printed >= self.wanted

    def _line(self, delivery: Any) -> bytes:
        return self._style.line(delivery, self.output.is_terminal)


class _Watcher:
    """Says on standard error what happens besides deliveries."""

    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        topics: list[bytes],
        telling: Telling,
        credentials: protection.Credentials,
    ) -> None:
        self.ever_leased = False
        self._client = client
        self._credentials = credentials
        self._telling = telling
        wanted = subscription.leases[1] // len(topics)  # every topic has as many
        self._leases = dict.fromkeys(topics, (0, wanted))
        self._removed: set[str] = set()  # servers that the cluster file has no longer
        self._never_heard: set[str] = set()  # servers that did not answer from the start on
        self._lacking = len(topics)  # topics with fewer leases than wanted
        self._keys = topics if len(topics) <= NAMED_MAX else [ALL]
        self._told: dict[bytes, object] = {}
        self._timers: dict[bytes, asyncio.TimerHandle] = {}
        self._missing = 0  # messages in gaps, since gaps were told last

    async def watch(self, happening: AsyncIterator[events.Event]) -> None:
        """Takes events until the client is closed."""
        async for event in happening:
            self._tell(event)

    def nobody_answers(self) -> str:
        """Returns a line naming the servers that were asked in vain."""
        asked_at = self._client.core.sessions.asked_at()
        return nobody_answers(self._client.cluster, asked_at, asked_at)

    def report_drops(self) -> None:
        """Says what was lost by being discarded, after all else."""
        for timer in self._timers.values():
            timer.cancel()
        self._telling.end()
        if drops := listed_drops(self._client.drops, self._client.kernel_drops):
            self._telling.say(f"dropped: {drops}")

    def report_missing_leases(self) -> None:
        """Says at the end of --timeout which topics lack leases, if it was not said before."""
        for key in self._keys:
            if not self._is_complete(key) and self._told.get(key) != self._state(key):
                self._telling.say(self._leased_on(key))

    def _tell(self, event: events.Event) -> None:
        if isinstance(event, events.LeasesChanged):
            self._leases_changed(event)
        elif isinstance(event, events.Gap):
            text = self._text(event)
            self._missing += event.last_seq - event.first_seq + 1
            self._telling.tell_of("Gap", lambda more: self._gaps(text, more))
        elif text := self._text(event):
            self._telling.tell(type(event).__name__, text)

    def _gaps(self, last: str, more: int) -> str:
        """Returns what to say of all gaps since the last time."""
        missing, self._missing = self._missing, 0
        return f"{last}; in all {missing} messages in {more + 1} gaps" if more else last

    def _text(self, event: events.Event) -> str:
        """Returns what to say of an event; "" where there is nothing to say, or not yet."""
        match event:
            case events.Forged(topic, per_second, sender):
                who = f"the key {sender} floods, as ever new processes:" if sender else "somebody forges"
                return f"{who} {per_second:.0f} messages a second{self._of(topic)}; nobody else's are lost"
            case events.ServerLost(server, why, has_answered):
                if not has_answered and why in _NEVER_HEARD:
                    self._never_heard.add(server)
                    return _NEVER_HEARD[why].format(server=server)
                gone = ", and is no longer in the cluster file" if server in self._removed else ""
                return f"lost {server}: {_LOST[why]}{gone}"
            case events.AllServersLost():
                return f"{self.nobody_answers()}; still trying"
            case events.ServerReturned(server):
                again = "" if server in self._never_heard else " again"
                self._never_heard.discard(server)
                return f"{server} answers{again}"
            case events.ServerDraining(server):
                return f"{server} is about to stop"
            case events.ServerForgot(server):
                return f"{server} has restarted, or our address has changed: leasing again"
            case events.MachineSuspended(for_s):
                return f"this machine was suspended for {for_s:.0f} s, and heard nothing"
            case events.MayHaveMissed(since_s, until_s):
                return f"may have missed messages from {utc(since_s)} to {utc(until_s)}"
            case events.LeaseRefused(topic, server, reason):
                return f"{server} refuses a lease{self._of(topic)}: {reason}; still trying"
            case events.Gap(topic, publisher, first, last):
                which = f"message {first}" if first == last else f"messages {first} to {last}"
                return f"missing {which} of {publisher}{self._of(topic)}"
            case events.GapFilled(topic, publisher, seq):
                return f"message {seq} of {publisher}{self._of(topic)} came after all"
            case events.ClusterChanged(added, removed):
                self._removed = (self._removed - set(added)) | set(removed)
        return self._credentials.told(event, self._client.cluster, self._of)

    def _leases_changed(self, event: events.LeasesChanged) -> None:
        topic, leased, wanted = event.topic, event.leased, event.wanted
        self.ever_leased = self.ever_leased or leased > 0
        before, self._leases[topic] = self._leases[topic], (leased, wanted)
        self._lacking += (leased < wanted) - (before[0] < before[1])
        key = topic if topic in self._keys else ALL
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if self._is_complete(key):
            self._tell_leases(key)
        else:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(LEASES_SETTLING_S, self._tell_leases, key)

    def _is_complete(self, key: bytes) -> bool:
        return not self._lacking if key == ALL else self._leases[key][0] == self._leases[key][1]

    def _state(self, key: bytes) -> object:
        """Returns what changes where there is something to tell: of many topics no more than is quick."""
        return self._lacking if key == ALL else self._leases[key]

    def _tell_leases(self, key: bytes) -> None:
        if self._told.get(key) == self._state(key):
            return
        if key not in self._told:
            self._telling.say(self._leases_now(key, 0))
        else:
            self._telling.tell_of("leases", lambda more: self._leases_now(key, more))

    def _leases_now(self, key: bytes, more: int) -> str:
        """Returns how many leases a topic has when the line is said, which may be later."""
        self._told[key] = self._state(key)
        return and_more(self._leased_on(key))(more)

    def _leased_on(self, key: bytes) -> str:
        if key != ALL:
            leased, wanted = self._leases[key]
            return f"leased on {leased} of {wanted}{self._of(key)}"
        counts = sorted(Counter(self._leases.values()).items(), reverse=True)
        parts = [f"{each[0]} of {each[1]} servers for {count_of(topics, 'topic')}" for each, topics in counts]
        return f"leased on {', on '.join(parts)}"

    def _of(self, topic: bytes) -> str:
        """Returns which topic it is about, if there are several."""
        return f" for {escaped(topic)}" if len(self._leases) > 1 else ""
