"""Observes this machine while servers are examined: its clocks, and what its kernel drops."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import time

from kcast.client.driving.resolver import present_families
from kcast.pubsub import clock
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT
from kcast.pubsub.udp import UdpPort, open_socket

SOCKETS = (Path("/proc/net/udp"), Path("/proc/net/udp6"))


@dataclass(frozen=True)
class Machine:
    """What was observed of this machine while the servers were examined.

    `receive_buffer_bytes` is what a client's socket got of `wanted_buffer_bytes`. `dropped_count` is the
    number of datagrams that the kernel dropped meanwhile for want of room, those of other programs too, and
    `dropping_ports` are the ports of these sockets, the most first. `clock_jump_s` is by how much the time of
    day moved against the clock that only goes on. `unix_s` is the time of day at the end.
    """

    families: tuple[int, ...]
    receive_buffer_bytes: int
    wanted_buffer_bytes: int
    dropped_count: int
    dropping_ports: tuple[int, ...]
    suspended_s: float
    clock_jump_s: float
    unix_s: float


class MachineWatch:
    """Begins to observe when it is made."""

    def __init__(self, read_unix_s: Callable[[], float] = time) -> None:
        self._read_unix_s = read_unix_s
        self._lead_s = self._clock_lead_s()
        self._suspended_s = clock.suspended_s()
        self._dropped = dropped_by_socket()

    def seen(self) -> Machine:
        """Returns what was observed since."""
        dropped: Counter[int] = Counter()
        for (port, _), count in (dropped_by_socket() - self._dropped).items():
            dropped[port] += count
        return Machine(
            families=present_families(),
            receive_buffer_bytes=_receive_buffer_bytes(),
            wanted_buffer_bytes=BUFFER_BYTES_DEFAULT,
            dropped_count=dropped.total(),
            dropping_ports=tuple(port for port, _ in dropped.most_common()),
            suspended_s=clock.suspended_s() - self._suspended_s,
            clock_jump_s=self._clock_lead_s() - self._lead_s,
            unix_s=self._read_unix_s(),
        )

    def _clock_lead_s(self) -> float:
        """Returns by how much the time of day is ahead of the clock that only goes on."""
        return self._read_unix_s() - clock.now()


def dropped_by_socket() -> Counter[tuple[int, str]]:
    """Returns how many datagrams each UDP socket has dropped because its buffer was full, by its port and
    inode, as far as the kernel tells."""
    found: Counter[tuple[int, str]] = Counter()
    for table in SOCKETS:
        try:
            rows = [row.split() for row in table.read_text().splitlines()[1:]]
            found |= Counter({(int(row[1].rpartition(":")[2], 16), row[9]): int(row[12]) for row in rows})
        except (OSError, ValueError, IndexError):
            continue
    return found


def _receive_buffer_bytes() -> int:
    host = "0.0.0.0" if 4 in present_families() else "::"
    try:
        with UdpPort(open_socket(host, 0)) as port:
            return port.receive_buffer_bytes
    except OSError:
        return 0
