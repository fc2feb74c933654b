"""How many servers draws have in common: the sums that `kcast.spark.findings.draws` specifies.

Which servers a message was sent to is counted for each publisher, topic and server. "The next" message is
looked for within a block of BLOCK numbers of a publisher, which is never divided (`judging.rows.Division`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.capture.schema import DUPLICATE
from kcast.loadtest.results.joins import Ints, group_sums, places
from kcast.loadtest.results.leg_lines import BLOCK as BLOCK
from kcast.loadtest.results.tables import Columns, columns
from kcast.spark.findings.draws import NEXT, PLACEMENT, PUBLISHER, SUBSCRIBER, TOPIC, size_of
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted, exact_dot, rows_of

# Messages that were sent to each server, of those that were sent to as many as the plan says.
TAKEN = Kind(90, ("pub", "topic", "server"), ("messages",))
# All messages that were sent: those to as many servers (`draws`), and `others`.
DRAWS = Kind(91, ("pub", "topic"), ("draws", "others"))
NEXT_DRAWS = Kind(92, (), ("pairs", "common"))
# Servers that messages of a topic were sent to, whatever the number.
PLACES = Kind(93, ("topic", "server"), ("messages",))


class _Drawn(NamedTuple):
    """Messages that were sent, and their servers. `messages` of servers are numbers of messages."""

    pubs: Ints
    topics: Ints
    order: Ints  # the messages by publisher, topic, block and time
    is_next: NDArray[np.bool_]  # whether each of these but the first is the one after the one before
    messages: Ints
    servers: Ints
    sizes: Ints


def count(part: Part) -> Iterator[Counts]:
    """All kinds of a part."""
    drawn = _drawn(part.messages["publish"], part.messages["pub_tx"])
    has_size = drawn.sizes == size_of(part.around.scenario, TOPIC)
    was_sent = drawn.sizes > 0
    yield counted(DRAWS, (drawn.pubs, drawn.topics), (has_size, was_sent & ~has_size))
    kept = has_size[drawn.messages]
    of, servers = drawn.messages[kept], drawn.servers[kept]
    yield rows_of(TAKEN, (drawn.pubs[of], drawn.topics[of], servers))
    yield rows_of(PLACES, (drawn.topics[drawn.messages], drawn.servers))
    yield _next(drawn, has_size, of, servers)


def _drawn(publish: Columns, sent: Columns) -> _Drawn:
    ids, first = np.unique(publish["msg_id"], return_index=True)
    first = first[ids >= 0]
    ids = ids[ids >= 0]
    pubs, topics = (publish[name][first].astype(np.int64) for name in ("pub_id", "topic_id"))
    blocks = (ids & 0xFFFFFFFF) // BLOCK
    order = np.lexsort((ids, publish["t_intended_ns"][first], blocks, topics, pubs))
    keys = np.stack((pubs, topics, blocks))[:, order]
    messages = places(ids, sent["msg_id"])
    is_draw = (messages >= 0) & (sent["server_id"] >= 0) & (sent["injected"] != DUPLICATE)
    (messages, servers), _ = group_sums((messages[is_draw], sent["server_id"][is_draw]), ())
    return _Drawn(
        *(pubs, topics, order),
        (keys[:, 1:] == keys[:, :-1]).all(axis=0),
        *(messages, servers, np.bincount(messages, minlength=len(ids))),
    )


def _next(drawn: _Drawn, has_size: NDArray[np.bool_], of: Ints, servers: Ints) -> Counts:
    """Pairs of a message and the next, both drawn as planned, and the servers that both were sent to."""
    before, after = drawn.order[:-1], drawn.order[1:]
    is_pair = drawn.is_next & has_size[before] & has_size[after]
    following = np.full(len(drawn.order), -1, dtype=np.int64)
    following[before[is_pair]] = after[is_pair]
    width = 1 + int(servers.max(initial=0))
    sent = of * width + servers  # sorted
    has_next = following[of] >= 0
    common = int((places(sent, (following[of] * width + servers)[has_next]) >= 0).sum())
    return Counts(NEXT_DRAWS, (), [np.array([int(is_pair.sum())]), np.array([common])])


# --- Sums --------------------------------------------------------------------------------------------


def draws(merged: Merged) -> Iterator[Row]:
    """A row for each kind of draw: `what`, `size`, `draws`, `squares`, `cubes`, `common`, `others`."""
    scenario, cell = merged.around.scenario, merged.around.cell
    taken, drawn = merged.of(TAKEN), merged.of(DRAWS)
    if not len(drawn["draws"]):
        return
    for what, keys in ((TOPIC, ("topic",)), (PUBLISHER, ("pub", "topic"))):
        _, (numbers, others) = group_sums([drawn[key] for key in keys], (drawn["draws"], drawn["others"]))
        _, (of_servers,) = group_sums([taken[key] for key in (*keys, "server")], (taken["messages"],))
        yield _row(cell, what, size_of(scenario, what), numbers, of_servers, int(others.sum()))
    asked = columns(merged.around.side, "subscribe", "topic_id", "sub_id", "server_id")
    known = (asked["server_id"] >= 0) & (asked["topic_id"] >= 0)
    topics, subs, servers = (asked[name][known].astype(np.int64) for name in asked)
    places_of = merged.of(PLACES)
    of_topic = np.concatenate((places_of["topic"], topics)), np.concatenate((places_of["server"], servers))
    for what, groups in (
        (PLACEMENT, (np.zeros_like(of_topic[0]), *of_topic)),
        (SUBSCRIBER, (topics, subs, servers)),
    ):
        yield _of_sets(cell, what, size_of(scenario, what), groups)
    (pairs,) = merged.rows(NEXT_DRAWS)
    of_next = {"draws": pairs["pairs"], "squares": 0, "cubes": 0, "common": pairs["common"]}
    of_next |= {"size": size_of(scenario, NEXT), "others": int(drawn["others"].sum())}
    yield {"cell": cell, "what": NEXT, **of_next}


def _of_sets(cell: int, what: str, size: int, rows: tuple[Ints, Ints, Ints]) -> Row:
    """The row of draws that are sets: `rows` have the group, the draw within it, and a server."""
    (groups, numbers, servers), _ = group_sums(rows, ())
    (of_group, _), (sizes,) = group_sums((groups, numbers), (np.ones_like(groups),))
    is_whole = sizes == size
    kept = np.repeat(is_whole, sizes)
    _, (draws,) = group_sums((of_group[is_whole],), (np.ones_like(of_group[is_whole]),))
    _, (of_servers,) = group_sums((groups[kept], servers[kept]), (np.ones_like(groups[kept]),))
    return _row(cell, what, size, draws, of_servers, int((~is_whole).sum()))


def _row(cell: int, what: str, size: int, numbers: Ints, of_servers: Ints, others: int) -> Row:
    return {
        **{"cell": cell, "what": what, "size": size, "draws": int(numbers.sum())},
        **{"squares": exact_dot(numbers, numbers), "cubes": sum(n**3 for n in numbers.tolist())},
        **{"common": exact_dot(of_servers, of_servers), "others": others},
    }


JOB = Job("draws", (TAKEN, DRAWS, NEXT_DRAWS, PLACES), count, {"draws": draws})
