"""Starts Spark for `kcast analyse`, also under spark-submit, and hands over to `kcast.spark.run`.

Java takes seconds to start. So nothing heavy is imported before, but meanwhile (`ahead`).
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kcast.client.cli.common import EXIT_FAILURE, say
from kcast.loadtest.capture.manifest import CaptureError
from kcast.spark.ahead import ahead
from kcast.spark.refusal import scenarios
from kcast.spark.request import NAME, AnalysisRequest
from kcast.spark.session.failures import SparkFailed
from kcast.spark.session.java import JavaMissing
from kcast.spark.session.progress import StepProgress
from kcast.spark.session.start import LEAN, start

_HEAVY = ("kcast.spark.run", "scipy.special")

FAILURES = (CaptureError, JavaMissing, SparkFailed)
"""Errors that end the program with their message, one line for people."""


def launch(request: AnalysisRequest) -> int:
    """Does what is requested, and prints the outcome; returns the exit code. Raises OSError."""
    began = time.monotonic()
    try:
        store = None if request.store is None else _read(request.store)
        with ExitStack() as session:
            stream = sys.stderr or session.enter_context(Path(os.devnull).open("w"))
            with StepProgress(stream) as progress:
                progress("starting Spark")
                with ahead(_HEAVY, scenarios(request)):
                    spark = session.enter_context(start(request.master, memory=request.memory, conf=LEAN))
                progress.watch(spark)
                from kcast.spark import run  # by now it has been imported

                findings = run.find(spark, request, progress, began, store)
        return run.report(findings, request)  # its errors are none of Spark's
    except FAILURES as error:
        say(NAME, str(error))
        return EXIT_FAILURE


def _read(store: Path) -> dict[str, Any]:
    """Reads a store of runs, before all that takes longer. Raises CaptureError."""
    from kcast.spark import over_runs

    return over_runs.read(store)
