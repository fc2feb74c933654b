"""`kcast ping`: asks every server of a cluster whether it is up, and measures how long answers take."""

import asyncio
import secrets
import sys
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

import click

from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    cluster_option,
    errors_as_lines,
    escaped,
    load_cluster_to_use,
    say,
    to_json,
)
from kcast.client.cli.layout import table
from kcast.client.cluster import Cluster
from kcast.client.resolver import look_up_all
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams, format_address
from kcast.pubsub.udp import UdpPort, open_socket

# Longer than today's pong: a server never answers at greater length than it was asked, and may have more to
# say in future.
PING_BYTES = 64
NO_ADDRESS = "down: the name leads to no address"
SPREAD_S = 0.0005  # between two servers, so that answers of a large cluster do not arrive all at once


@dataclass
class Target:
    """One address of a server, and the results of pinging it."""

    server: str
    address: Address | None  # None where the server's name does not resolve
    label: str
    sent: int = 0
    rtts_s: list[float] = field(default_factory=list)
    refused: bool = False  # the network says that nobody listens at this port
    unsent: str = ""  # the name of the error because of which a ping could not be sent
    problem: str = ""  # why it was not asked
    is_draining: bool = False
    work_bits: int | None = None  # its price of a new lease; None if it has not said
    head: str | None = None

    @property
    def is_up(self) -> bool:
        """Whether it has answered at all."""
        return bool(self.rtts_s)

    @property
    def loss(self) -> float:
        """The share of pings without an answer."""
        return 1 - len(self.rtts_s) / self.sent if self.sent else 1.0

    @property
    def state(self) -> str:
        """Returns the state in words."""
        if self.is_up:
            return "up, about to stop" if self.is_draining else "up"
        if self.unsent:
            return f"down: cannot send ({self.unsent})"
        return self.problem or ("down: nobody listens" if self.refused else "down: no answer")


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
def command(cluster_file: str | None, count: int, interval_s: float, timeout_s: float, as_json: bool) -> None:
    """Ping every server of the cluster, at each of its addresses.

    Names are looked up once, at the start.

    With --json the keys are server, address (null where a name does not resolve), up, sent, received, loss
    (0 to 1), rtt_min_ms, rtt_median_ms, rtt_max_ms (null without an answer), draining, work_bits (the price
    of a new lease), head (a text of the server's operator), and state (in words). work_bits and head are null
    if the server has not told them.

    The exit code is 0 if all answered, else 1; standard error names those that did not.

    \b
    Example:
      kcast ping --cluster lab.cluster
    """
    with errors_as_lines("ping"):
        cluster = load_cluster_to_use("ping", cluster_file)
        targets = _targets(cluster)
        asyncio.run(_Pinger(targets, count, interval_s, timeout_s).run())
        for line in _as_json(targets) if as_json else _as_table(cluster, targets):
            click.echo(line)
        down = [target.label for target in targets if not target.is_up]
        if down:
            all_down = len(down) == len(targets)
            say("ping", f"{'all' if all_down else len(down)} of {len(targets)} down: {', '.join(down)}")
            sys.exit(EXIT_FAILURE)


def _targets(cluster: Cluster) -> list[Target]:
    """Returns each address of each server; named servers are looked up, which may take some seconds."""
    found = look_up_all([server.named for server in cluster.servers if server.named])
    targets = []
    for server in cluster.servers:
        if server.named is None:
            several = server.addresses
            targets += [Target(server.name, at, format_address(at)) for at in several]
        elif several := found[server.named]:
            targets += [Target(server.name, at, f"{server.name} ({at[0]})") for at in several]
        else:
            targets.append(Target(server.name, None, server.name, problem=NO_ADDRESS))
    return targets


class _Pinger:
    """Sends all pings and takes the answers, with one socket for each address family."""

    def __init__(self, targets: list[Target], count: int, interval_s: float, timeout_s: float) -> None:
        self._targets = targets
        self._count = count
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._target_at = {target.address: target for target in targets if target.address}
        self._ports: dict[bool, UdpPort] = {}
        self._awaited: dict[bytes, tuple[Target, float]] = {}
        self._asked: dict[bytes, Target] = {}
        self._all_answered = asyncio.Event()

    async def run(self) -> None:
        """Returns when every ping has been answered, or the time is over."""
        loop = asyncio.get_running_loop()
        self._open()
        for port in self._ports.values():
            loop.add_reader(port.fileno(), self._receive, port)
        try:
            started_at = loop.time()
            for number in range(self._count):
                await asyncio.sleep(started_at + number * self._interval_s - loop.time())
                for target in self._targets:
                    if target.problem:
                        continue
                    if number == 0:
                        self._ask(target)
                    self._ping(target)
                    if len(self._targets) > 1:
                        await asyncio.sleep(SPREAD_S)
            try:
                async with asyncio.timeout(self._timeout_s):
                    while self._awaited:
                        self._all_answered.clear()
                        await self._all_answered.wait()
            except TimeoutError:
                pass
        finally:
            for port in self._ports.values():
                loop.remove_reader(port.fileno())
                port.close()

    def _open(self) -> None:
        for is_v6 in sorted({_is_v6(target) for target in self._targets if target.address}):
            try:
                sock = open_socket("::" if is_v6 else "0.0.0.0", 0, report_unreachable=True)
            except OSError as error:
                if not is_v6:
                    raise
                for target in filter(_is_v6, self._targets):
                    target.problem = f"not asked: no IPv6 here ({error.strerror})"
            else:
                self._ports[is_v6] = UdpPort(sock)

    def _ping(self, target: Target) -> None:
        assert target.address is not None  # only then it is asked
        port = self._ports[_is_v6(target)]
        nonce = _new_nonce()
        ping = wire.pad(wire.format_line(wire.Ping(nonce)), PING_BYTES)
        target.sent += 1
        errors_before = port.send_errors.copy()
        sent_at = monotonic()
        port.send([Transmit(ping, len(ping), (target.address,))])
        error = next(iter(port.send_errors - errors_before), None)
        if error is None:
            self._awaited[nonce] = target, sent_at
        else:
            target.unsent = error

    def _ask(self, target: Target) -> None:
        """Asks once for a challenge, which tells price and head; its time is not measured."""
        nonce = _new_nonce()
        self._asked[nonce] = target
        request = wire.request_datagram(wire.Ask(nonce))
        assert target.address is not None
        self._ports[_is_v6(target)].send([Transmit(request, len(request), (target.address,))])

    def _receive(self, port: UdpPort) -> None:
        for burst in port.receive():
            for datagram in datagrams(burst.data, burst.segment_bytes):
                self._take(datagram, burst.source, monotonic())
        for address in port.unreachable():
            target = self._target_at.get(address)
            if target is not None:
                target.refused = True
                # A report does not say which ping it is about; others under way will fare no better.
                self._awaited = {n: (t, at) for n, (t, at) in self._awaited.items() if t is not target}
        if not self._awaited:
            self._all_answered.set()

    def _take(self, datagram: bytes, source: Address, now: float) -> None:
        for line in wire.split_lines(datagram)[0]:
            reply = wire.parse_reply(line)
            if isinstance(reply, wire.Pong) and reply.nonce in self._awaited:
                target, sent_at = self._awaited[reply.nonce]
                if source == target.address:
                    del self._awaited[reply.nonce]
                    target.rtts_s.append(now - sent_at)
                    target.is_draining = reply.attributes.get("drain") == "1"
            elif isinstance(reply, wire.Challenge) and reply.nonce in self._asked:
                target = self._asked[reply.nonce]
                if source == target.address:
                    del self._asked[reply.nonce]
                    target.work_bits = reply.bits
                    target.head = reply.attributes.get("head")


def _new_nonce() -> bytes:
    return secrets.token_urlsafe(12).encode()


def _is_v6(target: Target) -> bool:
    return target.address is not None and ":" in target.address[0]


def _as_json(targets: list[Target]) -> list[str]:
    return [
        to_json(
            {
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
    return [*table(heads, rows, left=2, breaks_heads=True), "", f"{up} of {len(targets)} up{name}"]


def _spread(values: list[float]) -> list[float]:
    return [min(values), median(values), max(values)] if values else []
