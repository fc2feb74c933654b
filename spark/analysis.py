"""The steps of an analysis: captures -> counts -> sums -> tables.

    with judging(captures) as judge:      what is known besides messages is sent to the workers
        counts = judge.counts()           what became of each pair, counted by all jobs
        sums = judge.sums(counts)         small, collected to the driver
    tables_of(cells, sums)                with theory and verdicts, without Spark

All captures are counted together: the cell, one scenario of one run, is part of every key.
"""

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kcast.spark.capture.captures import Captures
from kcast.spark.findings import attribution as attribution_findings
from kcast.spark.findings import audience as audience_findings
from kcast.spark.findings import balance as balance_findings
from kcast.spark.findings import cells as cell_findings
from kcast.spark.findings import cost as cost_findings
from kcast.spark.findings import health as health_findings
from kcast.spark.findings import latency as latency_findings
from kcast.spark.findings import losses as losses_findings
from kcast.spark.findings import misses as misses_findings
from kcast.spark.findings import over_time
from kcast.spark.findings import reach as reach_findings
from kcast.spark.findings import reliability as reliability_findings
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import TABLES
from kcast.spark.jobs.job import Around
from kcast.spark.judging.judge import Judge, Sums
from kcast.spark.judging.named_pairs import write_pairs
from kcast.spark.judging.rows import Division, message_rows

PART_ROWS_MAX = 750_000
"""Number of rows that a core's memory can sort."""

PART_ROWS_MIN = 50_000
"""Below this number of rows a part of its own costs more than it saves."""

Tell = Callable[[str], object]
"""Called with the name of each step, a few words, as it begins."""


def analyse(
    spark: SparkSession,
    captures: Captures,
    tell: Tell | None = None,
    *,
    pairs_into: Path | None = None,
    when_collected: Callable[[], object] | None = None,
) -> Findings:
    """All tables of the captures. With `pairs_into`, a folder, what became of each pair is written there.
    `when_collected` is called once Spark is needed no more.

    Raises CaptureError if a file turns out to be damaged, and OSError.
    """
    began = time.monotonic()
    tell = tell or _tell_nobody
    with judging(captures) as judge:
        tell("what became of each message")
        sums = judge.sums(judge.counts())
        if pairs_into is not None:
            tell("a file of all pairs")
            write_pairs(spark, judge, captures.cells, pairs_into)
    if when_collected is not None:
        when_collected()
    tell("theory and verdicts")
    tables = tables_of(captures.cells, sums)
    about = about_now(captures.about, time.monotonic() - began)
    return Findings(about=about, problems=captures.problems, tables=tables)


def _tell_nobody(_: str) -> None:
    pass


def judging(captures: Captures) -> AbstractContextManager[Judge]:
    """What judges the messages of captures, while the `with` lasts."""
    spark = captures.spark
    arounds = {
        cell.number: Around(cell.number, cell.t0_ns, captures.side[cell.number]) for cell in captures.cells
    }
    divide(spark, captures.rows)
    # No generator: one that is forgotten would be ended at any time, when Spark may be gone.
    return closing(Judge(spark, message_rows(captures.tables, Division.of(captures.sizes)), arounds))


def divide(spark: SparkSession, rows: int) -> None:
    """Sets Spark's number of parts for tables of at most `rows` rows.

    Does nothing if the user's configuration sets it.
    """
    context, setting = spark.sparkContext, "spark.sql.shuffle.partitions"
    if not context.getConf().contains(setting):
        spark.conf.set(setting, parts(rows, context.defaultParallelism))


def parts(rows: int, cores: int) -> int:
    """Number of parts: one for each core, fewer for few rows, and more for many."""
    return max(1, min(cores, rows // PART_ROWS_MIN), -(-rows // PART_ROWS_MAX))


def tables_of(cells: Sequence[Cell], sums: Sums) -> dict[str, list[Row]]:
    """All tables of these cells, in the order of TABLES. Needs no Spark."""
    found = health_findings.tables(cells, sums)
    health = found["health"]
    found |= cell_findings.tables(cells, sums, health)
    found |= reliability_findings.tables(cells, sums, invalid=health_findings.invalid(health))
    found |= reach_findings.tables(cells, sums, invalid=health_findings.invalid(health))
    for findings in (
        *(attribution_findings, latency_findings, audience_findings),
        *(balance_findings, cost_findings, over_time, misses_findings, losses_findings),
    ):
        found |= findings.tables(cells, sums)
    losses_findings.without_verdicts(found, losses_findings.losses_of(cells, sums))
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
