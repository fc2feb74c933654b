"""What `kcast analyse` does: Spark up, captures in, tables, report out; also for spark-submit."""

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from client.cli.common import EXIT_FAILURE, escaped, say, to_json
from spark import outcome
from spark.analysis import Watcher, about_now, analyse
from spark.captures import CaptureError, open_captures
from spark.command import NAME, Wanted
from spark.findings.findings import Findings
from spark.follow import follow
from spark.reading import damage_named
from spark.report.write import PAGE, write
from spark.session.failures import SparkFailed
from spark.session.java import JavaMissing
from spark.session.progress import Progress
from spark.session.start import start
from spark.simulation.run import simulate
from spark.simulation.scenes import Settings

FAILURES = (CaptureError, JavaMissing, SparkFailed)
"""What can go wrong, each with a message for people."""


def run(wanted: Wanted) -> int:
    """Does it, and prints what came of it; the exit code. Raises OSError."""
    try:
        findings = _findings(wanted)
    except FAILURES as error:
        say(NAME, str(error))
        return EXIT_FAILURE
    write(findings, wanted.out)
    _tell(findings, wanted)
    return outcome.exit_code(findings)


def _findings(wanted: Wanted) -> Findings:
    began = time.monotonic()
    with ExitStack() as stack:
        stream = sys.stderr or stack.enter_context(Path(os.devnull).open("w"))
        watcher = stack.enter_context(Progress(stream))
        watcher("starting Spark")
        spark = stack.enter_context(start(wanted.master, memory=wanted.memory))
        watcher.watch(spark)
        stack.callback(watcher.unwatch)
        stack.enter_context(damage_named())
        findings = Findings(about_now((), 0.0))
        if wanted.runs:
            findings = _of_captures(spark, wanted, watcher)
        if wanted.simulates:
            simulated = simulate(spark, watcher, settings=Settings(seed=wanted.seed))
            findings = replace(findings, tables={**findings.tables, **simulated})
    return replace(findings, about={**findings.about, "seconds": round(time.monotonic() - began, 1)})


def _of_captures(spark: SparkSession, wanted: Wanted, watcher: Watcher) -> Findings:
    if wanted.follows:
        with TemporaryDirectory(prefix="kcast-follow-") as folder:
            return follow(spark, wanted.runs[0], watcher, only=wanted.only, temp_dir=Path(folder))
    watcher("checking the captures")
    captures = open_captures(spark, wanted.runs, only=wanted.only)
    return analyse(spark, captures, watcher)


def _tell(findings: Findings, wanted: Wanted) -> None:
    page = wanted.out / PAGE
    if wanted.as_json:
        for each in outcome.objects(findings):
            print(to_json(each))
        code = outcome.exit_code(findings)
        print(to_json({"type": "report", "page": str(page), "exit_code": code}), flush=True)
        return
    told = outcome.lines(findings)
    print("\n".join([*map(escaped, told), "", f"report: {page}"]), flush=True)
