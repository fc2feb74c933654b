"""What was delivered, counted so that its precision, and what theory says of it, follow from small sums.

All are sums over messages, or clusters of pairs, of products of whole numbers; those of several slices in
decimals of 38 digits. Kinds of counts, and their keys:

    holder        topic a, subscriber b, epoch c     pairs that share a lease and the servers that are down
    publisher     publisher a
    message       -                                   sums over messages
    chances       a <= b chances                      sums over messages of how many pairs have a, and b
    lost-in/out   -                                   datagrams lost by plan, and how many messages they held
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType as Int
from pyspark.sql.types import LongType, StringType, StructType

from kcast.loadtest.capture.schema import LOST
from kcast.loadtest.results import effective_trials, planned_variance
from kcast.loadtest.results.causes import SHORTCOMINGS, Cause
from kcast.spark.jobs.clusters import NOBODY, WIDE, clusters_of, over_clusters
from kcast.spark.jobs.job import Job, Sources
from kcast.spark.jobs.merging import counts, keys

COUNTS = StructType(
    [
        *keys(cell=Int(), kind=StringType(), a=LongType(), b=LongType(), c=LongType()),
        *counts("clusters", "pairs", "delivered", "faults"),
        *counts("squares", "products", "hits", "cubes", kind=WIDE),
    ]
)
_VALUES = ("clusters", "pairs", "delivered", "faults", "squares", "products", "hits", "cubes")


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice. Messages must be in it whole."""
    parts = (
        _by_message(sources.pairs),
        _by_holder(sources.pairs),
        _lost(sources.tables["pub_tx"], "lost-in", "pub_id", "server_id", "t_tx_ns"),
        _lost(sources.tables["deliver"], "lost-out", "sub_id", "server_id", "t_user_ns"),
    )
    counted = parts[0]
    for part in parts[1:]:
        counted = counted.unionByName(part)
    return counted.select(*(sf.col(field.name).cast(field.dataType) for field in COUNTS))


def _is_delivered() -> Column:
    return sf.col("cause") == int(Cause.DELIVERED)


def _is_fault() -> Column:
    return sf.col("cause").isin([int(cause) for cause in SHORTCOMINGS])


def _number(condition: Column) -> Column:
    return sf.sum(condition.cast(LongType()))


def _record(kind: str, a: Column | None = None, b: Column | None = None, **values: Column) -> Column:
    """A row of counts, as a struct; what is not given is 0.

    All in 64 bits: of a slice, cubes are below its pairs times the square of the largest audience. Beyond
    2^63 Spark stops with an error.
    """
    none = sf.lit(NOBODY).cast(LongType())
    fields = [sf.lit(kind).alias("kind")]
    for name, key in (("a", a), ("b", b), ("c", None)):
        fields.append((none if key is None else key.cast(LongType())).alias(name))
    for name in _VALUES:
        fields.append(values.get(name, sf.lit(0)).cast(LongType()).alias(name))
    return sf.struct(*fields)


def _by_message(pairs: DataFrame) -> DataFrame:
    """Of each message its pairs by their chances; of these, sums over the messages."""
    classes = pairs.groupBy("cell", "msg_id", "pub_id", "chances").agg(
        sf.count("*").alias("pairs"),
        _number(_is_delivered()).alias("delivered"),
        _number(_is_fault()).alias("faults"),
    )
    messages = classes.groupBy("cell", "msg_id", "pub_id").agg(
        sf.sum("pairs").alias("pairs"),
        sf.sum("delivered").alias("delivered"),
        sf.collect_list(sf.struct("chances", "pairs", "delivered", "faults")).alias("classes"),
    )
    n, x = sf.col("pairs"), sf.col("delivered")
    whole = _record(
        "message",
        clusters=sf.lit(1),
        pairs=n,
        delivered=x,
        squares=n * n,
        products=n * x,
        hits=x * x,
    )
    publisher = _record("publisher", a=sf.col("pub_id"), pairs=n, delivered=x)
    each = sf.transform("classes", _class)
    beside = sf.flatten(
        sf.transform(
            "classes",
            lambda low: sf.transform(
                sf.filter("classes", lambda high: high["chances"] > low["chances"]),
                lambda high: _record(
                    "chances",
                    a=low["chances"],
                    b=high["chances"],
                    squares=low["pairs"] * high["pairs"],
                ),
            ),
        )
    )
    records = sf.concat(sf.array(whole, publisher), each, beside)
    rows = messages.select("cell", sf.explode(records).alias("record")).select("cell", "record.*")
    return _summed(rows)


def _class(of: Column) -> Column:
    n, h = of["pairs"], of["chances"]
    return _record(
        "chances",
        a=h,
        b=h,
        pairs=n,
        delivered=of["delivered"],
        faults=of["faults"],
        squares=n * n,
        cubes=n * n * n,
    )


def _by_holder(pairs: DataFrame) -> DataFrame:
    """Pairs of each topic, subscriber and epoch: coarser clusters are sums of these."""
    held = pairs.groupBy("cell", "topic_id", "sub_id", "epoch").agg(
        sf.count("*").alias("pairs"), _number(_is_delivered()).alias("delivered")
    )
    zeros = [sf.lit(0).alias(name) for name in _VALUES if name not in ("pairs", "delivered")]
    return held.select(
        "cell",
        sf.lit("holder").alias("kind"),
        sf.col("topic_id").cast(LongType()).alias("a"),
        sf.col("sub_id").cast(LongType()).alias("b"),
        sf.col("epoch").cast(LongType()).alias("c"),
        "pairs",
        "delivered",
        *zeros,
    )


def _lost(table: DataFrame, kind: str, client: str, server: str, time: str) -> DataFrame:
    """Datagrams that were lost by plan: lines of one client, server and moment. Nearly all hold one."""
    datagrams = (
        table.where(sf.col("injected") == LOST)
        .groupBy("cell", client, server, time)
        .agg(sf.count("*").alias("lines"))
    )
    n = sf.col("lines")
    rows = datagrams.select(
        "cell", _record(kind, clusters=sf.lit(1), pairs=n, squares=n * n).alias("record")
    ).select("cell", "record.*")
    return _summed(rows)


def _summed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("cell", "kind", "a", "b", "c").agg(*(sf.sum(name).alias(name) for name in _VALUES))


# --- Sums --------------------------------------------------------------------------------------------


def clusterings(merged: DataFrame) -> DataFrame:
    """A row for each cell and clustering: sums over clusters of n pairs, x of them delivered."""
    messages = merged.where(sf.col("kind") == "message").select(
        "cell",
        sf.lit(planned_variance.MESSAGE).alias("clustering"),
        *("clusters", "pairs", "delivered", "squares", "products", "hits"),
    )
    of_holder = clusters_of(
        {
            planned_variance.HOLDER: ("a", "b", "c"),
            planned_variance.TOPIC_EPOCH: ("a", "c"),
            planned_variance.EPOCH: ("c",),
            effective_trials.TOPIC: ("a",),
            effective_trials.SUBSCRIBER: ("b",),
        },
        ("a", "b", "c"),
    )
    of_publisher = clusters_of({effective_trials.PUBLISHER: ("a",)}, ("a", "b", "c"))
    counted = merged.where(sf.col("kind").isin("holder", "publisher")).select(
        "cell",
        sf.explode(sf.when(sf.col("kind") == "holder", of_holder).otherwise(of_publisher)).alias("of"),
        "pairs",
        "delivered",
    )
    return messages.unionByName(over_clusters(counted, "pairs", "delivered"))


def chances(merged: DataFrame) -> DataFrame:
    """Pairs by their chances, and products of how many of a message have `low` and `high`."""
    return merged.where(sf.col("kind") == "chances").select(
        "cell",
        sf.col("a").alias("low"),
        sf.col("b").alias("high"),
        sf.col("squares").alias("products"),
        *("pairs", "delivered", "faults", "cubes"),
    )


def lost(merged: DataFrame) -> DataFrame:
    """Lines lost by plan, and the sum of squares of how many were in one datagram, on both legs."""
    return merged.where(sf.col("kind").isin("lost-in", "lost-out")).select(
        "cell", "kind", sf.col("pairs").alias("lines"), "squares"
    )


JOB = Job(
    name="reliability",
    counts=COUNTS,
    count=count,
    sums={"clusterings": clusterings, "chances": chances, "lost": lost},
)
