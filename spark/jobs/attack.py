"""Pairs by how many servers brought them: what would be left of them if some of these were blocked."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StructType

from kcast.spark.jobs.job import Job, Sources
from kcast.spark.jobs.merging import counts, keys

COUNTS = StructType([*keys(cell=IntegerType(), heard=IntegerType()), *counts("pairs")])


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice."""
    return sources.pairs.groupBy("cell", "heard").agg(sf.count("*").alias("pairs"))


def heard(merged: DataFrame) -> DataFrame:
    """The counts, as they are: as many rows as a topic has servers, at most."""
    return merged.select("cell", "heard", "pairs")


JOB = Job(name="attack", counts=COUNTS, count=count, sums={"heard": heard})
