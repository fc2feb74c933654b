"""What came of each message to each subscriber, and from which servers."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.capture.schema import DUPLICATE, LOST, PASSED
from kcast.spark.walk import facts, server_sets

SETS = ("in_time", "late", "halted", "lost_out", "any")

PAIR = ("cell", "msg_id", "sub_id")


def copies(deliver: DataFrame, times: DataFrame, downs: DataFrame, words: int) -> DataFrame:
    """A row for each pair that something came for, or would have. `times`: `cell, msg_id, t_intended_ns,
    deadline_ns` of the messages.

    `latency_ns`: to the first copy in time, null without one; `copies`: that came; `passing`: that the
    servers sent, and that were not cut off. Sets of servers: `in_time` brought one in time, `late` one after
    the deadline, `halted` the same and had been halted meanwhile, `lost_out` one that was lost by plan; `any`
    of whatever kind.
    """
    fate, at_ns = sf.col("injected"), sf.col("t_user_ns")
    since_ns = at_ns - sf.col("t_intended_ns")
    arrived = fate.isin(PASSED, DUPLICATE)
    was_halted = facts.overlap(sf.col("halts"), sf.col("t_intended_ns"), at_ns)
    of = sf.col("of")
    told = (
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
            .alias("of"),
            *server_sets.only(sf.col("server_id"), words).named("server"),
        )
    )
    server = server_sets.of("server", words)
    sets = [server.where(of == number) for number in range(len(SETS) - 1)]
    return told.groupBy(*PAIR).agg(
        sf.min(sf.when(of == 0, sf.col("since_ns"))).alias("latency_ns"),
        sf.count_if(of <= 2).cast("int").alias("copies"),
        sf.count_if(fate.isin(PASSED, LOST)).cast("int").alias("passing"),
        *(
            word
            for name, one in zip(SETS, [*sets, server], strict=True)
            for word in server_sets.union(name, one)
        ),
    )
