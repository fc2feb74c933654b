"""The contract between sans-IO cores and the drivers that move their datagrams.

A core takes what has arrived, a clock reading and (at construction) a random source; it returns what to send.
It never touches a socket, a clock, asyncio, threads or a global random. So the same core runs under a real
driver and in the simulated network of the tests.

Both sides handle *bursts*: in one call the kernel brings, or takes, a run of datagrams of equal length from
or to one peer (UDP_GRO, UDP_SEGMENT). What a datagram costs depends on the number of calls, hardly on bytes.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

Address = tuple[str, int]
"""An IP address in its shortest text form, and a UDP port. IPv4-mapped IPv6 is written as IPv4."""


def format_address(address: Address) -> str:
    """Returns `ip:port` as people write it.

    >>> format_address(("192.0.2.7", 7400)), format_address(("2001:db8::7", 7400))
    ('192.0.2.7:7400', '[2001:db8::7]:7400')
    """
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Burst(NamedTuple):
    """What one receive call brought from one peer: datagrams of `segment_bytes`; the last may be shorter.

    `kernel_ns` is when the kernel received the first of them, in ns since 1970; 0 if nobody asked for that.
    """

    data: bytes
    segment_bytes: int
    source: Address
    kernel_ns: int = 0


class Transmit(NamedTuple):
    """Datagrams of `segment_bytes` (the last may be shorter) to send to each of `destinations`.

    `line_count` is how many lines each destination gets, of a server's copies; its answers have 0, and copies
    must not stand in their way.
    """

    data: bytes
    segment_bytes: int
    destinations: Sequence[Address]
    line_count: int = 1

    @property
    def is_answer(self) -> bool:
        """Whether a server answers with it."""
        return not self.line_count


def datagrams(data: bytes, segment_bytes: int) -> Iterator[bytes]:
    """Yields the datagrams that a `Burst` or a `Transmit` carries, in order."""
    if len(data) <= segment_bytes:
        yield data
        return
    for start in range(0, len(data), segment_bytes):
        yield data[start : start + segment_bytes]


def datagram_count(size_bytes: int, segment_bytes: int) -> int:
    """Returns the number of datagrams of a `Burst` or a `Transmit`; one without bytes is one."""
    return max(1, -(-size_bytes // max(1, segment_bytes)))


class Endpoint(Protocol):
    """A core as its driver sees it. `now` is monotonic time in seconds and never goes back.

    In each turn a driver calls `receive` with all that has arrived, then `handle_timeout` if `next_timeout`
    is due, and sends what `flush` returns.

    A filter between a driver and a core, which drops or delays datagrams, is an endpoint too.
    """

    def receive(self, burst: Burst, now: float) -> None:
        """Takes what has arrived: any bytes. Never raises."""

    def handle_timeout(self, now: float) -> None:
        """Does what is due by `now`. Harmless if called early."""

    def next_timeout(self) -> float | None:
        """Returns when to call `handle_timeout`, on the clock of `now`; None for never."""

    def flush(self, now: float) -> list[Transmit]:
        """Returns what is to be sent now. The core forgets it."""


class LeaseChange(StrEnum):
    """What a tap is told about a lease."""

    OPENED = "opened"
    EXPIRED = "expired"
    EVICTED = "evicted"


class Tap(Protocol):
    """What a server tells a recorder, to explain losses later. Must not raise, block or keep `lines`."""

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> None:
        """Lines (without LF) of one topic (wire form) were admitted, and will be routed."""

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        """A lease was opened, or has ended (topic in wire form)."""
