"""What arrived, and how soon, over time: pairs by when their message was due, and servers that were down."""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.results.joins import Ints
from kcast.loadtest.results.percentiles import rounded
from kcast.loadtest.results.tables import columns
from kcast.spark.jobs.job import Around, Counts, Job, Kind, Merged, Part, Row, counted

SLOTS = 60
"""About the number of slots into which a load is divided."""

_LENGTHS_NS = tuple(
    seconds * 100_000_000 for seconds in (1, 2, 5, 10, 20, 50, 100, 200, 300, 600, 1200, 3000, 6000, 36000)
)

PAIRS = Kind(80, ("slot",), ("pairs", "delivered"))
# The number of delivered pairs with each latency, in ns to three significant figures.
LATENCIES = Kind(81, ("slot", "value_ns"), ("count",))


def slot_ns(around: Around) -> int:
    """The length of a slot: a tenth of a second, or the first round length that gives SLOTS at most."""
    wanted = around.scenario.duration_s * 1e9 / SLOTS
    return next((length for length in _LENGTHS_NS if length >= wanted), _LENGTHS_NS[-1])


def count(part: Part) -> Iterator[Counts]:
    """All kinds of a part."""
    found = part.found
    slots: Ints = (found.t_intended_ns - part.around.t0_ns) // slot_ns(part.around)
    ones = np.ones(len(found), dtype=np.int64)
    yield counted(PAIRS, (slots,), (ones, found.delivered))
    came = found.delivered
    latencies = rounded(np.maximum(found.latencies_ns[came], 0))
    yield counted(LATENCIES, (slots[came], latencies), (ones[came],))


def over_time(merged: Merged) -> Iterator[Row]:
    """A row for each slot in which a pair was due.

    `from_ns` and `to_ns` since the load began; `pairs`, `delivered`; `p50_ns` and `p99_ns` by nearest rank,
    None without a delivery; `down`: the mean number of servers that were down, halted or cut off.
    """
    around = merged.around
    length_ns = slot_ns(around)
    latencies = merged.of(LATENCIES)
    order = np.lexsort((latencies["value_ns"], latencies["slot"]))
    by_slot = {name: values[order] for name, values in latencies.items()}
    for row in merged.rows(PAIRS):
        from_ns = row["slot"] * length_ns
        low, high = np.searchsorted(by_slot["slot"], (row["slot"], row["slot"] + 1))
        values, counts = by_slot["value_ns"][low:high], np.cumsum(by_slot["count"][low:high])
        # The load may end within the last slot, and outages end with it.
        to_ns = min(from_ns + length_ns, max(from_ns + 1, round(around.scenario.duration_s * 1e9)))
        down_ns = _down_ns(around, around.t0_ns + from_ns, around.t0_ns + to_ns)
        yield {
            "cell": row["cell"],
            **{"from_ns": from_ns, "to_ns": from_ns + length_ns},
            **{"pairs": row["pairs"], "delivered": row["delivered"]},
            **{"p50_ns": _ranked(values, counts, 50), "p99_ns": _ranked(values, counts, 99)},
            "down": down_ns / (to_ns - from_ns),
        }


def _ranked(values: Ints, below: Ints, percent: int) -> int | None:
    """The value of nearest rank among sorted values; `below` counts the times up to each."""
    if not len(below):
        return None
    rank = max(1, -(-int(below[-1]) * percent // 100))
    return int(values[np.searchsorted(below, rank)])


def _down_ns(around: Around, from_ns: int, to_ns: int) -> int:
    """How long servers were down between two times, all together."""
    outage = columns(around.side, "outage", "t_down_ns", "t_up_ns")
    spans = np.minimum(outage["t_up_ns"], to_ns) - np.maximum(outage["t_down_ns"], from_ns)
    return int(np.maximum(spans, 0).sum())


JOB = Job("timeline", (PAIRS, LATENCIES), count, {"over_time": over_time})
