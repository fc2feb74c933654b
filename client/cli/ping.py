"""`kcast ping`: asks every server of a cluster whether it is up, and measures how long answers take."""

import asyncio
import sys
from statistics import median
from time import time

import click

from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    cluster_option,
    errors_as_lines,
    load_cluster_to_use,
    say,
)
from kcast.client.cli.pinger import Pinger, Target, targets_of
from kcast.client.cli.text import escaped, table, tell, to_json
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster
from kcast.pubsub.endpoint import format_address


@click.command("ping")
@cluster_option
@click.option(
    "--count", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Pings to each server."
)
@click.option(
    "--interval",
    "interval_s",
    type=Number(min=0.01, max=3600),
    default=0.2,
    show_default=True,
    metavar="SECONDS",
    help="Time between two pings to one server.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(min=0, min_open=True, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the last answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each server, one a line.")
def command(cluster_name: str | None, count: int, interval_s: float, timeout_s: float, as_json: bool) -> None:
    """Ping every server of the cluster, at each of its addresses.

    Names are looked up once, at the start. Where the list of servers is neither signed nor a lab, one line on
    standard error says so.

    With --json the keys are time (of the end, in UTC), server, address (null where a
    name does not resolve), up, sent, received, loss (0 to 1),
    rtt_min_ms, rtt_median_ms, rtt_max_ms (null without an answer), draining, work_bits (the price of a new
    lease), head (a text of the server's operator), and state (in words). work_bits and head are null if the
    server has not told them.

    The exit code is 0 if all answered, else 1; standard error names those that did not.

    \b
    Example:
      kcast ping --cluster lab.cluster
    """
    with errors_as_lines("ping"):
        cluster = load_cluster_to_use("ping", cluster_name, is_watched=False)
        if not cluster.is_signed and not cluster.is_lab:
            say(
                "ping",
                "this list of servers is not signed: whoever can change the file decides which they are",
            )
        targets = targets_of(cluster)
        asyncio.run(_ping(targets, count, interval_s, timeout_s))
        for line in _as_json(targets) if as_json else _as_table(cluster, targets):
            tell(line)
        down = [target.label for target in targets if not target.is_up]
        if down:
            all_down = len(down) == len(targets)
            say("ping", f"{'all' if all_down else len(down)} of {len(targets)} down: {', '.join(down)}")
            sys.exit(EXIT_FAILURE)


async def _ping(targets: list[Target], count: int, interval_s: float, timeout_s: float) -> None:
    """Returns when every ping has been answered, or the time is over."""
    loop = asyncio.get_running_loop()
    with Pinger(targets) as pinger:
        started_at = loop.time()
        for number in range(count):
            await asyncio.sleep(started_at + number * interval_s - loop.time())
            await pinger.ping_all(asks=number == 0)
        await pinger.wait(timeout_s)


def _as_json(targets: list[Target]) -> list[str]:
    now = utc(time())
    return [
        to_json(
            {
                "time": now,
                "server": target.server,
                "address": format_address(target.address) if target.address else None,
                "up": target.is_up,
                "sent": target.sent,
                "received": len(target.rtts_s),
                "loss": round(target.loss, 6),
                "rtt_min_ms": _ms(min(target.rtts_s, default=None)),
                "rtt_median_ms": _ms(median(target.rtts_s) if target.rtts_s else None),
                "rtt_max_ms": _ms(max(target.rtts_s, default=None)),
                "draining": target.is_draining,
                "work_bits": target.work_bits,
                "head": target.head,
                "state": target.state,
            }
        )
        for target in targets
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _as_table(cluster: Cluster, targets: list[Target]) -> list[str]:
    rows = []
    for target in targets:
        rtts = [f"{1000 * s:.2f}" for s in _spread(target.rtts_s)] or ["-", "-", "-"]
        rows.append((target.label, target.state, *rtts, f"{100 * target.loss:.0f} %"))
    up = sum(target.is_up for target in targets)
    name = f" in {escaped(cluster.name)}" if cluster.name else ""
    heads = ("server", "state", "min ms", "median ms", "max ms", "lost")
    return [*table(heads, rows, left=2), "", f"{up} of {len(targets)} up{name}"]


def _spread(values: list[float]) -> list[float]:
    return [min(values), median(values), max(values)] if values else []
