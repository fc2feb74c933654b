"""What an analysis is asked to do, and its defaults."""

from pathlib import Path
from typing import NamedTuple

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
    reads them, that make a scenario which fulfils one a failure. `store` is a folder of runs that are
    to be shown over time. With `keeps_pairs`, what became of each pair is written beside the report; with
    `draws_png`, the main figures as PNG.
    """

    runs: tuple[str, ...]
    out: Path
    master: str | None = MASTER_DEFAULT
    memory: str | None = MEMORY_DEFAULT
    only: tuple[str, ...] = ()
    watches: bool = False
    simulates: bool = False
    seed: int = SEED_DEFAULT
    as_json: bool = False
    is_strict: bool = False
    fail_if: tuple[str, ...] = ()
    store: Path | None = None
    keeps_pairs: bool = False
    draws_png: bool = False
