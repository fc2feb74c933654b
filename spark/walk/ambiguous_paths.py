"""Paths of which the sets of servers do not tell what became of the message: this is looked up for each.

A path is ambiguous if a server had the message, or it was sent there while the server was up, and no copy is
recorded; if the subscriber asked the server only after the load had begun; or if a sending was lost on its
way to a server where the subscriber's lease did not stand all the time. In a sound run such paths are few: so
each is joined with all that the capture has about it, as arrays, and judged by itself.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.results.causes import Cause
from kcast.spark.walk import facts, holders, legs, server_sets

SETS = ("unclear", "lease_unclear", "knows")
"""Sets of servers that a pair with ambiguous paths has: what became of the message there is unclear; whether
a lease stood when a sending was lost there is unclear; the subscriber knew the server."""

# Sendings lost for these causes were chances: the server was up, and would have taken them in.
_UP = (Cause.UNTAPPED, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.NETWORK_IN)
_FORWARDED = (Cause.OVERFLOW_OUT, Cause.NETWORK_OUT)


class Lookups(NamedTuple):
    """The tables in which paths are looked up: the capture's, and those that the walk has made of them."""

    tables: Mapping[str, DataFrame]
    parameters: DataFrame
    events: DataFrame
    sendings: DataFrame
    downs: DataFrame
    lives: DataFrame


def judge(pairs: DataFrame, lookups: Lookups, words: int) -> DataFrame:
    """A row for each ambiguous path of these pairs, with the pair's other columns.

    `path_cause`: what became of the message there, -1 if the sets tell that. `is_common`: whether the
    subscriber used the server, too. `more_chances`: number of sendings that could have reached the
    subscriber there.
    """
    paths = _paths(pairs, lookups.parameters, words)
    return _judged(_looked_up(paths, lookups))


def by_pair(judged: DataFrame) -> DataFrame:
    """A row for each pair: its columns, with what its ambiguous paths add to `furthest` and `chances`."""
    cause, is_common = sf.col("path_cause"), sf.col("is_common")
    added = {
        "furthest": sf.max(sf.greatest("furthest", sf.when(is_common, cause))),
        "furthest_apart": sf.max(sf.greatest("furthest_apart", sf.when(~is_common, cause))),
        "chances": sf.max("chances") + sf.sum("more_chances"),
    }
    # The same in all rows of a pair.
    kept = ("pub_id", "topic_id", "t_intended_ns", "epoch", "latency_ns", "copies", "heard", "if_apart")
    return judged.groupBy(*legs.PAIR).agg(
        *(sf.max(name).alias(name) for name in kept), *(found.alias(name) for name, found in added.items())
    )


def by_cause(judged: DataFrame) -> DataFrame:
    """`cell, cause, paths`: number of the ambiguous paths by cause."""
    return (
        judged.where(sf.col("path_cause") >= 0)
        .groupBy("cell", sf.col("path_cause").cast("int").alias("cause"))
        .agg(sf.count(sf.lit(1)).alias("paths"))
    )


def _paths(pairs: DataFrame, parameters: DataFrame, words: int) -> DataFrame:
    """A row for each ambiguous path; `is_<set>`: whether its server is in a set."""
    of_cell = parameters.select("cell", "servers", "may_leave", "ttl_ns")
    unclear = server_sets.of("unclear", words) | server_sets.of("lease_unclear", words)
    servers = sf.filter(sf.sequence(sf.lit(0), sf.col("servers") - 1), unclear.has)
    is_in = {name: server_sets.of(name, words).has(sf.col("server_id")).alias(f"is_{name}") for name in SETS}
    exploded = pairs.join(sf.broadcast(of_cell), "cell", "inner").select(
        *pairs.columns, "may_leave", "ttl_ns", sf.explode(servers).alias("server_id")
    )
    sets = {f"{name}_{number}" for name in SETS for number in range(words)}
    return exploded.select(
        *(name for name in exploded.columns if name not in sets), *(is_in[name] for name in SETS)
    )


def _looked_up(paths: DataFrame, lookups: Lookups) -> DataFrame:
    """The paths with what the capture has on their messages, servers, subscribers and publishers."""
    tables = lookups.tables
    chosen = paths.select(*legs.SENDING).distinct()
    asked = holders.asked_times(tables["subscribe"], lookups.parameters)
    server_rises = facts.rises(tables["server_stat"], "server_id", "kernel_drops")
    sub_rises = facts.client_rises(tables["client_stat"], tables["member"], "sub_id", "kernel_drops")
    pub_rises = facts.client_rises(tables["client_stat"], tables["member"], "pub_id", "send_errors")
    return (
        paths.join(lookups.sendings.drop("lost_up"), list(legs.SENDING), "inner")
        .join(_events_of(chosen, lookups.events), list(legs.SENDING), "left")
        .join(asked, list(holders.LEASE), "left")
        .join(holders.changes(tables["lease"]), list(holders.LEASE), "left")
        .join(_admissions(lookups), [*facts.SERVER, "pub_id"], "left")
        .join(sf.broadcast(lookups.lives), list(facts.SERVER), "left")
        .join(sf.broadcast(lookups.downs.drop("halts")), list(facts.SERVER), "left")
        .join(
            sf.broadcast(server_rises.withColumnRenamed("spans", "server_drops")), list(facts.SERVER), "left"
        )
        .join(sf.broadcast(sub_rises.withColumnRenamed("spans", "sub_drops")), ["cell", "sub_id"], "left")
        .join(sf.broadcast(pub_rises.withColumnRenamed("spans", "pub_errors")), ["cell", "pub_id"], "left")
    )


def _events_of(chosen: DataFrame, events: DataFrame) -> DataFrame:
    """`legs.SENDING`, and the events of each by kind: `lost_ns` (LOST_UP), `opens` and `takings`."""

    def listed(kind: int, value: Column) -> Column:
        return sf.sort_array(sf.collect_list(sf.when(sf.col("event") == kind, value)))

    relevant = events.where(sf.col("event").isin(legs.LOST_UP, legs.OPEN, legs.TAKEN))
    return (
        relevant.join(chosen, list(legs.SENDING), "left_semi")
        .groupBy(*legs.SENDING)
        .agg(
            listed(legs.LOST_UP, sf.col("t_ns")).alias("lost_ns"),
            listed(legs.OPEN, sf.struct("t_ns", "is_sending")).alias("opens"),
            listed(legs.TAKEN, sf.struct("t_ns", "boot_id")).alias("takings"),
        )
    )


def _admissions(lookups: Lookups) -> DataFrame:
    """`cell, server_id, pub_id, admissions`: when each life of a server first took in a line of a publisher.

    Servers that were never restarted have no row.
    """
    restarted = lookups.lives.where(sf.size("lives") > 1)
    taken = (
        lookups.tables["server_rx"]
        .join(sf.broadcast(restarted.select(*facts.SERVER)), list(facts.SERVER), "left_semi")
        .select(*facts.SERVER, "pub_id", "boot_id", sf.col("t_rx_ns").alias("t_ns"))
    )
    forwarded = (
        lookups.sendings.where(sf.col("forwarded_ns").isNotNull())
        .join(sf.broadcast(restarted), list(facts.SERVER), "inner")
        .join(lookups.tables["publish"].select("cell", "msg_id", "pub_id"), ["cell", "msg_id"], "inner")
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


def _judged(paths: DataFrame) -> DataFrame:
    is_unclear = sf.col("is_unclear")
    was_asked = sf.coalesce(sf.col("asked_ns") <= sf.col("last_ns"), sf.lit(False))
    forwarded = sf.struct(
        sf.col("forwarded_ns").alias("t_ns"),
        facts.life_at(sf.col("lives"), sf.col("forwarded_ns"))["boot_id"].alias("boot_id"),
    )
    takings = sf.when(sf.col("forwarded_ns").isNotNull(), sf.array(forwarded)).otherwise(sf.col("takings"))
    with_causes = paths.withColumns(
        {
            "is_common": ~is_unclear | was_asked,
            "causes_taken": sf.transform(takings, _cause_if_taken),
            "causes_open": sf.transform("opens", _cause_if_open),
        }
    )
    sent_there = (
        sf.when(sf.col("had"), sf.array_max("causes_taken"))
        .when(sf.col("is_open"), sf.array_max("causes_open"))
        .when(sf.col("was_lost"), int(Cause.LOSS_IN))
        .otherwise(int(Cause.DOWN))
    )
    was_full = facts.within(sf.col("sub_drops"), sf.col("last_ns"))
    unasked = sf.when(sf.col("is_knows"), sf.col("if_unasked")).otherwise(int(Cause.VIEW))
    cause = (
        sf.when(~sf.col("is_common"), unasked)
        .when((sent_there == int(Cause.UNTAPPED)) & was_full, int(Cause.OVERFLOW_OUT))
        .otherwise(sent_there)
    )
    lost = sf.size(sf.filter("lost_ns", _stood_at))
    taken = sf.size(sf.filter("causes_taken", lambda cause: cause.isin(*_FORWARDED)))
    opened = sf.size(
        sf.filter(
            sf.arrays_zip("opens", "causes_open"),
            lambda each: (
                each["opens"]["is_sending"]
                & each["causes_open"].isin(*_UP)
                & _stood_at(each["opens"]["t_ns"])
            ),
        )
    )
    without_copy = sf.when(sf.col("had"), taken).otherwise(opened)
    more = _number_if(sf.col("is_lease_unclear"), lost) + _number_if(is_unclear, without_copy)
    judged = with_causes.withColumns(
        {
            "path_cause": sf.when(is_unclear, cause).otherwise(-1).cast("byte"),
            "more_chances": _number_if(sf.col("is_common"), more),
        }
    )
    return judged.select(
        *("cell", "msg_id", "sub_id", "server_id", "pub_id", "topic_id", "t_intended_ns", "epoch"),
        *("latency_ns", "copies", "heard", "chances", "if_apart", "furthest", "furthest_apart"),
        *("path_cause", "is_common", "more_chances"),
    )


def _number_if(condition: Column, number: Column) -> Column:
    """The number if the condition is true; 0 if it is not, or the number is null."""
    return sf.coalesce(sf.when(condition, number), sf.lit(0))


def _cause_if_open(sent: Column) -> Column:
    """What became of a sending to a server that was up, and did not have the message."""
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


def _cause_if_taken(taken: Column) -> Column:
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
    """Whether the subscriber's lease stood at a time; at a server without a tap, whether it had been asked
    for."""
    life = facts.life_at(sf.col("lives"), at_ns)
    last = _last_change(life["boot_id"], at_ns)
    stood = sf.when(sf.col("lives").isNull(), sf.col("asked_ns") <= at_ns).otherwise(last["stands"])
    return sf.coalesce(stood, sf.lit(False))


def _last_change(boot_id: Column, at_ns: Column) -> Column:
    """The last change of the lease in one life of the server, up to a time; null without one."""
    return sf.array_max(
        sf.filter("changes", lambda change: (change["boot_id"] == boot_id) & (change["t_ns"] <= at_ns))
    )
