"""Captures as cells: as parts that jobs count, and as tables of Spark's."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.results.admissions import Admissions
from kcast.loadtest.results.attribution import (
    MESSAGE_COLUMNS,
    Attribution,
    admissions,
    attribute,
    judge,
)
from kcast.loadtest.results.joins import group_sums
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.results.tables import Capture, Columns, columns
from kcast.spark.capture.schemas import table_schema
from kcast.spark.capture.side_tables import SIDE_TABLES, SideTables
from kcast.spark.findings.cells import Cell
from kcast.spark.jobs.job import NOT_USED, Around, Merged, Part
from kcast.spark.judging.judge import COUNTS, JOBS, merged_of, table_of

Row = dict[str, Any]
Chooser = Callable[[Columns], Any]

_MORE = {"publish": ("t_send_ns", "size_bytes"), "pub_tx": ("pub_id",)}
_KEYS = [name for name in COUNTS.names if name.startswith("key")]
_VALUES = [name for name in COUNTS.names if name.startswith("value")]


@dataclass(frozen=True)
class Captured:
    """A capture and its cell."""

    cell: Cell
    capture: Capture

    @cached_property
    def attribution(self) -> Attribution:
        """What became of its pairs, as load tests judge it: all at once."""
        return attribute(self.capture)

    @cached_property
    def summary(self) -> Summary:
        """Its figures, as load tests tell them."""
        return summarise(self.capture)

    @cached_property
    def around(self) -> Around:
        """What is known of it besides messages."""
        side = {name: self.capture.read(name) for name in SIDE_TABLES}
        return Around(self.cell.number, self.cell.t0_ns, SideTables(self.capture.scenario, "complete", side))

    def columns(self, table: str, *names: str) -> dict[str, Any]:
        """Columns of one of its tables."""
        return columns(self.capture, table, *names)

    @cached_property
    def messages(self) -> dict[str, Columns]:
        """Its tables of messages."""
        return {name: self.columns(name, *own, *_MORE.get(name, ())) for name, own in MESSAGE_COLUMNS.items()}

    def part(self, chosen: Chooser | None = None) -> Part:
        """The part with the rows that `chosen` returns for each table of messages; by default all."""
        surroundings = self.around.surroundings
        if chosen is None:
            return Part(self.around, self.messages, judge(surroundings, self.messages))
        some = {}
        for name, table in self.messages.items():
            rows = chosen(table)
            some[name] = {column: values[rows] for column, values in table.items()}
        return Part(self.around, some, judge(surroundings, some, admitted=self._admitted))

    @cached_property
    def _admitted(self) -> Admissions:
        return admissions(self.around.surroundings, self.messages)


def as_cells(folders: Sequence[Capture], statuses: Sequence[str] = ()) -> list[Captured]:
    """The captures as cells, numbered from 0; their windows tell when the load began."""
    found = []
    for number, folder in enumerate(folders):
        froms = columns(folder, "window", "t_from_ns")["t_from_ns"]
        t0_ns = int(froms.min()) if len(froms) else 0
        cell = Cell(number, "run", folder.scenario, statuses[number] if statuses else folder.status, t0_ns)
        found.append(Captured(cell, folder))
    return found


def sums_of(parts: Iterable[Part], arounds: Iterable[Around] = ()) -> dict[str, list[Row]]:
    """The sums of all jobs, from the merged counts of these parts; also those of `arounds` without a row."""
    every = {around.cell: around for around in arounds}
    batches: list[pa.RecordBatch] = []
    for part in parts:
        if not any(len(table["msg_id"]) for table in part.messages.values()):
            continue
        every[part.around.cell] = part.around
        for job in JOBS:
            batches += table_of(part.around.cell, job.count(part))
    found: dict[str, list[Row]] = defaultdict(list)
    counts = merged_table(pa.Table.from_batches(batches))
    nothing = set(every) - set(counts.column("cell").to_pylist())
    of_nothing = [(Merged(every[cell]), each) for cell in nothing for each in (False, True)]
    for merged, by_first_key in (*merged_of(counts, every), *of_nothing):
        for job in JOBS:
            for name, add_up in job.sums.items():
                found[name] += add_up(merged) if job.by_first_key == by_first_key else ()
    return found


def merged_table(counts: pa.Table) -> pa.Table:
    """What `judge.merged_counts` does, without Spark; all bounds of a cell stand in each of its rows."""
    table = {name: counts.column(name) for name in counts.column_names}
    keys, values = group_sums(
        [table[name].to_numpy() for name in ("kind", "cell", *_KEYS)],
        [table[name].to_numpy() for name in _VALUES],
    )
    # As `judge` reduces them.
    is_one = np.isin(keys[0], [kind.number for job in JOBS for kind in job.kinds if kind.is_summarised])
    n, x = values[:2]
    sums = (np.ones_like(n), n, x, n * n, n * x, x * x)
    values = [np.where(is_one, one, other) for one, other in zip(sums, values, strict=True)]
    reduced = [key if place < 2 else np.where(is_one, NOT_USED, key) for place, key in enumerate(keys)]
    keys, values = group_sums(reduced, values)
    bounds = counts.group_by("cell").aggregate([("least", "min"), ("most", "max")])
    by_cell = {row["cell"]: row for row in bounds.to_pylist()}
    told = [
        pa.array([by_cell[cell][name] for cell in keys[1].tolist()], pa.int64())
        for name in ("least_min", "most_max")
    ]
    return pa.table([pa.array(column) for column in (*keys, *values)] + told, names=COUNTS.names)


def unordered(sums: Mapping[str, Sequence[Row]]) -> dict[str, list[str]]:
    """Sums in a form in which equal ones compare equal: rows have no order."""
    return {name: sorted(json.dumps(row) for row in rows) for name, rows in sums.items()}


# --- Tables of Spark's ---------------------------------------------------------------------------------


def tables(spark: SparkSession, captured: Sequence[Captured]) -> dict[str, DataFrame]:
    """The tables of messages of these captures."""
    return {name: _table(spark, name, captured) for name in MESSAGE_COLUMNS}


def _table(spark: SparkSession, name: str, captured: Sequence[Captured]) -> DataFrame:
    parts = []
    for each in captured:
        read = each.capture.read(name, [column.name for column in TABLES[name]])
        cells = pa.array([each.cell.number] * len(read), pa.int32())
        parts.append(read.add_column(0, pa.field("cell", pa.int32()), cells))
    return _as_frame(spark, parts, table_schema(name))


def _as_frame(spark: SparkSession, parts: list[pa.Table], schema: StructType) -> DataFrame:
    # Spark reads a table only up to its first empty chunk.
    frame = spark.createDataFrame(pa.concat_tables(parts).combine_chunks())
    return frame.select(*(sf.col(field.name).cast(field.dataType) for field in schema))
