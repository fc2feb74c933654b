"""Why a server did nothing with something that arrived: each reason is counted. PROTOCOL §2 to §7.

A reason of which clients are told is a refusal too (PROTOCOL §5.8). CONTRIBUTING.md says how to add one.
"""

from enum import StrEnum

from kcast.pubsub import wire


class Drop(StrEnum):
    """Why a datagram or a line had no effect. The values are the labels in logs and metrics."""

    # Datagrams.
    OWN_ADDRESS = "own-address"  # it claims to come from the server itself
    OVERSIZE = "oversize"  # too long; also a line that an open server's mark makes too long (§4.4)
    EMPTY = "empty"  # no complete line
    TOO_MANY_LINES = "too-many-lines"
    SHORT = "short"  # shorter than its answer (§5.2)
    COOKIE_FOREIGN = "cookie-foreign"  # not of this life of the server, or not of this address; answered
    COOKIE_OLD = "cookie-old"  # too old for leases (§6.2); answered
    CHALLENGE_RATE = "challenge-rate"  # an answer to a stranger, over the limit
    STRANGER = "stranger"  # of a stranger's burst only the first request is looked at

    # Lines.
    UNTERMINATED = "unterminated"  # the last line had no LF
    MALFORMED = "malformed"
    REPLY_VERB = "reply-verb"
    UNKNOWN_VERB = "unknown-verb"
    MISPLACED = "misplaced"  # a request where it cannot be one (§5.4, §5.5)
    EXTRA_REQUEST = "extra-request"  # the first request of what came at once is answered (§5.2)
    UNVOUCHED_SUBSCRIBE = "unvouched-subscribe"
    UNVOUCHED_PUBLISH = "unvouched-publish"
    COPY = "copy"  # what an open server has forwarded already (§4.4)
    CONTROL_BYTE = "control-byte"  # a publish with a raw one, at an open server (§4.4)
    PUBLISH_RATE = "publish-rate"
    BACKLOG = "backlog"  # too much of this publisher waits to be sent
    TOPIC = "topic"  # not in the one wire form (§3.1)
    NO_SUBSCRIBER = "no-subscriber"  # a publish that matched no lease

    # Copies.
    CREDIT = "credit"  # no sign of life from the subscriber for too many bytes (§7.7)
    EGRESS_RATE = "egress-rate"  # more than the subscriber, or its network, may be sent
    CROWD = "crowd"  # to one of very many leases on a topic, and too much of that waits (§4.3)
    LATE = "late"  # they waited until their lease had ended (§7.1)

    # New leases.
    WORK = "work"
    DRAIN = "drain"
    FULL = "full"
    ADDRESS = "address"
    PREFIX = "prefix"
    TOPICS = "topics"
    PUBLISHERS = "publishers"  # no publish lease was opened: the set is full


STEPS = {
    Drop.WORK: "asked for work",
    Drop.DRAIN: "sent elsewhere for new leases",
}
"""Reasons that are steps of a conversation, and what people call them. The client does what it is asked, or
takes another server."""

HARMLESS = {
    Drop.NO_SUBSCRIBER: "nobody subscribed",
    Drop.COOKIE_FOREIGN: "stale cookies",
    Drop.COOKIE_OLD: "stale cookies",
}
"""Reasons by which nothing is lost, and what people call them. A client with a stale cookie gets a fresh one
and sends again."""


def drop_of_control(line: bytes) -> Drop:
    """Returns why a control line that is no request has no effect."""
    if line.startswith(wire.REPLY_VERBS):
        return Drop.REPLY_VERB
    return Drop.MALFORMED if line.startswith((b"%!", b"%?", b"%~")) else Drop.UNKNOWN_VERB
