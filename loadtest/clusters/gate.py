"""A server's socket that can be cut off from the network, while the server knows nothing of it."""

import socket
from collections.abc import Iterable, Sequence
from typing import Protocol

from kcast.pubsub.endpoint import Burst, Transmit, datagrams
from kcast.pubsub.udp import UdpPort


class Flags(Protocol):
    """A byte for each server; not 0: it is isolated. Where processes share it, it is shared memory."""

    def __getitem__(self, index: int, /) -> int:
        """A server's."""


class Gate(UdpPort):
    """A port that takes in nothing and lets nothing out while its flag is up; `cut_off` counts what that was.

    What arrives meanwhile is read and dropped, so that it is not met later.
    """

    def __init__(self, sock: socket.socket, flags: Flags, index: int) -> None:
        super().__init__(sock)
        self.cut_off = 0  # datagrams
        self._flags = flags
        self._index = index

    def receive(self) -> list[Burst]:
        """As a port's."""
        bursts = super().receive()
        if self._flags[self._index]:
            self.cut_off += sum(_count(burst.data, burst.segment_bytes) for burst in bursts)
            return []
        return bursts

    def send(self, transmits: Iterable[Transmit]) -> None:
        """As a port's."""
        if self._flags[self._index]:
            self.cut_off += sum(
                _count(data, segment_bytes) * len(destinations)
                for data, segment_bytes, destinations in transmits
            )
        else:
            super().send(transmits)


def cut_off(ports: Sequence[UdpPort]) -> int:
    """How many datagrams did not pass these gates."""
    return sum(port.cut_off for port in ports if isinstance(port, Gate))


def _count(data: bytes, segment_bytes: int) -> int:
    return sum(1 for _ in datagrams(data, segment_bytes))
