"""Starts Spark for `kcast analyse`, also under spark-submit, and hands over to `kcast.spark.run`.

Java and Spark take some three seconds to start, of which Python only waits. So what is heavy is imported
meanwhile, and runs of plans are simulated, which takes up to two seconds for each scenario.
"""

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kcast.client.cli.common import EXIT_FAILURE, say
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.scenario import Scenario
from kcast.spark.request import NAME, AnalysisRequest, scenarios
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
        with ExitStack() as session:
            stream = sys.stderr or session.enter_context(Path(os.devnull).open("w"))
            with StepProgress(stream) as progress:
                progress("starting Spark")
                with ahead(_HEAVY, scenarios(request)):
                    spark = session.enter_context(start(request.master, memory=request.memory, conf=LEAN))
                progress.watch(spark)
                from kcast.spark import run  # by now it has been imported

                findings = run.find(spark, request, progress, began)
        return run.report(findings, request)  # its errors are none of Spark's
    except FAILURES as error:
        say(NAME, str(error))
        return EXIT_FAILURE


@contextmanager
def ahead(modules: Sequence[str], scenarios: Sequence[Scenario]) -> Iterator[None]:
    """Imports these modules and simulates runs of these scenarios while the `with` lasts, in a thread; what
    that has begun then, it completes first.

    It does not go on beside the analysis: two threads of Python would hold each other up.
    """
    is_over = threading.Event()
    thread = threading.Thread(
        target=_work, args=(modules, scenarios, is_over), name="kcast-ahead", daemon=True
    )
    thread.start()
    try:
        yield
        is_over.set()
        thread.join()
    finally:
        is_over.set()


def _work(modules: Sequence[str], scenarios: Sequence[Scenario], is_over: threading.Event) -> None:
    for name in modules:
        importlib.import_module(name)
    # It needs numpy, which takes a while to import itself.
    from kcast.spark.findings.plan_laws import simulate_ahead

    for scenario in scenarios:
        if is_over.is_set():
            return
        simulate_ahead(scenario)
