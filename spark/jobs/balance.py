"""What each server did, and what random placement of the topics captured would make of it.

What cannot be added up over slices is counted once by its keys: a lease by server, subscriber and topic, a
server that lived, a subscriber of a topic, an outage.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType, IntegerType, LongType, StructType

from kcast.loadtest.capture.schema import DUPLICATE, OPENED, STANDING
from kcast.spark.jobs.job import Job, Sources
from kcast.spark.jobs.merging import counts, keys
from kcast.spark.jobs.parts import counted, put_together

COUNTS = StructType(
    [
        *keys(
            cell=IntegerType(),
            server_id=IntegerType(),
            topic_id=IntegerType(),
            sub_id=IntegerType(),
            t_down_ns=LongType(),
        ),
        *counts("received", "forwarded"),  # by server
        *counts("messages"),  # by topic
        # 1 where there is such a life by server, lease by server, topic and subscriber, and such a listener
        # by topic and subscriber.
        *counts("lived", "leases", "listeners", how="max"),
        *counts("t_up_ns", how="max"),  # by server and t_down_ns
        *counts("from_ns", how="min"),  # of all windows: when the load began
        *counts("to_ns", how="max"),  # and ended
    ]
)

_DECIMAL = DecimalType(38, 0)


def count(sources: Sources) -> DataFrame:
    """By server, by topic, and of the cell."""
    tables = sources.tables
    one = sf.lit(1)
    received = tables["server_rx"].where("msg_id >= 0")
    # The extra copies are the network's doing, not the server's.
    copies = tables["deliver"].where(sf.col("injected") != DUPLICATE).where("server_id >= 0")
    stands = sf.col("change").isin(OPENED, STANDING) & (sf.col("sub_id") >= 0) & (sf.col("topic_id") >= 0)
    holders = tables["lease"].where(stands)
    # A server that is halted has all that was sent to it meanwhile when it goes on.
    deaf = tables["outage"].where(sf.col("kind") != "stall")
    return put_together(
        [
            counted(received, "cell", "server_id", name="received"),
            counted(copies, "cell", "server_id", name="forwarded"),
            counted(tables["publish"].where("msg_id >= 0"), "cell", "topic_id", name="messages"),
            tables["server_life"].select("cell", "server_id", one.alias("lived")),
            holders.select("cell", "server_id", "topic_id", "sub_id", one.alias("leases")),
            tables["intent"].select("cell", "topic_id", "sub_id", one.alias("listeners")),
            deaf.select("cell", "server_id", "t_down_ns", "t_up_ns"),
            tables["window"].select(
                "cell", sf.col("t_from_ns").alias("from_ns"), sf.col("t_to_ns").alias("to_ns")
            ),
        ],
        COUNTS,
    )


def servers(merged: DataFrame) -> DataFrame:
    """What each server did, whether its tap says that it lived, and how long it was down during the load."""
    span = merged.groupBy("cell").agg(sf.min("from_ns").alias("begin_ns"), sf.max("to_ns").alias("end_ns"))
    down_ns = sf.least("t_up_ns", "end_ns") - sf.greatest("t_down_ns", "begin_ns")
    return (
        merged.where(sf.col("server_id").isNotNull())
        .join(span, on="cell", how="inner")
        .groupBy("cell", "server_id")
        .agg(
            *(
                sf.coalesce(sf.sum(name), sf.lit(0)).alias(name)
                for name in ("received", "forwarded", "leases")
            ),
            sf.coalesce(sf.max("lived"), sf.lit(0)).alias("lived"),
            # `least` passes over nulls; rows without an outage have no t_up_ns.
            sf.coalesce(
                sf.sum(sf.when(sf.col("t_up_ns").isNotNull(), sf.greatest(down_ns, sf.lit(0)))), sf.lit(0)
            ).alias("down_ns"),
            (sf.max("end_ns") - sf.min("begin_ns")).alias("span_ns"),
        )
    )


def topics(merged: DataFrame) -> DataFrame:
    """A row for each cell: its topics, and sums over them of products of n, messages, and s, subscribers.

    `nns` is the sum of n n s, and so on.
    """
    n, s = sf.col("n"), sf.col("s")
    products = {"n": n, "s": s, "nn": n * n, "ss": s * s, "ns": n * s}
    wide = {"nns": n * n * s, "nss": n * s * s, "nnss": n * s * n * s}
    return (
        merged.where(sf.col("topic_id").isNotNull() & sf.col("server_id").isNull())
        .groupBy("cell", "topic_id")
        .agg(
            sf.coalesce(sf.sum("messages"), sf.lit(0)).cast(_DECIMAL).alias("n"),
            sf.coalesce(sf.sum("listeners"), sf.lit(0)).cast(_DECIMAL).alias("s"),
        )
        .groupBy("cell")
        .agg(
            sf.count("topic_id").alias("topics"),
            *(sf.sum(product).cast(_DECIMAL).alias(name) for name, product in (products | wide).items()),
        )
    )


JOB = Job("balance", COUNTS, count, {"servers": servers, "topics": topics})
