"""How far each message came to each server, whoever subscribes."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.capture.schema import CUT_OFF, LOST, PASSED
from kcast.spark.walk import facts

# What an event tells of a message at a server.
LOST_UP, LOST_DOWN, NOT_THERE, OPEN, TAKEN, FORWARDED = 0, 1, 2, 3, 4, 5

KEY = ("cell", "msg_id", "server_id")


def events(tables: Mapping[str, DataFrame], downs: DataFrame) -> DataFrame:
    """`cell, msg_id, server_id, t_ns, event, boot_id, is_sending`: all that tells that a message was there.

    A sending that was lost by plan is LOST_UP, or LOST_DOWN where its server was killed or halted;
    NOT_THERE where the server was cut off, killed or halted; else OPEN. A server has TAKEN what its tap has,
    and had what it FORWARDED to whomever. `is_sending` is false of the extra copies that were asked for.
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
            *KEY,
            sf.col("t_tx_ns").alias("t_ns"),
            event.alias("event"),
            no_boot,
            fate.isin(PASSED, LOST).alias("is_sending"),
        )
    )
    taken = tables["server_rx"].select(
        *(*KEY, sf.col("t_rx_ns").alias("t_ns"), sf.lit(TAKEN).alias("event"), "boot_id", is_sending)
    )
    forwarded = tables["deliver"].select(
        *(*KEY, sf.col("t_user_ns").alias("t_ns"), sf.lit(FORWARDED).alias("event"), no_boot, is_sending)
    )
    every = sent.unionByName(taken).unionByName(forwarded)
    return every.where((sf.col("msg_id") >= 0) & (sf.col("server_id") >= 0))


def sendings(every: DataFrame, lives: DataFrame) -> DataFrame:
    """A row for each message and server that it was sent to, or that had it, from `events`.

    `was_lost`: a sending was lost by plan. `is_open`: one passed to a server that was up. `lost_up`: how many
    were lost on their way to one that was up. `had`: the server had it; `forwarded_ns`: the tap has it not,
    and it was forwarded then; else null. `first_ns` and `last_ns`: of all that tells so.
    """
    event, at_ns = sf.col("event"), sf.col("t_ns")
    there_ns = sf.when(event != FORWARDED, at_ns)
    counted = every.groupBy(*KEY).agg(
        sf.count_if(event <= OPEN).alias("sent"),
        sf.count_if(event == TAKEN).alias("taken"),
        sf.count_if(event == LOST_UP).alias("lost_up"),
        sf.count_if(event <= LOST_DOWN).alias("lost"),
        sf.count_if(event == OPEN).alias("open"),
        sf.min(there_ns).alias("first_ns"),
        sf.max(there_ns).alias("last_ns"),
        sf.min(sf.when(event == FORWARDED, at_ns)).alias("forwarded_ns"),
    )
    # Of a server that was killed the tap's last second is missing; but it lived when it forwarded that.
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
            *KEY,
            (sf.col("lost") > 0).alias("was_lost"),
            (sf.col("open") > 0).alias("is_open"),
            sf.col("lost_up").cast("int").alias("lost_up"),
            ((sf.col("taken") > 0) | sf.coalesce(has_forwarded, sf.lit(False))).alias("had"),
            forwarded_ns.alias("forwarded_ns"),
            "first_ns",
            # `greatest` passes over null.
            sf.greatest("last_ns", forwarded_ns).alias("last_ns"),
        )
    )
