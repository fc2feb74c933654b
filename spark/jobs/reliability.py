"""Delivered pairs, as sums from which the precision of their share and theory given what happened follow.

All are sums over messages, or over clusters of pairs, of products of whole numbers. The chances of a pair are
sendings that could have reached it (`kcast.loadtest.results.attribution.Attribution`).
"""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.capture.schema import LOST
from kcast.loadtest.results import effective_trials, planned_variance
from kcast.loadtest.results.chances import chance_sums
from kcast.loadtest.results.tables import Columns
from kcast.spark.jobs.job import (
    Counts,
    Job,
    Kind,
    Merged,
    Part,
    Row,
    cluster_sums,
    counted,
    rows_of,
)

_PAIRS = ("pairs", "delivered")

# The clusters of each clustering. Those of a holder and epoch share a lease and the servers that are down.
CLUSTERS = {
    planned_variance.HOLDER: Kind(10, ("topic", "sub", "epoch"), _PAIRS, is_summarised=True),
    planned_variance.TOPIC_EPOCH: Kind(16, ("topic", "epoch"), _PAIRS, is_summarised=True),
    planned_variance.EPOCH: Kind(17, ("epoch",), _PAIRS, is_summarised=True),
    effective_trials.TOPIC: Kind(18, ("topic",), _PAIRS, is_summarised=True),
    effective_trials.SUBSCRIBER: Kind(19, ("sub",), _PAIRS, is_summarised=True),
    effective_trials.PUBLISHER: Kind(11, ("pub",), _PAIRS, is_summarised=True),
}
# Sums over messages, of n pairs, x of them delivered.
MESSAGES = Kind(12, (), ("clusters", *_PAIRS, "squares", "products", "success_squares"))
# Two numbers of chances, low <= high. `products`: sum over messages of the number of pairs with `low`, times
# that with `high`. If these are equal, also `pairs`, `delivered`, `faults` (missed through a shortcoming of
# the machine that ran the test), and `cubes` (sum over messages of the cube of the number).
CHANCES = Kind(13, ("low", "high"), ("products", *_PAIRS, "faults", "cubes"))
# Datagrams lost by plan: those of one client, server and moment. Nearly all have one line.
LOST_IN = Kind(14, ("pub", "server", "t_ns"), ("lines",), is_summarised=True)
LOST_OUT = Kind(15, ("sub", "server", "t_ns"), ("lines",), is_summarised=True)


def count(part: Part) -> Iterator[Counts]:
    """All kinds of a part."""
    found = part.found
    delivered, ones = found.delivered, np.ones(len(found), dtype=np.int64)
    keys = {"topic": found.topics, "sub": found.sub_ids, "epoch": part.epochs, "pub": found.pub_ids}
    for kind in CLUSTERS.values():
        yield counted(kind, [keys[name] for name in kind.keys], (ones, delivered))
    of_messages = cluster_sums((found.msg_ids,), ones, delivered, _PAIRS)
    yield Counts(MESSAGES, (), [np.array([of_messages[name]]) for name in MESSAGES.values])
    yield Counts(CHANCES, *chance_sums(found))
    yield _lost(LOST_IN, part.messages["pub_tx"], "pub_id", "t_tx_ns")
    yield _lost(LOST_OUT, part.messages["deliver"], "sub_id", "t_user_ns")


def _lost(kind: Kind, table: Columns, client: str, time: str) -> Counts:
    is_lost = table["injected"] == LOST
    return rows_of(kind, [table[name][is_lost] for name in (client, "server_id", time)])


# --- Sums --------------------------------------------------------------------------------------------


def clusterings(merged: Merged) -> Iterator[Row]:
    """A row for each clustering: sums over its clusters of n pairs, x of them delivered (`cluster_sums`)."""
    for name, kind in ((planned_variance.MESSAGE, MESSAGES), *CLUSTERS.items()):
        for row in merged.rows(kind):
            if row["clusters"]:
                yield {"cell": row.pop("cell"), "clustering": name, **row}


def chances(merged: Merged) -> Iterator[Row]:
    """The kind CHANCES, a row each."""
    return merged.rows(CHANCES)


def lost(merged: Merged) -> Iterator[Row]:
    """A row for each leg (`kind`: lost-in, lost-out): `lines` lost by plan, and `squares`, the sum over
    datagrams of the square of the number of lines in one."""
    for name, kind in (("lost-in", LOST_IN), ("lost-out", LOST_OUT)):
        for row in merged.rows(kind):
            yield {"cell": row["cell"], "kind": name, "lines": row["lines"], "squares": row["squares"]}


JOB = Job(
    name="reliability",
    kinds=(*CLUSTERS.values(), MESSAGES, CHANCES, LOST_IN, LOST_OUT),
    count=count,
    sums={"clusterings": clusterings, "chances": chances, "lost": lost},
)
