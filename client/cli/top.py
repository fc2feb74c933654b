"""`kcast top`: a table of all servers that is always up to date."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from time import time

import click

from kcast.client.cli import file_news
from kcast.client.cli.common import (
    EXIT_INTERRUPTED,
    Number,
    cluster_option,
    errors_as_lines,
    load_cluster_to_use,
    say,
    watch_of,
)
from kcast.client.cli.pinger import Pinger, Target, targets_of
from kcast.client.cli.scrape import scrape, urls
from kcast.client.cli.screen import Screen, is_screen
from kcast.client.cli.text import COLUMNS, escaped, tell, terminal_columns, to_json
from kcast.client.cli.times import utc
from kcast.client.cli.top_figures import Table, Watched
from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.watch import Change, Stop
from kcast.client.driving.families import usable_families
from kcast.client.driving.resolver import Resolver
from kcast.client.events import ClusterRefused, ListChanged, ListTrouble
from kcast.client.session.whereabouts import family_of
from kcast.pubsub import clock

PING_TIMEOUT_S = 1.0
SCRAPE_TIMEOUT_S = 1.0
FIRST_S = 0.3  # after which the first figures are on the screen

_EXIT_TERMINATED = 143  # 128 + SIGTERM, as shells have it


@click.command("top")
@cluster_option
@click.option(
    "--metrics",
    metavar="PORT|URL",
    help="Where servers' metrics are: the PORT of kcast serve --metrics, or a URL with {host} and {port}.",
)
@click.option(
    "--interval",
    "interval_s",
    type=Number(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from one table to the next.",
)
@click.option("--count", type=click.IntRange(1), help="End after this many tables.")
@click.option("--once", "is_once", is_flag=True, help="Print one table, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each interval, one a line.")
def command(
    cluster_name: str | None,
    metrics: str | None,
    interval_s: float,
    count: int | None,
    is_once: bool,
    as_json: bool,
) -> None:
    """Watch the servers of the cluster: which are up, how fast and how reliably they answer.

    It pings each server once an interval. Round-trip time (the median) and loss are those of the last 20
    pings. A server that did not answer the last two is down.

    With --metrics it also shows what servers say of themselves: published messages that they took in, copies
    that they sent, drops by which something may be lost, and leases. Where their metrics cannot be read, `-`
    stands. With a PORT, that is the port of the server with the lowest port of an IP address, and its other
    servers follow, as kcast serve --workers and --count have it. Metrics are served on loopback, unless kcast
    serve is told otherwise.

    On a terminal the table stays on the screen until q or Ctrl-C. Where not all servers have room, the worst
    come first. Elsewhere one table is printed, or --count of them. Where the cluster file changes meanwhile,
    top goes by it within a minute, as clients do.

    With --json the keys are time, cluster, policy, up and total (numbers of servers), sums of
    messages_per_s, copies_per_s, drops_per_s and leases, and servers: for each server, state (up, stopping,
    down, or - where it is not yet known), rtt_ms, loss (0 to 1), and the four of the sums. What is not known
    is null.

    \b
    Examples:
      kcast top
      kcast top --metrics 9400
      kcast top --metrics 'http://{host}:9400/{port}/metrics' --once
    """
    if is_once and count is not None:
        raise click.UsageError("--once is --count 1: give one of them.")
    with errors_as_lines("top"):
        cluster = load_cluster_to_use("top", cluster_name)

        def make(cluster: Cluster) -> Loop:
            return Loop(cluster, one_of_each(targets_of(cluster)), metrics, interval_s, as_json)

        try:
            loop = make(cluster)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--metrics") from None
        has_screen = is_screen() and not is_once and not as_json
        if is_once or (count is None and not has_screen and not as_json):
            count = 1
        with Screen() if has_screen else nullcontext() as screen:
            sys.exit(asyncio.run(show(loop, make, count, screen)))


async def show(
    loop: "Loop", make: "Callable[[Cluster], Loop]", count: int | None, screen: Screen | None
) -> int:
    """Shows this many tables, of another cluster once its file has changed. Returns the exit code."""
    exit_code = await loop.run(count, screen)
    while loop.changed is not None:
        count = None if count is None else count - loop.shown
        loop = make(loop.changed)
        exit_code = await loop.run(count, screen)
    return exit_code


def one_of_each(targets: list[Target]) -> list[Target]:
    """Returns a target for each server: its first address of a family that this machine can use, if any."""
    usable = usable_families([target.address] for target in targets if target.address)
    chosen: dict[str, Target] = {}
    for target in sorted(targets, key=lambda each: not each.address or family_of(each.address) not in usable):
        chosen.setdefault(target.server, target)
    return [chosen[server] for server in dict.fromkeys(target.server for target in targets)]


class Loop:
    """Asks all servers again and again, and shows what came of it.

    It ends early where the cluster file has changed: `changed` is then the cluster that it says now. `shown`
    is the number of tables.
    """

    def __init__(
        self,
        cluster: Cluster,
        targets: list[Target],
        metrics: str | None,
        interval_s: float,
        as_json: bool,
    ) -> None:
        """Raises ValueError where `metrics` does not say where the metrics are."""
        self._cluster = cluster
        self._targets = targets
        self._metrics = metrics
        self._urls = self._find_urls()
        self._names = Resolver()
        self._target_of = {
            server.named: target
            for server, target in zip(cluster.servers, targets, strict=True)
            if server.named
        }
        self._interval_s = interval_s
        self._as_json = as_json
        self._watched = [Watched(target.server) for target in targets]
        self._told = [0] * len(targets)  # number of pings of which `_watched` knows what became of them
        self._table = self._make_table()
        self._screen: Screen | None = None
        self._exit_code: int | None = None
        self._source = watch_of(cluster)
        self._note = "q quits"
        self.changed: Cluster | None = None
        self.shown = 0

    async def run(self, count: int | None, screen: Screen | None = None) -> int:
        """Shows this many tables, on a screen if there is one. Returns the exit code."""
        self._screen = screen
        self._listen(asyncio.current_task())
        try:
            await self._watch(count)
        except asyncio.CancelledError:
            if self._exit_code is None:
                raise
        return self._exit_code or 0

    async def _watch(self, count: int | None) -> None:
        self._draw()
        with Pinger(self._targets) as pinger:
            await self._scrape()
            while self.changed is None and (count is None or self.shown < count):
                await pinger.ping_all()
                await asyncio.sleep(FIRST_S if self._screen and not self.shown else self._interval_s)
                await self._scrape()
                self._take(pinger)
                self._look_for_moved(pinger)
                self._table = self._make_table()
                self._show()
                self.shown += 1
                self.changed = self._look_for_change()

    async def _scrape(self) -> None:
        found = await scrape(tuple(self._urls.values()), min(SCRAPE_TIMEOUT_S, self._interval_s))
        for index, (metrics, at_s) in zip(self._urls, found, strict=True):
            self._watched[index].scraped(metrics, at_s)

    def _take(self, pinger: Pinger) -> None:
        """Tells `_watched` what became of pings since the last time."""
        pinger.give_up(PING_TIMEOUT_S)
        awaited = pinger.awaited()
        for index, (target, watched) in enumerate(zip(self._targets, self._watched, strict=True)):
            if target.address is None:
                watched.pinged((), 1, refused=True, draining=False)
                continue
            settled = target.sent - awaited[target.address]
            lost = settled - self._told[index] - len(target.rtts_s)
            watched.pinged(target.rtts_s, lost, refused=target.refused, draining=target.is_draining)
            self._told[index] = settled
            target.rtts_s, target.refused = [], False

    def _look_for_moved(self, pinger: Pinger) -> None:
        """Looks up the names of servers that are down, and goes where they lead to now."""
        now = clock.now()
        for named, addresses in self._names.answers(now):
            target = self._target_of[named]
            if addresses and target.address not in addresses:
                pinger.move(target, addresses[0])
                self._urls = self._find_urls()
        states = [watched.figures().state for watched in self._watched]
        down = {target.server for target, state in zip(self._targets, states, strict=True) if state == "down"}
        self._names.ask((named for named, target in self._target_of.items() if target.server in down), now)

    def _look_for_change(self) -> Cluster | None:
        """Returns the cluster to go by from now on, if it is another one; says what else there is."""
        changed = None
        for news in () if self._source is None else self._source.look(clock.now()):
            match news:
                case Change(cluster):
                    changed = cluster
                case Stop(error):
                    raise error
                case ClusterRefused() | ListTrouble() | ListChanged():
                    self._note = file_news.told(news)
                    if self._screen is None:
                        say("top", self._note)
        return changed

    def _find_urls(self) -> dict[int, str]:
        """Returns where the metrics of servers are, by the servers' places in the list."""
        known = {i: target.address for i, target in enumerate(self._targets) if target.address}
        if self._metrics is None or not known:
            return {}
        return dict(zip(known, urls(tuple(known.values()), self._metrics), strict=True))

    def _make_table(self) -> Table:
        return Table(
            time=utc(time()),
            cluster=self._cluster.name,
            policy=str(self._cluster.policy),
            servers=tuple(watched.figures() for watched in self._watched),
            has_metrics=self._metrics is not None,
        )

    # --- Showing it ----------------------------------------------------------------------------------

    def _show(self) -> None:
        if self._screen is not None:
            self._draw()
        elif self._as_json:
            click.echo(to_json(self._table.as_json()))
        else:
            tell("\n".join((*self._table.lines(terminal_columns() or COLUMNS), "")))

    def _draw(self) -> None:
        if self._screen is not None:
            columns, rows = self._screen.size
            self._screen.draw(self._table.lines(columns, rows, escaped(self._note)))

    # --- What the user does --------------------------------------------------------------------------

    def _listen(self, watching: "asyncio.Task[int] | None") -> None:
        assert watching is not None
        loop = asyncio.get_running_loop()

        def end(exit_code: int) -> None:
            self._exit_code = exit_code
            watching.cancel()

        loop.add_signal_handler(signal.SIGINT, end, EXIT_INTERRUPTED)
        loop.add_signal_handler(signal.SIGTERM, end, _EXIT_TERMINATED)
        screen = self._screen
        if screen is None:
            return
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        loop.add_signal_handler(signal.SIGTSTP, self._stop, screen)
        if (keys := screen.keys) is not None:

            def read_key() -> None:
                typed = os.read(keys, 64)
                if not typed or typed in (b"q", b"Q"):
                    end(0)

            loop.add_reader(keys, read_key)

    def _stop(self, screen: Screen) -> None:
        """Gives the terminal back while the shell has stopped this program (Ctrl-Z)."""
        screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        screen.enter()
        self._draw()
