"""The clock that servers and clients go by. It is monotonic, and goes on while the machine is suspended.

Leases, cookies and promises count seconds of the world's time. `time.monotonic` stands still on
Linux and macOS while a machine is suspended: a laptop that was closed for an hour would take its leases for
live, and a server would go on sending to addresses that others have by now.

Until the machine is suspended for the first time in a process's life, the clock reads the same as
`time.monotonic`. Timers of event loops and selectors go by that one, and so come late by the time of the
suspension. Whoever waits therefore looks at the clock every `LOOK_S` at least.

A virtual machine that its host has halted may not be told of it. Then no clock of the machine has gone on.
"""

import sys
import time
from collections.abc import Callable
from time import monotonic

LOOK_S = 5.0
SUSPENDED_S_MIN = 1.0  # less is no reason to say anything; two readings differ by a microsecond or so

# Linux, OpenBSD and others have CLOCK_BOOTTIME. On macOS CLOCK_MONOTONIC goes on, and `monotonic` is another.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)
_CLOCK: int | None = time.CLOCK_MONOTONIC if sys.platform == "darwin" else _BOOTTIME


def _lead_ns() -> int:
    """Returns by how much the clock that goes on is ahead of `time.monotonic`."""
    if _CLOCK is None:
        return 0
    readings = []
    for _ in range(3):
        before_ns, at_ns, after_ns = time.monotonic_ns(), time.clock_gettime_ns(_CLOCK), time.monotonic_ns()
        readings.append((after_ns - before_ns, at_ns - (before_ns + after_ns) // 2))
    return min(readings)[1]


_LEAD_NS = _lead_ns()  # when the process began
_LEAD_S = _LEAD_NS / 1e9


def now_ns() -> int:
    """Returns the time in nanoseconds."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK) - _LEAD_NS


def now() -> float:
    """Returns the time in seconds."""
    return monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK) - _LEAD_S


def suspended_s() -> float:
    """Returns for how many seconds the machine was suspended since the process began."""
    return (_lead_ns() - _LEAD_NS) / 1e9


def identity_of_lead() -> str:
    """Returns what tells this process's clock from those of processes that began after a suspension.

    Empty where the machine has not been suspended since its start.
    """
    hundredths = round(_LEAD_NS / 1e7)
    return f"+{hundredths}" if hundredths else ""


class SuspensionWatch:
    """Notices that the machine was suspended. `read_suspended_s` is for tests."""

    def __init__(self, read_suspended_s: Callable[[], float] = suspended_s) -> None:
        self._read_suspended_s = read_suspended_s
        self._known_s = read_suspended_s()
        self._looked_at: float | None = None

    def look(self, now: float) -> float:
        """Returns for how many seconds the machine was suspended since the last look; 0 if it was not.

        Call it in every turn: it is cheap as long as turns follow each other.
        """
        before, self._looked_at = self._looked_at, now
        if before is not None and now - before < SUSPENDED_S_MIN:
            return 0.0
        suspended_s = self._read_suspended_s() - self._known_s
        if suspended_s < SUSPENDED_S_MIN:
            return 0.0
        self._known_s += suspended_s
        return suspended_s
