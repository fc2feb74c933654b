"""Which (message, subscriber) pairs were delivered, and for each that was not, the one cause.

A path is the way of a message to a subscriber through one server. The rules, and so the results, are those of
`kcast.loadtest.results.attribution`; but all paths of a pair are told apart at once, by sets of servers:

    pub_tx, server_rx -> legs.sendings: what became of a message on its way to each server, as sets by message
    subscribe, lease, intent -> holders: the subscribers of a topic, and where each asked for a lease, as sets
    deliver -> legs.copies: what came of it at each subscriber, as sets

Paths of which the sets do not tell enough, mostly those of messages that a server had and of which no copy is
recorded, are looked up one by one (`ambiguous_paths`). Tables by message are shuffled once, by `cell,
msg_id`; those of holders, servers and clients are broadcast.

Whoever changes a rule changes both: tests/spark/walk/test_pairs.py holds them equal, pair by pair.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, IntegerType, LongType

from kcast.loadtest.results.causes import Cause
from kcast.spark.capture.schemas import struct
from kcast.spark.walk import ambiguous_paths, facts, holders, legs, server_sets

# One row for each message and subscriber that should have received it.
PAIRS = struct(
    cell=IntegerType(),
    msg_id=LongType(),
    pub_id=IntegerType(),
    sub_id=IntegerType(),
    topic_id=IntegerType(),
    t_intended_ns=LongType(),
    epoch=IntegerType(),  # of the outages, from 0 when the load began
    cause=ByteType(),  # kcast.loadtest.results.causes.Cause
    latency_ns=LongType(),  # from t_intended_ns to the first copy in time; -1 without one
    copies=IntegerType(),  # number that arrived, late ones too
    heard=IntegerType(),  # number of servers that brought one in time
    # Sendings of the message to servers that were up and held a lease of the subscriber, whether or not they
    # were lost: each has a chance of (1 - loss_in)(1 - loss_out) to get through.
    chances=IntegerType(),
)

# The number of paths, of delivered pairs too, by what became of the message on them.
PATHS = struct(cell=IntegerType(), cause=ByteType(), paths=LongType())

MESSAGE = ("cell", "msg_id")

_OF_MESSAGES = ("sent", "had", "lost", "open", "lost_up", "lost_twice")
_OF_HOLDERS = ("asked", "early", "steady")

# Causes that sets of servers decide, from the publisher on: of paths through a server that only one side
# used, and of paths through a common server, with the names of these sets.
_APART = (Cause.UNSENT, Cause.VIEW, Cause.DRAW, Cause.UNASKED)
_BY_SET = {
    Cause.DOWN: "down",
    Cause.LOSS_IN: "lost_in",
    Cause.DOWN_OUT: "down_out",
    Cause.LOSS_OUT: "lost_out",
    Cause.HALTED: "halted",
    Cause.LATE: "late",
    Cause.DELIVERED: "in_time",
}
_BY_SETS = (*_APART, *_BY_SET)

_OF_PAIRS = ("cell", "msg_id", "pub_id", "sub_id", "topic_id", "t_intended_ns", "epoch")
_OF_COPIES = ("latency_ns", "copies", "heard", "chances")


class Attributed(NamedTuple):
    """`PAIRS` and `PATHS`, and the tables that they are made of, which are kept on disk until `release`."""

    pairs: DataFrame
    paths: DataFrame
    kept: tuple[DataFrame, ...]

    def release(self) -> None:
        """Frees the disk. If `pairs` or `paths` are used again, all is computed again."""
        for frame in self.kept:
            frame.unpersist()


def attribute(tables: Mapping[str, DataFrame], parameters: DataFrame, servers: int) -> Attributed:
    """What became of each pair, from captures' tables (`schemas.table_schema`) and `PARAMETERS`.

    `servers` is the number of servers of the largest cell. Most of the work is done here, the rest when the
    result is first used.
    """
    words = server_sets.words_for(servers)
    downs = facts.downs(tables["outage"], tables["server_life"])
    lives = facts.lives(tables["server_life"])
    events = legs.events(tables, downs)
    sendings = _keep(legs.sendings(events, lives))
    messages = _messages(tables, parameters, sendings, words)
    subscribers = _subscribers(tables, parameters, lives, words)
    times = (
        tables["publish"]
        .join(sf.broadcast(parameters.select("cell", "deadline_ns")), "cell", "inner")
        .select(*MESSAGE, "t_intended_ns", "deadline_ns")
    )
    copies = legs.copies(tables["deliver"], times, downs, words)
    walked = _keep(_walk(messages, subscribers, copies, words))
    is_clear = sf.col("ambiguous").isNull()
    clear, ambiguous = walked.where(is_clear), walked.where(~is_clear)
    if ambiguous.isEmpty():
        # The look-ups would take longer to plan than most of the above.
        return Attributed(_as_pairs(clear), _paths(_paths_by_sets(walked)), (sendings, walked))
    lookups = ambiguous_paths.Lookups(tables, parameters, events, sendings, downs, lives)
    of_pairs = ambiguous.select(*_OF_PAIRS, *_OF_COPIES, "ambiguous.*")
    judged = _keep(ambiguous_paths.judge(of_pairs, lookups, words))
    settled = ambiguous_paths.by_pair(judged).withColumn("cause", _cause())
    paths = _paths_by_sets(walked).unionByName(ambiguous_paths.by_cause(judged))
    pairs = _as_pairs(clear).unionByName(_as_pairs(settled))
    return Attributed(pairs, _paths(paths), (sendings, walked, judged))


def _keep(frame: DataFrame) -> DataFrame:
    return frame.persist(StorageLevel.DISK_ONLY)


# --- Both sides --------------------------------------------------------------------------------------


def _messages(
    tables: Mapping[str, DataFrame], parameters: DataFrame, sendings: DataFrame, words: int
) -> DataFrame:
    """A row for each message with its cell's parameters, its publisher's view, and sets of servers.

    `sent`: the message was sent there (or was there all the same). Of these, `had`: the server had it;
    `open`: it did not, though a sending passed while it was up; `lost`: neither, and a sending was lost by
    plan; the others were down. `lost_up`: a sending was lost by plan while the server was up; `lost_twice`:
    more than one was.
    """
    only = server_sets.only(sf.col("server_id"), words)
    had, is_open = sf.col("had"), sf.col("is_open")
    sets = {
        "sent": only,
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
    since_ns = sf.col("t_intended_ns") - sf.col("t0_ns")
    return (
        published.where(sf.col("msg_id") >= 0)
        .join(sf.broadcast(parameters), "cell", "inner")
        .join(sf.broadcast(views), ["cell", "pub_id"], "left")
        .join(there.hint("shuffle_hash"), list(MESSAGE), "left")
        .select(
            *(*MESSAGE, "pub_id", "topic_id", "t_intended_ns", "publish", "subscribe", "k", "must_meet"),
            sf.floor(since_ns / sf.col("epoch_ns")).cast("int").alias("epoch"),
            # Leases asked for before the load were asked for before this message was anywhere.
            sf.coalesce(sf.col("first_ns") >= sf.col("t0_ns"), sf.lit(False)).alias("is_of_load"),
            *_view("pub_knows", words).named("pub_knows"),
            *(word for name in _OF_MESSAGES for word in server_sets.of(name, words).filled().named(name)),
        )
    )


def _subscribers(
    tables: Mapping[str, DataFrame], parameters: DataFrame, lives: DataFrame, words: int
) -> DataFrame:
    """The rows of `holders`, with each subscriber's view."""
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


def _view(name: str, words: int) -> server_sets.ServerSet:
    """A client's view; all servers if it is not recorded."""
    return server_sets.of(name, words).filled(server_sets.up_to(sf.col("servers"), words))


# --- The walk ----------------------------------------------------------------------------------------


def _walk(messages: DataFrame, subscribers: DataFrame, copies: DataFrame, words: int) -> DataFrame:
    """A row for each pair: the columns of `PAIRS`, the number of paths by cause (packed), and `ambiguous`.

    `ambiguous` is null if the sets decide all paths of the pair. Else it has the servers of the others
    (`ambiguous_paths.SETS`), and these causes:

    - `furthest`: that of the decided path through a common server on which the message came furthest; -1 if
      there is no such path.
    - `furthest_apart`: that of the decided path on which it came furthest, of those through servers that only
      one side used; `Cause.UNSENT` if there is none.
    - `if_apart`: that of the pair if there is no common server; -1 if that is `furthest_apart`.
    - `if_unasked`: that of a path through a server that the subscriber knew and did not ask.
    """
    is_due = sf.exists(
        "due",
        lambda due: (due["from_ns"] <= sf.col("t_intended_ns")) & (sf.col("t_intended_ns") < due["to_ns"]),
    )
    pairs = messages.join(sf.broadcast(subscribers), ["cell", "topic_id"], "inner").where(is_due)
    joined = pairs.join(copies.hint("shuffle_hash"), list(legs.PAIR), "left")

    # In steps, so that no expression is written out more than once in the code that Spark generates.
    return _counted(_compared(_filled(joined, words), words), words)


def _filled(joined: DataFrame, words: int) -> DataFrame:
    """The pairs with the sets of message, subscriber and copies, without nulls."""
    pub_uses_all = sf.col("must_meet") & (sf.col("publish") >= sf.col("k"))
    sub_uses_all = sf.col("must_meet") & (sf.col("subscribe") >= sf.col("k"))
    is_of_load = sf.col("is_of_load")
    pub_knows, sub_knows = server_sets.of("pub_knows", words), server_sets.of("sub_knows", words)
    sets = {name: server_sets.of(name, words) for name in (*_OF_MESSAGES, "asked", "sub_knows", "pub_knows")}
    sets |= {name: server_sets.of(name, words).where(is_of_load) for name in ("early", "steady")}
    sets |= {name: server_sets.of(name, words).filled() for name in legs.SETS}
    return joined.select(
        *_OF_PAIRS,
        sf.coalesce("latency_ns", sf.lit(-1)).alias("latency_ns"),
        sf.coalesce("copies", sf.lit(0)).alias("copies"),
        sf.coalesce("passing", sf.lit(0)).alias("passing"),
        *("publish", "must_meet"),
        pub_uses_all.alias("pub_uses_all"),
        sub_uses_all.alias("sub_uses_all"),
        pub_knows.differ(sub_knows).alias("differ"),
        *_named(sets),
    )


def _compared(filled: DataFrame, words: int) -> DataFrame:
    """The pairs with a set of servers for each thing that may have become of the message there."""
    of = {
        name: server_sets.of(name, words)
        for name in (*_OF_MESSAGES, *_OF_HOLDERS, *legs.SETS, "pub_knows", "sub_knows")
    }
    sent, copied, early, asked = of["sent"], of["any"], of["early"], of["asked"]
    differ = sf.col("differ")
    with_copy, without_copy = sent & copied, (sent - copied) & early
    apart, unsent = sent - copied - asked, asked - sent
    not_in_time = with_copy - of["in_time"]
    not_late = not_in_time - of["late"]
    lost_up = of["lost_up"] & (copied | asked)
    sets = {
        "in_time": with_copy & of["in_time"],
        "late": not_in_time & of["late"],
        "halted": not_late & of["halted"],
        "lost_out": (not_late - of["halted"]) & of["lost_out"],
        "down_out": not_late - of["halted"] - of["lost_out"],
        "lost_in": without_copy & of["lost"],
        "down": without_copy - of["had"] - of["open"] - of["lost"],
        "apart": apart,
        "apart_by_view": (apart - of["sub_knows"]) | apart.where(sf.col("sub_uses_all") & differ),
        "unsent": unsent,
        "unsent_by_view": (unsent - of["pub_knows"]) | unsent.where(sf.col("pub_uses_all") & differ),
        "unclear": ((sent - copied) & (asked - early)) | (without_copy & (of["had"] | of["open"])),
        "lease_unclear": lost_up & (of["lost_twice"] | (of["lost_up"] - of["steady"])),
        "lost_once": (lost_up & of["steady"]) - of["lost_twice"],
        "knows": of["sub_knows"],
    }
    if_unasked = sf.when(sf.col("sub_uses_all"), sf.when(differ, Cause.VIEW).otherwise(Cause.UNASKED))
    if_apart = (
        sf.when(~sent.some(), Cause.UNSENT)
        .when(~sf.col("must_meet"), -1)
        .when(differ, Cause.VIEW)
        .when(sent.count() < sf.least("publish", of["pub_knows"].count()), Cause.UNSENT)
        .otherwise(Cause.UNASKED)
    )
    return filled.select(
        *(*_OF_PAIRS, "latency_ns", "copies", "passing", "pub_uses_all", "sub_uses_all"),
        of["in_time"].count().alias("heard"),
        if_apart.cast("byte").alias("if_apart"),
        if_unasked.otherwise(Cause.DRAW).cast("byte").alias("if_unasked"),
        *_named(sets),
    )


def _counted(compared: DataFrame, words: int) -> DataFrame:
    """The pairs with their causes, as `_walk` returns them."""
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
        *(*_OF_PAIRS, "latency_ns", "copies", "heard", "if_apart", "if_unasked"),
        (sf.col("passing") + server_sets.of("lost_once", words).count()).alias("chances"),
        *(number.alias(_paths_column(cause)) for cause, number in counts.items()),
        *_named({name: server_sets.of(name, words) for name in ambiguous_paths.SETS}),
    )
    unclear = server_sets.of("unclear", words) | server_sets.of("lease_unclear", words)
    with_causes = counted.withColumns(
        {
            "furthest": _greatest(_BY_SET, -1),
            "furthest_apart": _greatest(_APART, Cause.UNSENT),
            "is_ambiguous": unclear.some(),
        }
    )
    sets = [f"{name}_{number}" for name in ambiguous_paths.SETS for number in range(words)]
    ambiguous = sf.struct("furthest", "furthest_apart", "if_apart", "if_unasked", *sets)
    return with_causes.select(
        *(*_OF_PAIRS, *_OF_COPIES),
        _cause().alias("cause"),
        sf.when(sf.col("is_ambiguous"), ambiguous).alias("ambiguous"),
        *_packed([_paths_column(cause) for cause in _BY_SETS]),
    )


def _named(sets: Mapping[str, server_sets.ServerSet]) -> list[Column]:
    return [word for name, servers in sets.items() for word in servers.named(name)]


def _paths_column(cause: Cause) -> str:
    return f"paths_{cause.name.lower()}"


# Numbers of paths are kept four to a column: each column takes time to write and read.
_PACKED_BITS = 16
_PACKED = 64 // _PACKED_BITS


def _packed(names: Sequence[str]) -> list[Column]:
    packed = []
    for start in range(0, len(names), _PACKED):
        shifted = [
            sf.shiftleft(sf.col(name).cast("long"), place * _PACKED_BITS)
            for place, name in enumerate(names[start : start + _PACKED])
        ]
        packed.append(reduce(Column.bitwiseOR, shifted).alias(f"packed_{start // _PACKED}"))
    return packed


def _unpacked(number: int) -> Column:
    whole = sf.shiftrightunsigned(f"packed_{number // _PACKED}", number % _PACKED * _PACKED_BITS)
    return whole.bitwiseAND((1 << _PACKED_BITS) - 1)


def _greatest(causes: Iterable[Cause], otherwise: int) -> Column:
    """The greatest of these causes that a path of the pair has; `otherwise` without one."""
    found = sf.lit(otherwise)
    for cause in sorted(causes):
        found = sf.when(sf.col(_paths_column(cause)) > 0, int(cause)).otherwise(found)
    return found.cast("byte")


# --- The results -------------------------------------------------------------------------------------


def _cause() -> Column:
    """The pair's cause, from those of its paths."""
    return (
        sf.when(sf.col("latency_ns") >= 0, int(Cause.DELIVERED))
        .when(sf.col("furthest") >= 0, sf.col("furthest"))
        .when(sf.col("if_apart") >= 0, sf.col("if_apart"))
        .otherwise(sf.col("furthest_apart"))
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
