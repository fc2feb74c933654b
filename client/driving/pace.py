"""The rate at which people are told what peers can cause: lines on a terminal, warnings in a log. Sans-IO.

Some lines are told as they come, and then one in ten seconds, of all kinds together: a server that refuses,
sells and stops in turn must not fill anybody's disk. Kinds take turns, and of each the latest line is told,
with the number of those of its kind that were left out.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

BURST = 20
INTERVAL_S = 10.0  # between two lines, after that

Told = TypeVar("Told")
Line = Callable[[int], Told]  # from the number of lines of its kind that were left out before it


@dataclass
class _Waiting(Generic[Told]):
    line: Line[Told]
    count: int = 0


class Pace(Generic[Told]):
    """Says which lines are told when. Kinds are for the caller to name: a fixed number of them."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, _Waiting[Told]] = OrderedDict()  # the kind whose turn it is first
        self._full_at = 0.0  # when a whole burst may come again

    def put(self, kind: str, line: Line[Told], now: float) -> list[Told]:
        """Takes a line; returns those that are to be told now."""
        waiting = self._waiting.setdefault(kind, _Waiting(line))
        waiting.line = line
        waiting.count += 1
        return self.due(now)

    def due(self, now: float) -> list[Told]:
        """Returns the lines that waited and are to be told now."""
        told = []
        while self._waiting and self._may_tell(now):
            self._full_at = max(now, self._full_at) + INTERVAL_S
            told.append(self._next())
        return told

    def next_timeout(self) -> float | None:
        """Returns when a line that waits may be told; None where none waits."""
        return self._full_at - (BURST - 1) * INTERVAL_S if self._waiting else None

    def end(self) -> list[Told]:
        """Returns all that waits, a line of each kind."""
        return [self._next() for _ in range(len(self._waiting))]

    def _may_tell(self, now: float) -> bool:
        return self._full_at <= now + (BURST - 1) * INTERVAL_S

    def _next(self) -> Told:
        _, waiting = self._waiting.popitem(last=False)
        return waiting.line(waiting.count - 1)


def and_more(text: str) -> Line[str]:
    """Returns a line that says how many others of its kind were left out."""
    return lambda more: f"{text} (and {more} more like this)" if more else text
