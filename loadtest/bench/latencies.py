"""Times by how often each occurs, to three significant figures: memory does not grow with their number."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from kcast.loadtest.results.percentiles import Percentiles, rounded

_BUFFERED = 4096


class Latencies:
    """A collection of times in ns; those below 0 count as 0."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()  # by time in ns, rounded
        self._sum_ns = 0
        self._buffer: list[int] = []

    def add(self, time_ns: int) -> None:
        """Adds a time."""
        self._buffer.append(time_ns)
        if len(self._buffer) >= _BUFFERED:
            self._fold()

    def update(self, other: "Latencies") -> None:
        """Adds all times of another collection."""
        other._fold()
        self._counts.update(other._counts)
        self._sum_ns += other._sum_ns

    def percentiles(self) -> Percentiles:
        """Returns the percentiles of all times."""
        self._fold()
        values = sorted(self._counts)
        return Percentiles.of_counts(values, [self._counts[value] for value in values], self._sum_ns)

    def as_json(self) -> dict[str, Any]:
        """Returns all that `from_json` needs."""
        self._fold()
        return {
            "values_ns": list(self._counts),
            "counts": list(self._counts.values()),
            "sum_ns": self._sum_ns,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns the collection that `as_json` was called on."""
        made = cls()
        made._counts.update(dict(zip(values["values_ns"], values["counts"], strict=True)))
        made._sum_ns = values["sum_ns"]
        return made

    def _fold(self) -> None:
        if not self._buffer:
            return
        times_ns = np.maximum(np.array(self._buffer, np.int64), 0)
        self._buffer.clear()
        values_ns, counts = np.unique(rounded(times_ns), return_counts=True)
        self._counts.update(dict(zip(values_ns.tolist(), counts.tolist(), strict=True)))
        self._sum_ns += int(times_ns.sum())
