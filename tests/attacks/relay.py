"""A relay that delays what clients and a server say to each other, so many milliseconds each way.

    python -m tests.attacks.relay HOST:PORT 25 127.7.7.7

It says on which port of loopback it listens. Each client has a socket of its own towards the server.
"""

import heapq
import itertools
import os
import select
import socket
import sys
import time

_BUFFER_BYTES = 8 * 1024 * 1024


def _opened(source: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for name, forced in ((socket.SO_RCVBUF, 33), (socket.SO_SNDBUF, 32)):  # SO_RCVBUFFORCE, SO_SNDBUFFORCE
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, _BUFFER_BYTES)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, name, _BUFFER_BYTES)
    sock.bind((source, 0))
    sock.setblocking(False)
    return sock


def relay(server: tuple[str, int], delay_s: float, source_ip: str) -> None:
    """Relays until it is killed. The server sees `source_ip`."""
    front = _opened("127.0.0.1")
    print(front.getsockname()[1], flush=True)
    clients: dict[tuple[str, int], socket.socket] = {}
    back: dict[int, tuple[socket.socket, tuple[str, int]]] = {}
    waiting: list[tuple[float, int, socket.socket, tuple[str, int], bytes]] = []
    order = itertools.count()
    poll = select.poll()
    poll.register(front.fileno(), select.POLLIN)
    parent = os.getppid()
    while os.getppid() == parent:
        now = time.monotonic()
        timeout_ms = 1000 * max(0.0, waiting[0][0] - now) if waiting else 1000
        for descriptor, _ in poll.poll(timeout_ms):
            sock, client = (front, None) if descriptor == front.fileno() else back[descriptor]
            at = time.monotonic() + delay_s
            for _ in range(256):
                try:
                    data, source = sock.recvfrom(65_536)
                except OSError:
                    break
                if client is None:
                    if source not in clients:
                        clients[source] = _opened(source_ip)
                        back[clients[source].fileno()] = clients[source], source
                        poll.register(clients[source].fileno(), select.POLLIN)
                    heapq.heappush(waiting, (at, next(order), clients[source], server, data))
                else:
                    heapq.heappush(waiting, (at, next(order), front, client, data))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, sock, destination, data = heapq.heappop(waiting)
            try:
                sock.sendto(data, destination)
            except OSError:
                continue


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    relay((host, int(port)), float(sys.argv[2]) / 1000, sys.argv[3])
