"""A job: it counts slices of the captures, and adds the merged counts up to small sums.

Counts of slices can be merged: those of all slices, in any order, are those of the whole. So a schema of
counts tells by its columns' metadata which columns are counts, and whether two of them are made one by their
sum, maximum or minimum; all other columns are keys. Counts are whole numbers, so that the order in which they
are added changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DecimalType, IntegerType, LongType, StructField, StructType

NOT_USED = -1
"""The value of a key that a row has no use for."""

WIDE = DecimalType(38, 0)
"""The type of sums of products: exact, where 64 bits could be too few."""

_MERGES = {"sum": sf.sum, "max": sf.max, "min": sf.min}
_HOW = "merge"


class Sources(NamedTuple):
    """What the jobs count. A slice of it has the rows of some messages, or of some time.

    `tables`: the captures' tables by name (`schemas.table_schema`); `parameters`: `parameters.PARAMETERS`;
    `pairs` and `paths`: what became of the messages, `walk.pairs.PAIRS` and `PATHS`.
    """

    tables: Mapping[str, DataFrame]
    parameters: DataFrame
    pairs: DataFrame
    paths: DataFrame


@dataclass(frozen=True, slots=True)
class Job:
    """Pure functions from DataFrames to DataFrames.

    `count` returns rows of the schema `counts`. Each of `sums`, by its name, takes the merged counts and
    returns what findings are made of: some 10,000 rows at most.
    """

    name: str
    counts: StructType
    count: Callable[[Sources], DataFrame]
    sums: Mapping[str, Callable[[DataFrame], DataFrame]]


# --- Schemas of counts -------------------------------------------------------------------------------


def keys(**fields: DataType) -> list[StructField]:
    """The columns by which counts are counted."""
    return [StructField(name, kind, True) for name, kind in fields.items()]


def counts(*names: str, how: str = "sum", kind: DataType | None = None) -> list[StructField]:
    """Columns of counts: int64, or another type of whole numbers; `how` is sum, max or min."""
    assert how in _MERGES and isinstance(kind, LongType | IntegerType | DecimalType | None)
    return [StructField(name, kind or LongType(), True, {_HOW: how}) for name in names]


def merge(parts: Sequence[DataFrame], schema: StructType) -> DataFrame:
    """Merges the counts of one or more parts: one row for each key.

    A part may have some of the schema's columns only: the others are null, as key and as count.
    """
    types = {field.name: field.dataType for field in schema}
    typed = [
        part.select(*(sf.col(name).cast(types[name]).alias(name) for name in part.columns)) for part in parts
    ]
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), typed)
    merged = [
        _MERGES[field.metadata[_HOW]](field.name).cast(field.dataType).alias(field.name)
        for field in schema
        if _HOW in field.metadata
    ]
    of_keys = [field.name for field in schema if _HOW not in field.metadata]
    return every.groupBy(*of_keys).agg(*merged).select(*schema.names)


def counted(frame: DataFrame, *keys: str, name: str) -> DataFrame:
    """The number of rows for each key, as column `name`.

    Long tables are better counted before `merge`, whose rows are wide.
    """
    return frame.groupBy(*keys).agg(sf.count("*").alias(name))


# --- Sums over clusters ------------------------------------------------------------------------------


def clusters_of(clusterings: Mapping[str, Sequence[str]], columns: Sequence[str]) -> Column:
    """The clusters that a row belongs to: an array, with a struct for each of `clusterings`.

    `clusterings` has the columns that each goes by. A struct has the clustering's name, and all `columns`:
    those that the clustering does not go by are NOT_USED.
    """
    nothing = sf.lit(NOT_USED).cast(LongType())
    clusters = [
        sf.struct(
            sf.lit(name).alias("clustering"),
            *((sf.col(column) if column in by else nothing).alias(column) for column in columns),
        )
        for name, by in clusterings.items()
    ]
    return sf.array(*clusters)


def over_clusters(counted: DataFrame, trials: str, successes: str) -> DataFrame:
    """Sums over clusters of n trials, x of them successes: one row for each cell and clustering.

    `counted` has the columns `cell`, `cluster` (one of `clusters_of`), and those named by `trials` and
    `successes`, which may be spread over several rows of a cluster. The sums: `clusters` (their number),
    trials (of n), successes (of x), `squares` (of n^2), `products` (of n x), `success_squares` (of x^2).
    """
    clusters = counted.groupBy("cell", "cluster").agg(sf.sum(trials).alias("n"), sf.sum(successes).alias("x"))
    n, x = (sf.col(name).cast(DecimalType(19, 0)) for name in ("n", "x"))
    return clusters.groupBy("cell", "cluster.clustering").agg(
        sf.count("*").alias("clusters"),
        sf.sum("n").alias(trials),
        sf.sum("x").alias(successes),
        sf.sum((n * n).cast(WIDE)).alias("squares"),
        sf.sum((n * x).cast(WIDE)).alias("products"),
        sf.sum((x * x).cast(WIDE)).alias("success_squares"),
    )
