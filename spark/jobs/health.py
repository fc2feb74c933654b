"""What a capture tells of the run itself: the figures of `kcast.loadtest.results.health.examine`."""

from collections.abc import Iterator

from kcast.loadtest.results.contradictions import Contradictions, contradictions
from kcast.loadtest.results.health import examine_around, published
from kcast.loadtest.results.tables import columns
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, single

PUBLISHED = Kind(70, (), ("published",))
CONTRADICTIONS = Kind(71, (), Contradictions._fields)


def count(part: Part) -> Iterator[Counts]:
    """The number of messages that were to be published in a window of their publisher, and of rows that
    contradict others."""
    window = columns(part.around.side, "window", "pub_id", "t_from_ns", "t_to_ns")
    yield single(PUBLISHED, published(window, part.messages["publish"]))
    yield single(CONTRADICTIONS, *contradictions(part.around.surroundings, part.messages))


def figures(merged: Merged) -> Iterator[Row]:
    """A row: the fields of `kcast.loadtest.results.verdicts.Health`."""
    found = sum(row["published"] for row in merged.rows(PUBLISHED))
    span = None if merged.least is None or merged.most is None else (merged.least, merged.most)
    told = {name: int(values.sum()) for name, values in merged.of(CONTRADICTIONS).items()}
    health = examine_around(merged.around.side, Contradictions(**told), published=found, span_ns=span)
    yield {"cell": merged.around.cell, **health.as_json()}


JOB = Job("health", (PUBLISHED, CONTRADICTIONS), count, {"health": figures})
