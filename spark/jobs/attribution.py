"""What became of pairs, by cause and by how many servers brought the message in time; and of paths, by
cause."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

PAIRS = Kind(0, ("cause", "heard"), ("pairs", "copies", "duplicates"))
PATHS = Kind(1, ("cause",), ("paths",))


def count(part: Part) -> Iterator[Counts]:
    """The kinds PAIRS and PATHS of a part."""
    found = part.found
    ones = np.ones(len(found), dtype=np.int64)
    later = np.maximum(found.copies_of - 1, 0)
    yield counted(PAIRS, (found.causes, found.heard), (ones, found.copies_of, later))
    yield Counts(
        PATHS, (np.array(list(found.paths), dtype=np.int64),), (np.array(list(found.paths.values())),)
    )


def causes(merged: Merged) -> Iterator[Row]:
    """A row for each cause, DELIVERED too: `pairs`; `copies` that came for these, and `duplicates`, those of
    them that came after the first of their pair; and `paths`."""
    sums = {name: Counter[int]() for name in PAIRS.values}
    for row in merged.rows(PAIRS):
        for name, total in sums.items():
            total[row["cause"]] += row[name]
    paths = {row["cause"]: row["paths"] for row in merged.rows(PATHS)}
    for cause in sorted({*sums["pairs"], *paths}):
        of_cause = {name: total[cause] for name, total in sums.items()}
        yield {"cell": merged.around.cell, "cause": cause, **of_cause, "paths": paths.get(cause, 0)}


def heard(merged: Merged) -> Iterator[Row]:
    """A row for each number of servers `heard`, from 0 to the servers of a topic: `pairs`."""
    pairs: Counter[int] = Counter()
    for row in merged.rows(PAIRS):
        pairs[row["heard"]] += row["pairs"]
    for servers in sorted(pairs):
        yield {"cell": merged.around.cell, "heard": servers, "pairs": pairs[servers]}


JOB = Job("attribution", (PAIRS, PATHS), count, {"causes": causes, "heard": heard})
