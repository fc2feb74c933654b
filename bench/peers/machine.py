"""What a benchmark needs of the machine: cores for servers and for the load, CPU clocks, descriptors."""

import os
import platform
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Cores(NamedTuple):
    """The load has a core of its own, and the servers have the others. Where there is one, all share it."""

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
    """Returns a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        children.setdefault(parent, []).append(int(folder.name))
    found = [process_id]
    for each in found:  # which grows meanwhile
        found.extend(children.get(each, ()))
    return found


def cpu_s(process_ids: Iterable[int]) -> float:
    """Returns the user and system time that processes have used, those of all their threads.

    The clock is that of clock_getcpuclockid(3). It counts nanoseconds, where /proc/PID/stat has hundredths of
    a second. Raises OSError where one has ended.
    """
    return sum(time.clock_gettime(~process_id << 3 | 2) for process_id in process_ids)


def raise_descriptors(wanted: int) -> int:
    """Lets this process and its children open `wanted` files, or as many as they may; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(wanted, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, limit)), limit))
            break
        except (OSError, ValueError):
            continue  # only root may go beyond the hard limit
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def description() -> dict[str, str]:
    """Returns what a reader wants to know of this machine."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "") if _has_os_release() else ""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "system": system,
        "python": platform.python_version(),
    }


def _has_os_release() -> bool:
    return Path("/etc/os-release").exists() or Path("/usr/lib/os-release").exists()


def _processor() -> str:
    """The name that Linux has for it; else the architecture's."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "") or (
        platform.machine()
    )
