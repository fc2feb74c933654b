"""The states of a server: alive, suspected, lost. Its answers and its silence change them; and what its
session reports to the core. Sans-IO.

    state      sign            next state
    alive      silence         suspected
    suspected  answer          alive
    suspected  third silence   lost
    lost       answer          alive

All other signs leave the state as it is. A server begins alive: one never asked gets the benefit of the
doubt. It begins lost, and stays so, if we have no socket for any of its address families (IPv4, IPv6): then
it cannot be asked. Where its name leads to no address that we can use, that is as good as three silences.

- *answer*: the server has answered any request, also one that was given up already.
- *silence*: nothing of a round was answered in time (`client/session/requests.py` says what a round is), or
  the network said that nobody listens there.
- *third silence*: the third of requests for cookies or leases since the last answer.

A server whose price is too high, and one that drains, are no less alive: price and draining are kept apart.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
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


class Liveness(StrEnum):
    """The state of a server."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    LOST = "lost"

    def after(self, sign: "Sign") -> "Liveness":
        """Returns the state that follows when this sign is seen."""
        return TRANSITIONS.get((self, sign), self)


class Sign(StrEnum):
    """A sign of life, or of its absence."""

    ANSWER = "answer"
    SILENCE = "silence"
    THIRD_SILENCE = "third silence"


TRANSITIONS = {
    (Liveness.ALIVE, Sign.SILENCE): Liveness.SUSPECTED,
    (Liveness.SUSPECTED, Sign.ANSWER): Liveness.ALIVE,
    (Liveness.SUSPECTED, Sign.THIRD_SILENCE): Liveness.LOST,
    (Liveness.LOST, Sign.ANSWER): Liveness.ALIVE,
}


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
