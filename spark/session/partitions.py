"""Into how many parts Spark divides rows."""

from pyspark.sql import SparkSession

PART_ROWS_MAX = 750_000
"""So many are sorted in the memory that a core has."""

PART_ROWS_MIN = 50_000
"""A part with fewer costs more than it is worth."""

_SETTING = "spark.sql.shuffle.partitions"


def divide(spark: SparkSession, rows: int) -> None:
    """Has Spark divide tables of which the longest has so many rows; unless its configuration says how."""
    context = spark.sparkContext
    if not context.getConf().contains(_SETTING):
        spark.conf.set(_SETTING, parts(rows, context.defaultParallelism))


def parts(rows: int, cores: int) -> int:
    """One for each core, fewer where there is little to do, and more where there is much."""
    return max(1, min(cores, rows // PART_ROWS_MIN), -(-rows // PART_ROWS_MAX))
