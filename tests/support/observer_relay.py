"""A relay before a server, which notes when a client's datagrams come, by the kernel's clock."""

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

_SO_TIMESTAMPNS = 35  # Linux
_TIMESPEC = struct.Struct("@qq")


class Seen(NamedTuple):
    """A datagram from the client: when it came, whether it has a sealed line, and what is in it."""

    at_s: float
    is_line: bool
    data: bytes


class Observer:
    """A relay before a server, which notes what comes from clients."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        with suppress(OSError):
            self.front.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._server = server

    def relay(self, is_over: Callable[[], bool]) -> list[Seen]:
        """Relays between a client and the server until it is over; returns what has come from the client."""
        seen: list[Seen] = []
        client: tuple[str, int] | None = None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back:
            back.connect(self._server)
            while not is_over():
                ready, _, _ = select.select([self.front, back], [], [], 0.2)
                if self.front in ready:
                    data, more, _, client = self.front.recvmsg(65_536, 64)
                    seen.append(Seen(_arrived_s(more), b";S=" in data, data))
                    with suppress(OSError):
                        back.send(data)
                if back in ready:
                    data = back.recv(65_536)
                    if client is not None:
                        self.front.sendto(data, client)
        return seen


def _arrived_s(more: Sequence[tuple[int, int, bytes]]) -> float:
    for level, kind, data in more:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = map(float, _TIMESPEC.unpack_from(data))
            return seconds + nanoseconds / 1e9
    return time.time()
