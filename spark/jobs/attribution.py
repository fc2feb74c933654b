"""How many pairs were missed for each cause, and how many ways through a server ended so."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, StructType

from kcast.spark.jobs.job import Job, Sources
from kcast.spark.jobs.merging import counts, keys, merge_all

COUNTS = StructType([*keys(cell=IntegerType(), cause=ByteType()), *counts("pairs", "paths")])


def count(sources: Sources) -> DataFrame:
    """Pairs, delivered ones too, and paths, by cause."""
    none = sf.lit(0).cast("long")
    pairs = sources.pairs.groupBy("cell", "cause").agg(sf.count(sf.lit(1)).alias("pairs"))
    return merge_all(
        [
            pairs.select("cell", "cause", "pairs", none.alias("paths")),
            sources.paths.select("cell", "cause", none.alias("pairs"), "paths"),
        ],
        COUNTS,
    )


def causes(merged: DataFrame) -> DataFrame:
    """The counts as they are: at most 21 of a cell."""
    return merged


JOB = Job("attribution", COUNTS, count, {"causes": causes})
