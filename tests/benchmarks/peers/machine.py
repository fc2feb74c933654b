"""What a benchmark needs of the machine: cores for servers and for the load, CPU clocks, descriptors."""

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Cores(NamedTuple):
    """The load has a core of its own, and servers have the others; all have the same one where there is one."""

    load: int
    servers: tuple[int, ...]

    @property
    def server(self) -> int:
        """The core of a server that has only one."""
        return self.servers[-1]


def cores() -> Cores:
    """Returns how the cores that this process may use are shared out."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return Cores(first, tuple(rest or [first]))


def family_of(process_id: int) -> list[int]:
    """Returns a process and all that descend from it, those that have ended left out."""
    found = [process_id]
    for each in found:  # which grows meanwhile
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found.extend(map(int, children.read_text().split()))
            except OSError:
                continue  # the thread has ended
    return found


def cpu_s(process_ids: Iterable[int]) -> float:
    """Returns the user and system time that processes have used, those of all their threads.

    The clock is that of clock_getcpuclockid(3). It counts nanoseconds, where /proc/PID/stat has hundredths of
    a second.
    """
    return sum(time.clock_gettime(~process_id << 3 | 2) for process_id in process_ids)


def raise_descriptors(wanted: int) -> int:
    """Lets this process, and those that it starts, open so many files, or as many as it may; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(wanted, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, limit)), limit))
            break
        except (OSError, ValueError):
            continue  # only root may go beyond the hard limit
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
