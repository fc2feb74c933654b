"""Sums over clusters of trials, from which findings tell how many independent trials these are worth."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType, LongType

WIDE = DecimalType(38, 0)
"""For sums of squares: exact, where 64 bits could be too few."""

NOBODY = -1
"""In keys that a row has no use for."""


def clusters_of(clusterings: Mapping[str, Sequence[str]], columns: Sequence[str]) -> Column:
    """The clusters that a row belongs to, by the name of a clustering and those columns that it goes by."""
    nothing = sf.lit(NOBODY).cast(LongType())
    clusters = [
        sf.struct(
            sf.lit(name).alias("clustering"),
            *((sf.col(column) if column in by else nothing).alias(column) for column in columns),
        )
        for name, by in clusterings.items()
    ]
    return sf.array(*clusters)


def over_clusters(counted: DataFrame, trials: str, successes: str) -> DataFrame:
    """Sums over the clusters `of` each clustering: of 1, n, x, n^2, n x, x^2."""
    clusters = counted.groupBy("cell", "of").agg(sf.sum(trials).alias("n"), sf.sum(successes).alias("x"))
    n, x = (sf.col(name).cast(DecimalType(19, 0)) for name in ("n", "x"))
    return clusters.groupBy("cell", "of.clustering").agg(
        sf.count("*").alias("clusters"),
        sf.sum("n").alias(trials),
        sf.sum("x").alias(successes),
        sf.sum((n * n).cast(WIDE)).alias("squares"),
        sf.sum((n * x).cast(WIDE)).alias("products"),
        sf.sum((x * x).cast(WIDE)).alias("hits"),
    )
