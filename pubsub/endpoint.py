"""The contract between sans-IO cores and whatever moves their datagrams.

A core takes what arrived, a clock reading and (at construction) a random source; it gives back what to
send. It never touches a socket, a clock, asyncio, threads or a global random. So the same core runs
under a real driver and under the simulated network of the tests.

Both speak in *bursts*: the kernel hands over, and takes, runs of equal datagrams from or to one peer in
one call (UDP_GRO, UDP_SEGMENT), and the number of calls, not of bytes, is what a datagram costs.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

Address = tuple[str, int]
"""An IP address in its shortest text form and a UDP port. IPv4-mapped IPv6 appears as plain IPv4."""


def format_address(address: Address) -> str:
    """`ip:port` as people write it, an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Burst(NamedTuple):
    """What one receive call brought from one peer: datagrams of `segment_bytes`, the last may be shorter.

    `kernel_ns` is when the kernel took the first of them in, in ns since 1970; 0 where nobody asked for that.
    """

    data: bytes
    segment_bytes: int
    source: Address
    kernel_ns: int = 0


class Transmit(NamedTuple):
    """Datagrams of `segment_bytes` (the last may be shorter) to be sent to each of `destinations`."""

    data: bytes
    segment_bytes: int
    destinations: Sequence[Address]


def datagrams(data: bytes, segment_bytes: int) -> Iterator[bytes]:
    """The datagrams that a `Burst` or a `Transmit` carries, in order."""
    if len(data) <= segment_bytes:
        yield data
        return
    for start in range(0, len(data), segment_bytes):
        yield data[start : start + segment_bytes]


class Endpoint(Protocol):
    """A core as its driver sees it. `now` is monotonic time in seconds and never goes back.

    A driver's turn is: `receive` all that has arrived, `handle_timeout` if `next_timeout` is due, then
    send what `flush` returns.

    What stands between a driver and a core, and lets through what it will and when it will, is one too.
    """

    def receive(self, burst: Burst, now: float) -> None:
        """Take what arrived. Any bytes are acceptable; nothing raises."""

    def handle_timeout(self, now: float) -> None:
        """Do what has fallen due by `now`. Harmless when called early."""

    def next_timeout(self) -> float | None:
        """When `handle_timeout` wants to be called, on the same clock as `now`; None for never."""

    def flush(self, now: float) -> list[Transmit]:
        """What is to be sent now; the core forgets it."""


class LeaseChange(StrEnum):
    """What became of a lease, as a tap is told."""

    OPENED = "opened"
    EXPIRED = "expired"
    EVICTED = "evicted"


class Tap(Protocol):
    """What a server reports so that losses can be explained later. Must not raise, block or keep `lines`."""

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> None:
        """Lines (without LF) of one topic (wire form) were admitted, and are about to be routed."""

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        """A lease was opened, or has ended."""
