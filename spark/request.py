"""What an analysis is asked to do, its defaults, and what is wrong with it already.

That is told before anything heavy is imported: Spark takes ten seconds to start.
"""

import os
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.runs import open_runs
from kcast.spark.session.local_files import (
    LocalFiles,
    is_on_this_machine,
    refuse_bytes,
    refuse_other_pairs,
    refuse_unwritable,
)

NAME = "analyse"
OUT_DEFAULT = Path("analysis-out")
MASTER_DEFAULT = "local[*]"
MEMORY_DEFAULT = "2g"
SEED_DEFAULT = 1


class AnalysisRequest(NamedTuple):
    """What is to be done. `runs` are paths on any file system that Spark knows.

    `master` and `memory` None: as Spark's own configuration says. `only` are names of scenarios, in which *
    matches anything; empty: all scenarios.
    `is_strict` makes latencies that are not valid a failure. `fail_if` are conditions, as `kcast.spark.gate`
    reads them, that make a scenario which fulfils one a failure. With `keeps_pairs`, what became of each pair
    is written beside the report.
    """

    runs: tuple[str, ...]
    out: Path
    master: str | None = MASTER_DEFAULT
    memory: str | None = MEMORY_DEFAULT
    only: tuple[str, ...] = ()
    simulates: bool = False
    seed: int = SEED_DEFAULT
    as_json: bool = False
    is_strict: bool = False
    fail_if: tuple[str, ...] = ()
    keeps_pairs: bool = False


def refuse(request: AnalysisRequest) -> None:
    """Raises CaptureError or OSError, with what to do, for a request that cannot be fulfilled.

    Runs on other file systems are not looked at: it takes Spark to see them.
    """
    refuse_unwritable(request.out)
    if request.keeps_pairs:
        refuse_other_pairs(request.out)
        _refuse_bytes(request.out)
    _refuse_bytes(Path(gettempdir()))
    scenarios(request)


def _refuse_bytes(folder: Path) -> None:
    try:
        refuse_bytes(str(folder.absolute()))
    except OSError as error:
        raise OSError(f"{folder}: {error}") from None


def scenarios(request: AnalysisRequest) -> list[Scenario]:
    """Returns the scenarios that are to be analysed, of runs on this machine. Raises CaptureError."""
    local = [path for path in request.runs if is_on_this_machine(path, os.environ)]
    runs, names = open_runs(LocalFiles(), local, request.only if len(local) == len(request.runs) else ())
    return [each for run in runs for each in run.planned if each.name in names]
