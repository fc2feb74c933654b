"""What a client logs of its events.

All are logged at DEBUG. At a bounded rate (`client/driving/pace.py`) there is at WARNING, too, that all
servers are lost, that a name cannot be looked up, that a changed cluster file is not adopted, troubles with a
signed list or a group, that this machine's clock seems wrong, and that somebody forges messages; at INFO that
a changed cluster file is adopted, and that the machine was suspended.
"""

import logging

from kcast.client.driving.pace import Pace, and_more
from kcast.client.events import (
    AllServersLost,
    ClockDoubt,
    ClusterChanged,
    ClusterRefused,
    Event,
    Forged,
    GroupTrouble,
    ListTrouble,
    MachineSuspended,
    ServerLost,
)

logger = logging.getLogger(__name__)


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
        case ClockDoubt(_, senders, off_s):
            told = f"this machine's clock seems to be {off_s:+.0f} s off, as messages of {senders} keys say"
            return logging.WARNING, f"{told}: they are dropped"
        case Forged(_, per_second):
            return logging.WARNING, f"somebody forges {per_second:.0f} messages a second, which are dropped"
        case MachineSuspended(for_s):
            return logging.INFO, f"this machine was suspended for {for_s:.0f} s"
        case ClusterChanged(added, removed):
            return logging.INFO, f"the cluster has changed: {len(added)} added, {len(removed)} removed"
    return logging.DEBUG, ""
