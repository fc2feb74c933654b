"""Facts about the machine and the installed programs, on which a run's figures depend."""

import os
import platform
import resource
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from kcast.pubsub.tap import read_clock, read_clock_id

_LIBRARIES = ("kcast", "locust", "gevent", "pyarrow", "numpy", "xxhash", "uvloop", "docker")
_LIMITS = (
    *("net/core/rmem_default", "net/core/rmem_max", "net/core/wmem_default", "net/core/wmem_max"),
    *("net/core/netdev_max_backlog", "net/core/somaxconn", "net/core/optmem_max"),
    *("net/ipv4/udp_mem", "net/ipv4/ip_local_port_range", "kernel/pid_max"),
)


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the libraries that are installed."""
    found = {"python": sys.version.split()[0]}
    for library in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[library] = metadata.version(library)
    return found


def machine() -> dict[str, Any]:
    """Returns facts about processor, memory and kernel; unknown ones are "" or 0."""
    return {
        "cpu": _proc_field("cpuinfo", "model name"),
        "cores": os.cpu_count() or 0,
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": int((_proc_field("meminfo", "MemTotal").split() or ["0"])[0]) * 1024,
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }


def clock() -> dict[str, Any]:
    """Returns the id of the clock (one machine, one boot), its resolution, and a reading of both clocks."""
    now = read_clock()
    return {
        "clock_id": read_clock_id(),
        "resolution_ns": round(time.get_clock_info("monotonic").resolution * 1e9),
        "monotonic_ns": now.monotonic_ns,
        "wall_ns": now.wall_ns,
    }


def limits() -> dict[str, Any]:
    """Returns the kernel's limits that a load test may reach."""
    found: dict[str, Any] = {}
    for name in _LIMITS:
        with suppress(OSError):
            found[name.replace("/", ".")] = Path("/proc/sys", name).read_text("ascii").strip()
    found["nofile"], found["nofile_max"] = resource.getrlimit(resource.RLIMIT_NOFILE)
    return found


def process_start(pid: int) -> str:
    """Returns the start time of a process, in clock ticks: pids are reused. "" if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]


def _proc_field(file: str, name: str) -> str:
    with suppress(OSError):
        for line in Path("/proc", file).read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""
