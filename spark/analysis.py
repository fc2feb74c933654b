"""The steps of an analysis: captures -> pairs -> counts -> sums -> tables.

    with counted_sources(...) as sources:     what became of each pair, kept on disk while it is counted
        counts = job.count(sources)           for each job
        sums |= sum_up(job, counts)           small, collected to the driver
    tables_of(cells, sums)                    with theory and verdicts, without Spark

All captures are counted together: the cell, one scenario of one run, is part of every key. `follow` counts
one slice after the other in the same way, and merges the counts.
"""

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from kcast.spark.capture.captures import Captures
from kcast.spark.capture.parameters import parameters
from kcast.spark.findings import attack as attack_findings
from kcast.spark.findings import attribution as attribution_findings
from kcast.spark.findings import audience as audience_findings
from kcast.spark.findings import balance as balance_findings
from kcast.spark.findings import cells as cell_findings
from kcast.spark.findings import cost as cost_findings
from kcast.spark.findings import health as health_findings
from kcast.spark.findings import latency as latency_findings
from kcast.spark.findings import reliability as reliability_findings
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import TABLES
from kcast.spark.jobs import attribution, audience, balance, cost, health, latency, reliability
from kcast.spark.jobs.job import Job, Sources
from kcast.spark.session.partitions import divide
from kcast.spark.walk import pairs

Watcher = Callable[[str], object]
"""Called with the name of each step, a few words, as it begins."""

Sums = Mapping[str, Sequence[Row]]
"""The sums of all jobs, by the names in `Job.sums`."""

JOBS: tuple[Job, ...] = (
    *(health.JOB, reliability.JOB, attribution.JOB, latency.JOB),
    *(audience.JOB, balance.JOB, cost.JOB),
)

AT_ONCE = 3
"""Number of jobs done at a time."""

SUM_ROWS_MAX = 1_000_000
"""Upper bound on rows collected to the driver; more means that a job did not aggregate."""


def analyse(spark: SparkSession, captures: Captures, watcher: Watcher | None = None) -> Findings:
    """All tables of the captures. Raises CaptureError if a file turns out to be damaged."""
    began = time.monotonic()
    tell = watcher or _tell_nobody
    divide(spark, captures.rows)
    with counted_sources(spark, captures.cells, captures.tables, tell) as sources:
        sums = sum_up_all(spark, lambda job: job.count(sources), tell)
    tell("theory and verdicts")
    tables = tables_of(captures.cells, sums)
    about = about_now(captures.about, time.monotonic() - began)
    return Findings(about=about, problems=captures.problems, tables=tables)


def _tell_nobody(_: str) -> None:
    pass


@contextmanager
def counted_sources(
    spark: SparkSession, cells: Sequence[Cell], tables: Mapping[str, DataFrame], watcher: Watcher
) -> Iterator[Sources]:
    """What the jobs count, from the tables of these cells. Its temporary files are removed at the end."""
    of_cells = parameters(spark, cells)
    watcher("what became of each message")
    attributed = pairs.attribute(tables, of_cells, max(cell.scenario.servers for cell in cells))
    try:
        yield Sources(tables, of_cells, attributed.pairs, attributed.paths)
    finally:
        attributed.release()


def sum_up_all(spark: SparkSession, counts: Callable[[Job], DataFrame], watcher: Watcher) -> Sums:
    """The sums of all jobs, from the merged counts that `counts` returns for each.

    Several jobs are done at once: while Spark works for one, it plans another, which takes as long if a
    capture is small.
    """
    sums: dict[str, Sequence[Row]] = {}
    told = threading.Lock()

    def done(job: Job) -> dict[str, Sequence[Row]]:
        with told:
            watcher(job.name)
        return sum_up(job, counts(job))

    threads = ThreadPoolExecutor(AT_ONCE)
    try:
        for found in threads.map(inheritable_thread_target(spark)(done), JOBS):
            sums |= found
    finally:
        # Not waited for after Ctrl-C: what still runs ends with the session.
        threads.shutdown(wait=False, cancel_futures=True)
    return sums


def sum_up(job: Job, counts: DataFrame) -> dict[str, Sequence[Row]]:
    """A job's sums of merged counts, collected."""
    counts = counts.persist(StorageLevel.DISK_ONLY)
    try:
        return {name: _collect(f"{job.name}.{name}", made(counts)) for name, made in job.sums.items()}
    finally:
        counts.unpersist()


def _collect(name: str, sums: DataFrame) -> list[Row]:
    rows = [row.asDict() for row in sums.collect()]
    if len(rows) > SUM_ROWS_MAX:
        raise AssertionError(f"{name} has {len(rows):,} rows: it was not added up")
    return rows


def tables_of(cells: Sequence[Cell], sums: Sums) -> dict[str, list[Row]]:
    """All tables of these cells, in the order of TABLES. Needs no Spark."""
    found = health_findings.tables(cells, sums)
    health = found["health"]
    found |= cell_findings.tables(cells, sums, health)
    found |= reliability_findings.tables(cells, sums, invalid=health_findings.invalid(health))
    for findings in (
        *(attribution_findings, latency_findings, audience_findings, attack_findings),
        *(balance_findings, cost_findings),
    ):
        found |= findings.tables(cells, sums)
    return {name: found[name] for name in TABLES if name in found}


def about_now(captures: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """Returns `Findings.about` for findings that are made now, of these captures, in `seconds` seconds."""
    return {
        "kcast": metadata.version("kcast"),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"kcast {shlex.join(sys.argv[1:])}",
        "seconds": round(seconds, 1),
        "captures": [dict(capture) for capture in captures],
    }
