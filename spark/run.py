"""What `kcast analyse` does, also under spark-submit: starts Spark, analyses or simulates, writes the
report."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from kcast.client.cli.common import EXIT_FAILURE, say
from kcast.client.cli.text import escaped, tell, to_json
from kcast.loadtest.results.verdicts import EXIT_REFUSED
from kcast.spark import outcome, over_runs
from kcast.spark.ahead import ahead
from kcast.spark.analysis import Tell, about_now, analyse
from kcast.spark.capture.captures import CaptureError, open_captures
from kcast.spark.capture.reading import damage_named
from kcast.spark.figures import pngs
from kcast.spark.findings.findings import Findings
from kcast.spark.gate import EXIT_CONDITION, Outcome, judged
from kcast.spark.refusal import scenarios
from kcast.spark.report.over_runs import ABOUT
from kcast.spark.report.write import PAGE, write, write_png
from kcast.spark.request import NAME, AnalysisRequest
from kcast.spark.session.failures import SparkFailed
from kcast.spark.session.java import JavaMissing
from kcast.spark.session.pair_folders import remove_earlier
from kcast.spark.session.progress import StepProgress
from kcast.spark.session.start import start
from kcast.spark.simulation.run import simulate
from kcast.spark.simulation.scenes import NoteSettings
from kcast.spark.watch.watch import watch

FAILURES = (CaptureError, JavaMissing, SparkFailed)
"""Errors that end the program with their message, one line for people."""


def run(request: AnalysisRequest) -> int:
    """Does what is requested, and prints the outcome; returns the exit code. Raises OSError."""
    try:
        store = None if request.store is None else over_runs.read(request.store)
        findings = _findings(request)
    except FAILURES as error:
        say(NAME, str(error))
        return EXIT_FAILURE
    if store is not None:
        findings = replace(findings, about={**findings.about, ABOUT: store})
    findings, outcomes = judged(findings, request.fail_if)
    if not request.keeps_pairs:
        remove_earlier(request.out)
    write(findings, request.out)
    if request.draws_png:
        for name, image in pngs(findings):
            write_png(name, image, request.out)
    _print(findings, outcomes, request)
    return _exit_code(findings, outcomes, request)


def _exit_code(findings: Findings, outcomes: Sequence[Outcome], request: AnalysisRequest) -> int:
    code = outcome.exit_code(findings, is_strict=request.is_strict)
    if code == EXIT_REFUSED:
        return code
    return EXIT_CONDITION if any(each.fails for each in outcomes) else code


def _findings(request: AnalysisRequest) -> Findings:
    began = time.monotonic()
    with ExitStack() as stack:
        stream = sys.stderr or stack.enter_context(Path(os.devnull).open("w"))
        watcher = stack.enter_context(StepProgress(stream))
        watcher("starting Spark")
        with ahead(scenarios(request)):
            spark = stack.enter_context(start(request.master, memory=request.memory))
        watcher.watch(spark)
        stack.callback(watcher.unwatch)
        stack.enter_context(damage_named())
        findings = Findings(about_now((), 0.0))
        if request.runs:
            findings = _analysed(spark, request, watcher)
        if request.simulates:
            simulated = simulate(spark, watcher, settings=NoteSettings(seed=request.seed))
            findings = replace(findings, tables={**findings.tables, **simulated})
    return replace(findings, about={**findings.about, "seconds": round(time.monotonic() - began, 1)})


def _analysed(spark: SparkSession, request: AnalysisRequest, tell: Tell) -> Findings:
    if request.watches:
        return watch(spark, request.runs[0], tell, only=request.only)
    tell("checking the captures")
    captures = open_captures(spark, request.runs, only=request.only)
    pairs_into = request.out if request.keeps_pairs else None
    return analyse(spark, captures, tell, pairs_into=pairs_into)


def _print(findings: Findings, outcomes: Sequence[Outcome], request: AnalysisRequest) -> None:
    page = request.out / PAGE
    if request.as_json:
        for each in outcome.objects(findings):
            tell(to_json(each))
        if store := findings.about.get(ABOUT):
            tell(to_json({"type": "over_runs", **store}))
        for one in outcomes:
            tell(to_json({"type": "condition", **one.as_json()}))
        code = _exit_code(findings, outcomes, request)
        tell(to_json({"type": "report", "page": str(page), "exit_code": code}))
        return
    store = findings.about.get(ABOUT)
    lines = [*outcome.lines(findings), *(["", *over_runs.lines(store)] if store else [])]
    lines += ["", *map(str, outcomes)] if outcomes else []
    tell("\n".join([*map(escaped, lines), "", f"report: {page}"]))
