"""Clock offsets between processes. Processes of one boot share the monotonic clock; others measure theirs."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PINGS = 20


class Offset(NamedTuple):
    """What to add to this process's clock to get the coordinator's, and the largest possible error."""

    offset_ns: int
    error_ns: int


SAME_CLOCK = Offset(0, 0)


class Ping(NamedTuple):
    """One exchange with the coordinator: when the ping left and the answer came, by this process's clock, and
    the coordinator's time in between."""

    sent_ns: int
    coordinator_ns: int
    back_ns: int


def clock_id() -> str:
    """Identifies this machine's monotonic clock: the boot, and the time namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text().strip()} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"unknown, of process {os.getpid()}"


def offset(pings: Iterable[Ping]) -> Offset:
    """Returns the offset by the quickest ping, as if its answer had been sent halfway."""
    best = min(pings, key=lambda ping: ping.back_ns - ping.sent_ns)
    error_ns = (best.back_ns - best.sent_ns + 1) // 2
    return Offset(best.coordinator_ns - best.sent_ns - error_ns, error_ns)
