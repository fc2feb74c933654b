"""Observes this machine while servers are examined: its clocks, and what its kernel drops."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time

from kcast.client.cli.doctor.seen import Machine
from kcast.client.driving.families import present_families
from kcast.pubsub import clock
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT
from kcast.pubsub.udp import UdpPort, open_socket

SNMP = Path("/proc/net/snmp")
SNMP6 = Path("/proc/net/snmp6")
SOCKETS = (Path("/proc/net/udp"), Path("/proc/net/udp6"))


class MachineWatch:
    """Begins to observe when it is made."""

    def __init__(self, read_unix_s: Callable[[], float] = time) -> None:
        self._read_unix_s = read_unix_s
        self._lead_s = self._clock_lead_s()
        self._suspended_s = clock.suspended_s()
        self._dropped = dropped_count()
        self._dropped_by = dropped_by_socket()

    def seen(self) -> Machine:
        """Returns what was observed since."""
        dropped, before = dropped_count(), self._dropped
        return Machine(
            families=present_families(),
            receive_buffer_bytes=_receive_buffer_bytes(),
            wanted_buffer_bytes=BUFFER_BYTES_DEFAULT,
            dropped_count=None if dropped is None or before is None else dropped - before,
            dropping_ports=self._dropping_ports(),
            suspended_s=clock.suspended_s() - self._suspended_s,
            clock_jump_s=self._clock_lead_s() - self._lead_s,
            unix_s=self._read_unix_s(),
        )

    def _dropping_ports(self) -> tuple[int, ...]:
        """Returns the ports whose sockets have dropped something since, the most first."""
        since: Counter[int] = Counter()
        for socket_, count in dropped_by_socket().items():
            since[socket_[0]] += count - self._dropped_by.get(socket_, 0)
        return tuple(port for port, count in since.most_common() if count > 0)

    def _clock_lead_s(self) -> float:
        """Returns by how much the time of day is ahead of the clock that only goes on."""
        return self._read_unix_s() - clock.now()


def dropped_count(snmp: Path = SNMP, snmp6: Path = SNMP6) -> int | None:
    """Returns how many datagrams the kernel has dropped since its start because a socket's buffer was full;
    None if it does not tell."""
    if sys.platform != "linux":
        return None
    try:
        heads, values = (row.split()[1:] for row in snmp.read_text().splitlines() if row.startswith("Udp:"))
        count = int(values[heads.index("RcvbufErrors")])
    except (OSError, ValueError, IndexError):
        return None
    try:
        fields = dict(row.split() for row in snmp6.read_text().splitlines())
        return count + int(fields.get("Udp6RcvbufErrors", "0"))
    except (OSError, ValueError):
        return count  # no IPv6


def dropped_by_socket(tables: Sequence[Path] = SOCKETS) -> dict[tuple[int, str], int]:
    """Returns how many datagrams each UDP socket has dropped, by its port and inode, as far as the kernel
    tells."""
    found: dict[tuple[int, str], int] = {}
    for table in tables:
        try:
            rows = [row.split() for row in table.read_text().splitlines()[1:]]
            found |= {(int(row[1].rpartition(":")[2], 16), row[9]): int(row[12]) for row in rows}
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
