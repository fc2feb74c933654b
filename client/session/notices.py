"""What a session reports to the core, besides what became of published lines."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from kcast.client.events import (
    Event,
    LeaseRefused,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
    Why,
)


class Change(Enum):
    """What has changed at a server."""

    LEASES = auto()  # a lease was gained or has ended
    REFUSED = auto()  # a lease was refused, and is asked for again later
    SUSPECTED = auto()  # the server has not answered
    LOST = auto()  # the server is lost, or too dear
    RETURNED = auto()  # it is neither any more
    TRUSTED = auto()  # it is suspected, or drains, no more
    FORGOT = auto()  # it knows none of our leases any more
    DRAINING = auto()  # it is about to stop


@dataclass(slots=True)
class Notice:
    """A change, with the topic (wire form) and the reason where they apply."""

    change: Change
    topic: bytes = b""
    reason: str = ""

    def event(self, server: str, topic: bytes, *, has_answered: bool) -> Event | None:
        """Returns what the application is told of it; None for nothing. `topic` is the one that it is about,
        where it is about one, and `has_answered` tells whether the server ever has."""
        match self.change:
            case Change.REFUSED:
                return LeaseRefused(topic, server, self.reason)
            case Change.LOST:
                return ServerLost(server, cast("Why", self.reason), has_answered)
            case Change.RETURNED:
                return ServerReturned(server)
            case Change.FORGOT:
                return ServerForgot(server)
            case Change.DRAINING:
                return ServerDraining(server)
            case _:
                return None
