"""The number of parts into which Spark divides rows."""

from pyspark.sql import SparkSession

PART_ROWS_MAX = 750_000
"""Number of rows that a core's memory can sort."""

PART_ROWS_MIN = 50_000
"""Below this number of rows a part of its own costs more than it saves."""

_SETTING = "spark.sql.shuffle.partitions"


def divide(spark: SparkSession, rows: int) -> None:
    """Sets Spark's number of parts for tables of at most `rows` rows.

    Does nothing if the user's configuration sets it.
    """
    context = spark.sparkContext
    if not context.getConf().contains(_SETTING):
        spark.conf.set(_SETTING, parts(rows, context.defaultParallelism))


def parts(rows: int, cores: int) -> int:
    """Number of parts: one for each core, fewer for few rows, and more for many."""
    return max(1, min(cores, rows // PART_ROWS_MIN), -(-rows // PART_ROWS_MAX))
