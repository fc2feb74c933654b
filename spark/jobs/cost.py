"""What was sent: messages, sendings to servers, and renewals of leases. `attribution` counts what arrived."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StructType

from kcast.loadtest.capture.schema import DUPLICATE
from kcast.spark.jobs.job import Job, Sources, counted, counts, keys, merge

# Renewals are counted by tenths of a second: when the load ended is known only when all windows are.
TENTH_NS = 100_000_000

COUNTS = StructType(
    [
        *keys(cell=IntegerType(), tenth=LongType()),
        *counts("messages", "message_bytes", "sendings"),  # of the cell
        *counts("renewals"),  # by tenth: t_tx_ns / TENTH_NS
        *counts("from_ns", how="min"),  # of all windows and messages
        *counts("to_ns", how="max"),
    ]
)


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from publish, pub_tx, subscribe and window."""
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
    return merge(
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
        ],
        COUNTS,
    )


def totals(merged: DataFrame) -> DataFrame:
    """A row for each cell: `messages` published; `message_bytes`, of their lines; `sendings` of them to
    servers; `renewals`, lines that ask for a lease or renew it while the load lasts; its bounds, `from_ns`
    and `to_ns`.
    """
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


JOB = Job("cost", COUNTS, count, {"cost": totals})
