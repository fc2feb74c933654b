"""Counts of several kinds in one table: each kind has some of its columns, the others are null."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from kcast.spark.jobs.merging import merge


def put_together(parts: Sequence[DataFrame], schema: StructType) -> DataFrame:
    """Rows of all parts as counts of this schema, one row for each key; a part's columns are some of it."""
    types = {field.name: field.dataType for field in schema}
    typed = [
        part.select(*(sf.col(name).cast(types[name]).alias(name) for name in part.columns)) for part in parts
    ]

    def joined(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    return merge(reduce(joined, typed), schema)


def counted(frame: DataFrame, *keys: str, name: str) -> DataFrame:
    """How many rows there are for each key, as column `name`.

    Long tables are better counted before they are put together, as what is put together is wide.
    """
    return frame.groupBy(*keys).agg(sf.count("*").alias(name))
