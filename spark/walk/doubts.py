"""Ways of messages that sets of servers do not decide: what stopped them is looked up for each.

These are messages that a server had, or that were sent to it while it was up, and of which no copy is
recorded; servers that the subscriber asked after the load had begun; and losses on the way to servers where
the lease had not stood all the time. In a sound run they are few, so that each can be given all that the
capture has about it, as arrays, and be judged by itself.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.results.causes import Cause
from kcast.spark.walk import facts, holders, sendings, server_sets

SETS = ("stage", "lease", "knows")
"""What the walk tells of the servers in doubt: how far the message came there is open; whether a lease stood
when a sending was lost there is; the subscriber knew them."""

_PAIR = ("cell", "msg_id", "sub_id")

# Sendings that got lost so were chances: the server was up, and would have taken them.
_UP = (Cause.UNTAPPED, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.NETWORK_IN)
_FORWARDED = (Cause.OVERFLOW_OUT, Cause.NETWORK_OUT)


class Evidence(NamedTuple):
    """What is looked up: the capture's tables, and what was made of them already."""

    tables: Mapping[str, DataFrame]
    parameters: DataFrame
    events: DataFrame
    sendings: DataFrame
    downs: DataFrame
    lives: DataFrame


def judge(pairs: DataFrame, evidence: Evidence, words: int) -> DataFrame:
    """A row for each server that these pairs have something open of, with their other columns.

    `stage`: what became of the message there, -1 where the sets tell that; `is_common`: whether the
    subscriber used the server, too; `more_chances`: sendings that might have reached it that way.
    """
    ways = _ways(pairs, evidence.parameters, words)
    return _judged(_with_evidence(ways, evidence))


def by_pair(judged: DataFrame) -> DataFrame:
    """A row for each pair, with what was found added to what it had."""
    stage, is_common = sf.col("stage"), sf.col("is_common")
    added = ("furthest", "nearest", "chances")
    found = {
        "furthest": sf.max(sf.greatest("furthest", sf.when(is_common, stage))),
        "nearest": sf.max(sf.greatest("nearest", sf.when(~is_common, stage))),
        "chances": sf.max("chances") + sf.sum("more_chances"),
    }
    # The same in all rows of a pair.
    kept = [
        *("pub_id", "topic_id", "t_intended_ns", "epoch", "latency_ns", "copies", "heard", "apart"),
    ]
    return judged.groupBy(*_PAIR).agg(
        *(sf.max(name).alias(name) for name in kept), *(found[name].alias(name) for name in added)
    )


def by_cause(judged: DataFrame) -> DataFrame:
    """`cell, cause, paths`."""
    return (
        judged.where(sf.col("stage") >= 0)
        .groupBy("cell", sf.col("stage").cast("int").alias("cause"))
        .agg(sf.count(sf.lit(1)).alias("paths"))
    )


def _ways(pairs: DataFrame, parameters: DataFrame, words: int) -> DataFrame:
    of_cell = parameters.select("cell", "servers", "may_leave", "ttl_ns")
    every = server_sets.of("stage", words) | server_sets.of("lease", words)
    in_doubt = sf.filter(sf.sequence(sf.lit(0), sf.col("servers") - 1), every.has)
    is_in = {name: server_sets.of(name, words).has(sf.col("server_id")).alias(f"is_{name}") for name in SETS}
    exploded = pairs.join(sf.broadcast(of_cell), "cell", "inner").select(
        *pairs.columns, "may_leave", "ttl_ns", sf.explode(in_doubt).alias("server_id")
    )
    sets = {f"{name}_{number}" for name in SETS for number in range(words)}
    return exploded.select(
        *(name for name in exploded.columns if name not in sets), *(is_in[name] for name in SETS)
    )


def _with_evidence(ways: DataFrame, evidence: Evidence) -> DataFrame:
    """Each way with what the capture has on its message, server, subscriber and publisher."""
    tables = evidence.tables
    places = ways.select(*sendings.KEY).distinct()
    asked = holders.asked_times(tables["subscribe"], evidence.parameters)
    server_rises = facts.rises(tables["server_stat"], "server_id", "kernel_drops")
    sub_rises = facts.client_rises(tables["client_stat"], tables["member"], "sub_id", "kernel_drops")
    pub_rises = facts.client_rises(tables["client_stat"], tables["member"], "pub_id", "send_errors")
    return (
        ways.join(evidence.sendings.drop("lost_up"), list(sendings.KEY), "inner")
        .join(_events_at(places, evidence.events), list(sendings.KEY), "left")
        .join(asked, list(holders.LEASE), "left")
        .join(holders.changes(tables["lease"]), list(holders.LEASE), "left")
        .join(_admissions(evidence), [*facts.SERVER, "pub_id"], "left")
        .join(sf.broadcast(evidence.lives), list(facts.SERVER), "left")
        .join(sf.broadcast(evidence.downs.drop("halts")), list(facts.SERVER), "left")
        .join(
            sf.broadcast(server_rises.withColumnRenamed("spans", "server_drops")), list(facts.SERVER), "left"
        )
        .join(sf.broadcast(sub_rises.withColumnRenamed("spans", "sub_drops")), ["cell", "sub_id"], "left")
        .join(sf.broadcast(pub_rises.withColumnRenamed("spans", "pub_errors")), ["cell", "pub_id"], "left")
    )


def _events_at(places: DataFrame, events: DataFrame) -> DataFrame:
    """Of each message at a server: when sendings were lost, were sent while it was up, were taken."""
    at_ns, event = sf.col("t_ns"), sf.col("event")
    relevant = events.where(event.isin(sendings.LOST_UP, sendings.OPEN, sendings.TAKEN))
    return (
        relevant.join(places, list(sendings.KEY), "left_semi")
        .groupBy(*sendings.KEY)
        .agg(
            sf.sort_array(sf.collect_list(sf.when(event == sendings.LOST_UP, at_ns))).alias("lost_ns"),
            sf.sort_array(
                sf.collect_list(sf.when(event == sendings.OPEN, sf.struct("t_ns", "is_sending")))
            ).alias("opens"),
            sf.sort_array(
                sf.collect_list(sf.when(event == sendings.TAKEN, sf.struct("t_ns", "boot_id")))
            ).alias("takings"),
        )
    )


def _admissions(evidence: Evidence) -> DataFrame:
    """`cell, server_id, pub_id, admissions`: when each life of a server that restarted first took a line of
    a publisher."""
    restarted = evidence.lives.where(sf.size("lives") > 1)
    taken = (
        evidence.tables["server_rx"]
        .join(sf.broadcast(restarted.select(*facts.SERVER)), list(facts.SERVER), "left_semi")
        .select(*facts.SERVER, "pub_id", "boot_id", sf.col("t_rx_ns").alias("t_ns"))
    )
    forwarded = (
        evidence.sendings.where(sf.col("forwarded_ns").isNotNull())
        .join(sf.broadcast(restarted), list(facts.SERVER), "inner")
        .join(evidence.tables["publish"].select("cell", "msg_id", "pub_id"), ["cell", "msg_id"], "inner")
        .select(
            *(*facts.SERVER, "pub_id"),
            facts.life_at(sf.col("lives"), sf.col("forwarded_ns"))["boot_id"].alias("boot_id"),
            sf.col("forwarded_ns").alias("t_ns"),
        )
    )
    return (
        taken.unionByName(forwarded)
        .groupBy(*facts.SERVER, "pub_id", "boot_id")
        .agg(sf.min("t_ns").alias("t_ns"))
        .groupBy(*facts.SERVER, "pub_id")
        .agg(sf.collect_list(sf.struct("boot_id", "t_ns")).alias("admissions"))
    )


def _judged(ways: DataFrame) -> DataFrame:
    is_stage = sf.col("is_stage")
    was_asked = sf.coalesce(sf.col("asked_ns") <= sf.col("last_ns"), sf.lit(False))
    forwarded = sf.struct(
        sf.col("forwarded_ns").alias("t_ns"),
        facts.life_at(sf.col("lives"), sf.col("forwarded_ns"))["boot_id"].alias("boot_id"),
    )
    takings = sf.when(sf.col("forwarded_ns").isNotNull(), sf.array(forwarded)).otherwise(sf.col("takings"))
    looked_up = ways.withColumns(
        {
            "is_common": ~is_stage | was_asked,
            "of_takings": sf.transform(takings, _stage_of_taking),
            "of_opens": sf.transform("opens", _stage_of_open),
        }
    )
    sent_there = (
        sf.when(sf.col("had"), sf.array_max("of_takings"))
        .when(sf.col("is_open"), sf.array_max("of_opens"))
        .when(sf.col("was_lost"), int(Cause.LOSS_IN))
        .otherwise(int(Cause.DOWN))
    )
    was_full = facts.within(sf.col("sub_drops"), sf.col("last_ns"))
    unasked = sf.when(sf.col("is_knows"), sf.col("unasked")).otherwise(int(Cause.VIEW))
    stage = (
        sf.when(~sf.col("is_common"), unasked)
        .when((sent_there == int(Cause.UNTAPPED)) & was_full, int(Cause.OVERFLOW_OUT))
        .otherwise(sent_there)
    )
    lost = sf.size(sf.filter("lost_ns", _stood_at))
    taken = sf.size(sf.filter("of_takings", lambda stage: stage.isin(*_FORWARDED)))
    opened = sf.size(
        sf.filter(
            sf.arrays_zip("opens", "of_opens"),
            lambda way: (
                way["opens"]["is_sending"] & way["of_opens"].isin(*_UP) & _stood_at(way["opens"]["t_ns"])
            ),
        )
    )
    without_copy = sf.when(sf.col("had"), taken).otherwise(opened)
    more = _if(sf.col("is_lease"), lost) + _if(is_stage, without_copy)
    judged = looked_up.withColumns(
        {
            "stage": sf.when(is_stage, stage).otherwise(-1).cast("byte"),
            "more_chances": _if(sf.col("is_common"), more),
        }
    )
    return judged.select(
        *("cell", "msg_id", "sub_id", "server_id", "pub_id", "topic_id", "t_intended_ns", "epoch"),
        *("latency_ns", "copies", "heard", "chances", "apart", "furthest", "nearest"),
        *("stage", "is_common", "more_chances"),
    )


def _if(condition: Column, number: Column) -> Column:
    """A number where that is so, and it is known; else 0."""
    return sf.coalesce(sf.when(condition, number), sf.lit(0))


def _stage_of_open(sent: Column) -> Column:
    """What became of a sending to a server that was up, and that had the message not."""
    at_ns, lives = sent["t_ns"], sf.col("lives")
    life = facts.life_at(lives, at_ns)
    was_admitted = sf.col("admissions").isNotNull() & sf.exists(
        "admissions", lambda admitted: (admitted["boot_id"] == life["boot_id"]) & (admitted["t_ns"] <= at_ns)
    )
    return (
        sf.when(lives.isNull(), int(Cause.UNTAPPED))
        .when((life["from_ns"] > sf.col("first_life_ns")) & ~was_admitted, int(Cause.UNVOUCHED))
        .when(facts.within(sf.col("pub_errors"), at_ns), int(Cause.SEND_ERROR))
        .when(facts.within(sf.col("server_drops"), at_ns), int(Cause.OVERFLOW_IN))
        .otherwise(int(Cause.NETWORK_IN))
    )


def _stage_of_taking(taken: Column) -> Column:
    """What became of a message that a server had, and of which no copy for the subscriber is recorded."""
    at_ns = taken["t_ns"]
    last = _last_change(taken["boot_id"], at_ns)
    stood = sf.coalesce(last["stands"], sf.lit(False))
    was_asked_lately = sf.exists(
        "asked_every_ns", lambda asked_ns: (asked_ns <= at_ns) & (at_ns - asked_ns <= sf.col("ttl_ns"))
    )
    had_stood = sf.exists("changes", lambda change: change["stands"] & (change["t_ns"] <= at_ns))
    return (
        sf.when(stood & facts.within(sf.col("downs"), at_ns), int(Cause.DOWN_OUT))
        .when(stood & facts.within(sf.col("sub_drops"), at_ns), int(Cause.OVERFLOW_OUT))
        .when(stood, int(Cause.NETWORK_OUT))
        .when(sf.col("may_leave") & ~sf.coalesce(was_asked_lately, sf.lit(False)), int(Cause.DRAW))
        .when(last.isNotNull(), int(Cause.LEASE_EXPIRED))
        .when(had_stood, int(Cause.LEASE_RESTART))
        .otherwise(int(Cause.LEASE_NEVER))
    )


def _stood_at(at_ns: Column) -> Column:
    """Whether the subscriber's lease stood at the server at a time; if that keeps no tap, had been asked."""
    life = facts.life_at(sf.col("lives"), at_ns)
    last = _last_change(life["boot_id"], at_ns)
    stood = sf.when(sf.col("lives").isNull(), sf.col("asked_ns") <= at_ns).otherwise(last["stands"])
    return sf.coalesce(stood, sf.lit(False))


def _last_change(boot_id: Column, at_ns: Column) -> Column:
    """The last change of the lease in one life of the server, at a time or before it; else null."""
    return sf.array_max(
        sf.filter("changes", lambda change: (change["boot_id"] == boot_id) & (change["t_ns"] <= at_ns))
    )
