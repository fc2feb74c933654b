"""`kcast top`: a table of all servers that is always up to date."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import time
from typing import TYPE_CHECKING

import click

from kcast.client.cli import file_news
from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    cluster_option,
    errors_as_lines,
    load_cluster_to_use,
    say,
    value_option,
    watch_of,
)
from kcast.client.cli.probe import Probe
from kcast.client.cli.probing import Probing, probes_of
from kcast.client.cli.scrape import scrape, urls
from kcast.client.cli.text import escaped, tell, terminal_columns, to_json
from kcast.client.cli.times import utc
from kcast.client.cli.top_figures import Table, Watched
from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.watch import Change, Stop
from kcast.client.driving.resolver import Resolver, usable_families
from kcast.client.events import ClusterRefused, ListChanged, ListTrouble
from kcast.client.session.whereabouts import family_of
from kcast.pubsub import clock

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

PING_TIMEOUT_S = 1.0
SCRAPE_TIMEOUT_S = 1.0
FIRST_S = 0.3  # after which the first figures are on the screen


@click.command("top")
@cluster_option
@value_option(
    "--metrics",
    str,
    "Where servers' metrics are: the PORT of kcast serve --metrics, or a URL with {host} and {port}.",
    unit="PORT|URL",
)
@value_option("--interval interval_s", Number(0.1, 3600), "Time from one table to the next.", 2.0, "SECONDS")
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
    down, or - where it is not yet known), version (of its program), rtt_ms, loss (0 to 1), and the four of
    the sums. What is not known is null.

    The exit code is 1 if all servers are down in the last table, else 0.

    \b
    Examples:
      kcast top
      kcast top --metrics 9400
      kcast top --metrics 'http://{host}:9400/{port}/metrics' --once
    """
    if is_once and count is not None:
        raise click.UsageError("--once is --count 1: give one of them.")
    with errors_as_lines("top"):
        loop = Loop(load_cluster_to_use("top", cluster_name), metrics, interval_s, as_json)
        is_terminal = terminal_columns() is not None and os.environ.get("TERM", "dumb") != "dumb"
        has_screen = is_terminal and not (is_once or as_json)
        if is_once or (count is None and not has_screen and not as_json):
            count = 1
        with _screen(loop) if has_screen else nullcontext():
            loop.run(count)
        if not has_screen and loop.is_all_down:
            sys.exit(EXIT_FAILURE)


def one_of_each(probes: list[Probe]) -> list[Probe]:
    """Returns a probe of each server: at its first address of a family that this machine can use, if any."""
    usable = usable_families([probe.address] for probe in probes if probe.address)
    chosen: dict[str, Probe] = {}
    for probe in sorted(probes, key=lambda each: not each.address or family_of(each.address) not in usable):
        chosen.setdefault(probe.server, probe)
    return [chosen[server] for server in dict.fromkeys(probe.server for probe in probes)]


class Loop:
    """Asks all servers again and again, and shows what came of it; of another cluster once its file has
    changed. `live` is the screen, if it is shown on one, and `keys` where keys are read."""

    def __init__(self, cluster: Cluster, metrics: str | None, interval_s: float, as_json: bool) -> None:
        """Raises click.BadParameter where `metrics` does not say where the metrics are."""
        self._metrics, self._interval_s, self._as_json = metrics, interval_s, as_json
        self._note = "q quits"
        self._is_over = False
        self.live: Live | None = None
        self.keys: int | None = None
        self._begin(cluster)

    @property
    def is_all_down(self) -> bool:
        """Whether no server has answered lately."""
        return all(each.state == "down" for each in self._table.servers)

    def _begin(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._probes = one_of_each(probes_of(cluster))
        self._watched = [Watched(probe) for probe in self._probes]
        self._names = Resolver()
        self._named = {
            server.named: probe
            for server, probe in zip(cluster.servers, self._probes, strict=True)
            if server.named
        }
        self._source = watch_of(cluster)
        self._urls = self._find_urls()
        self._table = self._make_table()

    def run(self, count: int | None) -> None:
        """Shows this many tables."""
        shown = 0
        while not self._is_over and (count is None or shown < count):
            cluster = self._cluster
            with Probing(self._probes, is_shared=True) as probing:
                if self.keys is not None:
                    probing.watch(self.keys, self._read_key)
                self._scrape()
                while cluster is self._cluster and not self._is_over and (count is None or shown < count):
                    probing.ping_all(asks=True)
                    wait_s = FIRST_S if self.live and not shown else self._interval_s
                    probing.run(clock.now() + wait_s, lambda: self._is_over)
                    self._scrape()
                    for probe in self._probes:
                        probe.give_up(clock.now() - PING_TIMEOUT_S)
                        probe.small.rtts_s.clear()
                    self._table = self._make_table()
                    self._look_for_moved(probing)
                    self._show()
                    shown += 1
                    self._look_for_change()

    def _scrape(self) -> None:
        if self._urls:
            timeout_s = min(SCRAPE_TIMEOUT_S, self._interval_s)
            with asyncio.Runner() as runner:
                found = runner.run(scrape(tuple(self._urls.values()), timeout_s))
            for index, (metrics, at_s) in zip(self._urls, found, strict=True):
                self._watched[index].scraped(metrics, at_s)

    def _look_for_moved(self, probing: Probing) -> None:
        """Looks up the names of servers that are down, and goes where they lead to now."""
        now = clock.now()
        for named, addresses in self._names.answers(now):
            probe = self._named[named]
            if addresses and probe.address not in addresses:
                probing.move(probe, addresses[0])
                self._urls = self._find_urls()
        down = {each.server for each in self._table.servers if each.state == "down"}
        self._names.ask([named for named, each in self._named.items() if each.server in down], now)

    def _look_for_change(self) -> None:
        """Goes by another cluster from now on, if there is one; says what else there is."""
        for news in () if self._source is None else self._source.look(clock.now()):
            match news:
                case Change(cluster):
                    self._begin(cluster)
                case Stop(error):
                    raise error
                case ClusterRefused() | ListTrouble() | ListChanged():
                    self._note = file_news.told(news)
                    if self.live is None:
                        say("top", self._note)

    def _find_urls(self) -> dict[int, str]:
        """Returns where the metrics of servers are, by the servers' places in the list."""
        known = {i: probe.address for i, probe in enumerate(self._probes) if probe.address}
        if self._metrics is None or not known:
            return {}
        try:
            return dict(zip(known, urls(tuple(known.values()), self._metrics), strict=True))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--metrics") from None

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
        if self.live is not None:
            with _drawn_whole():
                self.live.refresh()
        elif self._as_json:
            tell(to_json(self._table.as_json()))
        else:
            tell("\n".join((*self._table.lines(), "")))

    def page(self) -> "Text":
        """Returns what is on the screen: as many lines as it has, with a note in the last."""
        from rich.text import Text

        _, rows = os.get_terminal_size(sys.stdout.fileno())
        lines = [*self._table.lines(rows - 1)[: rows - 1], *[""] * rows]
        text = "\n".join((*lines[: rows - 1], escaped(self._note)))
        return Text(text, no_wrap=True, overflow="ellipsis")

    def _read_key(self, keys: int) -> None:
        if os.read(keys, 64) in (b"", b"q", b"Q"):
            self._is_over = True


# --- The terminal -------------------------------------------------------------------------------------


@contextmanager
def _drawn_whole() -> Iterator[None]:
    """Lets signals whose handlers draw wait: a write within a write of standard output is an error."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTSTP, signal.SIGWINCH))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _screen(loop: Loop) -> Iterator[None]:
    """Takes the screen, and keys as they are typed; gives both back as they were, also while the shell has
    stopped this program (Ctrl-Z)."""
    from rich.console import Console
    from rich.live import Live

    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    settings = termios.tcgetattr(keys) if keys is not None else None
    live = Live(
        get_renderable=loop.page,
        console=Console(highlight=False),
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )

    def enter() -> None:
        with _drawn_whole():
            if keys is not None:
                tty.setcbreak(keys, termios.TCSANOW)
            live.start(refresh=True)

    def leave() -> None:
        with _drawn_whole():
            live.stop()
            if keys is not None and settings is not None:
                termios.tcsetattr(keys, termios.TCSANOW, settings)

    def stop(*_: object) -> None:
        leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        enter()

    def redraw(*_: object) -> None:
        with _drawn_whole():
            live.refresh()

    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGWINCH, redraw)
    loop.live, loop.keys = live, keys
    enter()
    try:
        yield
    finally:
        leave()
