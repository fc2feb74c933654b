"""Time and memory of the analysis of 1, 10 and 30 million copies, and of the simulation.

    python -m bench.spark [--copies 1000000 --copies 10000000 ...] [--master 'local[2]']
                                     [--memory 2g] [--no-simulation] [--folder FOLDER]

Each runs in a process and a Java of its own, from the start to the report on the disk, as `kcast analyse`
does it. CPU is that of Python and Java, without the Python workers that simulate. Java and Python: the most
memory that each had. Disk: the size of Spark's temporary files at the end. With more copies the time per
million must not grow.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.big_capture import big_scenario, write_run

COPIES = (1_000_000, 10_000_000, 30_000_000)
SIMULATION = "simulation"


class Steps:
    """Notes the time at which each step begins."""

    def __init__(self) -> None:
        self._began: list[tuple[str, float]] = []

    def __call__(self, step: str) -> None:
        self._began.append((step, time.monotonic()))

    def seconds(self) -> dict[str, float]:
        """The duration of each step, in seconds; the last one's up to now."""
        ends = [at for _, at in self._began[1:]] + [time.monotonic()]
        return {step: end - at for (step, at), end in zip(self._began, ends, strict=True)}


def bytes_in(folder: Path) -> int:
    """The size on disk of all files in a folder, without those that vanish meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


# --- In a process of its own ---------------------------------------------------------------------------


def work(what: str, options: argparse.Namespace) -> dict[str, Any]:
    """Analyses a capture, or simulates; returns what that took."""
    from kcast.spark.analysis import analyse
    from kcast.spark.capture.captures import open_captures
    from kcast.spark.findings.findings import Findings
    from kcast.spark.report.write import write
    from kcast.spark.session.start import start
    from kcast.spark.simulation.run import simulate

    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="kcast-bench-") as name:
        folder = Path(name)
        temporary = folder / "spark"
        temporary.mkdir()
        steps("start")
        with start(options.master, memory=options.memory, temp_dir=temporary) as spark:
            if what == SIMULATION:
                findings = Findings({}, tables=simulate(spark, steps))
            else:
                steps("open")
                findings = analyse(spark, open_captures(spark, [what]), steps)
            steps("end")
            disk = bytes_in(temporary)
            steps("report")
            write(findings, folder / "out")
            steps("stop")
    own, java = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    valid = all(row["delivery_valid"] for row in findings.table("scenarios"))
    return {
        "cpu_s": own.ru_utime + own.ru_stime + java.ru_utime + java.ru_stime,
        "python_mb": own.ru_maxrss / 1e3,
        "java_mb": java.ru_maxrss / 1e3,
        "disk_mb": disk / 1e6,
        "steps": steps.seconds(),
        "valid": valid,
        "outcomes": sum(row["outcomes"] for row in findings.table("simulation")),
        "reliability": [dict(row) for row in findings.table("reliability")],
    }


# --- All of them ---------------------------------------------------------------------------------------


def measured(what: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs `work` in a new process; adds the time from start to end. Raises CalledProcessError."""
    passed = ["--master", options.master, "--memory", options.memory]
    began = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-m", "bench.spark", "--work", what, *passed],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    seconds = time.monotonic() - began
    took: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return took | {"seconds": seconds}


def report(name: str, took: dict[str, Any]) -> None:
    """Prints a line of figures, and one of the steps' times."""
    print(
        f"{name:>14}  {took['seconds']:6.1f} s  {took['cpu_s']:6.1f} s  {took['java_mb']:6,.0f} MB  "
        f"{took['python_mb']:6,.0f} MB  {took['disk_mb']:6,.0f} MB"
    )
    print("   " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in took["steps"].items()), flush=True)


def analyses(copies: Sequence[int], folder: Path, options: argparse.Namespace) -> None:
    """Writes captures of so many copies, and analyses each."""
    before: tuple[int, float] | None = None
    for number in copies:
        run = folder / f"copies-{number}"
        if not run.exists():
            write_run(run, [big_scenario(number)])
        took = measured(str(run), options)
        report(f"{number:,}", took)
        assert took["valid"]
        for row in took["reliability"]:
            print(
                f"   {row['pairs']:,} pairs, delivered {row['share']:.4%}, given what happened "
                f"{row['given_events']:.4%}, z {row['z']:.2f}: {row['verdict']}"
            )
        if before is not None:
            more, longer = number / before[0], took["seconds"] / before[1]
            print(f"   {more:.0f} times as many copies, {longer:.1f} times as long", flush=True)
        before = number, took["seconds"]


def main() -> None:
    """Measures what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--copies", type=int, action="append")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--no-simulation", action="store_true")
    parser.add_argument("--folder", type=Path, help="where captures are kept, and are looked for first")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work, options)))
        return
    print(f"{'copies':>14}  {'time':>8}  {'CPU':>8}  {'Java':>9}  {'Python':>9}  {'disk':>9}")
    with tempfile.TemporaryDirectory(prefix="kcast-bench-") as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        analyses(options.copies or COPIES, folder, options)
    if not options.no_simulation:
        took = measured(SIMULATION, options)
        report(SIMULATION, took)
        print(f"   {took['outcomes'] / 1e6:,.0f} million outcomes")


if __name__ == "__main__":
    main()
