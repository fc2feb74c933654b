"""What was sent for what arrived: messages, sendings, renewals and copies, and what became of pairs."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, LongType, StructType

from kcast.loadtest.capture.schema import DUPLICATE
from kcast.spark.jobs.job import Job, Sources
from kcast.spark.jobs.merging import counts, keys
from kcast.spark.jobs.parts import counted, put_together

# Lines that renew leases are counted by tenths of a second, as it is not known before all windows are where
# the load ended.
TENTH_NS = 100_000_000

COUNTS = StructType(
    [
        *keys(cell=IntegerType(), cause=ByteType(), tenth=LongType()),
        *counts("messages", "message_bytes", "sendings"),
        *counts("renewals"),  # by tenth: t_tx_ns / TENTH_NS
        *counts("pairs", "copies", "paths"),  # by cause
        *counts("from_ns", how="min"),  # of all windows and messages
        *counts("to_ns", how="max"),
    ]
)


def count(sources: Sources) -> DataFrame:
    """Of the cell, by tenth of a second, and by cause."""
    tables = sources.tables
    # An extra copy is the network's doing, not the client's.
    by_clients = sf.col("injected") != DUPLICATE
    renewed = (
        tables["subscribe"]
        .where(by_clients)
        .join(sf.broadcast(sources.parameters.select("cell", "t0_ns")), on="cell", how="inner")
    )
    in_load = renewed.where("t_tx_ns >= t0_ns").select(
        "cell", sf.expr(f"t_tx_ns div {TENTH_NS}").alias("tenth")
    )
    messages = tables["publish"].groupBy("cell")
    pairs = sources.pairs.groupBy("cell", "cause")
    return put_together(
        [
            messages.agg(
                sf.count("*").alias("messages"),
                sf.sum("size_bytes").alias("message_bytes"),
                sf.min("t_intended_ns").alias("from_ns"),
                sf.max("t_intended_ns").alias("to_ns"),
            ),
            tables["window"].select(
                "cell", sf.col("t_from_ns").alias("from_ns"), sf.col("t_to_ns").alias("to_ns")
            ),
            counted(tables["pub_tx"].where(by_clients), "cell", name="sendings"),
            counted(in_load, "cell", "tenth", name="renewals"),
            pairs.agg(sf.count("*").alias("pairs"), sf.sum("copies").alias("copies")),
            sources.paths.select("cell", "cause", "paths"),
        ],
        COUNTS,
    )


def totals(merged: DataFrame) -> DataFrame:
    """A row for each cell; `renewals` are those until the load ended."""
    span = merged.groupBy("cell").agg(sf.max("to_ns").alias("end_ns"))
    in_load = sf.when(sf.col("tenth") * TENTH_NS < sf.col("end_ns"), sf.col("renewals"))
    sums = {name: sf.sum(name) for name in ("messages", "message_bytes", "sendings")}
    return (
        merged.join(span, on="cell", how="inner")
        .groupBy("cell")
        .agg(
            *(
                sf.coalesce(total, sf.lit(0)).alias(name)
                for name, total in (sums | {"renewals": sf.sum(in_load)}).items()
            ),
            sf.min("from_ns").alias("from_ns"),
            sf.max("to_ns").alias("to_ns"),
        )
    )


def fates(merged: DataFrame) -> DataFrame:
    """Pairs, copies that came for them, and ways through a server, by cause."""
    return (
        merged.where(sf.col("cause").isNotNull())
        .groupBy("cell", "cause")
        .agg(*(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in ("pairs", "copies", "paths")))
    )


JOB = Job("cost", COUNTS, count, {"cost": totals, "fates": fates})
