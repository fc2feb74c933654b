"""What a capture tells of the run itself: the figures of `kcast.loadtest.results.health.examine`.

Counters are read once a second, and their rises count; messages belong to windows that are known only when
the load is over. Neither follows from a slice alone. So the counts of a slice are these readings and messages
themselves, each once by its keys, and the sums look at them in order.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from kcast.spark.jobs.job import Job, Sources, counts, keys, merge

COUNTS = StructType(
    [
        *keys(
            cell=IntegerType(),
            msg_id=LongType(),
            pub_id=IntegerType(),
            client_id=IntegerType(),
            server_id=IntegerType(),
            boot_id=LongType(),
            process=StringType(),
            t_ns=LongType(),
            t_to_ns=LongType(),
        ),
        *counts("deadline_ns", how="max"),  # of the cell
        *counts("of_pub", "t_intended_ns", how="min"),  # by msg_id
        *counts("scheduled", how="max"),  # by pub_id, t_ns, t_to_ns: a window
        *counts("lag_max_ns", "rows_lost", how="max"),  # by process, t_ns
        *counts("overflows", "send_errors", "slow_consumer", how="max"),  # by client_id, t_ns
        *counts("server_overflows", how="max"),  # by server_id, t_ns
        *counts("lost_lines", "cut_short", how="max"),  # by server_id, boot_id, t_ns: a life
        *counts("killed", how="max"),  # by server_id, t_ns
        *counts("clock_error_ns", how="max"),  # of the cell
    ]
)

_COUNTERS = {
    "rows_lost": "rows_lost",
    "overflows": "client_overflows",
    "send_errors": "send_errors",
    "slow_consumer": "slow_consumer",
    "server_overflows": "server_overflows",
}
"""Counters, which rise until they begin again at 0: columns of `COUNTS`, and of `health` for the sum of
rises."""


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from `PARAMETERS` and the tables publish, window, process_stat, client_stat,
    server_stat, server_life, outage and clock."""
    tables = sources.tables
    overflows = sf.col("kernel_drops")
    cut_short = (sf.col("ended") == 0).cast("int").alias("cut_short")
    kills = tables["outage"].where("kind = 'kill'")
    return merge(
        [
            sources.parameters.select("cell", "deadline_ns"),
            tables["publish"].select("cell", "msg_id", sf.col("pub_id").alias("of_pub"), "t_intended_ns"),
            tables["window"].select(
                "cell", "pub_id", sf.col("t_from_ns").alias("t_ns"), "t_to_ns", "scheduled"
            ),
            tables["process_stat"].select("cell", "process", "t_ns", "lag_max_ns", "rows_lost"),
            tables["client_stat"].select(
                "cell", "client_id", "t_ns", overflows.alias("overflows"), "send_errors", "slow_consumer"
            ),
            tables["server_stat"].select("cell", "server_id", "t_ns", overflows.alias("server_overflows")),
            tables["server_life"].select(
                "cell", "server_id", "boot_id", sf.col("t_from_ns").alias("t_ns"), "lost_lines", cut_short
            ),
            kills.select("cell", "server_id", sf.col("t_down_ns").alias("t_ns"), sf.lit(1).alias("killed")),
            tables["clock"].select("cell", sf.abs("error_ns").alias("clock_error_ns")),
        ],
        COUNTS,
    )


def figures(merged: DataFrame) -> DataFrame:
    """A row for each cell; 0 where nothing tells of something.

    `scheduled` and `published`: messages to publish in windows, and those of them that were;
    `tap_lines_lost`: lines that taps could not write; `clock_error_ns`: the largest; `lag_max_ns`: how late
    processes were at most during the load; rises of the `_COUNTERS`.
    """
    is_window = sf.col("scheduled").isNotNull()
    begins = sf.least(sf.min("t_intended_ns"), sf.min(sf.when(is_window, sf.col("t_ns"))))
    ends = sf.greatest(sf.max("t_intended_ns"), sf.max(sf.when(is_window, sf.col("t_to_ns"))))
    whole = merged.groupBy("cell").agg(
        sf.sum("scheduled").alias("scheduled"),
        sf.sum("lost_lines").alias("tap_lines_lost"),
        sf.max("clock_error_ns").alias("clock_error_ns"),
        begins.alias("begin_ns"),
        (ends + sf.max("deadline_ns")).alias("end_ns"),
    )
    names = ("scheduled", "tap_lines_lost", "clock_error_ns", "published", "lag_max_ns", *_COUNTERS.values())
    return (
        whole.join(_published(merged), on="cell", how="left")
        .join(_read_in_order(merged, whole), on="cell", how="left")
        .select("cell", *(sf.coalesce(name, sf.lit(0)).alias(name) for name in names))
    )


def servers_lost(merged: DataFrame) -> DataFrame:
    """A row for each cell and server that ended by itself: a life's tap was cut short, and there is no kill
    between that life's beginning and the next one's. A kill before the first life counts for that.
    """
    own = ["cell", "server_id"]
    in_order = Window.partitionBy(*own).orderBy("t_ns", "boot_id")
    lives = merged.where(sf.col("lost_lines").isNotNull()).select(*own, "boot_id", "t_ns", "cut_short")
    kills = merged.where("killed = 1").select(*own, sf.col("t_ns").alias("killed_ns"))
    is_before = sf.col("killed_ns").isNotNull() & (
        sf.col("next_ns").isNull() | (sf.col("killed_ns") < sf.col("next_ns"))
    )
    return (
        lives.withColumn("next_ns", sf.lead("t_ns").over(in_order))
        .join(kills, on=own, how="left")
        .groupBy(*own, "boot_id", "t_ns")
        .agg(sf.max("cut_short").alias("cut_short"), sf.count_if(is_before).alias("kills"))
        .withColumn("kills_before", sf.lag("kills", 1, 0).over(in_order))
        .where("cut_short = 1 AND kills = kills_before")
        .select(*own)
        .distinct()
    )


def _published(merged: DataFrame) -> DataFrame:
    """`cell, published`: messages that were to be published in a window of their publisher."""
    windows = merged.where(sf.col("scheduled").isNotNull()).select(
        "cell", "pub_id", sf.col("t_ns").alias("from_ns"), sf.col("t_to_ns").alias("to_ns")
    )
    messages = merged.where("msg_id >= 0").select("cell", sf.col("of_pub").alias("pub_id"), "t_intended_ns")
    return (
        messages.join(sf.broadcast(windows), on=["cell", "pub_id"], how="inner")
        .where("from_ns <= t_intended_ns AND t_intended_ns < to_ns")
        .groupBy("cell")
        .agg(sf.count("*").alias("published"))
    )


def _read_in_order(merged: DataFrame, spans: DataFrame) -> DataFrame:
    """`cell`, the rises of counters from reading to reading, and `lag_max_ns`: how late a process was at
    most.

    A counter that is lower than before began again. Lateness counts from the first window or message to the
    deadline of the last.
    """
    readers = ("process", "client_id", "server_id")
    is_reading = sf.coalesce(*_COUNTERS).isNotNull()
    in_order = Window.partitionBy("cell", *readers).orderBy("t_ns")

    def rise(name: str) -> Column:
        value, before = sf.col(name), sf.lag(name, 1, 0).over(in_order)
        return sf.when(value < before, value).otherwise(value - before)

    rises = merged.where(is_reading).select(
        "cell", "t_ns", "lag_max_ns", *(rise(name).alias(figure) for name, figure in _COUNTERS.items())
    )
    is_meanwhile = (sf.col("begin_ns") <= sf.col("t_ns")) & (sf.col("t_ns") <= sf.col("end_ns"))
    return (
        rises.join(sf.broadcast(spans.select("cell", "begin_ns", "end_ns")), on="cell", how="inner")
        .groupBy("cell")
        .agg(
            sf.max(sf.when(is_meanwhile, sf.col("lag_max_ns"))).alias("lag_max_ns"),
            *(sf.sum(figure).alias(figure) for figure in _COUNTERS.values()),
        )
    )


JOB = Job("health", COUNTS, count, {"health": figures, "servers_lost": servers_lost})
