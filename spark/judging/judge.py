"""Judges the messages of captures, part by part, and adds up what the jobs count of them.

    message_rows                 the rows of a message are brought together, packed
      -> count                   numpy judges a part and counts it: `COUNTS`
      -> merge                   counts with equal keys are added
      -> sum up                  the counts of a cell become sums, which come to the driver

All of it is one Spark job; where servers were restarted, another one before it asks when they first accepted
lines (`Admissions`). What is known besides messages is read beforehand, and sent to every worker.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, LongType, StringType, StructField, StructType

from kcast.loadtest.results.admissions import Admissions
from kcast.loadtest.results.attribution import admissions, judge
from kcast.loadtest.results.tables import Columns
from kcast.spark.capture.schemas import struct
from kcast.spark.jobs import (
    attribution,
    audience,
    balance,
    cost,
    deaf,
    draws,
    health,
    latency,
    losses,
    misses,
    reach,
    reliability,
    timeline,
)
from kcast.spark.jobs.job import KEYS_MAX, NOT_USED, VALUES_MAX, Around, Counts, Job, Merged, Part, Row
from kcast.spark.judging.rows import cell_of_row, unpacked

JOBS: tuple[Job, ...] = (
    *(health.JOB, reliability.JOB, attribution.JOB, latency.JOB),
    *(audience.JOB, reach.JOB, deaf.JOB, balance.JOB, cost.JOB, timeline.JOB),
    *(draws.JOB, misses.JOB, losses.JOB),
)

Batches = Iterator[pa.RecordBatch]
Arounds = Mapping[int, Around]
Sums = Mapping[str, Sequence[Row]]
"""The sums of all jobs, by the names in `Job.sums`."""

SUM_ROWS_MAX = 1_000_000
"""Upper bound on rows collected to the driver; more means that a job did not aggregate."""

_KEYS = [f"key_{number}" for number in range(KEYS_MAX)]
_VALUES = [f"value_{number}" for number in range(VALUES_MAX)]

COUNTS = StructType(
    [
        StructField("kind", ByteType(), False),
        StructField("cell", IntegerType(), False),
        *(StructField(name, LongType(), False) for name in (*_KEYS, *_VALUES)),
        *(StructField(name, LongType(), True) for name in ("least", "most")),
    ]
)
"""Counts of all kinds. Keys that a kind has not are NOT_USED, values that it has not are 0."""

_ARROW = pa.schema(
    [("kind", pa.int8()), ("cell", pa.int32())]
    + [(name, pa.int64()) for name in (*_KEYS, *_VALUES, "least", "most")]
)
_SUMS = StructType([StructField("name", StringType(), False), StructField("row", StringType(), False)])
_SUMS_ARROW = pa.schema([("name", pa.string()), ("row", pa.string())])

_ADMISSIONS = struct(cell=IntegerType(), boot_id=LongType(), pub_id=LongType(), t_ns=LongType())
_ADMISSIONS_ARROW = pa.schema(
    [("cell", pa.int32()), ("boot_id", pa.int64()), ("pub_id", pa.int64()), ("t_ns", pa.int64())]
)

# One row for each message and subscriber that should have received it.
PAIRS = struct(
    cell=IntegerType(),
    msg_id=LongType(),
    pub_id=IntegerType(),
    sub_id=IntegerType(),
    topic_id=IntegerType(),
    t_intended_ns=LongType(),
    epoch=IntegerType(),  # of the outages, from 0 when the load began
    cause=ByteType(),  # kcast.loadtest.results.causes.Cause
    latency_ns=LongType(),  # from t_intended_ns to the first copy in time; -1 without one
    copies=IntegerType(),  # number that arrived, late ones too
    heard=IntegerType(),  # number of servers that brought one in time
    chances=IntegerType(),  # `kcast.loadtest.results.attribution.Attribution.chances`
)
_PAIRS_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "tinyint": pa.int8()}
_PAIRS_ARROW = pa.schema([(field.name, _PAIRS_TYPES[field.dataType.simpleString()]) for field in PAIRS])


class Judge:
    """Judges the messages of some cells. `close` frees what was sent to the workers."""

    def __init__(self, spark: SparkSession, rows: DataFrame, arounds: Arounds) -> None:
        """`rows` are `judging.rows.message_rows`; those of cells that `arounds` has not are passed over."""
        self._spark = spark
        self._rows = rows
        self._sent: list[Broadcast[Any]] = []
        # Of servers that were never restarted, admissions are not asked for.
        self._restarted = [cell for cell, each in arounds.items() if each.surroundings.lives.were_restarted]
        self._arounds = self._send(dict(arounds))

    def close(self) -> None:
        """Frees what was sent to the workers. Idempotent."""
        while self._sent:
            self._sent.pop().destroy()

    def counts(self) -> DataFrame:
        """The counts of all jobs, `COUNTS`: one row for each kind, cell and keys."""
        counted = self._rows.mapInArrow(partial(_count, self._arounds, self._admitted), COUNTS)
        return merged_counts(counted)

    def pairs(self) -> DataFrame:
        """What became of each pair, `PAIRS`."""
        return self._rows.mapInArrow(partial(_pairs, self._arounds, self._admitted), PAIRS)

    def sums(self, counts: DataFrame) -> dict[str, list[Row]]:
        """The sums of all jobs, from merged counts."""
        return sums_of(self._spark, counts, self._arounds)

    @cached_property
    def _admitted(self) -> "Broadcast[Mapping[int, Admissions]]":
        return self._send(self._admissions() if self._restarted else {})

    def _send(self, value: Any) -> "Broadcast[Any]":
        self._sent.append(self._spark.sparkContext.broadcast(value))
        return self._sent[-1]

    def _admissions(self) -> dict[int, Admissions]:
        """When each life of a server first accepted a line of each publisher, among all messages."""
        rows = self._rows.where(cell_of_row().isin(self._restarted))
        found = rows.mapInArrow(partial(_admit, self._arounds), _ADMISSIONS)
        first = found.groupBy("cell", "boot_id", "pub_id").agg(sf.min("t_ns").alias("t_ns")).collect()
        by_cell: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for cell, *row in first:
            by_cell[cell].append((row[0], row[1], row[2]))
        return {
            cell: Admissions.earliest(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)
            for cell, rows in by_cell.items()
        }


def merged_counts(counts: DataFrame) -> DataFrame:
    """Merges `COUNTS`: one row for each kind, cell and keys."""
    bounds = (sf.min("least").alias("least"), sf.max("most").alias("most"))
    sums = [sf.sum(name).alias(name) for name in _VALUES]
    return counts.groupBy("kind", "cell", *_KEYS).agg(*sums, *bounds)


def sums_of(spark: SparkSession, counts: DataFrame, arounds: "Broadcast[Arounds]") -> dict[str, list[Row]]:
    """The sums of all jobs, from merged counts."""
    kinds = [kind.number for job in JOBS if job.by_first_key for kind in job.kinds]
    together = sf.when(sf.col("kind").isin(kinds), sf.col(_KEYS[0])).otherwise(NOT_USED)
    parts = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    few = _reduced(counts)
    by_cell = few.repartition(parts, "cell", together) if parts > 1 else few.coalesce(1)
    found: dict[str, list[Row]] = {name: [] for job in JOBS for name in job.sums}
    met: set[int] = set()
    rows = by_cell.mapInArrow(partial(_sum_up, arounds), _SUMS).collect()
    if len(rows) > SUM_ROWS_MAX:
        raise AssertionError(f"the sums have {len(rows):,} rows: they were not added up")
    for name, row in rows:
        told = json.loads(row)
        found[name].append(told)
        met.add(told["cell"])
    for cell in sorted(set(arounds.value) - met):  # without a single row
        nothing = Merged(arounds.value[cell])
        for job in JOBS:
            for name, add_up in job.sums.items():
                found[name] += add_up(nothing)
    return found


def _reduced(counts: DataFrame) -> DataFrame:
    """Merged counts, in which kinds that are only `summarised` have one row for a cell."""
    kinds = [kind.number for job in JOBS for kind in job.kinds if kind.is_summarised]
    is_one = sf.col("kind").isin(kinds)
    keys = [sf.when(is_one, NOT_USED).otherwise(sf.col(name)).alias(name) for name in _KEYS]
    n, x = (sf.col(name) for name in _VALUES[:2])
    values = zip(_VALUES, (sf.lit(1), n, x, n * n, n * x, x * x), strict=True)  # `job.cluster_sums`
    return counts.groupBy("kind", "cell", *keys).agg(
        *(sf.sum(sf.when(is_one, one).otherwise(sf.col(name))).alias(name) for name, one in values),
        sf.min("least").alias("least"),
        sf.max("most").alias("most"),
    )


# --- In Spark's workers ------------------------------------------------------------------------------


def _parts(
    arounds: "Broadcast[Arounds]", admitted: "Broadcast[Mapping[int, Admissions]]", batches: Batches
) -> Iterator[Part]:
    for cell, messages in unpacked(batches).items():
        around = arounds.value.get(cell)
        if around is not None:
            found = judge(around.surroundings, messages, admitted=admitted.value.get(cell))
            yield Part(around, messages, found)


def _count(
    arounds: "Broadcast[Arounds]", admitted: "Broadcast[Mapping[int, Admissions]]", batches: Batches
) -> Batches:
    for part in _parts(arounds, admitted, batches):
        for job in JOBS:
            yield from table_of(part.around.cell, job.count(part))


def _pairs(
    arounds: "Broadcast[Arounds]", admitted: "Broadcast[Mapping[int, Admissions]]", batches: Batches
) -> Batches:
    for part in _parts(arounds, admitted, batches):
        yield from pairs_of(part).to_batches()


def _admit(arounds: "Broadcast[Arounds]", batches: Batches) -> Batches:
    for cell, messages in unpacked(batches).items():
        around = arounds.value.get(cell)
        if around is not None and around.surroundings.lives.were_restarted:
            found = admissions(around.surroundings, messages)
            columns = (np.full(len(found.boots), cell, np.int32), found.boots, found.pubs, found.times)
            arrays = [pa.array(column) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ADMISSIONS_ARROW)


def _sum_up(arounds: "Broadcast[Arounds]", batches: Batches) -> Batches:
    given = list(batches)
    counts = pa.Table.from_batches(given) if given else _ARROW.empty_table()
    for merged, by_first_key in merged_of(counts, arounds.value):
        for job in JOBS:
            if job.by_first_key == by_first_key:
                for name, add_up in job.sums.items():
                    rows = [json.dumps(row) for row in add_up(merged)]
                    columns = [pa.array([name] * len(rows), pa.string()), pa.array(rows, pa.string())]
                    yield pa.RecordBatch.from_arrays(columns, schema=_SUMS_ARROW)


# --- Tables of counts --------------------------------------------------------------------------------


def pairs_of(part: Part) -> pa.Table:
    """The pairs of a part, `PAIRS`."""
    found = part.found
    columns = (
        *(np.full(len(found), part.around.cell), found.msg_ids, found.pub_ids, found.sub_ids, found.topics),
        *(found.t_intended_ns, part.epochs, found.causes, found.latencies_ns),
        *(found.copies_of, found.heard, found.chances),
    )
    typed = [pa.array(column).cast(kind) for column, kind in zip(columns, _PAIRS_ARROW.types, strict=True)]
    return pa.Table.from_arrays(typed, schema=_PAIRS_ARROW)


def table_of(cell: int, every: Iterable[Counts]) -> Iterator[pa.RecordBatch]:
    """The counts of a cell as `COUNTS`."""
    for counts in every:
        rows = len(counts.values[0]) if counts.values else len(counts.keys[0])
        if not rows:
            continue
        unused, nothing = np.full(rows, NOT_USED, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        keys = [*counts.keys, *[unused] * (KEYS_MAX - len(counts.keys))]
        values = [*counts.values, *[nothing] * (VALUES_MAX - len(counts.values))]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(rows, counts.kind.number, dtype=np.int8)),
                pa.array(np.full(rows, cell, dtype=np.int32)),
                *(pa.array(np.asarray(column).astype(np.int64, copy=False)) for column in (*keys, *values)),
                *(pa.array([bound] * rows, pa.int64()) for bound in (counts.least, counts.most)),
            ],
            schema=_ARROW,
        )


def merged_of(counts: pa.Table, arounds: Arounds) -> Iterator[tuple[Merged, bool]]:
    """The merged counts of each cell: those of the jobs that sum up `by_first_key`, and those of all
    others."""
    columns: Columns = {name: counts.column(name).to_numpy() for name in ("kind", "cell", *_KEYS, *_VALUES)}
    for cell in np.unique(columns["cell"]).tolist():
        own = np.flatnonzero(columns["cell"] == cell)
        kinds = columns["kind"][own]
        for by_first_key in (False, True):
            merged = Merged(arounds[cell])
            for kind in (kind for job in JOBS if job.by_first_key == by_first_key for kind in job.kinds):
                rows = own[kinds == kind.number]
                if len(rows):
                    keys, values = kind.columns
                    places, names = (*_KEYS[: len(keys)], *_VALUES[: len(values)]), (*keys, *values)
                    merged.columns[kind.number] = {
                        name: columns[place][rows] for name, place in zip(names, places, strict=True)
                    }
            if not by_first_key:
                bounds = counts.select(["least", "most"]).filter(pa.array(columns["cell"] == cell))
                merged.least = min(bounds.column("least").drop_null().to_pylist(), default=None)
                merged.most = max(bounds.column("most").drop_null().to_pylist(), default=None)
            if merged.columns:
                yield merged, by_first_key
