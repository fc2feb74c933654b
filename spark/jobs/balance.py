"""What each server did, and sums over topics from which the spread under random placement follows.

Things that may be in several slices count once by their keys: a lease by server, topic and subscriber, a
server that lived, a subscriber of a topic, an outage.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StructType

from kcast.loadtest.capture.schema import DUPLICATE, OPENED, STANDING
from kcast.spark.jobs.job import WIDE, Job, Sources, counted, counts, keys, merge

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
        # Each is 1 where there is: a life by server; a lease by server, topic and subscriber; a subscriber by
        # topic and subscriber.
        *counts("lived", "leases", "subscribers", how="max"),
        *counts("t_up_ns", how="max"),  # by server and t_down_ns
        *counts("from_ns", how="min"),  # of the cell: when its first window begins
        *counts("to_ns", how="max"),  # and its last one ends
    ]
)


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from the tables server_rx, deliver, publish, server_life, lease, intent, outage
    and window."""
    tables = sources.tables
    one = sf.lit(1)
    received = tables["server_rx"].where("msg_id >= 0")
    # The extra copies are the network's doing, not the server's.
    copies = tables["deliver"].where(sf.col("injected") != DUPLICATE).where("server_id >= 0")
    stands = sf.col("change").isin(OPENED, STANDING) & (sf.col("sub_id") >= 0) & (sf.col("topic_id") >= 0)
    holders = tables["lease"].where(stands)
    # A server that is halted takes in later what is sent to it meanwhile: it was not down.
    downs = tables["outage"].where(sf.col("kind") != "stall")
    return merge(
        [
            counted(received, "cell", "server_id", name="received"),
            counted(copies, "cell", "server_id", name="forwarded"),
            counted(tables["publish"].where("msg_id >= 0"), "cell", "topic_id", name="messages"),
            tables["server_life"].select("cell", "server_id", one.alias("lived")),
            holders.select("cell", "server_id", "topic_id", "sub_id", one.alias("leases")),
            tables["intent"].select("cell", "topic_id", "sub_id", one.alias("subscribers")),
            downs.select("cell", "server_id", "t_down_ns", "t_up_ns"),
            tables["window"].select(
                "cell", sf.col("t_from_ns").alias("from_ns"), sf.col("t_to_ns").alias("to_ns")
            ),
        ],
        COUNTS,
    )


def servers(merged: DataFrame) -> DataFrame:
    """A row for each cell and server of which the capture tells anything.

    `received`: lines of messages taken in; `forwarded`: copies sent; `leases`: by topic and subscriber;
    `lived`: 1 if its tap has a life of it, else 0; `down_ns`: time down during the load, of `span_ns` that
    this lasted.
    """
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
    """A row for each cell: the number of its `topics`, and sums over these of products of n (the messages of
    a topic) and s (its subscribers): `nns` is the sum of n n s, and so on.
    """
    n, s = sf.col("n"), sf.col("s")
    products = {"n": n, "s": s, "nn": n * n, "ss": s * s, "ns": n * s}
    wide = {"nns": n * n * s, "nss": n * s * s, "nnss": n * s * n * s}
    return (
        merged.where(sf.col("topic_id").isNotNull() & sf.col("server_id").isNull())
        .groupBy("cell", "topic_id")
        .agg(
            sf.coalesce(sf.sum("messages"), sf.lit(0)).cast(WIDE).alias("n"),
            sf.coalesce(sf.sum("subscribers"), sf.lit(0)).cast(WIDE).alias("s"),
        )
        .groupBy("cell")
        .agg(
            sf.count("topic_id").alias("topics"),
            *(sf.sum(product).cast(WIDE).alias(name) for name, product in (products | wide).items()),
        )
    )


JOB = Job("balance", COUNTS, count, {"servers": servers, "topics": topics})
