"""Delivered pairs, as sums from which the precision of their share and theory given what happened follow.

All are sums over messages, or over clusters of pairs, of products of whole numbers. `kind` tells what a row
of counts is of, and what its keys are:

    holder        topic a, subscriber b, epoch c   pairs that share a lease and the servers that are down
    publisher     publisher a                      pairs
    message       no key                           sums over messages, of n pairs, x of them delivered
    chances       a <= b chances                   `squares`: sum over messages of the number of pairs
                                                   with a chances, times the number with b; if a = b, also
                                                   their `pairs`, `delivered`, `faults` and `cubes`
    lost-in/out   no key                           datagrams lost by plan on a leg, and the lines in them

The chances of a pair are sendings that could have reached it (`PAIRS`).
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType as Int
from pyspark.sql.types import LongType, StringType, StructType

from kcast.loadtest.capture.schema import LOST
from kcast.loadtest.results import effective_trials, planned_variance
from kcast.loadtest.results.causes import SHORTCOMINGS, Cause
from kcast.spark.jobs.job import NOT_USED, WIDE, Job, Sources, clusters_of, counts, keys, over_clusters

COUNTS = StructType(
    [
        *keys(cell=Int(), kind=StringType(), a=LongType(), b=LongType(), c=LongType()),
        *counts("clusters", "pairs", "delivered"),
        *counts("faults"),  # pairs missed through a shortcoming of the machine that ran the test
        *counts("squares", "products", "success_squares", "cubes", kind=WIDE),  # of n^2, n x, x^2, n^3
    ]
)
_VALUES = ("clusters", "pairs", "delivered", "faults", "squares", "products", "success_squares", "cubes")


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from `PAIRS`, pub_tx and deliver. All pairs of a message must be in one slice."""
    parts = (
        _by_message(sources.pairs),
        _by_holder(sources.pairs),
        _lost(sources.tables["pub_tx"], "lost-in", "pub_id", "server_id", "t_tx_ns"),
        _lost(sources.tables["deliver"], "lost-out", "sub_id", "server_id", "t_user_ns"),
    )
    counted = reduce(DataFrame.unionByName, parts)
    return counted.select(*(sf.col(field.name).cast(field.dataType) for field in COUNTS))


def _is_delivered() -> Column:
    return sf.col("cause") == int(Cause.DELIVERED)


def _is_fault() -> Column:
    return sf.col("cause").isin([int(cause) for cause in SHORTCOMINGS])


def _number(condition: Column) -> Column:
    """An aggregate: the number of rows of which the condition is true."""
    return sf.sum(condition.cast(LongType()))


def _record(kind: str, a: Column | None = None, b: Column | None = None, **values: Column) -> Column:
    """A row of counts, as a struct; values that are not given are 0.

    64 bits are enough for a slice: its cubes are below its pairs times the square of the largest audience.
    Beyond 2^63 Spark stops with an error.
    """
    none = sf.lit(NOT_USED).cast(LongType())
    fields = [sf.lit(kind).alias("kind")]
    for name, key in (("a", a), ("b", b), ("c", None)):
        fields.append((none if key is None else key.cast(LongType())).alias(name))
    for name in _VALUES:
        fields.append(values.get(name, sf.lit(0)).cast(LongType()).alias(name))
    return sf.struct(*fields)


def _by_message(pairs: DataFrame) -> DataFrame:
    """The kinds message, publisher and chances."""
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
    ones = {"clusters": sf.lit(1), "pairs": n, "delivered": x}
    whole = _record("message", **ones, squares=n * n, products=n * x, success_squares=x * x)
    publisher = _record("publisher", a=sf.col("pub_id"), pairs=n, delivered=x)
    each = sf.transform("classes", _class)
    beside = sf.flatten(
        sf.transform(
            "classes",
            lambda low: sf.transform(
                sf.filter("classes", lambda high: high["chances"] > low["chances"]),
                lambda high: _record(
                    "chances", low["chances"], high["chances"], squares=low["pairs"] * high["pairs"]
                ),
            ),
        )
    )
    records = sf.concat(sf.array(whole, publisher), each, beside)
    rows = messages.select("cell", sf.explode(records).alias("record")).select("cell", "record.*")
    return _summed(rows)


def _class(pairs: Column) -> Column:
    """A message's pairs with one number of chances."""
    n, chances = pairs["pairs"], pairs["chances"]
    return _record(
        "chances",
        a=chances,
        b=chances,
        pairs=n,
        delivered=pairs["delivered"],
        faults=pairs["faults"],
        squares=n * n,
        cubes=n * n * n,
    )


def _by_holder(pairs: DataFrame) -> DataFrame:
    """The kind holder: pairs of each topic, subscriber and epoch. Coarser clusters are sums of these."""
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
    """The kinds lost-in and lost-out: `clusters` are datagrams, `pairs` the lines in them, `squares` of that
    number.

    A datagram's lines are those of one client, server and moment. Nearly all have one.
    """
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
    """A row for each cell and clustering: sums over its clusters of n pairs, x of them delivered.

    `clusters` (their number), `pairs` (sum of n), `delivered` (of x), `squares` (of n^2), `products` (of n
    x), `success_squares` (of x^2).
    """
    messages = merged.where(sf.col("kind") == "message").select(
        "cell",
        sf.lit(planned_variance.MESSAGE).alias("clustering"),
        *("clusters", "pairs", "delivered", "squares", "products", "success_squares"),
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
        sf.explode(sf.when(sf.col("kind") == "holder", of_holder).otherwise(of_publisher)).alias("cluster"),
        "pairs",
        "delivered",
    )
    return messages.unionByName(over_clusters(counted, "pairs", "delivered"))


def chances(merged: DataFrame) -> DataFrame:
    """A row for each cell and two numbers of chances, `low` <= `high`, that pairs of one message have.

    `products`: sum over messages of the number of pairs with `low`, times that with `high`. Where these are
    equal, also `pairs`, `delivered`, `faults` (missed through a shortcoming of the machine that ran the
    test), and `cubes` (sum over messages of the cube of the number); else these are 0.
    """
    return merged.where(sf.col("kind") == "chances").select(
        "cell",
        sf.col("a").alias("low"),
        sf.col("b").alias("high"),
        sf.col("squares").alias("products"),
        *("pairs", "delivered", "faults", "cubes"),
    )


def lost(merged: DataFrame) -> DataFrame:
    """A row for each cell and leg (`kind`: lost-in, lost-out): `lines` lost by plan, and `squares`, the sum
    over datagrams of the square of the number of lines in one."""
    return merged.where(sf.col("kind").isin("lost-in", "lost-out")).select(
        "cell", "kind", sf.col("pairs").alias("lines"), "squares"
    )


JOB = Job(
    name="reliability",
    counts=COUNTS,
    count=count,
    sums={"clusterings": clusterings, "chances": chances, "lost": lost},
)
