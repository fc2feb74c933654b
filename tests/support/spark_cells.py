"""Captures as cells of DataFrames, with their pairs as numpy judges them: the sources of jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from kcast.loadtest.capture.folder import ScenarioFolder
from kcast.loadtest.capture.schema import DUPLICATE, PASSED, TABLES
from kcast.loadtest.results.attribution import Attribution, attribute
from kcast.loadtest.results.tables import columns
from kcast.spark.capture.parameters import parameters
from kcast.spark.capture.schemas import table_schema
from kcast.spark.findings.cells import Cell
from kcast.spark.jobs.job import Job, Sources, merge
from kcast.spark.walk.pairs import PAIRS, PATHS

Row = dict[str, Any]
Shuffle = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Captured:
    """A capture and its cell."""

    cell: Cell
    capture: ScenarioFolder

    @cached_property
    def attribution(self) -> Attribution:
        """What became of its pairs, by numpy."""
        return attribute(self.capture)

    def columns(self, table: str, *names: str) -> dict[str, Any]:
        """Columns of one of its tables."""
        return columns(self.capture, table, *names)

    def pairs(self) -> pa.Table:
        """`PAIRS`, in which `heard` and `chances` are 0."""
        found, cell = self.attribution, self.cell
        copies = self._copies()
        keys = zip(found.msg_ids.tolist(), found.sub_ids.tolist(), strict=True)
        nothing = np.zeros(len(found))
        values = {
            "cell": np.full(len(found), cell.number),
            "msg_id": found.msg_ids,
            "pub_id": found.msg_ids >> 32,
            "sub_id": found.sub_ids,
            "topic_id": found.topics,
            "t_intended_ns": found.t_intended_ns,
            "epoch": (found.t_intended_ns - cell.t0_ns) // round(cell.scenario.epoch_s * 1e9),
            "cause": found.causes,
            "latency_ns": found.latencies_ns,
            "copies": np.array([copies.get(key, 0) for key in keys]),
            "heard": nothing,
            "chances": nothing,
        }
        return pa.table({name: pa.array(column.astype(np.int64)) for name, column in values.items()})

    def _copies(self) -> dict[tuple[int, int], int]:
        """The number of copies that arrived, by message and subscriber."""
        deliver = self.columns("deliver", "msg_id", "sub_id", "server_id", "injected")
        arrived = np.isin(deliver["injected"], (PASSED, DUPLICATE)) & (deliver["server_id"] >= 0)
        both = np.stack((deliver["msg_id"][arrived], deliver["sub_id"][arrived].astype(np.int64)), axis=1)
        keys, counts = np.unique(both, axis=0, return_counts=True)
        return {(msg, sub): count for (msg, sub), count in zip(keys.tolist(), counts.tolist(), strict=True)}

    def paths(self) -> list[tuple[int, int, int]]:
        """Rows of `PATHS`."""
        return [(self.cell.number, int(cause), count) for cause, count in self.attribution.paths.items()]


def as_cells(folders: Sequence[ScenarioFolder], statuses: Sequence[str] = ()) -> list[Captured]:
    """The captures as cells, numbered from 0; their windows tell when the load began."""
    found = []
    for number, folder in enumerate(folders):
        froms = columns(folder, "window", "t_from_ns")["t_from_ns"]
        t0_ns = int(froms.min()) if len(froms) else 0
        cell = Cell(number, "run", folder.scenario, statuses[number] if statuses else folder.status, t0_ns)
        found.append(Captured(cell, folder))
    return found


def sources(spark: SparkSession, captured: Sequence[Captured]) -> Sources:
    """The sources of jobs that these captures make together."""
    return Sources(
        tables={name: _table(spark, name, captured) for name in TABLES},
        parameters=parameters(spark, [each.cell for each in captured]),
        pairs=_as_frame(spark, [each.pairs() for each in captured], PAIRS),
        paths=spark.createDataFrame([row for each in captured for row in each.paths()], PATHS),
    )


def _table(spark: SparkSession, name: str, captured: Sequence[Captured]) -> DataFrame:
    parts = []
    for each in captured:
        read = each.capture.read(name, [column.name for column in TABLES[name]])
        cells = pa.array([each.cell.number] * len(read), pa.int32())
        parts.append(read.add_column(0, pa.field("cell", pa.int32()), cells))
    return _as_frame(spark, parts, table_schema(name))


def _as_frame(spark: SparkSession, parts: list[pa.Table], schema: StructType) -> DataFrame:
    # Spark reads a table only up to its first empty chunk.
    whole = pa.concat_tables(parts).combine_chunks()
    plain = [
        whole.column(index).cast(kind.value_type) if pa.types.is_dictionary(kind) else whole.column(index)
        for index, kind in enumerate(whole.schema.types)
    ]
    frame = spark.createDataFrame(pa.table(plain, names=whole.column_names))
    return frame.select(*(sf.col(field.name).cast(field.dataType) for field in schema))


def shuffled(of: Sources, shuffle: Shuffle) -> Sources:
    """The same rows, each table passed through `shuffle`."""
    tables = {name: shuffle(table) for name, table in of.tables.items()}
    return Sources(tables, shuffle(of.parameters), shuffle(of.pairs), shuffle(of.paths))


def sums_of(jobs: Sequence[Job], slices: Sequence[Sources]) -> dict[str, list[Row]]:
    """The sums of all jobs, from the merged counts of the slices."""
    found: dict[str, list[Row]] = {}
    for job in jobs:
        merged = merge([job.count(part) for part in slices], job.counts).persist()
        assert merged.schema.names == job.counts.names
        for name, add_up in job.sums.items():
            assert name not in found
            found[name] = [row.asDict() for row in add_up(merged).collect()]
        merged.unpersist()
    return found


def unordered(sums: Mapping[str, Sequence[Row]]) -> dict[str, list[str]]:
    """Sums in a form in which equal ones compare equal: rows have no order."""
    return {name: sorted(map(repr, rows)) for name, rows in sums.items()}
