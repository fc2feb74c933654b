"""What the client core tells its application."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message, once: its first copy. `publisher` and `seq` are None where it was raw."""

    topic: bytes
    payload: bytes
    server: str
    publisher: str | None = None
    seq: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeasesChanged:
    """How many of a topic's servers now hold a lease for us, of how many we want."""

    topic: bytes
    leased: int
    wanted: int


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """A server refused a lease, with its one-word reason; it is asked again later."""

    topic: bytes
    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServerLost:
    """A server is taken for dead, and the client goes on asking it. It has stopped answering ("silent"), or
    asks more for a new lease than a client pays ("price"); there live leases go on being renewed."""

    server: str
    why: Literal["silent", "price"] = "silent"


@dataclass(frozen=True, slots=True)
class ServerReturned:
    """A lost server answers again, or is affordable again."""

    server: str


@dataclass(frozen=True, slots=True)
class ServerDraining:
    """A server says that it is about to stop. It goes on serving for a while; others are preferred."""

    server: str


@dataclass(frozen=True, slots=True)
class FamilyMissing:
    """A server has addresses only of families that we lack (`family`, 4 or 6, is that of its first). It stays
    among its topics' servers, and counts as lost."""

    server: str
    family: int


@dataclass(frozen=True, slots=True)
class ServerForgot:
    """A server took our cookie for a stranger's: it restarted, or our address has changed. Leases there are
    being renewed."""

    server: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages `first_seq` to `last_seq` of this publisher have not come within the settling time."""

    topic: bytes
    publisher: str
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class GapFilled:
    """A message came after it had been reported missing."""

    topic: bytes
    publisher: str
    seq: int


class Outcome(StrEnum):
    """What became of a message at one server."""

    RECEIPT = "receipt"  # the server says that it forwarded it
    SENT = "sent"  # sent under a publish lease; nothing will be heard
    NO_ANSWER = "no-answer"
    REFUSED = "refused"
    QUEUE_FULL = "queue-full"  # not sent: too much already waits for this server's cookie


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one publish, per server, once nothing more is awaited or repeated."""

    handle: int
    topic: bytes
    seq: int | None
    servers: Mapping[str, Outcome]

    @property
    def receipts(self) -> int:
        """How many servers said that they forwarded it."""
        return sum(1 for outcome in self.servers.values() if outcome is Outcome.RECEIPT)

    @property
    def sent(self) -> int:
        """How many servers it was sent to without asking for a receipt."""
        return sum(1 for outcome in self.servers.values() if outcome is Outcome.SENT)


Event = (
    Delivery
    | LeasesChanged
    | LeaseRefused
    | ServerLost
    | ServerReturned
    | ServerForgot
    | ServerDraining
    | FamilyMissing
    | Gap
    | GapFilled
    | Published
)


class Drop(StrEnum):
    """Why something that arrived was not delivered."""

    UNKNOWN_SOURCE = "unknown-source"
    OVERSIZE = "oversize"
    EMPTY = "empty"
    UNTERMINATED = "unterminated"
    MALFORMED_CONTROL = "malformed-control"
    UNASKED_REPLY = "unasked-reply"
    NOT_SUBSCRIBED = "not-subscribed"
    MALFORMED_MESSAGE = "malformed-message"
    NOT_UNDERSTOOD = "not-understood"
    SLOW_CONSUMER = "slow-consumer"
