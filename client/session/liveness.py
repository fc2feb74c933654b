"""The states of a server: alive, suspected, lost. Its answers and its silence change them. Sans-IO.

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

from enum import StrEnum


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
