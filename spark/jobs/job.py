"""A job: it counts parts of the captures, and adds the merged counts up to small sums. Without Spark.

Counts of parts can be merged: those of all parts, in any order, are those of the whole. A count is of a
*kind*, which says what its keys and its values are; values of equal keys are added. All are whole numbers, so
that the order in which they are added changes nothing. `kcast.spark.judging` takes the counts of all parts
through Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.attribution import Attribution
from kcast.loadtest.results.copy_counts import Readings
from kcast.loadtest.results.joins import Ints, group_sums
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import Columns
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.side_tables import SideTables

Row = dict[str, Any]

KEYS_MAX, VALUES_MAX = 4, 6
NOT_USED = -1
"""The value of a key that a row of counts has no use for."""


@dataclass(frozen=True)
class Around:
    """What is known of a cell besides its messages. `t0_ns`: when its load began."""

    cell: int
    t0_ns: int
    side: SideTables

    @property
    def scenario(self) -> Scenario:
        """The settings of the cell's load test."""
        return self.side.scenario

    @property
    def epoch_ns(self) -> int:
        """The length of an epoch of outages."""
        return max(1, round(self.scenario.epoch_s * 1_000_000_000))

    @cached_property
    def surroundings(self) -> Surroundings:
        """What messages are judged by. Raises CaptureError."""
        return Surroundings(self.side)

    @cached_property
    def readings(self) -> Readings:
        """What clients counted. Raises CaptureError."""
        return Readings(self.side)


class Part(NamedTuple):
    """What the jobs count: all rows of some messages of a cell, and what became of their pairs.

    `messages` has the tables publish, pub_tx, server_rx and deliver (`judging.rows.unpacked`).
    """

    around: Around
    messages: Mapping[str, Columns]
    found: Attribution

    @property
    def epochs(self) -> Ints:
        """The epoch of outages of each pair, from 0 when the load began."""
        since_ns: Ints = self.found.t_intended_ns - self.around.t0_ns
        return since_ns // self.around.epoch_ns


class Kind(NamedTuple):
    """What a count is of. `number` tells it in the tables of counts.

    Of a kind that `is_summarised`, sums get a single row without keys, with the `cluster_sums` of its values,
    of which it has one or two. Counts of such a kind may be many: Spark adds them up wherever they are.
    """

    number: int
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    is_summarised: bool = False

    @property
    def columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of keys and values in merged counts."""
        if not self.is_summarised:
            return self.keys, self.values
        n, x = (*self.values, "none")[:2]
        return (), ("clusters", n, x, "squares", "products", "success_squares")


class Counts(NamedTuple):
    """Counts of a kind: an array for each of its keys and values; `least` and `most` merge by minimum and
    maximum."""

    kind: Kind
    keys: Sequence[NDArray[Any]]
    values: Sequence[NDArray[Any]]
    least: int | None = None
    most: int | None = None


def counted(kind: Kind, keys: Sequence[NDArray[Any]], values: Sequence[NDArray[Any]]) -> Counts:
    """The sums of the values of rows with equal keys."""
    return Counts(kind, *group_sums(keys, values))


def rows_of(kind: Kind, keys: Sequence[NDArray[Any]]) -> Counts:
    """The number of rows with equal keys."""
    return counted(kind, keys, [np.ones(len(keys[0]), dtype=np.int64)])


def single(kind: Kind, *values: int, least: int | None = None, most: int | None = None) -> Counts:
    """A count without keys: one row."""
    return Counts(kind, (), [np.array([value], dtype=np.int64) for value in values], least, most)


@dataclass
class Merged:
    """The merged counts of a cell, by kinds' numbers: columns by the names of keys and values."""

    around: Around
    columns: dict[int, Columns] = field(default_factory=dict)
    least: int | None = None
    most: int | None = None

    def of(self, kind: Kind) -> Columns:
        """Returns the columns of a kind; without rows if nothing was counted."""
        keys, values = kind.columns
        nothing = {name: np.zeros(0, dtype=np.int64) for name in (*keys, *values)}
        return self.columns.get(kind.number, nothing)

    def rows(self, kind: Kind) -> Iterator[Row]:
        """Returns each row of a kind, with `cell`, as whole numbers, in the order of the keys."""
        columns = self.of(kind)
        keys, _ = kind.columns
        order = np.lexsort([columns[name] for name in reversed(keys)]) if keys else [0]
        if not len(next(iter(columns.values()))):
            return
        for values in zip(*(columns[name][order].tolist() for name in columns), strict=True):
            yield {"cell": self.around.cell, **dict(zip(columns, values, strict=True))}


@dataclass(frozen=True, slots=True)
class Job:
    """`count` returns counts of a part. Each of `sums`, by its name, takes the merged counts of a cell and
    returns what findings are made of: some 10,000 rows at most, each with its `cell`.

    With `by_first_key`, the merged counts are those that have some values of their first key only, and the
    sums are rows for each such value.
    """

    name: str
    kinds: tuple[Kind, ...]
    count: Callable[[Part], Iterable[Counts]]
    sums: Mapping[str, Callable[[Merged], Iterable[Row]]]
    by_first_key: bool = False


# --- Sums over clusters ------------------------------------------------------------------------------


def cluster_sums(
    keys: Sequence[NDArray[Any]], trials: NDArray[Any], successes: NDArray[Any], names: tuple[str, str]
) -> Row:
    """Sums over clusters of n trials, x of them successes. A cluster is the rows with equal keys.

    `clusters` (their number), the two `names` (of n, of x), `squares` (of n^2), `products` (of n x),
    `success_squares` (of x^2).
    """
    _, (n, x) = group_sums(keys, (trials, successes))
    return {
        "clusters": len(n),
        names[0]: int(n.sum()),
        names[1]: int(x.sum()),
        "squares": exact_dot(n, n),
        "products": exact_dot(n, x),
        "success_squares": exact_dot(x, x),
    }


def exact_dot(one: NDArray[Any], other: NDArray[Any]) -> int:
    """The sum of products of whole numbers, none below 0, however large it is."""
    largest = int(one.max(initial=0)) * int(other.max(initial=0)) * len(one)
    kind = np.int64 if largest < 1 << 63 else object
    return int(np.dot(one.astype(kind), other.astype(kind)))
