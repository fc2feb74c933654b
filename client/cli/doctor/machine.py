"""Observes this machine while servers are examined: its clocks, and what its kernel drops."""

import sys
from collections.abc import Callable
from pathlib import Path
from time import time

from kcast.client.cli.doctor.seen import Machine
from kcast.client.families import present_families
from kcast.pubsub import clock
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT
from kcast.pubsub.udp import UdpPort, open_socket

SNMP = Path("/proc/net/snmp")
SNMP6 = Path("/proc/net/snmp6")


class MachineWatch:
    """Begins to observe when it is made."""

    def __init__(self, read_unix_s: Callable[[], float] = time) -> None:
        self._read_unix_s = read_unix_s
        self._lead_s = self._clock_lead_s()
        self._suspended_s = clock.suspended_s()
        self._dropped = dropped_count()

    def seen(self) -> Machine:
        """Returns what was observed since."""
        dropped, before = dropped_count(), self._dropped
        return Machine(
            families=present_families(),
            receive_buffer_bytes=_receive_buffer_bytes(),
            wanted_buffer_bytes=BUFFER_BYTES_DEFAULT,
            dropped_count=None if dropped is None or before is None else dropped - before,
            suspended_s=clock.suspended_s() - self._suspended_s,
            clock_jump_s=self._clock_lead_s() - self._lead_s,
            unix_s=self._read_unix_s(),
        )

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


def _receive_buffer_bytes() -> int:
    host = "0.0.0.0" if 4 in present_families() else "::"
    try:
        with UdpPort(open_socket(host, 0)) as port:
            return port.receive_buffer_bytes
    except OSError:
        return 0
