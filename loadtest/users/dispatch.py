"""Which worker runs which users of a fixed test. All start at once; publishers have their own process.

A process that takes thousands of copies a second is busy for milliseconds at a time. Publishers in it would
be late by as much, and latencies, which count from the intended times, would measure the load test itself. So
with three workers or more, the first one has the publishers, and the others share the rest.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

APART_FROM = 3  # workers


class FixedDispatcher:
    """Replaces locust's dispatcher, which spreads each kind of user evenly over all workers.

    Workers that come later get no users. Users of a worker that ends are not moved: the test has failed then.
    """

    dispatch_in_progress = False

    def __init__(self, worker_nodes: Sequence[Any], user_classes: Sequence[Any]) -> None:
        self._nodes = sorted(node.id for node in worker_nodes)
        self._classes = sorted(user_classes, key=lambda each: str(each.__name__))
        self._wanted = self._spread()
        self._steps: Iterator[dict[str, dict[str, int]]] = iter(())

    def new_dispatch(
        self, target_user_count: int, spawn_rate: float, user_classes: list[Any] | None = None
    ) -> None:
        """Starts again. All users are started at once, whatever the arguments."""
        self._steps = iter([self._wanted])

    def add_worker(self, worker_node: Any) -> None:
        """Does nothing: a worker that comes later gets no users."""

    def remove_worker(self, worker_node: Any) -> None:
        """Forgets a worker that has ended."""
        self._wanted.pop(worker_node.id, None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, dict[str, int]]:
        return {node: counts.copy() for node, counts in next(self._steps).items()}

    def _spread(self) -> dict[str, dict[str, int]]:
        publishing = [each for each in self._classes if each.kind == "Publisher"]
        is_apart = len(self._nodes) >= APART_FROM and 0 < len(publishing) < len(self._classes)
        wanted = {node: {each.__name__: 0 for each in self._classes} for node in self._nodes}
        turn = 0
        for each in self._classes:
            nodes = self._nodes
            if is_apart:
                nodes = self._nodes[:1] if each in publishing else self._nodes[1:]
            for _ in range(each.fixed_count):
                wanted[nodes[turn % len(nodes)]][each.__name__] += 1
                turn += 1
        return wanted
