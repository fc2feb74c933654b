"""A relay before a server that plays a NAT: it forgets a client that has sent nothing for a while."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

from kcast.pubsub.endpoint import Address
from tests.support.serve_process import WAIT_S


@contextmanager
def forgetful_nat(server: Address, memory_s: float) -> Iterator[Address]:
    """Yields the address at which clients reach the server. What arrives for a client is dropped when the
    client has sent nothing for `memory_s`."""
    with ExitStack() as stack:
        inside = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        inside.bind(("127.0.0.1", 0))
        address: Address = inside.getsockname()
        parts = (inside, server, memory_s, stack)
        thread = threading.Thread(target=_relay, args=parts)
        thread.start()
        try:
            yield address
        finally:
            inside.sendto(b"", address)
            thread.join(WAIT_S)


def _relay(inside: socket.socket, server: Address, memory_s: float, stack: ExitStack) -> None:
    outside: dict[Address, socket.socket] = {}
    clients: dict[socket.socket, Address] = {}
    sent_at: dict[Address, float] = {}
    while True:
        for sock in select.select([inside, *clients], [], [])[0]:
            data, source = sock.recvfrom(2048)
            if sock is not inside:
                client = clients[sock]
                if monotonic() - sent_at[client] < memory_s:
                    inside.sendto(data, client)
                continue
            if not data:
                return
            if source not in outside:
                outside[source] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                outside[source].connect(server)
                clients[outside[source]] = source
            sent_at[source] = monotonic()
            outside[source].send(data)
