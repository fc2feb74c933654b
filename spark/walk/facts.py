"""What a capture records beside the messages, as small tables: which servers were down, and when they were
started; whose sockets overflowed; which servers each client knew.

Each table has a row for each server, or client, of a cell, with spans of time or the like as an array: so
it is small enough to be broadcast. The rules are those of `kcast.loadtest.results.facts`;
tests/spark/walk/test_pairs.py holds them equal.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from kcast.loadtest.results.causes import EDGE_NS, SECOND_NS, TAP_UNWRITTEN_NS
from kcast.spark.walk import server_sets

SERVER = ("cell", "server_id")


def within(spans: Column, at_ns: Column) -> Column:
    """Whether a time is in one of these spans, both ends included; false if `spans` is null."""
    is_in = sf.exists(spans, lambda span: (span["from_ns"] <= at_ns) & (at_ns <= span["to_ns"]))
    return spans.isNotNull() & is_in


def overlap(spans: Column, from_ns: Column, to_ns: Column) -> Column:
    """Whether one of these spans overlaps `from_ns` .. `to_ns`, ends included; false if `spans` is null."""
    has_met = sf.exists(spans, lambda span: (span["from_ns"] <= to_ns) & (from_ns <= span["to_ns"]))
    return spans.isNotNull() & has_met


def downs(outage: DataFrame, server_life: DataFrame) -> DataFrame:
    """`cell, server_id, downs, halts`: spans in which a server was killed or halted, and those of halts
    alone.

    Servers that were only cut off are not here: each datagram's fate tells that. A span of `downs` begins
    with the last record of a tap that was cut short, if that is shortly before: what the server took in
    after that is not known.
    """
    real = outage.where(sf.col("kind").isin("kill", "stall")).select(
        *SERVER, "t_down_ns", "t_up_ns", (sf.col("kind") == "stall").alias("is_halt")
    )
    cut_short = server_life.where(sf.col("ended") == 0).select(*SERVER, sf.col("t_to_ns").alias("record_ns"))
    is_before = sf.col("record_ns") <= sf.col("t_down_ns") + EDGE_NS
    joined = real.join(cut_short, list(SERVER), "left")
    # Outages with equal columns become one, which covers the same time.
    by_outage = joined.groupBy(*SERVER, "t_down_ns", "t_up_ns", "is_halt").agg(
        sf.max(sf.when(is_before, sf.col("record_ns"))).alias("record_ns")
    )
    from_ns, to_ns = sf.col("t_down_ns") - EDGE_NS, sf.col("t_up_ns") + EDGE_NS
    unwritten = sf.greatest(sf.col("record_ns"), sf.col("t_down_ns") - TAP_UNWRITTEN_NS)
    down = sf.struct(sf.least(from_ns, unwritten).alias("from_ns"), to_ns.alias("to_ns"))
    halt = sf.struct(from_ns.alias("from_ns"), to_ns.alias("to_ns"))
    return (
        by_outage.withColumn(
            # `greatest` ignores null: without a record, `unwritten` would not be one.
            "down",
            sf.when(sf.col("record_ns").isNull(), halt).otherwise(down),
        )
        .groupBy(*SERVER)
        .agg(
            sf.collect_list("down").alias("downs"),
            sf.collect_list(sf.when(sf.col("is_halt"), halt)).alias("halts"),
        )
    )


def lives(server_life: DataFrame) -> DataFrame:
    """`cell, server_id, lives, first_life_ns`: each server that keeps a tap, with its lives (`from_ns,
    boot_id`)."""
    life = sf.struct(sf.col("t_from_ns").alias("from_ns"), "boot_id")
    return server_life.groupBy(*SERVER).agg(
        sf.collect_list(life).alias("lives"), sf.min("t_from_ns").alias("first_life_ns")
    )


def life_at(every: Column, at_ns: Column) -> Column:
    """The last of the `lives` that had begun by a time; null before the first."""
    return sf.array_max(sf.filter(every, lambda life: life["from_ns"] <= at_ns))


def rises(counters: DataFrame, id_column: str, counter: str) -> DataFrame:
    """`cell, <id>, spans`: when a counter, read once a second, rose: from a second before to a second after.

    A counter that is lower than before began again with a new socket. Before its first reading it was 0.
    """
    by_time = Window.partitionBy("cell", id_column).orderBy("t_ns", counter)
    before_ns, before, count = sf.col("before_ns"), sf.col("before"), sf.col(counter)
    is_anew = before.isNull() | (count < before)
    span = sf.struct(
        (sf.coalesce(before_ns, sf.col("t_ns") - SECOND_NS) - SECOND_NS).alias("from_ns"),
        (sf.col("t_ns") + SECOND_NS).alias("to_ns"),
    )
    return (
        counters.select(
            *("cell", id_column, "t_ns", counter),
            sf.lag("t_ns").over(by_time).alias("before_ns"),
            sf.lag(counter).over(by_time).alias("before"),
        )
        .where(sf.when(is_anew, count > 0).otherwise(count > before))
        .groupBy("cell", id_column)
        .agg(sf.collect_list(span).alias("spans"))
    )


def client_rises(client_stat: DataFrame, member: DataFrame, id_column: str, counter: str) -> DataFrame:
    """`cell, <id>, spans`, as `rises` gives them, of a client's counter, by its `pub_id` or `sub_id`."""
    ids = (
        member.where(sf.col(id_column) >= 0)
        .groupBy("cell", "client_id")
        .agg(sf.min(id_column).alias(id_column))
    )
    return rises(client_stat.join(ids, ["cell", "client_id"], "inner"), id_column, counter)


def views(member: DataFrame, id_column: str, name: str, words: int) -> DataFrame:
    """`cell, <id>, <name>_*`: the set of servers that each publisher's, or subscriber's, client knew."""
    first = (
        member.where(sf.col(id_column) >= 0)
        .groupBy("cell", id_column)
        .agg(sf.min(sf.struct("t_ns", "client_id", "servers")).alias("first"))
    )
    known = first.select("cell", id_column, sf.explode_outer("first.servers").alias("server_id"))
    bits = server_sets.only(sf.col("server_id"), words)
    return known.groupBy("cell", id_column).agg(*server_sets.union(name, bits))
