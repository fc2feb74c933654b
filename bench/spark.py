"""Time and memory of the analysis of 1, 10 and 30 million copies, and of the simulation.

    python -m bench.spark [--copies 1000000 --copies 10000000 ...] [--master 'local[2]']
                                     [--memory 2g] [--no-simulation] [--folder FOLDER]
    python -m bench.spark --cluster [--memory 1g] [--folder FOLDER]

Each runs in a process and a Java of its own, from the start to the report on the disk, as `kcast analyse`
does it. CPU is that of Python and Java, without the Python workers that simulate. Java and Python: the most
memory that each had. Disk: the size of Spark's temporary files at the end. With more copies the time per
million must not grow.

With `--cluster` it analyses 3 and 30 million copies on a master of its own with two workers of one core and
1 GB each, and prints the most memory (RSS, each half second) of the driver's Java, the driver's Python, and
the largest Python worker. With ten times as many copies none may be more than GROWTH_MAX times as large.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.big_capture import big_scenario, write_run
from tests.support.spark_cluster import spark_cluster

COPIES = (1_000_000, 10_000_000, 30_000_000)
COPIES_OF_CLUSTER = (3_000_000, 30_000_000)
GROWTH_MAX = 1.2
SAMPLED_EACH_S = 0.5
SIMULATION = "simulation"
ON_THIS_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


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
        here = {} if options.master.startswith("local") else ON_THIS_MACHINE
        with start(options.master, memory=options.memory, temp_dir=temporary, conf=here) as spark:
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


def measured(what: str, options: argparse.Namespace, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Runs `work` in a new process; adds the time from start to end. Raises CalledProcessError."""
    passed = ["--master", options.master, "--memory", options.memory]
    began = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-m", "bench.spark", "--work", what, *passed],
        stdout=subprocess.PIPE,
        env=env,
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


def captured(copies: int, folder: Path) -> Path:
    """A capture of so many copies, which is written if it is not there."""
    run = folder / f"copies-{copies}"
    if not run.exists():
        write_run(run, [big_scenario(copies)])
    return run


def analyses(copies: Sequence[int], folder: Path, options: argparse.Namespace) -> None:
    """Writes captures of so many copies, and analyses each."""
    before: tuple[int, float] | None = None
    for number in copies:
        took = measured(str(captured(number, folder)), options)
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


@contextmanager
def peaks() -> Iterator[Counter[str]]:
    """The most memory of each kind of process below this one while the `with` lasts, in bytes."""
    found: Counter[str] = Counter()
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLED_EACH_S):
            for process in psutil.Process().children(recursive=True):
                try:
                    line, size = " ".join(process.cmdline()), process.memory_info().rss
                except psutil.Error:
                    continue
                for kind, tells in KINDS.items():
                    if tells in line:
                        found[kind] = max(found[kind], size)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


KINDS = {
    "driver's Java": "org.apache.spark.deploy.SparkSubmit",
    "driver's Python": "bench.spark --work",
    "Python worker": "pyspark.daemon",
}
"""Kinds of processes, and what only their command lines have."""


def on_cluster(copies: Sequence[int], folder: Path, options: argparse.Namespace) -> None:
    """Analyses captures of so many copies on a cluster, and compares what memory it takes."""
    taken = []
    for number in copies:
        run = captured(number, folder)
        with tempfile.TemporaryDirectory(prefix="kcast-bench-") as name, spark_cluster(Path(name)) as cluster:
            options.master = cluster.master
            with peaks() as peak:
                took = measured(str(run), options, cluster.env)
        assert took["valid"]
        steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in took["steps"].items())
        print(f"{number:,} copies: {took['seconds']:.0f} s ({steps})", flush=True)
        taken.append(peak)
    for kind in KINDS:
        sizes = [peak[kind] / 1e6 for peak in taken]
        told = " -> ".join(f"{size:,.0f} MB" for size in sizes)
        print(f"{kind:>16}  {told}  ratio {sizes[-1] / sizes[0]:.2f} (at most {GROWTH_MAX})", flush=True)


def main() -> None:
    """Measures what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--copies", type=int, action="append")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--no-simulation", action="store_true")
    parser.add_argument("--folder", type=Path, help="where captures are kept, and are looked for first")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work, options)))
        return
    if options.cluster:
        with tempfile.TemporaryDirectory(prefix="kcast-bench-") as name:
            on_cluster(options.copies or COPIES_OF_CLUSTER, options.folder or Path(name), options)
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
