"""pubsub/http.py: a bounded number of connections, fairly divided, and descriptors that run out."""

import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.http import BoundedHttpServer
from tests.support.serve_process import WAIT_S, next_line, serving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

CONNECTIONS_MAX = 4
REQUEST = b"GET /metrics HTTP/1.0\r\n\r\n"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.wfile.write(b"well\n")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def address() -> Iterator[Address]:
    """Of a server that ends with the test."""
    with BoundedHttpServer(
        ("127.0.0.1", 0), _Handler, connections_max=CONNECTIONS_MAX, option="--listen"
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.address
        server.shutdown()
        thread.join(WAIT_S)


def connected(stack: ExitStack, address: Address, source: str = "127.0.0.1") -> socket.socket:
    return stack.enter_context(socket.create_connection(address, WAIT_S, (source, 0)))


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended a connection on which nothing was asked."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionResetError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is no address")
def test_who_opens_many_connections_ends_his_own(address: Address) -> None:
    """Each loopback address is a network of its own here."""
    with ExitStack() as stack:
        patient = connected(stack, address, "127.0.0.2")
        many = [connected(stack, address) for _ in range(5 * CONNECTIONS_MAX)]
        wait_until(lambda: all(map(is_ended, many[: 1 - CONNECTIONS_MAX])))
        assert not is_ended(patient)
        patient.sendall(REQUEST)
        assert patient.recv(100).endswith(b"well\n")


def test_of_equals_the_oldest_is_ended(address: Address) -> None:
    with ExitStack() as stack:
        made = [connected(stack, address) for _ in range(CONNECTIONS_MAX + 1)]
        wait_until(lambda: is_ended(made[0]))
        assert not any(map(is_ended, made[1:]))


# --- Descriptors that run out ------------------------------------------------------------------------


def cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process can be set on Linux alone")
def test_a_server_without_descriptors_waits_and_goes_on() -> None:
    """The connection stays in the queue, so a poll tells of it at once, again and again."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with serving() as serve, ExitStack() as stack:
        process = serve("--metrics", str(port))
        next_line(process)
        is_used = {int(each.name) for each in Path(f"/proc/{process.pid}/fd").iterdir()}
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        lowest = min(set(range(len(is_used) + 1)) - is_used)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
        waiting = connected(stack, ("127.0.0.1", port))
        waiting.sendall(REQUEST)
        waiting.settimeout(1.5)
        began_s = cpu_s(process.pid)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        assert cpu_s(process.pid) - began_s < 0.3, "it polls without a pause"
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        waiting.settimeout(WAIT_S)
        assert waiting.recv(100).startswith(b"HTTP/1.0 200 OK")
