"""Why a message did not reach a subscriber: the stages of its way, and what stopped it there."""

from enum import IntEnum


class Cause(IntEnum):
    """What became of a message on its way to a subscriber through one server.

    In the order of the way: a greater one came further. A pair that was missed has the greatest of those of
    all its servers, so each has one cause. Of causes at the same place those that are no fault of the run's
    come first, so that none hides what is UNEXPLAINED or a SHORTCOMING.
    """

    UNSENT = 0
    VIEW = 1
    DRAW = 2
    UNASKED = 3
    DOWN = 4
    LOSS_IN = 5
    UNVOUCHED = 6
    UNTAPPED = 7
    SEND_ERROR = 8
    OVERFLOW_IN = 9
    NETWORK_IN = 10
    LEASE_NEVER = 11
    LEASE_RESTART = 12
    LEASE_EXPIRED = 13
    DOWN_OUT = 14
    LOSS_OUT = 15
    OVERFLOW_OUT = 16
    NETWORK_OUT = 17
    HALTED = 18
    LATE = 19
    DELIVERED = 20

    @property
    def label(self) -> str:
        """As results have it: "loss-in"."""
        return self.name.lower().replace("_", "-")


MEANINGS: dict[Cause, str] = {
    Cause.UNSENT: "the publisher's client sent nothing to a server that it was to send to",
    Cause.VIEW: "publisher and subscriber use no common server, as they do not know the same ones",
    Cause.DRAW: "the draw of one of them left out the server that the other one used",
    Cause.UNASKED: "the subscriber asked no lease of a server at which it was to hold one",
    Cause.DOWN: "sent to a server that was down, or cut off",
    Cause.LOSS_IN: "lost on the way to the server, as the scenario asks",
    Cause.UNVOUCHED: "the server had restarted, and had admitted nothing from this publisher yet",
    Cause.UNTAPPED: "sent to a server that keeps no tap: what became of it is not known",
    Cause.SEND_ERROR: "the publisher's socket was not able to send",
    Cause.OVERFLOW_IN: "the server's socket overflowed: this machine was too busy",
    Cause.NETWORK_IN: "sent, and not at the server; no reason is recorded",
    Cause.LEASE_NEVER: "at a server at which the subscriber never had a lease",
    Cause.LEASE_RESTART: "at a server that had restarted, and so had no lease of the subscriber",
    Cause.LEASE_EXPIRED: "at a server at which the subscriber's lease had ended",
    Cause.DOWN_OUT: "forwarded, and the server was cut off or killed meanwhile",
    Cause.LOSS_OUT: "lost on the way to the subscriber, as the scenario asks",
    Cause.OVERFLOW_OUT: "the subscriber's socket overflowed: this machine was too busy",
    Cause.NETWORK_OUT: "forwarded, and not at the subscriber; no reason is recorded",
    Cause.HALTED: "came after the deadline, from a server that had been halted",
    Cause.LATE: "came after the deadline",
    Cause.DELIVERED: "came in time",
}

UNEXPLAINED = (Cause.UNASKED, Cause.NETWORK_IN, Cause.NETWORK_OUT)
"""Put down to nothing that is recorded: there are none in a sound run."""

SHORTCOMINGS = (Cause.UNSENT, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.OVERFLOW_OUT, Cause.LATE)
"""The fault of the machine that ran the test, and not of what was tested."""


SECOND_NS = 1_000_000_000
EDGE_NS = 20_000_000  # between a signal, its effect, and the note of its time
TAP_UNWRITTEN_NS = 1_500_000_000  # what a server may not have written yet when it is killed
