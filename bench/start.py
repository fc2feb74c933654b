"""What a command costs before it does anything: `kcast --version` and `kcast pub`, against `python -c pass`.

All three take turns, so that each meets the same machine. `kcast pub` publishes one message to a lab of three
servers on this machine, and waits for the receipts of two.

    python -m bench.start [RUNS]
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import ClusterOfProcesses

RUNS_DEFAULT = 40
KCAST = str(Path(sys.executable).parent / "kcast")  # what pip installs


def timed(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Returns the seconds of CPU and of wall-clock time that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started_s = perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    wall_s = perf_counter() - started_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def main(runs: int) -> None:
    """Prints medians, and how many times what `python -c pass` takes they are."""
    with tempfile.TemporaryDirectory() as folder, ClusterOfProcesses(Path(folder), 3, Policy(3, 2, 3)) as lab:
        commands = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "kcast --version": (KCAST, "--version"),
            "kcast pub": (KCAST, "pub", "--cluster", str(lab.file), "weather/oslo", "rain"),
        }
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for command in commands.values():
            timed(command, environment)  # writes the compiled modules
        times = [
            {name: timed(command, environment) for name, command in commands.items()} for _ in range(runs)
        ]
    print(f"{'command':16} {'CPU ms':>7} {'times':>6} {'wall ms':>8} {'times':>6}")
    empty_cpu_s, empty_wall_s = (median(run["python -c pass"][i] for run in times) for i in (0, 1))
    for name in commands:
        cpu_s, wall_s = (median(run[name][i] for run in times) for i in (0, 1))
        print(
            f"{name:16} {1000 * cpu_s:7.1f} {cpu_s / empty_cpu_s:6.1f} "
            f"{1000 * wall_s:8.1f} {wall_s / empty_wall_s:6.1f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS_DEFAULT)
