"""What `kcast analyse` does with a Spark session: analyses or simulates, writes the report."""

import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from kcast.client.cli.text import escaped, tell, to_json
from kcast.loadtest.results.verdicts import EXIT_REFUSED
from kcast.spark import outcome
from kcast.spark.analysis import about_now, analyse
from kcast.spark.capture.captures import open_captures
from kcast.spark.capture.reading import damage_named
from kcast.spark.findings.findings import Findings
from kcast.spark.gate import EXIT_CONDITION, Outcome, judged
from kcast.spark.report.write import PAGE, write
from kcast.spark.request import AnalysisRequest
from kcast.spark.session.local_files import remove_earlier_pairs
from kcast.spark.session.progress import StepProgress
from kcast.spark.session.start import end_ahead
from kcast.spark.simulation.run import simulate
from kcast.spark.simulation.scenes import NoteSettings


def find(spark: SparkSession, request: AnalysisRequest, progress: StepProgress, began: float) -> Findings:
    """Finds what is requested. `began` is when it was requested, by `time.monotonic`.

    Raises CaptureError, SparkFailed and OSError.
    """
    findings = Findings(about_now((), 0.0))
    with damage_named():
        if request.runs:
            findings = _analysed(spark, request, progress)
        if request.simulates:
            simulated = simulate(spark, progress, settings=NoteSettings(seed=request.seed))
            findings = replace(findings, tables={**findings.tables, **simulated})
    return replace(findings, about={**findings.about, "seconds": round(time.monotonic() - began, 1)})


def _analysed(spark: SparkSession, request: AnalysisRequest, progress: StepProgress) -> Findings:
    progress("checking the captures")
    captures = open_captures(spark, request.runs, only=request.only)

    def collected() -> None:
        if not request.simulates:
            progress.unwatch()
            end_ahead()

    pairs_into = request.out if request.keeps_pairs else None
    return analyse(spark, captures, progress, pairs_into=pairs_into, when_collected=collected)


def report(findings: Findings, request: AnalysisRequest) -> int:
    """Writes the report, and prints the outcome; returns the exit code. Raises OSError."""
    findings, outcomes = judged(findings, request.fail_if)
    if not request.keeps_pairs:
        remove_earlier_pairs(request.out)
    write(findings, request.out)
    _print(findings, outcomes, request)
    return _exit_code(findings, outcomes, request)


def _exit_code(findings: Findings, outcomes: Sequence[Outcome], request: AnalysisRequest) -> int:
    code = outcome.exit_code(findings, is_strict=request.is_strict)
    if code == EXIT_REFUSED:
        return code
    return EXIT_CONDITION if any(each.fails for each in outcomes) else code


def _print(findings: Findings, outcomes: Sequence[Outcome], request: AnalysisRequest) -> None:
    page = request.out / PAGE
    if request.as_json:
        for each in outcome.objects(findings):
            tell(to_json(each))
        for one in outcomes:
            tell(to_json({"type": "condition", **one._asdict()}))
        code = _exit_code(findings, outcomes, request)
        tell(to_json({"type": "report", "page": str(page), "exit_code": code}))
        return
    lines = [*outcome.lines(findings), *(["", *map(str, outcomes)] if outcomes else [])]
    tell("\n".join([*map(escaped, lines), "", f"report: {page}"]))
