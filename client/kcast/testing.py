"""Servers in a thread of one's own process, for tests: what the fixture `kcast_cluster` of pytest starts.

    with local_cluster() as cluster, BlockingClient(cluster) as client:
        ...

The thread has an event loop of its own, so they serve while the program waits, or runs another loop.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Thread

from kcast.client.clusters.cluster import Cluster, lab
from kcast.hashring.policy import Policy
from kcast.pubsub.cookie import SECRET_BYTES
from kcast.pubsub.driver import Driver
from kcast.pubsub.listen import open_ports
from kcast.pubsub.server import Server
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT

TTL_S = 3.0  # so that clients soon notice that a server is gone


@dataclass(frozen=True, slots=True)
class LocalCluster(Cluster):
    """A cluster of servers that run in this process. A Client takes it as `cluster`."""

    _run: Callable[[int, bool], None] = field(kw_only=True, compare=False, repr=False)

    def kill(self, index: int) -> None:
        """Ends a server as SIGKILL does: it answers no more, and forgets its leases.

        - `index`: of `servers`. A server that does not run is left alone.

        Raises IndexError.
        """
        self._run(index, False)

    def restart(self, index: int) -> None:
        """Starts a killed server again, at its address. It serves when this returns.

        - `index`: of `servers`. A server that runs is left alone.

        Raises IndexError.
        """
        self._run(index, True)


@contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """Starts three servers on free ports of loopback, with a ttl of 3 s; nothing of them outlives it."""
    with ExitStack() as stack:
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        opened = [open_ports(("127.0.0.1",), 0, receive_buffer_bytes=BUFFER_BYTES_DEFAULT) for _ in range(3)]
        ports = [stack.enter_context(port) for (port,) in opened]
        drivers: dict[int, Driver] = {}  # of those that run

        async def run(index: int, is_to_run: bool) -> None:
            index = range(len(ports))[index]
            if index in drivers and not is_to_run:
                drivers.pop(index).stop()
            elif index not in drivers and is_to_run:
                while ports[index].receive():
                    pass  # what has arrived since its end is lost
                core = Server(secret=secrets.token_bytes(SECRET_BYTES), ttl_s=TTL_S)
                drivers[index] = Driver(core, [ports[index]], loop)
                drivers[index].start()

        def run_in_thread(index: int, is_to_run: bool) -> None:
            asyncio.run_coroutine_threadsafe(run(index, is_to_run), loop).result()

        thread = Thread(target=loop.run_forever, name="kcast-servers", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, loop.stop)
        for index in range(len(ports)):
            stack.callback(run_in_thread, index, False)
            run_in_thread(index, True)
        servers = lab(port.address for port in ports).servers
        policy = Policy(3, 2, 3)  # of README's lab
        yield LocalCluster(servers, policy, "lab", salt=b"kcast", is_lab=True, _run=run_in_thread)
