"""Latencies: the number of times with each value, to three significant figures.

`since` tells what was timed:

    intended   from when a message was to be published to a pair's first copy in time: no delay is left out
    sent       from when the client was given the message to the same copy
    delay      from when it was to be published to when the client was given it; of messages, not of pairs

Times are rounded in whole numbers, as by `kcast.loadtest.results.percentiles.rounded`, so that percentiles
are the same, and do not depend on the order of rows. A decade has 900 values: the counts stay few.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from kcast.loadtest.results.causes import Cause
from kcast.spark.jobs.job import Job, Sources, counts, keys, merge

INTENDED, SENT, DELAY = "intended", "sent", "delay"

COUNTS = StructType(
    [
        *keys(cell=IntegerType(), since=StringType(), value_ns=LongType()),
        *counts("count", "total_ns"),  # total_ns: sum of the times before they were rounded, for their mean
    ]
)

_DIGITS = 3
_DIGITS_MAX = 18  # 10^18 ns are 31 years


def rounded(time_ns: Column) -> Column:
    """A time, int64 and not below 0, rounded to three significant figures, halves up."""
    unit = sf.lit(10 ** (_DIGITS_MAX - _DIGITS))
    for digits in range(_DIGITS_MAX - 1, _DIGITS - 1, -1):
        unit = sf.when(time_ns < 10**digits, sf.lit(10 ** (digits - _DIGITS)).cast("long")).otherwise(unit)
    whole = time_ns + sf.shiftright(unit, 1)
    return whole - sf.pmod(whole, unit)


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from `PAIRS` and the table publish. Times below 0 count as 0."""
    messages = sources.tables["publish"]
    sent = messages.groupBy("cell", "msg_id").agg(sf.min("t_send_ns").alias("t_send_ns"))
    delivered = sources.pairs.where(sf.col("cause") == int(Cause.DELIVERED))
    after_intended = sf.col("latency_ns")
    after_sent = after_intended + sf.col("t_intended_ns") - sf.col("t_send_ns")
    of_pairs = delivered.join(sent, on=["cell", "msg_id"], how="inner").select(
        "cell", sf.explode(sf.array(_time(INTENDED, after_intended), _time(SENT, after_sent))).alias("time")
    )
    delay = sf.col("t_send_ns") - sf.col("t_intended_ns")
    of_messages = messages.select("cell", _time(DELAY, delay).alias("time"))
    times = of_pairs.unionByName(of_messages).select(
        "cell", sf.col("time.since").alias("since"), sf.greatest("time.ns", sf.lit(0)).alias("ns")
    )
    return merge(
        [
            times.select(
                "cell",
                "since",
                rounded(sf.col("ns")).alias("value_ns"),
                sf.lit(1).alias("count"),
                sf.col("ns").alias("total_ns"),
            )
        ],
        COUNTS,
    )


def _time(since: str, ns: Column) -> Column:
    return sf.struct(sf.lit(since).alias("since"), ns.alias("ns"))


def buckets(merged: DataFrame) -> DataFrame:
    """The counts: a row for each cell, `since` and value."""
    return merged


JOB = Job("latency", COUNTS, count, {"latency_buckets": buckets})
