"""Servers in a thread of one's own process, for tests: what the fixture `kcast_cluster` of pytest starts.

    with local_cluster() as cluster, BlockingClient(cluster) as client:
        ...

The thread has an event loop of its own, so they serve while the program waits, or runs another loop.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Thread

from kcast.client.clusters.cluster import Cluster, lab
from kcast.hashring.policy import Policy
from kcast.pubsub.cookie import SECRET_BYTES
from kcast.pubsub.driver import Driver
from kcast.pubsub.listen import open_ports
from kcast.pubsub.native import BEST
from kcast.pubsub.server import Server
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT
from kcast.pubsub.udp import UdpPort

HOST = "127.0.0.1"
POLICY = Policy(3, 2, 3)  # of the lab in README
TTL_S = 3.0  # so that clients soon notice that a server is gone


@dataclass(frozen=True, slots=True)
class LocalCluster(Cluster):
    """A cluster of servers that run in this process. A Client takes it as `cluster`."""

    _running: "_Servers" = field(kw_only=True, compare=False, repr=False)

    def kill(self, index: int) -> None:
        """Ends a server as SIGKILL does: it answers no more, and forgets its leases.

        - `index`: of `servers`. A server that does not run is left alone.

        Raises IndexError.
        """
        self._running.do(self._running.kill, index)

    def restart(self, index: int) -> None:
        """Starts a killed server again, at its address. It serves when this returns.

        - `index`: of `servers`. A server that runs is left alone.

        Raises IndexError.
        """
        self._running.do(self._running.start, index)


@contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """Starts three servers on free ports of loopback, with a ttl of 3 s; nothing of them outlives it."""
    with ExitStack() as stack:
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        ports = [_open_port(stack) for _ in range(POLICY.k)]
        thread = Thread(target=loop.run_forever, name="kcast-servers", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, loop.stop)
        servers = _Servers(loop, ports)
        for index in range(POLICY.k):
            stack.callback(servers.do, servers.kill, index)
            servers.do(servers.start, index)
        entries = lab((port.address for port in ports), POLICY).servers
        yield LocalCluster(entries, POLICY, "lab", salt=b"kcast", is_lab=True, _running=servers)


def _open_port(stack: ExitStack) -> UdpPort:
    (port,) = open_ports((HOST,), 0, receive_buffer_bytes=BUFFER_BYTES_DEFAULT)
    return stack.enter_context(port)


class _Servers:
    """The servers, each with a port that it keeps. All but `do` is for the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ports: Sequence[UdpPort]) -> None:
        self._loop = loop
        self._ports = ports
        self._drivers: list[Driver | None] = [None] * len(ports)

    def do(self, act: Callable[[int], None], index: int) -> None:
        """Lets the loop's thread act on a server. Returns when that is done; raises what it raises."""

        async def acted() -> None:
            act(index)

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result()

    def start(self, index: int) -> None:
        if self._drivers[index] is None:
            port = self._ports[index]
            while port.receive():
                pass  # what has arrived since its end is lost
            core = Server(secret=secrets.token_bytes(SECRET_BYTES), ttl_s=TTL_S, router=BEST)
            self._drivers[index] = driver = Driver(core, [port], self._loop)
            driver.start()

    def kill(self, index: int) -> None:
        driver, self._drivers[index] = self._drivers[index], None
        if driver is not None:
            driver.stop()
