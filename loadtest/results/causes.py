"""The causes for which a message does not reach a subscriber, in the order of its way."""

from enum import IntEnum


class Cause(IntEnum):
    """What became of a message on its way to a subscriber by one server.

    Values are in the order of the way: a message with a greater one came further. A missed pair has the
    greatest value of all its paths, so it has one cause. Among causes at the same place, those that are not
    the test machine's fault come first, so that they never hide an UNEXPLAINED or SHORTCOMINGS cause.
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
    MUTE = 14
    DOWN_OUT = 15
    LOSS_OUT = 16
    OVERFLOW_OUT = 17
    NETWORK_OUT = 18
    HALTED = 19
    LATE = 20
    BY_HISTORY = 21
    DELIVERED = 22

    @property
    def label(self) -> str:
        """The cause's name in results, such as "loss-in"."""
        return self.name.lower().replace("_", "-")


MEANINGS: dict[Cause, str] = {
    Cause.UNSENT: "the publisher's client sent nothing to a server that it was to send to",
    Cause.VIEW: "publisher and subscriber use no common server, because their server lists differ",
    Cause.DRAW: "publisher or subscriber draws its servers at random, and missed the other's",
    Cause.UNASKED: "the subscriber did not ask for a lease at a server where it should hold one",
    Cause.DOWN: "sent to a server that was down, or cut off",
    Cause.LOSS_IN: "lost on the way to the server, as the scenario asks",
    Cause.UNVOUCHED: "the server had restarted, and had accepted nothing from this publisher yet",
    Cause.UNTAPPED: "sent to a server without a tap: what became of it is not known",
    Cause.SEND_ERROR: "the publisher's socket could not send",
    Cause.OVERFLOW_IN: "the server's socket overflowed: this machine was too busy",
    Cause.NETWORK_IN: "sent, but did not reach the server; no reason is recorded",
    Cause.LEASE_NEVER: "reached a server at which the subscriber never had a lease",
    Cause.LEASE_RESTART: "reached a server that had restarted, and so had lost the subscriber's lease",
    Cause.LEASE_EXPIRED: "reached a server at which the subscriber's lease had ended",
    Cause.MUTE: "came to a server that was mute: it takes messages and sends no copies, as the scenario asks",
    Cause.DOWN_OUT: "forwarded, while the server was being cut off, killed or halted, or the client was away",
    Cause.LOSS_OUT: "lost on the way to the subscriber, as the scenario asks",
    Cause.OVERFLOW_OUT: "the subscriber's socket overflowed: this machine was too busy",
    Cause.NETWORK_OUT: "forwarded, but did not reach the subscriber; no reason is recorded",
    Cause.HALTED: "came after the deadline, from a server that had been stalled",
    Cause.LATE: "came after the deadline",
    Cause.BY_HISTORY: "came by the sync of a log, and by no copy",
    Cause.DELIVERED: "came in time",
}

UNEXPLAINED = (Cause.UNASKED, Cause.NETWORK_IN, Cause.NETWORK_OUT)
"""Causes that nothing recorded explains. A sound run on a network that loses nothing has none of them."""

ON_NETWORK = (Cause.NETWORK_IN, Cause.NETWORK_OUT)
"""Causes that a network explains which loses datagrams. How much it lost is then measured."""

SHORTCOMINGS = (Cause.UNSENT, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.OVERFLOW_OUT, Cause.LATE)
"""Causes that are the fault of the machine that ran the test, not of what was tested."""


SECOND_NS = 1_000_000_000
EDGE_NS = 20_000_000  # between a signal, its effect, and the time that is recorded for it
TAP_UNWRITTEN_NS = 1_500_000_000  # the most recent part of a tap, which a killed server may not have written
