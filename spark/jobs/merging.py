"""Counts that can be merged: what one slice of a capture gives, so that slices add up to the whole.

A schema of counts says by its columns' metadata which of them are counts, and how two are made one; all
others are keys. Counts are whole numbers, so that the order in which they are added changes nothing.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DecimalType, IntegerType, LongType, StructField, StructType

_MERGES = {"sum": sf.sum, "max": sf.max, "min": sf.min}
_HOW = "merge"


def keys(**fields: DataType) -> list[StructField]:
    """The columns by which counts are counted."""
    return [StructField(name, kind, True) for name, kind in fields.items()]


def counts(*names: str, how: str = "sum", kind: DataType | None = None) -> list[StructField]:
    """Columns of counts: int64, or another type of whole numbers; `how` is sum, max or min."""
    assert how in _MERGES and isinstance(kind, LongType | IntegerType | DecimalType | None)
    return [StructField(name, kind or LongType(), True, {_HOW: how}) for name in names]


def merge(parts: DataFrame, schema: StructType) -> DataFrame:
    """Rows of one or several slices with this schema as one row for each key."""
    of_counts = [field for field in schema if _HOW in field.metadata]
    of_keys = [field.name for field in schema if _HOW not in field.metadata]
    merged = [
        _MERGES[field.metadata[_HOW]](field.name).cast(field.dataType).alias(field.name)
        for field in of_counts
    ]
    return parts.groupBy(*of_keys).agg(*merged).select(*schema.names)


def merge_all(parts: list[DataFrame], schema: StructType) -> DataFrame:
    """The same of several DataFrames, of which there is at least one."""
    return merge(reduce(DataFrame.unionByName, parts), schema)
