"""`kcast serve`: a server core on a real socket, under asyncio or uvloop.

A turn is: take what has arrived, let the core do what is due, send what it gives. What arrives in one turn
is forwarded in one flush, so the busier the server, the fewer system calls a copy costs.
"""

import errno
import os
import secrets
import signal
import sys
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

import click

from pubsub.cookie import SECRET_BYTES
from pubsub.endpoint import Address, Endpoint, format_address
from pubsub.limits import LEASES_MAX_DEFAULT, TTL_S_DEFAULT, TTL_S_MAX
from pubsub.server import Server
from pubsub.udp import UdpPort, open_socket

if TYPE_CHECKING:
    import asyncio

# asyncio and uvloop are imported where the loop starts: they take longer than all else that this needs,
# and `--help`, a usage error or a taken port have no use for them.

PORT_DEFAULT = 7400

_TIMER_SLACK_S = 0.001  # loops round to milliseconds; a timer that fires too early would only be set again

# RFC 1918, RFC 4193, loopback and link-local. Not `is_private`, which means "not globally reachable".
_LOCAL_NETWORKS = tuple(
    ip_network(prefix)
    for prefix in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
        *("::1/128", "fc00::/7", "fe80::/10"),
    )
)


def is_local(address: Address) -> bool:
    """Whether the address is loopback, private or link-local: whom `--open` is open to."""
    return _is_local_host(address[0])


@lru_cache(maxsize=4096)
def _is_local_host(host: str) -> bool:
    ip = ip_address(host)
    return any(ip in network for network in _LOCAL_NETWORKS)


def own_addresses(bound: Address) -> frozenset[Address]:
    """Where a socket bound so is reached, as far as can be told.

    Of a wildcard address only the loopback ones are known: the machine's others change while it runs, and
    to learn them would take netlink.
    """
    host, port = bound
    if not ip_address(host).is_unspecified:
        return frozenset((bound,))
    hosts = ("127.0.0.1",) if ":" not in host else ("127.0.0.1", "::1")
    return frozenset((host, port) for host in hosts)


def run(endpoint: Endpoint, port: UdpPort, *, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serves until SIGINT or SIGTERM; `on_ready` is called once datagrams are being taken.

    For the main thread, since signals are. The port stays open.
    """
    import asyncio

    run_loop = asyncio.run
    if sys.platform == "linux":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            run_loop = uvloop.run
    run_loop(_serve(endpoint, port, on_ready))


async def _serve(endpoint: Endpoint, port: UdpPort, on_ready: Callable[[], None]) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    driver = _Driver(endpoint, port, loop)
    loop.add_reader(port.fileno(), driver.on_readable)
    try:
        on_ready()
        await stopped.wait()
    finally:
        loop.remove_reader(port.fileno())
        driver.disarm()


class _Driver:
    """Turns of one endpoint on one loop."""

    def __init__(self, endpoint: Endpoint, port: UdpPort, loop: "asyncio.AbstractEventLoop") -> None:
        self._endpoint = endpoint
        self._port = port
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def on_readable(self) -> None:
        # At most 32 calls a turn; if more is waiting the descriptor is still readable at the next poll.
        bursts = self._port.receive()
        now = monotonic()
        for burst in bursts:
            self._endpoint.receive(burst, now)
        self._finish_turn(now)

    def on_timer(self) -> None:
        self._timer = None
        self._finish_turn(monotonic())

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish_turn(self, now: float) -> None:
        due = self._endpoint.next_timeout()
        if due is not None and due <= now:
            self._endpoint.handle_timeout(now)
            due = self._endpoint.next_timeout()
        self._port.send(self._endpoint.flush(now))
        # A timer that is too early only costs one look; to move it at every renewal would cost each turn.
        if due is not None and (self._timer is None or due < self._timer_due):
            self.disarm()
            self._timer_due = due
            self._timer = self._loop.call_later(max(0.0, due - now) + _TIMER_SLACK_S, self.on_timer)


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="IP address to serve on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT_DEFAULT,
    show_default=True,
    help="UDP port; 0 is any free one, printed.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(1, TTL_S_MAX),
    default=int(TTL_S_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="How long a lease lives unless renewed.",
)
@click.option(
    "--capacity",
    type=click.IntRange(min=1),
    default=LEASES_MAX_DEFAULT,
    show_default=True,
    help="Leases held at most; more are refused.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="No handshake for loopback and private addresses, so that `nc -u` can subscribe and publish.",
)
@click.option(
    "--open-to-anyone", is_flag=True, help="No handshake for any address. Lets anyone flood anyone."
)
def command(host: str, port: int, ttl_s: int, capacity: int, is_open: bool, open_to_anyone: bool) -> None:
    """Run a server until Ctrl-C or SIGTERM.

    It keeps a table of who subscribes to what, each entry for --ttl seconds, and forwards what is
    published. It knows no other server and keeps nothing on disk.

    \b
    Example: a server, and by hand (netcat-openbsd) a subscriber and a publisher
      kcast serve --open &
      echo weather | nc -u -w60 127.0.0.1 7400 &
      echo 'weather rain' | nc -u -w1 127.0.0.1 7400

    A subscription sent by hand lives for one --ttl: nobody renews it.
    """
    try:
        sock = open_socket(host, port)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--host") from None
    except OSError as error:
        _fail(_bind_failure(error, format_address((host, port))))
    with UdpPort(sock) as udp:
        open_to: Callable[[Address], bool] | None = None
        if open_to_anyone:
            open_to = _anyone
            _say("open to any address: anyone can make it flood others")
        elif is_open:
            open_to = is_local
            _say("open to loopback and private addresses: anyone there can subscribe others")
        if ip_address(udp.address[0]).is_unspecified:
            _say(
                "serving on all addresses: answers leave from the one that the system picks; on a machine "
                "with several, give --host the one that clients are told"
            )
        server = Server(
            secret=secrets.token_bytes(SECRET_BYTES),
            ttl_s=ttl_s,
            capacity=capacity,
            own_addresses=own_addresses(udp.address),
            open_to=open_to,
        )
        ready_line = f"kcast: serving on {format_address(udp.address)} (ttl {ttl_s} s)\n"
        run(server, udp, on_ready=lambda: _announce(ready_line))
        _say(_summary(server, udp))


def _announce(line: str) -> None:
    """Whoever started the server waits for this line: without it, the server ends."""
    if sys.stdout is None:
        _fail("standard output is closed")
    try:
        # Past Python's buffer, which would be written, and fail, once more at the end.
        os.write(sys.stdout.fileno(), line.encode())
    except OSError as error:
        _fail(f"standard output: {error.strerror or error}")


def _anyone(_: Address) -> bool:
    return True


def _bind_failure(error: OSError, where: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use; stop the other server or give --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: permission denied; give a --port above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} is not an address of this machine; give another --host"
    return f"{where} cannot be served on: {error.strerror or error}"


def _summary(server: Server, udp: UdpPort) -> str:
    drops = {str(reason): count for reason, count in server.drops.items()}
    drops |= {f"send-{name}": count for name, count in udp.send_errors.items()}
    drops["receive-buffer"] = udp.overflow_count
    parts = [f"{reason}={count}" for reason, count in sorted(drops.items()) if count]
    copies, messages = server.counts["copies_sent"], server.counts["messages_received"]
    return f"forwarded {copies} copies of {messages} messages; drops: {' '.join(parts) or 'none'}"


def _say(text: str) -> None:
    print(f"kcast serve: {text}", file=sys.stderr, flush=True)


def _fail(text: str) -> NoReturn:
    _say(text)
    sys.exit(1)
