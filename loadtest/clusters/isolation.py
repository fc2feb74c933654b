"""A server's socket that can be cut off from the network without the server's knowledge."""

import socket
from collections.abc import Iterable, Sequence
from typing import Protocol

from kcast.pubsub.endpoint import Burst, Transmit, datagram_count
from kcast.pubsub.inlet import BURSTS_MAX
from kcast.pubsub.udp import UdpPort


class Flags(Protocol):
    """One byte per server: not 0 if it is isolated. If several processes use it, it is shared memory."""

    def __getitem__(self, index: int, /) -> int:
        """Returns a server's flag."""

    def __setitem__(self, index: int, flag: int, /) -> None:
        """Sets a server's flag."""


class IsolatablePort(UdpPort):
    """A port that receives and sends nothing while its flag is set; `cut_off` counts the datagrams lost so.

    What arrives meanwhile is read and dropped, so that it does not arrive later.
    """

    def __init__(self, sock: socket.socket, flags: Flags, index: int) -> None:
        super().__init__(sock)
        self.cut_off = 0  # datagrams
        self._flags = flags
        self._index = index

    def receive(self, bursts_max: int = BURSTS_MAX) -> list[Burst]:
        """Receives like any port; returns nothing while isolated."""
        bursts = super().receive(bursts_max)
        if self._flags[self._index]:
            self.cut_off += sum(datagram_count(len(burst.data), burst.segment_bytes) for burst in bursts)
            return []
        return bursts

    def send(self, transmits: Iterable[Transmit]) -> None:
        """Sends like any port; sends nothing while isolated."""
        if self._flags[self._index]:
            self.cut_off += sum(
                datagram_count(len(data), segment_bytes) * len(destinations)
                for data, segment_bytes, destinations, _ in transmits
            )
        else:
            super().send(transmits)


def count_cut_off(ports: Sequence[UdpPort]) -> int:
    """Returns the number of datagrams that isolation has kept from passing these ports."""
    return sum(port.cut_off for port in ports if isinstance(port, IsolatablePort))
