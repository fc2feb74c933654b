"""What became of pairs and of paths, by cause."""

from collections.abc import Iterator

import numpy as np

from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, counted

PAIRS = Kind(0, ("cause",), ("pairs", "copies", "duplicates"))
PATHS = Kind(1, ("cause",), ("paths",))


def count(part: Part) -> Iterator[Counts]:
    """The kinds PAIRS and PATHS of a part."""
    found = part.found
    ones = np.ones(len(found), dtype=np.int64)
    later = np.maximum(found.copies_of - 1, 0)
    yield counted(PAIRS, (found.causes,), (ones, found.copies_of, later))
    yield Counts(
        PATHS, (np.array(list(found.paths), dtype=np.int64),), (np.array(list(found.paths.values())),)
    )


def causes(merged: Merged) -> Iterator[Row]:
    """A row for each cause, DELIVERED too: `pairs`; `copies` that came for these, and `duplicates`, those of
    them that came after the first of their pair; and `paths`."""
    pairs = {row["cause"]: row for row in merged.rows(PAIRS)}
    paths = {row["cause"]: row["paths"] for row in merged.rows(PATHS)}
    for cause in sorted({*pairs, *paths}):
        of_cause = {name: pairs[cause][name] if cause in pairs else 0 for name in PAIRS.values}
        yield {"cell": merged.around.cell, "cause": cause, **of_cause, "paths": paths.get(cause, 0)}


JOB = Job("attribution", (PAIRS, PATHS), count, {"causes": causes})
