"""What a capture tells of the run itself: the figures of `kcast.loadtest.results.health.examine`."""

from collections.abc import Iterator

from kcast.loadtest.results.contradictions import Contradictions, contradictions
from kcast.loadtest.results.copy_counts import CopyRows, copy_rows
from kcast.loadtest.results.health import examine_around, published
from kcast.loadtest.results.tables import columns
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, single

PUBLISHED = Kind(70, (), ("published",))
CONTRADICTIONS = Kind(71, (), Contradictions._fields)
COPIES = Kind(72, ("sub",), ("settled", "until"))
FOREIGN = Kind(73, ("topic",), ("lines",))


def count(part: Part) -> Iterator[Counts]:
    """The number of messages that were to be published in a window of their publisher, of rows that
    contradict others, and of copies beside what clients counted."""
    window = columns(part.around.side, "window", "pub_id", "t_from_ns", "t_to_ns")
    yield single(PUBLISHED, published(window, part.messages["publish"]))
    yield single(CONTRADICTIONS, *contradictions(part.around.surroundings, part.messages))
    copies = copy_rows(part.around.readings, part.messages)
    yield Counts(COPIES, [copies.subs], [copies.settled, copies.until])
    yield Counts(FOREIGN, [copies.topics], [copies.foreign])


def figures(merged: Merged) -> Iterator[Row]:
    """A row: the fields of `kcast.loadtest.results.verdicts.Health`."""
    found = sum(row["published"] for row in merged.rows(PUBLISHED))
    span = None if merged.least is None or merged.most is None else (merged.least, merged.most)
    told = {name: int(values.sum()) for name, values in merged.of(CONTRADICTIONS).items()}
    copies = CopyRows(*merged.of(COPIES).values(), *merged.of(FOREIGN).values())
    readings = merged.around.readings
    health = examine_around(
        merged.around.side, Contradictions(**told), readings, copies, published=found, span_ns=span
    )
    yield {"cell": merged.around.cell, **health.as_json()}


JOB = Job("health", (PUBLISHED, CONTRADICTIONS, COPIES, FOREIGN), count, {"health": figures})
