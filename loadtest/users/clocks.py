"""Whose clock is whose: processes of one boot share the monotonic clock, others measure how theirs differ."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PINGS = 20


class Offset(NamedTuple):
    """What is to be added to this process's clock to have the leader's, and how far off that may be."""

    offset_ns: int
    error_ns: int


SAME = Offset(0, 0)


class Ping(NamedTuple):
    """A question to the leader: when it left and the answer came, here, and the leader's time between."""

    sent_ns: int
    there_ns: int
    back_ns: int


def clock_id() -> str:
    """What tells this machine's monotonic clock from all others: the boot, and the time namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text().strip()} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"unknown, of process {os.getpid()}"


def offset(pings: Iterable[Ping]) -> Offset:
    """The offset by the quickest of the pings: its answer was written somewhere on its way."""
    best = min(pings, key=lambda ping: ping.back_ns - ping.sent_ns)
    error_ns = (best.back_ns - best.sent_ns + 1) // 2
    return Offset(best.there_ns - best.sent_ns - error_ns, error_ns)
