"""Subscribers and their topics: when each should receive messages, and where it asked for and held leases."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.capture.schema import OPENED, STANDING
from kcast.spark.walk import facts, server_sets

HOLDER = ("cell", "sub_id", "topic_id")
LEASE = (*HOLDER, "server_id")


def holders(
    tables: Mapping[str, DataFrame], parameters: DataFrame, lives: DataFrame, words: int
) -> DataFrame:
    """A row for each subscriber and topic of intent.

    `due`: spans of time in which it should receive, their ends excluded. Sets of servers: `asked`, where it
    ever asked for a lease; `early`, those of them that it asked before the load began; `steady`, those of
    these where its lease stood from then on. That is so if the server had one life, in which the lease did
    not end; and is assumed if the server keeps no tap.
    """
    due = (
        tables["intent"]
        .groupBy(*HOLDER)
        .agg(
            sf.collect_list(
                sf.struct(sf.col("t_from_ns").alias("from_ns"), sf.col("t_to_ns").alias("to_ns"))
            ).alias("due")
        )
    )
    only = server_sets.only(sf.col("server_id"), words)
    is_early = sf.col("asked_ns") <= sf.col("t0_ns")
    sets = (
        asked(tables["subscribe"])
        .join(_leases_that_stood(tables["lease"], lives), list(LEASE), "left")
        .join(sf.broadcast(lives.select(*facts.SERVER, "first_life_ns")), list(facts.SERVER), "left")
        .join(sf.broadcast(parameters.select("cell", "t0_ns")), "cell", "inner")
        .groupBy(*HOLDER)
        .agg(
            *server_sets.union("asked", only),
            *server_sets.union("early", only.where(is_early)),
            *server_sets.union(
                "steady",
                only.where(
                    is_early & (sf.col("first_life_ns").isNull() | (sf.col("stood_ns") <= sf.col("t0_ns")))
                ),
            ),
        )
    )
    return due.join(sets, list(HOLDER), "left").select(
        *HOLDER,
        "due",
        *(
            word
            for name in ("asked", "early", "steady")
            for word in server_sets.of(name, words).filled().named(name)
        ),
    )


def asked(subscribe: DataFrame) -> DataFrame:
    """`cell, sub_id, topic_id, server_id, asked_ns`: when each lease was first asked for."""
    known = subscribe.where(sf.col("server_id") >= 0)
    return known.groupBy(*LEASE).agg(sf.min("t_tx_ns").alias("asked_ns"))


def asked_times(subscribe: DataFrame, parameters: DataFrame) -> DataFrame:
    """`cell, sub_id, topic_id, server_id, asked_ns, asked_every_ns`: when each lease was asked for.

    `asked_ns` is the first time. `asked_every_ns` has all times in cells in which subscribers may leave a
    server; else it is empty.
    """
    may_leave = sf.broadcast(parameters.select("cell", "may_leave"))
    at_ns = sf.when(sf.col("may_leave"), sf.col("t_tx_ns"))
    return (
        subscribe.where(sf.col("server_id") >= 0)
        .join(may_leave, "cell", "inner")
        .groupBy(*LEASE)
        .agg(sf.min("t_tx_ns").alias("asked_ns"), sf.collect_list(at_ns).alias("asked_every_ns"))
    )


def begins(change: Column) -> Column:
    """Whether a lease stands after a change."""
    return change.isin(OPENED, STANDING)


def changes(lease: DataFrame) -> DataFrame:
    """`cell, sub_id, topic_id, server_id, changes`: each lease with its changes (`t_ns, stands, boot_id`).

    They are ordered by these columns. So of changes at one time an end comes first: a lease that has just
    lapsed is opened anew.
    """
    change = sf.struct("t_ns", begins(sf.col("change")).alias("stands"), "boot_id")
    known = lease.where((sf.col("sub_id") >= 0) & (sf.col("topic_id") >= 0))
    return known.groupBy(*LEASE).agg(sf.sort_array(sf.collect_list(change)).alias("changes"))


def _leases_that_stood(lease: DataFrame, lives: DataFrame) -> DataFrame:
    """`LEASE, stood_ns`: leases at servers with one life, which stood from then on to the end of that
    life."""
    one_life = lives.where(sf.size("lives") == 1).select(
        *facts.SERVER,
        sf.array_max("lives")["boot_id"].alias("boot_id"),
        sf.col("first_life_ns").alias("life_ns"),
    )
    return (
        lease.join(sf.broadcast(one_life), [*facts.SERVER, "boot_id"], "inner")
        .groupBy(*LEASE)
        .agg(
            sf.greatest(sf.min("t_ns"), sf.max("life_ns")).alias("stood_ns"),
            sf.count_if(~begins(sf.col("change"))).alias("ends"),
        )
        .where(sf.col("ends") == 0)
        .select(*LEASE, "stood_ns")
    )
