"""`kcast keep`: a log of topics without an application, for those who miss something."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from kcast.client.cli.common import FILE, cluster_option, errors_as_lines, say, topic_argument, value_option
from kcast.client.cli.layers import Opened, opened, proof_options
from kcast.client.cli.logs import age, bytes_of, counted
from kcast.client.cli.text import escaped
from kcast.client.driving.arguments import HistoryOptions
from kcast.client.history.log import ENTRIES_MAX


@click.command("keep")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@cluster_option
@click.option(
    "--store", type=FILE, metavar="FILE", required=True, help="The file to keep it in; made if need be."
)
@value_option("--age age_s", str, "Keep no entry for longer: 90, 10m, 12h, 1d.", unit="TIME", callback=age)
@value_option("--count", click.IntRange(min=1), "Keep the last N entries of each topic.", ENTRIES_MAX, "N")
@value_option("--size", str, "Keep messages of so many bytes of each.", "64M", "BYTES", callback=bytes_of)
@proof_options("those whose entries are kept, and who may say that they keep some")
def command(
    topics: tuple[str, ...],
    cluster_name: str | None,
    store: Path,
    age_s: float | None,
    count: int,
    size: int,
    **proof: Any,
) -> None:
    """Keep what is said on TOPICs until Ctrl-C, and give it to those who lack it.

    Only entries are kept: what 'kcast pub --history', client.history and their like have made. The oldest
    leave by whichever bound is met first. One process has the file; 'kcast history --store' reads it beside.

    What is sealed for a group is kept by its readers, with --seal, each epoch by itself. Anybody keeps it who
    gives as TOPIC the name that 'kcast where TOPIC --seal GROUP' shows, of one epoch, and cannot read it.

    \b
    Examples: a keeper of two topics, and what came while nobody else was there
      kcast keep --cluster lab.cluster chat/1 chat/2 --store chat.db --age 30d
      kcast sub --cluster lab.cluster chat/1 --since 10m
    """
    with errors_as_lines("keep"):
        names = list(dict.fromkeys(map(topic_argument, topics)))
        begun = opened("keep", topics[0], cluster_name, proof)
        options = HistoryOptions(count=count, size_bytes=size, senders=begun.senders)
        if age_s is not None:
            options["age_s"] = age_s
        asyncio.run(_run(begun, names, store, options))
        sys.exit(0)


async def _run(begun: Opened, names: list[bytes], store: Path, options: HistoryOptions) -> None:
    async with begun.client as client, AsyncExitStack() as stack:
        for name in names:
            log = await stack.enter_async_context(client.history(name, store, **options))
            say("keep", f"{escaped(name)}: keeps {counted(log.status().entries)}")
        try:
            await begun.until_first("keep")
        finally:
            begun.report_drops("keep")
