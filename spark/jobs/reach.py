"""How long messages take until a part of their audience is reached; whom clients told of.

A part of the audience of a message with n subscribers is reached with the copy in time of the first ceil(part
x n) of them.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.results.joins import Groups
from kcast.loadtest.results.percentiles import rounded
from kcast.spark.findings.tables import PERCENTS
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

# `total_ns` is the sum of the times before they were rounded.
TIMES = Kind(35, ("percent", "value_ns"), ("messages", "total_ns"))


def count(part: Part) -> Iterator[Counts]:
    """The kind TIMES of a part. All pairs of a message must be in one part."""
    found = part.found
    latencies = np.where(found.delivered, np.maximum(found.latencies_ns, 0), np.iinfo(np.int64).max)
    order = np.lexsort((latencies, found.msg_ids))
    by_message = Groups(found.msg_ids[order])
    for percent in PERCENTS:
        needed = -(-percent * by_message.counts // 100)
        times_ns = latencies[order][by_message.starts + needed - 1]
        times_ns = times_ns[times_ns < np.iinfo(np.int64).max]
        ones = np.ones(len(times_ns), dtype=np.int64)
        yield counted(TIMES, (percent * ones, rounded(times_ns)), (ones, times_ns))


def times(merged: Merged) -> Iterator[Row]:
    """The counts: a row for each part of the audience and value."""
    return merged.rows(TIMES)


def sightings(merged: Merged) -> Iterator[Row]:
    """A row for each thing that subscribers' clients told of somebody: when in the load, and how many did."""
    side, t0_ns = merged.around.side, merged.around.t0_ns
    member = side.read("member", ("publisher", "pub_id", "sub_id")).to_pylist()
    names = {row["publisher"]: _name(row["pub_id"], row["sub_id"]) for row in member}
    told: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in side.read("sighting").to_pylist():
        told[row["what"], names.get(row["name"], row["name"])].append((row["t_ns"] - t0_ns, row["sub_id"]))
    for (what, name), rows in sorted(told.items()):
        subscribers = len({sub_id for _, sub_id in rows})
        first, last = (end(rows)[0] / 1e9 for end in (min, max))
        yield {
            **{"cell": merged.around.cell, "what": what, "name": name, "subscribers": subscribers},
            **{"first_s": first, "last_s": last},
        }


def _name(pub_id: int, sub_id: int) -> str:
    if pub_id == sub_id == NONE:
        return "spammer"
    return f"subscriber {sub_id}" if pub_id == NONE else f"publisher {pub_id}"


JOB = Job("reach", (TIMES,), count, {"reach_times": times, "sightings": sightings})
