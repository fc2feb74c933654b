"""Lines that the network lost though no scenario asked for it, by leg and stretch of time.

`kcast.loadtest.results.leg_lines` says which lines count, and what is counted of them.
"""

from collections.abc import Iterator

import numpy as np

from kcast.loadtest.results.leg_lines import COUNTED, LEGS, counted_lines, stretches
from kcast.loadtest.results.loss_estimates import SUMS
from kcast.spark.jobs.job import Counts, Job, Kind, Merged, Part, Row, cluster_sums, counted

STRETCHES = Kind(110, ("leg", "stretch"), COUNTED)
# Messages at servers without a tap, by how many of a server's subscribers should get them there.
AUDIENCES = Kind(111, ("audience",), ("messages", "silent"))


def count(part: Part) -> Iterator[Counts]:
    """The kinds of a part."""
    legs, around = part.found.legs, part.around
    if legs is None:
        return
    for leg, lines in legs.of.items():
        stretch = stretches(lines.t_intended_ns, around.t0_ns, around.scenario.duration_s)
        found, sums = counted_lines(lines, stretch)
        yield Counts(STRETCHES, (np.full(len(found), leg), found), sums)
    ones = np.ones(len(legs.audiences), dtype=np.int64)
    yield counted(AUDIENCES, (legs.audiences,), (ones, legs.silent))


def losses(merged: Merged) -> Iterator[Row]:
    """A row for each leg and each of SUMS (`what`): sums over stretches of time of n lines, x
    of them lost (`cluster_sums`); only stretches with such lines are clusters."""
    table = merged.of(STRETCHES)
    for leg in LEGS:
        own = table["leg"] == leg
        for what, (lines, lost) in SUMS.items():
            rows = np.flatnonzero(own & (table[lines] > 0))
            if len(rows):
                sums = cluster_sums(
                    (table["stretch"][rows],), table[lines][rows], table[lost][rows], ("lines", "lost")
                )
                yield {"cell": merged.around.cell, "leg": leg, "what": what, **sums}


def audiences(merged: Merged) -> Iterator[Row]:
    """The kind AUDIENCES, a row each."""
    return merged.rows(AUDIENCES)


JOB = Job(
    "losses",
    kinds=(STRETCHES, AUDIENCES),
    count=count,
    sums={"losses": losses, "loss_audiences": audiences},
)
