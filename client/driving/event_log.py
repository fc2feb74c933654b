"""What a client logs of its events, and the rate at which people are told what peers can cause. Sans-IO.

All are logged at DEBUG. At a bounded rate (`Pace`) there is at WARNING, too, that all
servers are lost, that a name cannot be looked up, that a changed cluster file is not adopted, troubles with a
signed list or a group, that this machine's clock seems wrong, and that somebody forges messages; at INFO that
a changed cluster file is adopted, and that the machine was suspended.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kcast.client.events import (
    AllServersLost,
    ClockDoubt,
    ClusterChanged,
    ClusterRefused,
    Event,
    Forged,
    GroupTrouble,
    ListTrouble,
    LogTrouble,
    MachineSuspended,
    MayHaveMissed,
    ServerLost,
)

logger = logging.getLogger(__name__)

BURST = 20
INTERVAL_S = 10.0  # between two lines, after that

Told = TypeVar("Told")
Line = Callable[[int], Told]  # from the number of lines of its kind that were left out before it


@dataclass
class _Waiting(Generic[Told]):
    line: Line[Told]
    count: int = 0


class Pace(Generic[Told]):
    """Says which lines are told when. Kinds are for the caller to name: a fixed number of them.

    Some lines are told as they come, and then one in ten seconds, of all kinds together: a server that
    refuses, sells and stops in turn must not fill anybody's disk. Kinds take turns, and of each the latest
    line is told, with the number of those of its kind that were left out.
    """

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


class EventLog:
    """Logs the events of one client."""

    def __init__(self) -> None:
        self._pace: Pace[tuple[int, str]] = Pace()

    def tell(self, event: Event, now: float) -> None:
        """Logs an event."""
        level, text = _told(event)
        if text:
            told = self._pace.put(type(event).__name__, lambda more: (level, and_more(text)(more)), now)
        else:
            told = self._pace.due(now)
        for level_told, line in told:
            logger.log(level_told, "%s", line)
        logger.debug("%s", event)


def _told(event: Event) -> tuple[int, str]:
    match event:
        case AllServersLost():
            return logging.WARNING, f"no server answers any more: all {event.servers} are lost"
        case ServerLost(why="name"):
            told = f"{event.server}: the name leads to no address to use; it is tried again"
            return logging.WARNING, told
        case ClusterRefused():
            return logging.WARNING, f"the cluster stays as it was: {event.reason}"
        case ListTrouble():
            return logging.WARNING, f"{event.name}: {event.text} ({event.fault})"
        case GroupTrouble():
            return logging.WARNING, f"group {event.group}: {event.text} ({event.fault})"
        case ClockDoubt(_, sender, off_s):
            told = f"this machine's clock seems to be {off_s:+.0f} s off, or that of the key {sender}"
            return logging.WARNING, f"{told}: its messages are dropped"
        case Forged(_, per_second, sender):
            told = "somebody forges" if sender is None else f"the key {sender} floods, as ever new processes,"
            return logging.WARNING, f"{told} {per_second:.0f} messages a second"
        case LogTrouble(_, text):
            return logging.WARNING, "the log is well again" if text is None else f"a log: {text}"
        case MachineSuspended(for_s):
            return logging.INFO, f"this machine was suspended for {for_s:.0f} s"
        case MayHaveMissed(since_s, until_s):
            return logging.INFO, f"messages of {until_s - since_s:.0f} s may have been missed"
        case ClusterChanged(added, removed):
            return logging.INFO, f"the cluster has changed: {len(added)} added, {len(removed)} removed"
    return logging.DEBUG, ""
