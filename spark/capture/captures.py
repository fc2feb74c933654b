"""Captures that load tests have left, checked, as DataFrames of all their scenarios together.

Everything is checked before the first row is read: the JSON files, which files there are, and what each says
of itself. A scenario that cannot be trusted is left out and named; where nothing is left, that is an error.
What only shows when rows are read, pages of a file that are damaged, `reading.damage_named` tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kcast.loadtest.capture.manifest import CaptureError as CaptureError
from kcast.loadtest.capture.schema import TABLES
from kcast.spark.capture.checks import Check, open_run, selected
from kcast.spark.capture.reading import Place, read_table
from kcast.spark.findings.cells import Cell
from kcast.spark.session.files import Files, shown


@dataclass(frozen=True, slots=True)
class Captures:
    """What can be analysed of some captures.

    `cells` are numbered by the order in which the captures, and in them run.json's scenarios, were given, be
    they left out or not. `problems` are sentences: what was left out, and why. `about` tells of each run:
    path, run, status, started, ended, host. `rows` are those of the longest table. `awaited` are the
    scenarios that follow when they are begun, and `growing` the cells that are still written, both only where
    that was asked for.
    """

    spark: SparkSession
    cells: tuple[Cell, ...]
    problems: tuple[str, ...]
    about: list[dict[str, Any]]
    places: tuple[Place, ...]
    rows: int
    awaited: tuple[str, ...] = ()
    growing: frozenset[int] = frozenset()

    def table(self, name: str) -> DataFrame:
        """A table of all cells, `schemas.table_schema`, as its files are now. Raises KeyError."""
        return read_table(self.spark, self.places, name)

    @property
    def tables(self) -> Mapping[str, DataFrame]:
        """All of them, each read when it is first asked for."""
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


def open_captures(
    spark: SparkSession, paths: Sequence[str], *, only: Sequence[str] = (), following: bool = False
) -> Captures:
    """Checks the captures at `paths`: their folders, or their run.json, on any file system Spark knows.

    `only` are names of scenarios, in which * is anything; of all others nothing is read. With `following`,
    scenarios that are still run, or not yet begun, are in order. Raises CaptureError where a run cannot be
    used as a whole, and where nothing is left to analyse.
    """
    files = Files(spark)
    runs = [open_run(files, path) for path in paths]
    for number, run in enumerate(runs):
        for earlier in runs[:number]:
            if earlier.run_id == run.run_id:
                raise CaptureError(
                    f"{shown(run.path)}: the same run as in {shown(earlier.path)}, {run.run_id}: give it once"
                )
    wanted = selected([scenario for run in runs for scenario in run.planned], only)
    check = Check(files, following)
    number = 0
    for run in runs:
        for scenario in run.planned:
            if scenario.name in wanted:
                check.scenario(run, scenario, number)
            number += 1
    check.files()
    if not check.cells and not (following and (check.awaited or check.growing)):
        why = "; ".join(check.problems) or f"{shown(runs[0].path)}: no scenario" if runs else "no capture"
        raise CaptureError(f"nothing to analyse: {why}")
    return Captures(
        spark,
        tuple(check.cells),
        tuple(check.problems),
        [run.about() for run in runs],
        tuple(check.places),
        max(check.rows.values(), default=0),
        tuple(check.awaited),
        frozenset(check.growing),
    )
