"""Captures that load tests wrote, checked, as DataFrames of all their scenarios together.

All is checked before the first row of a message is read: the JSON files, which Parquet files there are, the
footer of each, and its hash if the capture has one. A scenario that cannot be trusted is left out and named;
if none is left, that is an error. Without hashes, damaged pages of messages show only when their rows are
read: `reading.damage_named` names the file then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kcast.loadtest.capture.manifest import CaptureError as CaptureError
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.spark.capture.checks import ScenarioChecks
from kcast.spark.capture.reading import CellFolder, damage_named, read_table
from kcast.spark.capture.runs import open_runs
from kcast.spark.capture.side_tables import SideTables
from kcast.spark.capture.sizes import CellSize
from kcast.spark.findings.cells import Cell
from kcast.spark.session.files import Files, shown


@dataclass(frozen=True, slots=True)
class Captures:
    """What can be analysed of some captures.

    `cells` are numbered by capture, in the order given, and within a capture in the order of its run.json.
    Those left out have a number, too. `problems` are sentences: what was left out, and why. `about` has for
    each run: path, run, status, started, ended, host. `rows` is the number of rows of all tables of messages;
    `sizes` tells how large each cell is, by its number; `side` has its tables besides those of messages.
    """

    spark: SparkSession
    cells: tuple[Cell, ...]
    problems: tuple[str, ...]
    about: list[dict[str, Any]]
    folders: tuple[CellFolder, ...]
    rows: int
    sizes: Mapping[int, CellSize]
    side: Mapping[int, SideTables]

    def table(self, name: str) -> DataFrame:
        """A table of all cells, `schemas.table_schema`, of the files that are there now. Raises KeyError."""
        return read_table(self.spark, self.folders, name)

    @property
    def tables(self) -> Mapping[str, DataFrame]:
        """All tables by name. The files of each are listed when it is first used."""
        return _Tables(self)


class _Tables(Mapping[str, DataFrame]):
    def __init__(self, captures: Captures) -> None:
        self._captures = captures
        self._read: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._read:
            self._read[name] = self._captures.table(name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


def open_captures(spark: SparkSession, paths: Sequence[str], *, only: Sequence[str] = ()) -> Captures:
    """Checks the captures at `paths`: their folders, or their run.json, on any file system that Spark knows.

    `only` are names of scenarios, in which * matches anything; nothing is read of all others. Raises
    CaptureError if a run as a whole cannot be used, or no scenario is left to analyse.
    """
    files = Files(spark)
    runs, names = open_runs(files, paths, only)
    check = ScenarioChecks(files)
    number = 0
    for run in runs:
        for scenario in run.planned:
            if scenario.name in names:
                check.scenario(run, scenario, number)
            number += 1
    with damage_named():
        check.files(spark)
    if not check.cells:
        why = "; ".join(check.problems) or f"{shown(runs[0].path)}: no scenario" if runs else "no capture"
        raise CaptureError(f"nothing to analyse: {why}")
    return Captures(
        spark,
        tuple(check.cells),
        tuple(check.problems),
        [run.about() for run in runs],
        tuple(check.folders),
        sum(check.rows[name] for name in MESSAGE_COLUMNS),
        check.sizes,
        check.side,
    )
