"""A flooder, in a process of its own: sends a kind of junk from many addresses, bounded in number and time.

    python -m tests.attacks.flood HOST:PORT KIND --rate N --seconds S [--count N]

sendmmsg(2) passes 64 datagrams in a call, so that one core sends some hundred thousand a second, each one a
datagram of its own: segments of one call (UDP_SEGMENT) would arrive as one burst of one source, which is what
a server deals with cheapest. It runs at a low priority, because an attacker has a machine of its own.
"""

import argparse
import ctypes
import json
import os
import socket
import time
from collections.abc import Sequence

from tests.attacks.junk import KINDS, datagrams_of

BATCH = 64
SECONDS_MAX = 600.0
NETWORKS = 64  # IPv4 /24, of which the flood comes, unless told


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2), on connected sockets: without a name and without control data."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint),
    )


class Batches:
    """Calls of sendmmsg(2), prepared."""

    def __init__(self, datagrams: Sequence[bytes]) -> None:
        self._send = ctypes.CDLL(None, use_errno=True).sendmmsg
        self._vectors = [_Vector(data, len(data)) for data in datagrams]
        self._arrays = []
        for start in range(0, len(datagrams), BATCH):
            messages = [
                _Message(vectors=ctypes.pointer(vector), vector_count=1)
                for vector in self._vectors[start : start + BATCH]
            ]
            self._arrays.append((_Message * len(messages))(*messages))
        self._turn = 0

    def send(self, descriptor: int, count: int = BATCH) -> int:
        """Sends the next batch, or a part of it; returns the number sent."""
        array = self._arrays[self._turn % len(self._arrays)]
        self._turn += 1
        return max(0, int(self._send(descriptor, array, min(count, len(array)), 0)))


def sources(count: int, server: tuple[str, int]) -> list[socket.socket]:
    """Opens sockets to a server, on loopback each in a network of its own."""
    sockets = []
    for number in range(count):
        sock = socket.socket(socket.AF_INET6 if ":" in server[0] else socket.AF_INET, socket.SOCK_DGRAM)
        if server[0].startswith("127."):
            sock.bind((f"127.66.{number % 256}.{1 + number // 256}", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(server)
        sockets.append(sock)
    return sockets


def flood(
    server: tuple[str, int], kind: str, *, rate: float, seconds: float, count: int, networks: int
) -> dict[str, float]:
    """Floods a server; with a `rate` of 0 as fast as it can. Returns what was sent."""
    batches = Batches(datagrams_of(kind))
    opened = sources(networks, server)
    descriptors = [sock.fileno() for sock in opened]
    size = BATCH if not rate else max(1, min(BATCH, int(rate / 500)))
    sent = calls = 0
    began = time.monotonic()
    until = began + min(seconds, SECONDS_MAX)
    while (now := time.monotonic()) < until and sent < count:
        if rate and sent > rate * (now - began):
            time.sleep(min(until - now, (sent / rate - (now - began))))
            continue
        sent += batches.send(descriptors[calls % len(descriptors)], size)
        calls += 1
    elapsed = time.monotonic() - began
    for sock in opened:
        sock.close()
    return {"sent": sent, "seconds": elapsed, "per_s": sent / elapsed}


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.flood")
    parser.add_argument("server")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--networks", type=int, default=NETWORKS)
    given = parser.parse_args()
    os.nice(5)
    host, _, port = given.server.rpartition(":")
    told = flood(
        (host, int(port)),
        given.kind,
        rate=given.rate,
        seconds=given.seconds,
        count=given.count,
        networks=given.networks,
    )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
