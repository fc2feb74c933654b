"""What became of pairs, by cause and by how many servers brought the message in time; and of paths, by
cause."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, StructType

from kcast.spark.jobs.job import Job, Sources, counts, keys, merge

COUNTS = StructType(
    [
        *keys(cell=IntegerType(), cause=ByteType(), heard=IntegerType()),
        *counts("pairs", "copies"),  # by cause and heard
        *counts("paths"),  # by cause; heard is null
    ]
)


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from `PAIRS` and `PATHS`."""
    pairs = sources.pairs.groupBy("cell", "cause", "heard")
    return merge(
        [pairs.agg(sf.count("*").alias("pairs"), sf.sum("copies").alias("copies")), sources.paths], COUNTS
    )


def causes(merged: DataFrame) -> DataFrame:
    """A row for each cell and cause, DELIVERED too: `pairs`, `copies` that came for these, and `paths`."""
    return merged.groupBy("cell", "cause").agg(
        *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in ("pairs", "copies", "paths"))
    )


def heard(merged: DataFrame) -> DataFrame:
    """A row for each cell and number of servers `heard`, from 0 to the servers of a topic: `pairs`."""
    counted = merged.where(sf.col("heard").isNotNull())
    return counted.groupBy("cell", "heard").agg(sf.sum("pairs").alias("pairs"))


JOB = Job("attribution", COUNTS, count, {"causes": causes, "heard": heard})
