"""`kcast ping`: asks every server of a cluster whether it is up, and measures how long answers take."""

import sys
from statistics import median
from time import sleep, time

import click

from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    cluster_option,
    errors_as_lines,
    load_cluster_to_use,
    say,
    value_option,
)
from kcast.client.cli.probe import Probe
from kcast.client.cli.probing import Probing, probes_of
from kcast.client.cli.text import escaped, table, tell, to_json
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster, ClusterError
from kcast.pubsub import clock
from kcast.pubsub.endpoint import format_address

WAIT_INTERVAL_S = 0.25  # from one ping to the next while servers are awaited


@click.command("ping")
@cluster_option
@value_option("--count", click.IntRange(1, 10_000), "Pings to each server.", 3)
@value_option(
    "--interval interval_s", Number(0.01, 3600), "Time between two pings to one server.", 0.2, "SECONDS"
)
@value_option(
    "--timeout timeout_s",
    Number(0, 3600, min_open=True),
    "How long to wait for the last answers.",
    1.0,
    "SECONDS",
)
@value_option(
    "--wait wait_s",
    Number(0, 86_400, min_open=True),
    "Wait until all servers answer, so long at most; then print nothing, except with --json.",
    unit="SECONDS",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each server, one a line.")
def command(
    cluster_name: str | None,
    count: int,
    interval_s: float,
    timeout_s: float,
    wait_s: float | None,
    as_json: bool,
) -> None:
    """Ping every server of the cluster, at each of its addresses.

    With --wait the file of the cluster may come later, too; a server needs to answer at one address.

    Names are looked up once, at the start. Where the list of servers is neither signed nor a lab, one line on
    standard error says so.

    With --json the keys are time (of the end, in UTC), server, address (null where a
    name does not resolve), up, sent, received, loss (0 to 1),
    rtt_min_ms, rtt_median_ms, rtt_max_ms (null without an answer), draining, work_bits (the price of a new
    lease), head (a text of the server's operator), version (of the server's program), and state (in words).
    work_bits, head and version are null if the server has not told them.

    The exit code is 0 if all answered, else 1; standard error names those that did not.

    \b
    Examples: once; in a script, after servers were started
      kcast ping --cluster lab.cluster
      kcast ping --cluster lab.cluster --wait 10
    """
    with errors_as_lines("ping"):
        if wait_s is not None:
            probes, lines = _awaited(cluster_name, clock.now() + wait_s), list[str]()
        else:
            cluster = load_cluster_to_use("ping", cluster_name, is_watched=False)
            if not cluster.is_signed and not cluster.is_lab:
                whose = "whoever can change the file decides which they are"
                say("ping", f"this list of servers is not signed: {whose}")
            probes = _pinged(cluster, count, interval_s, timeout_s)
            lines = _as_table(cluster, probes)
        for line in _as_json(probes) if as_json else lines:
            tell(line)
        up = {probe.server for probe in probes if wait_s is not None and probe.small.rtts_s}
        down = [probe.label for probe in probes if not probe.small.rtts_s and probe.server not in up]
        if down:
            all_down = len(down) == len(probes)
            say("ping", f"{'all' if all_down else len(down)} of {len(probes)} down: {', '.join(down)}")
            sys.exit(EXIT_FAILURE)


def _pinged(cluster: Cluster, count: int, interval_s: float, timeout_s: float) -> list[Probe]:
    probes = probes_of(cluster)
    began = clock.now()
    with Probing(probes, is_shared=True) as probing:
        for number in range(count):
            probing.run(began + number * interval_s)
            probing.ping_all(asks=True)
        probing.run(clock.now() + timeout_s, lambda: not any(map(_is_awaited, probes)))
    return probes


def _awaited(cluster_name: str | None, until: float) -> list[Probe]:
    """Pings until all servers answer, or the time has come; returns the last probes. Raises ClusterError and
    OSError where there is no cluster by then."""
    cluster = None
    while True:
        try:
            cluster = cluster or load_cluster_to_use("ping", cluster_name, is_watched=False)
            probes = _pinged(cluster, 1, 0.0, WAIT_INTERVAL_S)
            up = {probe.server for probe in probes if probe.small.rtts_s}
            if clock.now() >= until or up.issuperset(probe.server for probe in probes):
                return probes
        except (ClusterError, OSError):
            if clock.now() >= until:
                raise
        sleep(WAIT_INTERVAL_S / 5)


def _is_awaited(probe: Probe) -> bool:
    return bool(probe.awaited or (probe.small.rtts_s and probe.version is None))


def _state(probe: Probe) -> str:
    """Returns the state in words."""
    if probe.small.rtts_s:
        return "up, about to stop" if probe.is_draining else "up"
    if probe.send_error:
        return f"down: cannot send ({probe.send_error})"
    return probe.problem or ("down: nobody listens" if probe.is_closed else "down: no answer")


def _loss(probe: Probe) -> float:
    return probe.small.lost / probe.small.sent if probe.small.sent else 1.0


def _spread_ms(probe: Probe) -> tuple[float | None, ...]:
    """Returns the least, the median and the greatest round-trip time."""
    rtts_s = probe.small.rtts_s
    if not rtts_s:
        return None, None, None
    return tuple(round(s * 1000, 3) for s in (min(rtts_s), median(rtts_s), max(rtts_s)))


def _as_json(probes: list[Probe]) -> list[str]:
    now = utc(time())
    times = ("rtt_min_ms", "rtt_median_ms", "rtt_max_ms")
    return [
        to_json(
            {
                "time": now,
                "server": probe.server,
                "address": format_address(probe.address) if probe.address else None,
                "up": bool(probe.small.rtts_s),
                "sent": probe.small.sent,
                "received": len(probe.small.rtts_s),
                "loss": round(_loss(probe), 6),
                **dict(zip(times, _spread_ms(probe), strict=True)),
                "draining": probe.is_draining,
                "work_bits": probe.work_bits,
                "head": probe.head,
                "version": probe.version or None,
                "state": _state(probe),
            }
        )
        for probe in probes
    ]


def _as_table(cluster: Cluster, probes: list[Probe]) -> list[str]:
    rows = [
        (
            probe.label,
            _state(probe),
            *("-" if ms is None else f"{ms:.2f}" for ms in _spread_ms(probe)),
            f"{100 * _loss(probe):.0f} %",
            escaped(probe.version or "-"),
        )
        for probe in probes
    ]
    up = sum(bool(probe.small.rtts_s) for probe in probes)
    name = f" in {escaped(cluster.name)}" if cluster.name else ""
    heads = ("server", "state", "min ms", "median ms", "max ms", "lost", "version")
    return [*table(heads, rows, left=2), "", f"{up} of {len(probes)} up{name}"]
