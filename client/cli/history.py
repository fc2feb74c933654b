"""`kcast history`: prints what was said on a topic, of those who hold it, or of a file."""

import asyncio
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from time import time
from typing import Any, NamedTuple

import click

from kcast.client.cli.common import (
    FILE,
    Number,
    Output,
    cluster_option,
    errors_as_lines,
    fail,
    say,
    topic_argument,
    value_option,
)
from kcast.client.cli.layers import Opened, opened, proof_options, require_server
from kcast.client.cli.logs import Since, refuse, since
from kcast.client.cli.style import Style, Told
from kcast.client.cli.text import escaped, to_json
from kcast.client.driving.arguments import HistoryOptions
from kcast.client.events import Drop
from kcast.client.history.cursor import Cursor, bound_of
from kcast.client.history.entries import Entry, Row, Status, entry_of
from kcast.client.history.ids import to_text
from kcast.client.history.index import HIGHEST
from kcast.client.history.log import load
from kcast.client.history.tables import open_reader
from kcast.client.messages import base64url
from kcast.pubsub.wire import encode_topic

SYNC_S = 5.0
ALL = 10**12


@click.command("history")
@click.argument("topic")
@cluster_option
@value_option("--store", FILE, "Read this file of 'kcast keep' or a program, and ask nobody.", unit="FILE")
@value_option("--since", str, "From when on; -5: the last five.", "all", "10m|ID|all|-N", callback=since)
@value_option("-W --timeout timeout_s", Number(0, 3600, min_open=True), "Wait so long.", SYNC_S, "SECONDS")
@click.option("--heads", is_flag=True, help="Print the ids of those entries that no other one follows.")
@click.option("--status", "with_status", is_flag=True, help="Print how the log stands, as a JSON object.")
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a JSON object, one a line.")
@proof_options("those whose entries are shown")
def command(
    topic: str,
    cluster_name: str | None,
    store: Path | None,
    since: Since,
    timeout_s: float,
    heads: bool,
    with_status: bool,
    as_json: bool,
    **proof: Any,
) -> None:
    """Print what was said on TOPIC, and end: the entries of those who hold it, in the order of their ids.

    Entries are messages with a clock: what 'kcast pub --history' and client.history have made. With --json
    the keys are time (when it was made, in UTC), topic, payload, publisher, seq, id, parents, orphan (a
    parent has not come), sender (the key that is proven to have signed it, or null) and group (for which it
    was sealed, or null).

    The exit code is 0 if all is there, and 1 if nobody holds the topic, or --timeout came before all of it.

    \b
    Examples: the last ten, from any holder; all of a file
      kcast history --cluster lab.cluster chat --since -10
      kcast history chat --store chat.db --json
    """
    if store is not None:
        refuse("--store", "is_signed", "key_name", "senders", "group_name")
    if heads:
        refuse("--heads", "with_status")
    with errors_as_lines("history"):
        begun = opened("history", topic, cluster_name, proof) if store is None else None
        what = "heads" if heads else "status" if with_status else ""
        printer = _Printer(topic_argument(topic), Output(), what, Style(as_json))
        if store is not None:
            asyncio.run(_read(store, since, printer))
        elif begun is not None:
            asyncio.run(_run(begun, since, timeout_s, printer))
        sys.exit(0)


class _Printer(NamedTuple):
    """Prints entries, or a log's `heads` or `status`."""

    topic: bytes
    output: Output
    what: str
    style: Style

    async def print(self, entries: AsyncIterable[Entry], status: Callable[[], Status]) -> None:
        """Prints what is wanted."""
        if self.what:
            found = status()
            lines = found.heads if self.what == "heads" else [to_json(found._asdict())]
            await self.output.write("".join(f"{line}\n" for line in lines).encode())
            return
        async for entry in entries:
            await self.output.write(self.style.line(Told(self.topic, entry), self.output.is_terminal))


async def _read(store: Path, since: Since, printer: _Printer) -> None:
    """Prints what is in a file."""

    unopened = 0

    def opened_of(row: Row) -> Entry | None:
        nonlocal unopened
        found = entry_of(row)
        unopened += found is None
        return found

    async def entries() -> AsyncIterator[Entry]:
        cursor = Cursor(reader, bound_of(since.since, time()), since.last, entry_of=opened_of)
        while found := cursor.take():
            for entry in found:
                yield entry

    def status() -> Status:
        index, _, heads, floor = load(reader)
        digest = base64url.encode(index.block(floor, HIGHEST).fingerprint)
        return Status(len(index), list(map(to_text, heads.ids)), to_text(floor), digest, 0, None, 0, None)

    with closing(open_reader(store, encode_topic(printer.topic))) as reader:
        await printer.print(entries(), status)
    if unopened:
        say("history", f"dropped: {Drop.NOT_OPENED}={unopened}")


async def _run(begun: Opened, since: Since, timeout_s: float, printer: _Printer) -> None:
    """Prints what others hold."""
    topic = escaped(begun.topic)
    why = ""

    async def print_all() -> None:
        nonlocal why
        holders, _, is_complete = await log.synced(timeout_s)
        if not is_complete:
            why = f"not all of {topic} came within {timeout_s:g} s: give more by -W"
        if not holders:
            why = f"nobody who is there holds {topic}: 'kcast keep' does that"
        if is_complete or since.last is None:  # the last ones come last
            await printer.print(log.entries(*since, live=False), log.status)

    all_of_it = HistoryOptions(count=ALL, size_bytes=ALL, age_s=since.age_s, senders=begun.senders)
    async with begun.client as client, client.history(begun.topic, **all_of_it) as log:
        await begun.until_first("history", print_all(), printer.output.outlive())
        if why or client.drops[Drop.NOT_OPENED]:
            begun.report_drops("history")
        if why:
            require_server("history", client)
            fail("history", why)
