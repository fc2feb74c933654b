"""How long messages took: how many times there were of each value of three significant figures.

Since when is told in `since`:

    intended   from when a message was to be published to a pair's first copy in time: no delay is left out
    sent       from when the client was given it, to the same copy
    delay      from when it was to be published to when the client was given it; of messages, not of pairs

Rounding is done in whole numbers, as `kcast.loadtest.results.percentiles.rounded` does it, so that
percentiles are the same, and none depends on the order of rows. A decade has 900 values: what is counted
stays small.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from kcast.loadtest.results.causes import Cause
from kcast.spark.jobs.job import Job, Sources
from kcast.spark.jobs.merging import counts, keys
from kcast.spark.jobs.parts import put_together

INTENDED, SENT, DELAY = "intended", "sent", "delay"

COUNTS = StructType(
    [
        *keys(cell=IntegerType(), since=StringType(), value_ns=LongType()),
        *counts("count", "total_ns"),  # total_ns: of the times as they were, for their mean
    ]
)

_DIGITS = 3
_DIGITS_MAX = 18  # 10^18 ns are 31 years


def rounded(time_ns: Column) -> Column:
    """To three significant figures, halves up, of int64; none is below 0."""
    unit = sf.lit(10 ** (_DIGITS_MAX - _DIGITS))
    for digits in range(_DIGITS_MAX - 1, _DIGITS - 1, -1):
        unit = sf.when(time_ns < 10**digits, sf.lit(10 ** (digits - _DIGITS)).cast("long")).otherwise(unit)
    whole = time_ns + sf.shiftright(unit, 1)
    return whole - sf.pmod(whole, unit)


def count(sources: Sources) -> DataFrame:
    """Each time of each kind, by its value."""
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
    return put_together(
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
    """The counts as they are."""
    return merged


JOB = Job("latency", COUNTS, count, {"latency_buckets": buckets})
