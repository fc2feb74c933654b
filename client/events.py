"""What a client tells its application."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

# What there is one of for each message is a NamedTuple: to make a frozen dataclass takes five times as long.


class Delivery(NamedTuple):
    """A message, told once: the first copy that came.

    `topic` and `payload` are as they were published. `server` is the name (`IP:port`) of the server that
    brought the copy. `publisher` and `seq` tell who published, and the message's number among this
    publisher's on this topic, from 1; both are None where it was raw. `attributes` are for later versions
    (PROTOCOL §9.2). `received_at_s` is when the copy came, in seconds since 1970 as `time.time()` has it.

    The rest is known, and proven, where the subscription has `senders` or a `group`, or its topic names its
    senders (`~`); else it is None. `sender` is the key that signed the message, as 43 base64url characters.
    `group` is the name of the group that the message was sealed for. `sent_at` is when its publisher says
    that it was published, in seconds since 1970. In a group, `seq` counts messages, and no cover traffic.
    """

    topic: bytes
    payload: bytes
    server: str
    publisher: str | None = None
    seq: int | None = None
    attributes: Mapping[str, str] = {}
    received_at_s: float = 0.0
    sender: str | None = None
    group: str | None = None
    sent_at: float | None = None


@dataclass(frozen=True, slots=True)
class LeasesChanged:
    """The number of servers that now hold a lease on a topic for us, and the number wanted."""

    topic: bytes
    leased: int
    wanted: int


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """A server refused a lease, for a reason of one word (PROTOCOL §5.8); it is asked again later."""

    topic: bytes
    server: str
    reason: str


Why = Literal["silent", "price", "name"]


@dataclass(frozen=True, slots=True)
class ServerLost:
    """A server is taken for dead; the client goes on asking it.

    `why` is "silent" where it has stopped answering, "price" where it asks more for a new lease than a client
    pays, and "name" where it is known by a name that leads to no address that can be used. With "price",
    leases that stand go on being renewed. `has_answered` tells whether it ever answered this client.
    """

    server: str
    why: Why = "silent"
    has_answered: bool = True


@dataclass(frozen=True, slots=True)
class AllServersLost:
    """Every server that this client has dealings with is lost. It is told once, until one answers.

    `servers` is their number. The client goes on asking them.
    """

    servers: int


@dataclass(frozen=True, slots=True)
class ServerReturned:
    """A lost server answers again, or is affordable again."""

    server: str


@dataclass(frozen=True, slots=True)
class ServerDraining:
    """A server says that it is about to stop. It still serves for a while; others are preferred."""

    server: str


@dataclass(frozen=True, slots=True)
class Limited:
    """A sender sends more than the limit of a subscription, and is left out for `wait_s` seconds; told once
    then. `sender` is its proven key, or its publisher's name, which anyone can claim."""

    topic: bytes
    sender: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class LogTrouble:
    """A log stores nothing, or gets nothing from others, and `text` says why; None where that is over. What
    comes meanwhile and is not stored comes again with a sync."""

    topic: bytes
    text: str | None


@dataclass(frozen=True, slots=True)
class FloorRose:
    """The oldest entries of a log have left: all below this bound, but those that are pinned. `floor` sorts
    among ids as text."""

    topic: bytes
    floor: str


@dataclass(frozen=True, slots=True)
class FamilyMissing:
    """A server has no address of an IP version that this machine can use. It remains one of its topics'
    servers, and counts as lost. `family` is the version, 4 or 6, of its first address."""

    server: str
    family: int


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """The client goes by another cluster: its file has changed, or the time of a salt or a list has come.
    `added` and `removed` are names of servers. Those removed are used for some minutes more, since other
    clients may not know yet."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterRefused:
    """The cluster file has changed, or cannot be read any more, and the client goes on as before; `reason`
    says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ListTrouble:
    """Something is wrong with the signed list `name`, or with a newer one, which is refused then.

    `fault` is its kind (`kcast.client.trust.checks.faults.ListFault`), `text` a sentence on it, and `kept`
    the version that stays in use, None where there is none. `evidence` is the folder with evidence of it, if
    there is any. The same fault is told once a day at most.
    """

    name: str
    fault: str
    text: str
    kept: int | None
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class ListChanged:
    """The client goes by a newer version of the signed list `name`. `added` and `removed` are names of
    servers. `from_unix_s` is when publishers go by it, in seconds since 1970; None for at once."""

    name: str
    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    from_unix_s: int | None = None


@dataclass(frozen=True, slots=True)
class GroupTrouble:
    """Something is wrong with a group, or with a newer file of it, which is refused then.

    `fault` is its kind (`kcast.client.sealed.membership.GroupFault`), `text` a sentence on it. What is held
    stays in use as long as it lasts. The same fault is told once a day at most, `behind` each minute.
    """

    group: str
    fault: str
    text: str


@dataclass(frozen=True, slots=True)
class ServerForgot:
    """A server did not know our cookie: it has restarted, or our address has changed. All leases there are
    asked for again."""

    server: str


@dataclass(frozen=True, slots=True)
class MayHaveMissed:
    """Messages may have been missed from `since_s` to `until_s`, in seconds since 1970: so many servers had
    restarted or did not answer. That begins when they last confirmed a lease."""

    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class MachineSuspended:
    """This machine was suspended, `for_s` seconds long, and goes on. Leases that have ended meanwhile are
    asked for at once, and servers that do not answer yet every few seconds for a minute."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages `first_seq` to `last_seq` of a publisher on a topic have not come, though three in a row after
    them have, 2.5 s ago or more (later, where the publisher takes longer between messages)."""

    topic: bytes
    publisher: str
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class GapFilled:
    """A message came after a `Gap` had reported it missing."""

    topic: bytes
    publisher: str
    seq: int


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    """This machine's clock seems to be wrong, or that of `sender`, a key: for a minute no message of a
    subscription has come in time, though those of this key were proven. `off_s` is how far their times are
    from this clock's, in seconds: above 0 where this clock is behind. Until it is set right, they are
    dropped."""

    topic: bytes
    sender: str
    off_s: float


@dataclass(frozen=True, slots=True)
class Forged:
    """Somebody floods a topic, with `per_second` messages. Where `sender` is None, they claim a key and are
    not signed by it. Else this key has signed them, as ever new processes. It costs time, and no message of
    another key is lost by it."""

    topic: bytes
    per_second: float
    sender: str | None = None


class Outcome(StrEnum):
    """What became of a message at one server.

    - `receipt`: the server says that it forwarded the message, whether or not anyone had subscribed.
    - `sent`: it was sent without asking for a receipt, so nothing will be heard of it.
    - `no-answer`: the server did not answer in time; it may have forwarded the message all the same.
    - `refused`: the server refused it.
    - `queue-full`: it was not sent, since too many others already wait for this server's cookie, or for room
      on their way there.
    """

    RECEIPT = "receipt"
    SENT = "sent"
    NO_ANSWER = "no-answer"
    REFUSED = "refused"
    QUEUE_FULL = "queue-full"


class Published(NamedTuple):
    """What became of one publish, once nothing more is awaited or sent again.

    `servers` has the outcome at each server it was sent to, by name (`IP:port`). `seq` is the message's
    number among this publisher's on the topic, None where it was raw. `handle` tells publishes apart.

    `audience` is the highest number of subscribers that a server named with its receipt; None where none did,
    as without `confirm`. With 0, nobody is subscribed at any of the servers that named one. Where messages on
    several topics left in one datagram, it is that of the topic with the most (PROTOCOL §5.7).

    `reasons` has the reason of each server that refused, by name (PROTOCOL §5.8).
    """

    handle: int
    topic: bytes
    seq: int | None
    servers: Mapping[str, Outcome]
    audience: int | None = None
    reasons: Mapping[str, str] = {}

    @property
    def receipts(self) -> int:
        """Number of servers that said that they forwarded it."""
        return sum(1 for outcome in self.servers.values() if outcome is Outcome.RECEIPT)

    @property
    def sent(self) -> int:
        """Number of servers that it was sent to without asking for a receipt."""
        return sum(1 for outcome in self.servers.values() if outcome is Outcome.SENT)


class PublishedMany(NamedTuple):
    """What became of messages that were published together, once nothing more is awaited.

    `messages` is their number; `first_seq` the first one's number among this publisher's on the topic, None
    where they were raw. The others follow it. `servers` has how many of them had which outcome, for each
    server by name (`IP:port`). `without_receipt` are those that no server gave a receipt for, by their index
    among the payloads, from 0. `audience`, `reasons` and `handle` are as in `Published`. `by_receipts` has
    how many messages had how many receipts.
    """

    handle: int
    topic: bytes
    first_seq: int | None
    messages: int
    servers: Mapping[str, Mapping[Outcome, int]]
    without_receipt: Sequence[int]
    audience: int | None = None
    reasons: Mapping[str, str] = {}
    by_receipts: Mapping[int, int] = {}

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """How often each outcome occurred, of each message at each server it was sent to."""
        totals: Counter[Outcome] = Counter()
        for counts in self.servers.values():
            totals.update(counts)
        return {outcome: totals[outcome] for outcome in Outcome}

    @property
    def receipts(self) -> int:
        """Number of messages that a server gave a receipt for."""
        return self.messages - len(self.without_receipt)


Event = (
    Delivery
    | LeasesChanged
    | LeaseRefused
    | ServerLost
    | AllServersLost
    | ServerReturned
    | ServerForgot
    | ServerDraining
    | MachineSuspended
    | MayHaveMissed
    | Limited
    | LogTrouble
    | FloorRose
    | FamilyMissing
    | ClusterChanged
    | ClusterRefused
    | ListTrouble
    | ListChanged
    | GroupTrouble
    | Gap
    | GapFilled
    | ClockDoubt
    | Forged
    | Published
    | PublishedMany
)


class Drop(StrEnum):
    """Why something that arrived was discarded. A duplicate is no drop, but expected.

    - `unknown-source`: a datagram from an address where no server is asked.
    - `oversize`, `empty`: a datagram above 1200 bytes, or without lines.
    - `unterminated`: a last line without its LF.
    - `malformed-control`: a control line that cannot be read.
    - `unasked-reply`: an answer to nothing that was asked, or a second one.
    - `not-subscribed`: a message on a topic that is not subscribed to, or not by way of this server.
    - `malformed-message`: a message that cannot be read.
    - `not-understood`: a message that needs a later version (PROTOCOL §9.2).
    - `slow-consumer`: a delivery that the application did not take in time.
    - `limited`: a message of a sender who sends more than the subscription's limit.
    - `unawaited`: an answer to no request, a second one, or one of somebody who was not asked.

    - `not-kept`: a message on a log's topic that is no entry (PROTOCOL §9.12).
    - `wrong-clock`: an entry whose clock is too far ahead, or behind, or not after its parents.

    What follows only happens where a subscription takes no message without proof (PROTOCOL §9.6, §9.7):

    - `unsigned`: a message that nobody signed.
    - `bad-signature`: a signature that is not one of this message.
    - `unauthorised`: a message signed by a key that is not allowed here.
    - `too-old`: a message sent too long ago, or before this subscription could tell it from a repeat.
    - `from-future`: a message sent at a time that has not come yet.
    - `replayed`: a repeat of a message that was taken already.
    - `not-sealed`: a message in clear text.
    - `unknown-key`: a message sealed for others, or for an epoch that is over or has not begun.
    - `not-opened`: a message that was changed after it had been sealed, or made up.
    - `cover`: a dummy of cover traffic, by which nothing is lost.
    - `bad-beacon`: word of a group's newest epoch that its owner has not signed.
    """

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
    LIMITED = "limited"
    UNAWAITED = "unawaited"
    NOT_KEPT = "not-kept"
    WRONG_CLOCK = "wrong-clock"
    UNSIGNED = "unsigned"
    BAD_SIGNATURE = "bad-signature"
    UNAUTHORISED = "unauthorised"
    TOO_OLD = "too-old"
    FROM_FUTURE = "from-future"
    REPLAYED = "replayed"
    NOT_SEALED = "not-sealed"
    UNKNOWN_KEY = "unknown-key"
    NOT_OPENED = "not-opened"
    COVER = "cover"
    BAD_BEACON = "bad-beacon"


HARMLESS = frozenset((Drop.UNASKED_REPLY, Drop.NOT_SUBSCRIBED, Drop.COVER))
"""Reasons by which no message is lost: networks double datagrams, servers go on sending for a ttl, and cover
traffic has nothing to say."""
