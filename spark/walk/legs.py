"""What became of each message on its first leg, to each server, and on its second, to each subscriber."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, PASSED
from kcast.spark.walk import facts, server_sets

SENDING = ("cell", "msg_id", "server_id")
PAIR = ("cell", "msg_id", "sub_id")

# What an event tells of a message at a server.
LOST_UP, LOST_DOWN, NOT_THERE, OPEN, TAKEN, FORWARDED = 0, 1, 2, 3, 4, 5

SETS = ("in_time", "late", "halted", "lost_out", "any")
"""The sets of servers that `copies` has."""


# --- From publishers to servers ----------------------------------------------------------------------


def events(tables: Mapping[str, DataFrame], downs: DataFrame) -> DataFrame:
    """A row for each record of pub_tx, server_rx and deliver, which tells that a message was at a server.

    Columns: `SENDING`, `t_ns`, `event`, `boot_id` (of TAKEN only, else null), `is_sending` (false for copies
    that the network made). A sending that was lost by plan is LOST_UP, or LOST_DOWN if its server was killed
    or halted; others are NOT_THERE if the server was cut off, killed or halted, else OPEN. TAKEN: the
    server's tap has the message. FORWARDED: a copy came from the server, to any subscriber.
    """
    fate = sf.col("injected")
    is_down = facts.within(sf.col("downs"), sf.col("t_tx_ns"))
    event = (
        sf.when(fate == CUT_OFF, NOT_THERE)
        .when(fate == LOST, sf.when(is_down, LOST_DOWN).otherwise(LOST_UP))
        .when(is_down, NOT_THERE)
        .otherwise(OPEN)
    )
    no_boot = sf.lit(None).cast("long").alias("boot_id")
    is_sending = sf.lit(True).alias("is_sending")
    sent = (
        tables["pub_tx"]
        .join(sf.broadcast(downs), list(facts.SERVER), "left")
        .select(
            *SENDING,
            sf.col("t_tx_ns").alias("t_ns"),
            event.alias("event"),
            no_boot,
            fate.isin(PASSED, LOST).alias("is_sending"),
        )
    )
    taken = tables["server_rx"].select(
        *(*SENDING, sf.col("t_rx_ns").alias("t_ns"), sf.lit(TAKEN).alias("event"), "boot_id", is_sending)
    )
    forwarded = tables["deliver"].select(
        *(*SENDING, sf.col("t_user_ns").alias("t_ns"), sf.lit(FORWARDED).alias("event"), no_boot, is_sending)
    )
    every = sent.unionByName(taken).unionByName(forwarded)
    return every.where((sf.col("msg_id") >= 0) & (sf.col("server_id") >= 0))


def sendings(every: DataFrame, lives: DataFrame) -> DataFrame:
    """A row for each message and server that it was sent to, or that had it, from `events`.

    `was_lost`: a sending was lost by plan. `is_open`: one passed while the server was up. `lost_up`: number
    of sendings lost by plan while the server was up. `had`: the server had the message. `forwarded_ns`: when
    it was first forwarded, if the tap does not have it; else null. `first_ns`, `last_ns`: times of the first
    and last event.
    """
    event, at_ns = sf.col("event"), sf.col("t_ns")
    there_ns = sf.when(event != FORWARDED, at_ns)
    counted = every.groupBy(*SENDING).agg(
        sf.count_if(event <= OPEN).alias("sent"),
        sf.count_if(event == TAKEN).alias("taken"),
        sf.count_if(event == LOST_UP).alias("lost_up"),
        sf.count_if(event <= LOST_DOWN).alias("lost"),
        sf.count_if(event == OPEN).alias("open"),
        sf.min(there_ns).alias("first_ns"),
        sf.max(there_ns).alias("last_ns"),
        sf.min(sf.when(event == FORWARDED, at_ns)).alias("forwarded_ns"),
    )
    # The tap of a server that was killed lacks its last second; but the server was alive when it forwarded.
    has_forwarded = (
        (sf.col("taken") == 0)
        & (sf.col("sent") > 0)
        & sf.col("forwarded_ns").isNotNull()
        & (sf.col("first_life_ns") <= sf.col("forwarded_ns"))
    )
    forwarded_ns = sf.when(has_forwarded, sf.col("forwarded_ns"))
    return (
        counted.where((sf.col("sent") > 0) | (sf.col("taken") > 0))
        .join(sf.broadcast(lives.select(*facts.SERVER, "first_life_ns")), list(facts.SERVER), "left")
        .select(
            *SENDING,
            (sf.col("lost") > 0).alias("was_lost"),
            (sf.col("open") > 0).alias("is_open"),
            sf.col("lost_up").cast("int").alias("lost_up"),
            ((sf.col("taken") > 0) | sf.coalesce(has_forwarded, sf.lit(False))).alias("had"),
            forwarded_ns.alias("forwarded_ns"),
            "first_ns",
            # `greatest` ignores null.
            sf.greatest("last_ns", forwarded_ns).alias("last_ns"),
        )
    )


# --- From servers to subscribers ---------------------------------------------------------------------


def copies(deliver: DataFrame, times: DataFrame, downs: DataFrame, words: int) -> DataFrame:
    """A row for each pair that deliver has a record of. `times`: `cell, msg_id, t_intended_ns, deadline_ns`.

    `latency_ns`: from t_intended_ns to the first copy in time, null without one. `copies`: number that
    arrived. `passing`: number that servers sent and that were not cut off. The `SETS` are of servers that
    sent a copy: `in_time`, which arrived before the deadline; `late`, after it; `halted`, after it, and the
    server was halted meanwhile; `lost_out`, lost by plan; `any`, of any kind.
    """
    fate, at_ns = sf.col("injected"), sf.col("t_user_ns")
    since_ns = at_ns - sf.col("t_intended_ns")
    arrived = fate.isin(PASSED, DUPLICATE)
    was_halted = facts.overlap(sf.col("halts"), sf.col("t_intended_ns"), at_ns)
    kind = sf.col("kind")
    records = (
        deliver.where(sf.col("server_id") >= 0)
        .select(*PAIR, "server_id", "t_user_ns", "injected")
        .join(times.hint("shuffle_hash"), ["cell", "msg_id"], "inner")
        .join(sf.broadcast(downs.select(*facts.SERVER, "halts")), list(facts.SERVER), "left")
        .select(
            *PAIR,
            "injected",
            since_ns.alias("since_ns"),
            sf.when(~arrived, sf.when(fate == LOST, 3).otherwise(4))
            .when(since_ns <= sf.col("deadline_ns"), 0)
            .otherwise(sf.when(was_halted, 2).otherwise(1))
            .alias("kind"),
            *server_sets.only(sf.col("server_id"), words).named("server"),
        )
    )
    server = server_sets.of("server", words)
    sets = [server.where(kind == number) for number in range(len(SETS) - 1)]
    return records.groupBy(*PAIR).agg(
        sf.min(sf.when(kind == 0, sf.col("since_ns"))).alias("latency_ns"),
        sf.count_if(kind <= 2).cast("int").alias("copies"),
        sf.count_if(fate.isin(PASSED, LOST)).cast("int").alias("passing"),
        *(
            word
            for name, servers in zip(SETS, [*sets, server], strict=True)
            for word in server_sets.union(name, servers)
        ),
    )
