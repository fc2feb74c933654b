"""Which (message, subscriber) pairs were delivered, and for each that was not, the one cause.

The rules, and so the results, are those of `kcast.loadtest.results.attribution`; what is counted is the same
by sets of servers (`masks`), all ways of a pair at once:

    pub_tx, server_rx -> sendings: how far a message came to each server, then as sets by message
    subscribe, lease, intent -> holders: whom a message is for, and where that one asked a lease
    deliver -> copies: what came of it at each subscriber, as sets of servers

What the sets leave open, mostly messages that a server had and of which no copy is recorded, is looked up way
by way (`doubts`). Tables by message are shuffled once by `cell, msg_id`; those of holders, servers and
clients are sent to where these are.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.results.causes import Cause
from kcast.spark.capture.schemas import PAIRS, PATHS
from kcast.spark.walk import copies as of_copies
from kcast.spark.walk import doubts, facts, holders, server_sets
from kcast.spark.walk import sendings as of_sendings

MESSAGE = ("cell", "msg_id")

_OF_MESSAGES = ("at", "had", "lost", "open", "lost_up", "lost_twice")
_OF_HOLDERS = ("asked", "early", "steady")

# Causes that sets of servers decide, in the order of the way: where only one side used a server, and where
# both did, with the names of these sets.
_NONE_COMMON = (Cause.UNSENT, Cause.VIEW, Cause.DRAW, Cause.UNASKED)
_BY_SET = {
    Cause.DOWN: "down",
    Cause.LOSS_IN: "lost_in",
    Cause.DOWN_OUT: "down_out",
    Cause.LOSS_OUT: "lost_out",
    Cause.HALTED: "halted",
    Cause.LATE: "late",
    Cause.DELIVERED: "in_time",
}
_BY_SETS = (*_NONE_COMMON, *_BY_SET)

_OF_PAIRS = ("cell", "msg_id", "pub_id", "sub_id", "topic_id", "t_intended_ns", "epoch")
_OF_COPIES = ("latency_ns", "copies", "heard", "chances")


class Attributed(NamedTuple):
    """`PAIRS` and `PATHS`, and what they are made of, which is kept on disk until `release`."""

    pairs: DataFrame
    paths: DataFrame
    kept: tuple[DataFrame, ...]

    def release(self) -> None:
        """Gives the disk back; the tables are made anew if they are used again."""
        for frame in self.kept:
            frame.unpersist()


def attribute(tables: Mapping[str, DataFrame], parameters: DataFrame, servers: int) -> Attributed:
    """What became of each pair, from a capture's tables (`schemas.table_schema`) and `PARAMETERS`.

    `servers` is how many the largest cell has. Most of the work is done here; what is left, the first time
    that the result is used.
    """
    words = server_sets.words_for(servers)
    downs = facts.downs(tables["outage"], tables["server_life"])
    lives = facts.lives(tables["server_life"])
    events = of_sendings.events(tables, downs)
    sendings = _keep(of_sendings.sendings(events, lives))
    messages = _messages(tables, parameters, sendings, words)
    listeners = _listeners(tables, parameters, lives, words)
    times = (
        tables["publish"]
        .join(sf.broadcast(parameters.select("cell", "deadline_ns")), "cell", "inner")
        .select(*MESSAGE, "t_intended_ns", "deadline_ns")
    )
    came = of_copies.copies(tables["deliver"], times, downs, words)
    walked = _keep(_walk(messages, listeners, came, words))
    certain, doubtful = walked.where(sf.col("doubt").isNull()), walked.where(sf.col("doubt").isNotNull())
    if doubtful.isEmpty():
        # What would be looked up takes longer to plan than most of the above.
        return Attributed(_as_pairs(certain), _paths(_paths_by_sets(walked)), (sendings, walked))
    evidence = doubts.Evidence(tables, parameters, events, sendings, downs, lives)
    judged = _keep(doubts.judge(doubtful.select(*_OF_PAIRS, *_OF_COPIES, "doubt.*"), evidence, words))
    settled = doubts.by_pair(judged).withColumn("cause", _cause())
    paths = _paths_by_sets(walked).unionByName(doubts.by_cause(judged))
    pairs = _as_pairs(certain).unionByName(_as_pairs(settled))
    return Attributed(pairs, _paths(paths), (sendings, walked, judged))


def _keep(frame: DataFrame) -> DataFrame:
    return frame.persist(StorageLevel.DISK_ONLY)


# --- What there is to join ---------------------------------------------------------------------------


def _messages(
    tables: Mapping[str, DataFrame], parameters: DataFrame, sendings: DataFrame, words: int
) -> DataFrame:
    """All messages with their cell's parameters, their publisher's view, and sets of servers.

    `at`: sent there, or there without that; of these, `had` it; the others are `lost`, sent there and lost
    by plan, `open`, sent there while it was up, or else it was down. `lost_up`: sent there while it was up,
    and lost by plan; `lost_twice`, several times.
    """
    only = server_sets.only(sf.col("server_id"), words)
    had, is_open = sf.col("had"), sf.col("is_open")
    sets = {
        "at": only,
        "had": only.where(had),
        "lost": only.where(~had & ~is_open & sf.col("was_lost")),
        "open": only.where(~had & is_open),
        "lost_up": only.where(sf.col("lost_up") > 0),
        "lost_twice": only.where(sf.col("lost_up") > 1),
    }
    there = sendings.groupBy(*MESSAGE).agg(
        sf.min("first_ns").alias("first_ns"),
        *(word for name in _OF_MESSAGES for word in server_sets.union(name, sets[name])),
    )
    published = tables["publish"].select(*MESSAGE, "pub_id", "topic_id", "t_intended_ns")
    views = facts.views(tables["member"], "pub_id", "pub_knows", words)
    in_cell = sf.col("t_intended_ns") - sf.col("t0_ns")
    return (
        published.where(sf.col("msg_id") >= 0)
        .join(sf.broadcast(parameters), "cell", "inner")
        .join(sf.broadcast(views), ["cell", "pub_id"], "left")
        .join(there.hint("shuffle_hash"), list(MESSAGE), "left")
        .select(
            *(*MESSAGE, "pub_id", "topic_id", "t_intended_ns", "publish", "subscribe", "k", "must_meet"),
            sf.floor(in_cell / sf.col("epoch_ns")).cast("int").alias("epoch"),
            # What was asked before the load was asked before this message was anywhere.
            sf.coalesce(sf.col("first_ns") >= sf.col("t0_ns"), sf.lit(False)).alias("is_of_load"),
            *_view("pub_knows", words).named("pub_knows"),
            *(word for name in _OF_MESSAGES for word in server_sets.of(name, words).filled().named(name)),
        )
    )


def _listeners(
    tables: Mapping[str, DataFrame], parameters: DataFrame, lives: DataFrame, words: int
) -> DataFrame:
    """The holders, with the view of each."""
    views = facts.views(tables["member"], "sub_id", "sub_knows", words)
    return (
        holders.holders(tables, parameters, lives, words)
        .join(sf.broadcast(parameters.select("cell", "servers")), "cell", "inner")
        .join(views, ["cell", "sub_id"], "left")
        .select(
            *(*holders.HOLDER, "due"),
            *_view("sub_knows", words).named("sub_knows"),
            *(word for name in _OF_HOLDERS for word in server_sets.of(name, words).named(name)),
        )
    )


def _view(name: str, words: int) -> server_sets.Servers:
    """A client's view; all servers, where it is not recorded."""
    return server_sets.of(name, words).filled(server_sets.up_to(sf.col("servers"), words))


# --- The walk ----------------------------------------------------------------------------------------


def _walk(messages: DataFrame, listeners: DataFrame, came: DataFrame, words: int) -> DataFrame:
    """All pairs with what the sets tell: `PAIRS`, and the number of ways by cause, packed.

    `doubt` is null where that is all. Else it has the servers of which the sets leave something open
    (`doubts.SETS`), and of the other ways `furthest`: the cause of the one on which the message came
    furthest through a server common to both sides, -1 without one; `nearest`: of those through others;
    `apart`: the pair's if there is no common server, -1 if that is `nearest`; `unasked`: of a way through a
    server that the subscriber knew, and did not ask.
    """
    is_due = sf.exists(
        "due",
        lambda due: (due["from_ns"] <= sf.col("t_intended_ns")) & (sf.col("t_intended_ns") < due["to_ns"]),
    )
    pairs = messages.join(sf.broadcast(listeners), ["cell", "topic_id"], "inner").where(is_due)
    told = pairs.join(came.hint("shuffle_hash"), list(of_copies.PAIR), "left")

    # Step by step, so that no expression is written out more than once in what Spark makes of it.
    return _counted(_compared(_laid_out(told, words), words), words)


def _laid_out(told: DataFrame, words: int) -> DataFrame:
    """Sets of the message, of the holder, and of what came, without nulls."""
    uses_all = sf.col("must_meet") & (sf.col("publish") >= sf.col("k"))
    sub_uses_all = sf.col("must_meet") & (sf.col("subscribe") >= sf.col("k"))
    is_of_load = sf.col("is_of_load")
    pub_knows, sub_knows = server_sets.of("pub_knows", words), server_sets.of("sub_knows", words)
    sets = {name: server_sets.of(name, words) for name in (*_OF_MESSAGES, "asked", "sub_knows", "pub_knows")}
    sets |= {name: server_sets.of(name, words).where(is_of_load) for name in ("early", "steady")}
    sets |= {name: server_sets.of(name, words).filled() for name in of_copies.SETS}
    return told.select(
        *_OF_PAIRS,
        sf.coalesce("latency_ns", sf.lit(-1)).alias("latency_ns"),
        sf.coalesce("copies", sf.lit(0)).alias("copies"),
        sf.coalesce("passing", sf.lit(0)).alias("passing"),
        *("publish", "must_meet"),
        uses_all.alias("pub_uses_all"),
        sub_uses_all.alias("sub_uses_all"),
        pub_knows.differ(sub_knows).alias("differ"),
        *_named(sets),
    )


def _compared(laid_out: DataFrame, words: int) -> DataFrame:
    """What became of the message at which servers, as sets that have no server in common."""
    of = {
        name: server_sets.of(name, words)
        for name in (*_OF_MESSAGES, *_OF_HOLDERS, *of_copies.SETS, "pub_knows", "sub_knows")
    }
    at, some, early, asked = of["at"], of["any"], of["early"], of["asked"]
    differ = sf.col("differ")
    with_copy, sure = at & some, (at - some) & early
    apart, unsent = at - some - asked, asked - at
    tardy = with_copy - of["in_time"]
    tried = of["lost_up"] & (some | asked)
    sets = {
        "in_time": with_copy & of["in_time"],
        "late": tardy & of["late"],
        "halted": (tardy - of["late"]) & of["halted"],
        "lost_out": (tardy - of["late"] - of["halted"]) & of["lost_out"],
        "down_out": tardy - of["late"] - of["halted"] - of["lost_out"],
        "lost_in": sure & of["lost"],
        "down": sure - of["had"] - of["open"] - of["lost"],
        "apart": apart,
        "apart_by_view": (apart - of["sub_knows"]) | apart.where(sf.col("sub_uses_all") & differ),
        "unsent": unsent,
        "unsent_by_view": (unsent - of["pub_knows"]) | unsent.where(sf.col("pub_uses_all") & differ),
        "stage": ((at - some) & (asked - early)) | (sure & (of["had"] | of["open"])),
        "lease": tried & (of["lost_twice"] | (of["lost_up"] - of["steady"])),
        "lost_surely": (tried & of["steady"]) - of["lost_twice"],
        "knows": of["sub_knows"],
    }
    unasked = sf.when(sf.col("sub_uses_all"), sf.when(differ, Cause.VIEW).otherwise(Cause.UNASKED))
    if_apart = (
        sf.when(~at.some(), Cause.UNSENT)
        .when(~sf.col("must_meet"), -1)
        .when(differ, Cause.VIEW)
        .when(at.count() < sf.least("publish", of["pub_knows"].count()), Cause.UNSENT)
        .otherwise(Cause.UNASKED)
    )
    return laid_out.select(
        *(*_OF_PAIRS, "latency_ns", "copies", "passing", "pub_uses_all", "sub_uses_all"),
        of["in_time"].count().alias("heard"),
        if_apart.cast("byte").alias("apart"),
        unasked.otherwise(Cause.DRAW).cast("byte").alias("unasked"),
        *_named(sets),
    )


def _counted(compared: DataFrame, words: int) -> DataFrame:
    """How many ways there are by cause, and the greatest causes."""
    size = {name: server_sets.of(name, words).count() for name in _BY_SET.values()}
    of_view = {name: server_sets.of(f"{name}_by_view", words).count() for name in ("apart", "unsent")}
    of_rest = {name: server_sets.of(name, words).count() - of_view[name] for name in of_view}
    pub_uses_all, sub_uses_all, none = sf.col("pub_uses_all"), sf.col("sub_uses_all"), sf.lit(0)
    counts: dict[Cause, Column] = {
        Cause.UNSENT: sf.when(pub_uses_all, of_rest["unsent"]).otherwise(none),
        Cause.VIEW: of_view["apart"] + of_view["unsent"],
        Cause.DRAW: sf.when(sub_uses_all, none).otherwise(of_rest["apart"])
        + sf.when(pub_uses_all, none).otherwise(of_rest["unsent"]),
        Cause.UNASKED: sf.when(sub_uses_all, of_rest["apart"]).otherwise(none),
        **{cause: size[name] for cause, name in _BY_SET.items()},
    }
    counted = compared.select(
        *(*_OF_PAIRS, "latency_ns", "copies", "heard", "apart", "unasked"),
        (sf.col("passing") + server_sets.of("lost_surely", words).count()).alias("chances"),
        *(number.alias(_paths_column(cause)) for cause, number in counts.items()),
        *_named({name: server_sets.of(name, words) for name in doubts.SETS}),
    )
    greatest = counted.withColumns(
        {
            "furthest": _greatest(_BY_SET, -1),
            "nearest": _greatest(_NONE_COMMON, Cause.UNSENT),
            "in_doubt": (server_sets.of("stage", words) | server_sets.of("lease", words)).some(),
        }
    )
    sets = [f"{name}_{number}" for name in doubts.SETS for number in range(words)]
    doubt = sf.struct("furthest", "nearest", "apart", "unasked", *sets)
    return greatest.select(
        *(*_OF_PAIRS, *_OF_COPIES),
        _cause().alias("cause"),
        sf.when(sf.col("in_doubt"), doubt).alias("doubt"),
        *_packed([_paths_column(cause) for cause in _BY_SETS]),
    )


def _named(sets: Mapping[str, server_sets.Servers]) -> list[Column]:
    return [word for name, servers in sets.items() for word in servers.named(name)]


def _paths_column(cause: Cause) -> str:
    return f"paths_{cause.name.lower()}"


# Numbers of paths are kept four to a column: each column takes time to write and to read.
_PACKED_BITS = 16
_PACKED = 64 // _PACKED_BITS


def _packed(names: Sequence[str]) -> list[Column]:
    packed = []
    for start in range(0, len(names), _PACKED):
        some = [
            sf.shiftleft(sf.col(name).cast("long"), place * _PACKED_BITS)
            for place, name in enumerate(names[start : start + _PACKED])
        ]
        packed.append(reduce(Column.bitwiseOR, some).alias(f"packed_{start // _PACKED}"))
    return packed


def _unpacked(number: int) -> Column:
    whole = sf.shiftrightunsigned(f"packed_{number // _PACKED}", number % _PACKED * _PACKED_BITS)
    return whole.bitwiseAND((1 << _PACKED_BITS) - 1)


def _greatest(causes: Iterable[Cause], otherwise: int) -> Column:
    """The greatest of some causes that there is a path with."""
    found = sf.lit(otherwise)
    for cause in sorted(causes):
        found = sf.when(sf.col(_paths_column(cause)) > 0, int(cause)).otherwise(found)
    return found.cast("byte")


# --- What comes of it --------------------------------------------------------------------------------


def _cause() -> Column:
    """The pair's, from the causes of its ways."""
    return (
        sf.when(sf.col("latency_ns") >= 0, int(Cause.DELIVERED))
        .when(sf.col("furthest") >= 0, sf.col("furthest"))
        .when(sf.col("apart") >= 0, sf.col("apart"))
        .otherwise(sf.col("nearest"))
    )


def _as_pairs(settled: DataFrame) -> DataFrame:
    return settled.select(*(sf.col(field.name).cast(field.dataType) for field in PAIRS))


def _paths_by_sets(walked: DataFrame) -> DataFrame:
    sums = [sf.sum(_unpacked(number)).alias(_paths_column(cause)) for number, cause in enumerate(_BY_SETS)]
    each = [
        sf.struct(sf.lit(int(cause)).alias("cause"), sf.col(_paths_column(cause)).alias("paths"))
        for cause in _BY_SETS
    ]
    return walked.groupBy("cell").agg(*sums).select("cell", sf.inline(sf.array(*each)))


def _paths(found: DataFrame) -> DataFrame:
    return (
        found.groupBy("cell", "cause")
        .agg(sf.sum("paths").alias("paths"))
        .where(sf.col("paths") > 0)
        .select(*(sf.col(field.name).cast(field.dataType) for field in PATHS))
    )
