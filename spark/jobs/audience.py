"""Messages that reached all their subscribers, and the longest run of messages that one subscriber missed.

A run is of messages of one topic, in the order of (t_intended_ns, msg_id), that one subscriber should have
received and missed, without another of the topic's messages between them. A run that begins with a slice's
first message of the topic, or ends with its last, may go on in another slice: the counts of a slice keep such
runs, and the longest of the others. Slices must be apart in time: by that order all messages of one are
before all of the next. `kind` tells what a row of counts is of, and what its keys are:

    size          number of subscribers a             messages with a subscribers
    topic         topic a, epoch b                    messages
    publisher     publisher a                         messages
    segment       topic a, first and last message     a slice's messages of a topic
    run           topic a, subscriber b, first and last message
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from kcast.loadtest.results import effective_trials, planned_variance
from kcast.loadtest.results.causes import Cause
from kcast.spark.jobs.job import NOT_USED, Job, Sources, clusters_of, counts, keys, over_clusters

COUNTS = StructType(
    [
        *keys(cell=IntegerType(), kind=StringType(), a=LongType(), b=LongType()),
        *keys(first_ns=LongType(), first_msg=LongType(), last_ns=LongType(), last_msg=LongType()),
        *counts("messages", "all_reached", "none_reached"),
    ]
)
_TIMES = ("first_ns", "first_msg", "last_ns", "last_msg")


def count(sources: Sources) -> DataFrame:
    """`COUNTS` of a slice, from `PAIRS`: all pairs of its messages, and no message of another slice between
    these."""
    messages = _messages(sources.pairs)
    counted = _reached(messages).unionByName(_runs(sources.pairs, messages))
    return counted.select(*(sf.col(field.name).cast(field.dataType) for field in COUNTS))


def _is_missed() -> Column:
    return sf.col("cause") != int(Cause.DELIVERED)


def _messages(pairs: DataFrame) -> DataFrame:
    """A row for each message with subscribers: the number of these, and of those of them that `missed` it."""
    return pairs.groupBy("cell", "msg_id", "topic_id", "pub_id", "epoch", "t_intended_ns").agg(
        sf.count("*").alias("subscribers"), sf.sum(_is_missed().cast(LongType())).alias("missed")
    )


def _reached(messages: DataFrame) -> DataFrame:
    """The kinds size, topic, publisher and segment."""
    rows = messages.select(
        "cell",
        sf.struct(sf.col("t_intended_ns").alias("ns"), sf.col("msg_id").alias("msg")).alias("moment"),
        sf.explode(
            sf.array(
                _key("size", sf.col("subscribers")),
                _key("topic", sf.col("topic_id"), sf.col("epoch")),
                _key("publisher", sf.col("pub_id")),
                _key("segment", sf.col("topic_id")),
            )
        ).alias("key"),
        (sf.col("missed") == 0).cast(LongType()).alias("all_reached"),
        (sf.col("missed") == sf.col("subscribers")).cast(LongType()).alias("none_reached"),
    )
    counted = rows.groupBy("cell", "key.kind", "key.a", "key.b").agg(
        sf.min("moment").alias("first"),
        sf.max("moment").alias("last"),
        sf.count("*").alias("messages"),
        sf.sum("all_reached").alias("all_reached"),
        sf.sum("none_reached").alias("none_reached"),
    )
    is_segment = sf.col("kind") == "segment"
    bounds = {name: sf.col(name.replace("_", ".")) for name in _TIMES}
    return counted.select(
        *("cell", "kind", "a", "b"),
        *(sf.when(is_segment, at).otherwise(NOT_USED).alias(name) for name, at in bounds.items()),
        *("messages", "all_reached", "none_reached"),
    )


def _key(kind: str, a: Column, b: Column | None = None) -> Column:
    b = sf.lit(NOT_USED) if b is None else b
    return sf.struct(sf.lit(kind).alias("kind"), a.cast(LongType()).alias("a"), b.cast(LongType()).alias("b"))


def _runs(pairs: DataFrame, messages: DataFrame) -> DataFrame:
    """The kind run: those that may go on in another slice, and each cell's longest."""
    topic = Window.partitionBy("cell", "topic_id")
    # `at` numbers the messages of a topic from 1; `of` is how many there are.
    placed = messages.select(
        "cell",
        "msg_id",
        sf.row_number().over(topic.orderBy("t_intended_ns", "msg_id")).alias("at"),
        sf.count("*").over(topic).alias("of"),
    )
    misses = pairs.where(_is_missed()).join(placed, ["cell", "msg_id"], how="inner")
    holder = Window.partitionBy("cell", "topic_id", "sub_id").orderBy("at")
    islands = misses.select(
        *("cell", "topic_id", "sub_id", "at", "of"),
        sf.struct(sf.col("t_intended_ns").alias("ns"), sf.col("msg_id").alias("msg")).alias("moment"),
        (sf.col("at") - sf.row_number().over(holder)).alias("island"),
    )
    runs = islands.groupBy("cell", "topic_id", "sub_id", "island").agg(
        sf.min("moment").alias("first"),
        sf.max("moment").alias("last"),
        sf.count("*").alias("messages"),
        ((sf.min("at") == 1) | (sf.max("at") == sf.max("of"))).alias("may_go_on"),
    )
    named = runs.select(
        "cell",
        sf.lit("run").alias("kind"),
        sf.col("topic_id").cast(LongType()).alias("a"),
        sf.col("sub_id").cast(LongType()).alias("b"),
        *(sf.col(name.replace("_", ".")).alias(name) for name in _TIMES),
        "messages",
        "may_go_on",
    )
    longest = sf.max(_length()).over(Window.partitionBy("cell"))
    kept = named.withColumn("is_kept", sf.col("may_go_on") | (_length() == longest)).where("is_kept")
    return kept.select(
        *("cell", "kind", "a", "b", *_TIMES, "messages"),
        sf.lit(0).alias("all_reached"),
        sf.lit(0).alias("none_reached"),
    )


def _length() -> Column:
    """The order of runs: by messages, then by duration; of equal ones the lower numbers, or the earlier,
    win."""
    return sf.struct(
        sf.col("messages").alias("messages"),
        (sf.col("last_ns") - sf.col("first_ns")).alias("duration_ns"),
        (-sf.col("b")).alias("sub"),
        (-sf.col("a")).alias("topic"),
        (-sf.col("first_ns")).alias("first_ns"),
        (-sf.col("first_msg")).alias("first_msg"),
    )


# --- Sums --------------------------------------------------------------------------------------------


def sizes(merged: DataFrame) -> DataFrame:
    """A row for each cell and number of `subscribers` of a message: `messages`, and those of them that
    reached all of their subscribers (`all_reached`), or none (`none_reached`)."""
    return merged.where(sf.col("kind") == "size").select(
        "cell", sf.col("a").alias("subscribers"), "messages", "all_reached", "none_reached"
    )


def clusterings(merged: DataFrame) -> DataFrame:
    """A row for each cell and clustering: sums over its clusters of n messages, x of which reached all.

    `clusters` (their number), `messages` (sum of n), `all_reached` (of x), `squares` (of n^2), `products` (of
    n x), `success_squares` (of x^2).
    """
    of_topic = clusters_of(
        {
            planned_variance.TOPIC_EPOCH: ("a", "b"),
            planned_variance.EPOCH: ("b",),
            effective_trials.TOPIC: ("a",),
        },
        ("a", "b"),
    )
    of_publisher = clusters_of({effective_trials.PUBLISHER: ("a",)}, ("a", "b"))
    counted = merged.where(sf.col("kind").isin("topic", "publisher")).select(
        "cell",
        sf.explode(sf.when(sf.col("kind") == "topic", of_topic).otherwise(of_publisher)).alias("cluster"),
        "messages",
        "all_reached",
    )
    return over_clusters(counted, "messages", "all_reached")


def deaf(merged: DataFrame) -> DataFrame:
    """A row for each cell in which a pair was missed: its longest run.

    `messages` in it, `duration_ns` from the first of them to the last, `sub_id`, `topic_id`.
    """
    topic = Window.partitionBy("cell", "a").orderBy("first_ns", "first_msg")
    segments = merged.where(sf.col("kind") == "segment").select(
        "cell", "a", *_TIMES, sf.row_number().over(topic).alias("segment")
    )
    opens = segments.select("cell", "a", "first_ns", "first_msg", sf.col("segment").alias("opens"))
    closes = segments.select("cell", "a", "last_ns", "last_msg", sf.col("segment").alias("closes"))
    runs = merged.where(sf.col("kind") == "run").select("cell", "a", "b", *_TIMES, "messages")
    # The segment with whose first message a run begins, and that with whose last it ends; null without one.
    placed = runs.join(opens, ["cell", "a", "first_ns", "first_msg"], how="left").join(
        closes, ["cell", "a", "last_ns", "last_msg"], how="left"
    )
    holder = Window.partitionBy("cell", "a", "b").orderBy("first_ns", "first_msg")
    goes_on = sf.coalesce(sf.lag("closes").over(holder) + 1 == sf.col("opens"), sf.lit(False))
    numbered = placed.withColumn("begins", (~goes_on).cast(LongType())).withColumn(
        "number", sf.sum("begins").over(holder.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )
    whole = numbered.groupBy("cell", "a", "b", "number").agg(
        sf.sum("messages").alias("messages"),
        sf.min(sf.struct("first_ns", "first_msg")).alias("first"),
        sf.max("last_ns").alias("last_ns"),
    )
    named = whole.select("cell", "a", "b", "messages", "first.first_ns", "first.first_msg", "last_ns")
    longest = named.groupBy("cell").agg(sf.max(_length()).alias("run"))
    return longest.select(
        "cell",
        "run.messages",
        "run.duration_ns",
        (-sf.col("run.sub")).alias("sub_id"),
        (-sf.col("run.topic")).alias("topic_id"),
    )


JOB = Job(
    name="audience",
    counts=COUNTS,
    count=count,
    sums={"audience_sizes": sizes, "audience_clusterings": clusterings, "deaf": deaf},
)
