"""What is wrong with a request, told before anything heavy is imported: Spark takes ten seconds to start."""

import os

from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.runs import open_runs
from kcast.spark.request import AnalysisRequest
from kcast.spark.session.local_files import LocalFiles, is_on_this_machine, refuse_unwritable
from kcast.spark.session.pair_folders import refuse_others


def refuse(request: AnalysisRequest) -> None:
    """Raises CaptureError or OSError, with what to do, for a request that cannot be fulfilled.

    Runs on other file systems are not looked at: it takes Spark to see them.
    """
    if request.store is not None and not request.store.is_dir():
        raise CaptureError(f"{request.store}: no such folder: name one that has runs of kcast load in it")
    refuse_unwritable(request.out)
    if request.keeps_pairs:
        refuse_others(request.out)
    scenarios(request)


def scenarios(request: AnalysisRequest) -> list[Scenario]:
    """Returns the scenarios that are to be analysed, of runs on this machine. Raises CaptureError."""
    local = [path for path in request.runs if is_on_this_machine(path, os.environ)]
    runs, names = open_runs(LocalFiles(), local, request.only if len(local) == len(request.runs) else ())
    return [each for run in runs for each in run.planned if each.name in names]
