"""The command `kcast serve`. It runs `process.serve`, or `workers` for several servers."""

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import click

from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import (
    HEAD_CHARS_MAX,
    LINES_PER_DATAGRAM_MAX,
    TTL_S_DEFAULT,
    TTL_S_MAX,
    WORK_BITS_MAX,
    Limits,
)
from kcast.pubsub.listen import is_wildcard, open_ports
from kcast.pubsub.log import Log
from kcast.pubsub.process import EXIT_FAILURE, ServeSettings, router_of, routing_of, serve, warn
from kcast.pubsub.router import PYTHON
from kcast.pubsub.serve_options import (
    LOOPBACK,
    UNITS,
    GroupedCommand,
    bits_per_s,
    byte_count,
    head,
    host_port,
    number,
    option,
)
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT
from kcast.pubsub.udp import UdpPort
from kcast.pubsub.workers import WORKERS_MAX, Supervisor, cluster_file

PORT_DEFAULT = 7400

_DEFAULTS = Limits()


@dataclass(frozen=True, slots=True)
class Given:
    """The parsed command line."""

    host: tuple[str, ...]
    port: int
    receive_buffer: int
    workers: int | None
    count: int | None
    ttl: int
    table: str
    capacity: int
    leases_per_address: int
    leases_per_prefix: int
    topics: int
    topics_per_prefix: int
    publishers: int
    lines: int
    publish_rate: int
    copy_rate: int
    egress_rate: int
    uplink: int
    challenge_rate: int
    work_bits: int
    open: bool
    open_to_anyone: bool
    no_loopback_exemption: bool
    no_native: bool
    head: tuple[str, str | None]
    hide_audience: bool
    metrics: Address | None
    log: str
    tap: str | None
    tap_size: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses to serve on."""
        return self.host or (LOOPBACK,)

    def settings(self) -> ServeSettings:
        """Returns the settings of each server."""
        return ServeSettings(
            ttl_s=self.ttl,
            table=self.table,
            limits=Limits(
                leases=self.capacity,
                leases_per_address=self.leases_per_address,
                leases_per_prefix=self.leases_per_prefix,
                topics=self.topics,
                topics_per_prefix=self.topics_per_prefix,
                publishers=self.publishers,
                lines_per_datagram=self.lines,
                publishes_per_s=self.publish_rate,
                copies_per_s=self.copy_rate,
                egress_bytes_per_s=self.egress_rate,
                uplink_bytes_per_s=self.uplink // 8,
                challenges_per_s=self.challenge_rate,
            ),
            work_bits=self.work_bits,
            head=self.head[0],
            head_file=self.head[1],
            tells_audience=not self.hide_audience,
            open_to="anyone" if self.open_to_anyone else "local" if self.open else "",
            exempts_loopback=not self.no_loopback_exemption,
            is_native=not self.no_native,
            receive_buffer_bytes=self.receive_buffer,
            metrics=self.metrics,
            tap=self.tap,
            tap_bytes=self.tap_size,
        )


_WHERE, _TABLE, _TRAFFIC, _OPERATION = "Address", "Leases", "Traffic", "Operation"


@click.command("serve", cls=GroupedCommand)
@option(
    _WHERE,
    "--host",
    multiple=True,
    metavar="IP",
    help="Address to serve on. Give one IPv4 and one IPv6 address at most; :: serves both.  "
    f"[default: {LOOPBACK}]",
)
@option(
    _WHERE,
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT_DEFAULT,
    metavar="PORT",
    help="UDP port; 0 picks a free one, and prints it.",
)
@option(
    _WHERE,
    "--receive-buffer",
    callback=byte_count(4096, 2**30),
    default=f"{BUFFER_BYTES_DEFAULT // UNITS['M']}M",
    metavar="BYTES",
    help="Size of the kernel's buffer for datagrams that wait while the server is busy; also 512K or 4M.",
)
@option(
    _WHERE,
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    metavar="N",
    help="Run N servers of one host, each a process, on N ports from --port on; print their cluster file.",
)
@option(
    _WHERE,
    "--count",
    type=click.IntRange(1, WORKERS_MAX),
    metavar="N",
    help="Run a lab: as --workers, but each server counts as a host of its own.",
)
@option(
    _TABLE,
    "--ttl",
    type=click.IntRange(1, TTL_S_MAX),
    default=int(TTL_S_DEFAULT),
    metavar="SECONDS",
    help="Lifetime of a lease that is not renewed.",
)
@option(
    _TABLE,
    "--table",
    type=click.Choice(("ttl", "fifo")),
    default="ttl",
    help="What to do when the table is full: ttl refuses new leases of those who have their part; fifo "
    "pushes out the oldest first, and promises leases only the time that it can keep them.",
)
@number(_TABLE, "--capacity", 1, _DEFAULTS.leases, "Maximum number of leases.")
@number(_TABLE, "--leases-per-address", 1, _DEFAULTS.leases_per_address, "Maximum leases of one IP and port.")
@number(
    _TABLE,
    "--leases-per-prefix",
    1,
    _DEFAULTS.leases_per_prefix,
    "Maximum leases of one IPv4 /24 or IPv6 /48; no limit for loopback.",
)
@number(_TABLE, "--topics", 1, _DEFAULTS.topics, "Maximum number of topics with leases.")
@number(
    _TABLE,
    "--topics-per-prefix",
    1,
    _DEFAULTS.topics_per_prefix,
    "Maximum topics that one IPv4 /24 or IPv6 /48 opened; no limit for loopback.",
)
@option(
    _TABLE,
    "--work-bits",
    type=click.IntRange(0, WORK_BITS_MAX),
    default=0,
    metavar="N",
    help="Least proof of work that a new lease costs the client: about 2^N hashes; 0 is none. It rises by "
    "itself when the table is nearly full.",
)
@number(
    _TRAFFIC,
    "--publishers",
    1,
    _DEFAULTS.publishers,
    "Maximum number of addresses that may publish without a cookie in each datagram.",
)
@option(
    _TRAFFIC,
    "--lines",
    type=click.IntRange(2, LINES_PER_DATAGRAM_MAX),
    default=_DEFAULTS.lines_per_datagram,
    metavar="N",
    help="Maximum lines in one datagram.",
)
@number(
    _TRAFFIC,
    "--publish-rate",
    0,
    _DEFAULTS.publishes_per_s,
    "Maximum lines per second that one IP may publish, with all its ports; 0 is no limit. A network has a "
    "multiple: an IPv4 /24 8 times as much, an IPv6 /56 4 and a /48 16 times as much as a /64. Loopback "
    "counts by port.",
)
@number(
    _TRAFFIC,
    "--copy-rate",
    0,
    _DEFAULTS.copies_per_s,
    "Maximum copies per second that the publishes of one IP may cause; as --publish-rate.",
)
@option(
    _TRAFFIC,
    "--egress-rate",
    callback=byte_count(0, 2**40),
    default=f"{_DEFAULTS.egress_bytes_per_s // UNITS['M']}M",
    metavar="BYTES",
    help="Maximum bytes of copies per second that the publishes of one IP may cause, and as many that one IP "
    "is sent; as --publish-rate.",
)
@option(
    _TRAFFIC,
    "--uplink",
    callback=bits_per_s,
    default="0",
    show_default=False,
    metavar="RATE",
    help="Bits per second that the server's network takes, such as 100M or 1G: no more is sent, and "
    "publishers share it. 0, the default, is no limit.",
)
@number(
    _TRAFFIC,
    "--challenge-rate",
    0,
    _DEFAULTS.challenges_per_s,
    "Maximum cookies per second given to all strangers (addresses that have shown no good one) together. "
    "Their pings count, too. Loopback has no such limit; 0 is none.",
)
@option(
    _TRAFFIC,
    "--open",
    is_flag=True,
    help="Ask loopback and private addresses for no handshake, so that `nc -u` can subscribe and publish.",
)
@option(
    _TRAFFIC,
    "--open-to-anyone",
    is_flag=True,
    help="Ask no address for a handshake. Then anyone can make the server flood anyone.",
)
@option(
    _TRAFFIC,
    "--no-loopback-exemption",
    is_flag=True,
    hidden=True,
    help="Let loopback addresses count as any others, for tests.",
)
@option(
    _OPERATION,
    "--no-native",
    is_flag=True,
    help="Route publishes in Python though native code was built for it. It does the same more slowly.",
)
@option(
    _OPERATION,
    "--metrics",
    callback=host_port,
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus over HTTP; on loopback unless HOST is given.",
)
@option(
    _OPERATION,
    "--log",
    type=click.Choice(("text", "json")),
    default="text",
    help="Log to standard error as text for people, or as one JSON object per line.",
)
@option(
    _OPERATION,
    "--tap",
    metavar="FILE",
    help="Record what arrives and how leases change, without the messages, to explain losses later.",
)
@option(
    _OPERATION,
    "--tap-size",
    callback=byte_count(2 * 1024 * 1024, 2**40),
    default="512M",
    metavar="BYTES",
    help="Maximum size of all --tap files of a server together.",
)
@option(
    _OPERATION,
    "--head",
    default="",
    show_default=False,
    callback=head,
    metavar="TEXT|@FILE",
    help=f"A string of up to {HEAD_CHARS_MAX} characters that answers carry to clients; or @ and the name of "
    "a file that has it, and is looked at once a minute.",
)
@option(
    _OPERATION,
    "--hide-audience",
    is_flag=True,
    help="Do not tell publishers how many have subscribed. Then `kcast pub` cannot say that nobody has.",
)
def command(**given: Any) -> None:
    """Run a server until Ctrl-C, SIGTERM or SIGHUP.

    The server keeps a table of who subscribes to what, each entry for --ttl seconds, and forwards what is
    published. It knows no other server and keeps nothing on disk.

    SIGTERM and SIGHUP drain: the server tells its clients to leave, and goes on forwarding for half a minute
    at most. A second signal ends it at once.

    \b
    Example: a server, and a subscriber and a publisher by hand (netcat-openbsd)
      kcast serve --open &
      sleep 1
      echo weather | nc -u -w60 127.0.0.1 7400 &
      sleep 1
      echo 'weather rain' | nc -u -w1 127.0.0.1 7400

    A subscription by hand ends after one --ttl, because nobody renews it.

    \b
    Example: a lab of 12 servers on this machine, and its cluster file
      kcast serve --count 12 --port 7401 > lab.txt &
      sleep 1
      kcast ping --cluster lab.txt

    \b
    Example: a machine with an address of each family and four cores, watched by Prometheus
      kcast serve --host 192.0.2.7 --host 2001:db8::7 --workers 4 --metrics 9400 --log json
    """
    _run(Given(**given))


def parse(arguments: Sequence[str]) -> Given:
    """Parses a command line, for programs that run such servers. Raises click.UsageError."""
    with command.make_context("kcast serve", list(arguments)) as context:
        return Given(**context.params)


# --- What it does ------------------------------------------------------------------------------------


def _run(given: Given) -> None:
    if given.workers is not None and given.count is not None:
        raise click.UsageError("give --workers or --count, not both")
    number = given.workers or given.count or 1
    if given.port and given.port + number - 1 > 65_535:
        raise click.BadParameter(f"{number} ports from {given.port} on go beyond 65535", param_hint="--port")
    if given.metrics and given.metrics[1] and given.metrics[1] + number - 1 > 65_535:
        raise click.BadParameter(f"{number} ports go beyond 65535", param_hint="--metrics")
    log = Log(as_json=given.log == "json")
    make_port = partial(UdpPort, is_native=not given.no_native)
    with ExitStack() as stack:
        servers = []
        try:
            for index in range(number):
                port = given.port + index if given.port else 0
                servers.append(
                    open_ports(given.hosts, port, receive_buffer_bytes=given.receive_buffer, make=make_port)
                )
                for each in servers[-1]:
                    stack.enter_context(each)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--host") from None
        except KcastError as error:
            _fail(log, str(error))
        if given.count is not None and any(is_wildcard(port.address) for port in servers[0]):
            raise click.BadParameter(
                "with --count give an address that clients can be told, such as 127.0.0.1",
                param_hint="--host",
            )
        settings = given.settings()
        warn(settings, servers, log)
        if given.workers is None and given.count is None:
            code = _serve_one(settings, servers[0], log)
        else:
            code = _serve_several(settings, servers, log, is_lab=given.count is not None)
    sys.exit(code)


def _serve_one(settings: ServeSettings, ports: Sequence[UdpPort], log: Log) -> int:
    addresses = [format_address(port.address) for port in ports]
    text = f"serving on {' and '.join(addresses)} (ttl {settings.ttl_s} s, {routing_of(settings)})"

    def announce() -> None:
        # Whoever started the server waits for this line. If it cannot be written, the server ends.
        problem = _print(log.announcement("serving", text, addresses=addresses, ttl_s=settings.ttl_s))
        if problem:
            _fail(log, problem)

    return serve(settings, ports, log, on_ready=announce)


def _serve_several(
    settings: ServeSettings, servers: Sequence[Sequence[UdpPort]], log: Log, *, is_lab: bool
) -> int:
    def work(index: int, on_ready: Any, lifeline: int) -> int:
        ports = servers[index]
        port = ports[0].address[1]
        own = settings
        if settings.metrics is not None and settings.metrics[1]:
            own = replace(own, metrics=(settings.metrics[0], settings.metrics[1] + index))
        if settings.tap is not None:
            own = replace(own, tap=f"{settings.tap}.{port}")
        labelled = log.labelled(format_address(ports[0].address))
        return serve(own, ports, labelled, on_ready=on_ready, lifeline=lifeline)

    def announce() -> bool:
        addresses = [[port.address for port in ports] for ports in servers]
        problem = _print(cluster_file(addresses, is_lab=is_lab))
        if problem:
            log.error("stdout", problem)
        return not problem

    if router_of(settings) is PYTHON:  # they print a cluster file, which is not the place for it
        log.info("router", f"{len(servers)} servers, {routing_of(settings)}")
    return Supervisor(servers, work, log, announce).run()


def _print(text: str) -> str:
    """Writes to standard output. Returns what went wrong, or an empty string."""
    if sys.stdout is None:
        return "standard output is closed"
    try:
        data = text.encode()
        # Not through Python's buffer, which would be written, and fail, once more at the end.
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]
    except OSError as error:
        return f"standard output: {error.strerror or error}"
    return ""


def _fail(log: Log, text: str) -> NoReturn:
    log.error("start", text)
    sys.exit(EXIT_FAILURE)
