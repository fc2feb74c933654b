"""A subscriber whose messages must be proven, among real servers, and what becomes of the lines it hears.

Lines come by way of a server that lies: it forwards whatever it likes, in whatever order.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from kcast.client.core import ClientCore
from kcast.client.events import Delivery, Drop, Event, Gap
from kcast.client.messages.guard_and_writer import Guard, Guarded
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.sealed.guards import SealedGuard, SignedGuard, senders_of
from kcast.client.sealed.membership import Group
from kcast.client.sealed.sealing import Epoch, Frame, Sealer, Signs
from kcast.client.sealed.signing import Signer
from kcast.client.sealed.topics import hidden
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from tests.support import sealed_by_hand
from tests.support.client_lab import START, SUB, Lab
from tests.support.groups import OWNER

UNIX_S = sealed_by_hand.SENT_MS // 1000
NAME = b"weather/oslo"
ALICE, BOB, STRANGER = (
    Signer(each.seed) for each in (sealed_by_hand.ALICE, sealed_by_hand.BOB, sealed_by_hand.STRANGER)
)
DAY_S = 86_400


class Heard(NamedTuple):
    """What a subscriber makes of some lines."""

    deliveries: Sequence[Delivery]
    drops: Counter[Drop]
    duplicates: int


class Stage:
    """A subscriber's core that has all its leases. Its wall clock shows UNIX_S when it `subscribe`d first."""

    def __init__(self, *, unix_s: float = UNIX_S, **options: Any) -> None:
        self.lab = Lab()
        self._offset_s = unix_s - START - 1
        options.setdefault("copies", CopyFilter(is_native=False))
        self.subscriber = self.client(SUB, **options)
        self.told: list[Guarded] = []  # all but deliveries
        self._gaps: list[Gap] = []
        self._server = self.lab.cluster.servers[0].addresses[0]

    @property
    def unix_s(self) -> float:
        """The true time, in seconds since 1970."""
        return self.lab.now + self._offset_s

    def client(self, address: Address, seed: int = 7, *, ahead_s: float = 0.0, **options: Any) -> ClientCore:
        """Another client, whose clock may be ahead of the true time."""
        core = self.lab.client(address, seed, **options)
        core.clock_offset_s = self._offset_s + ahead_s
        return core

    def subscribe(self, guard: Guard, name: bytes = NAME) -> Guard:
        """Lets a guard judge what comes on a topic."""
        self.subscriber.subscribe(name, self.lab.now, guard=guard)
        self.lab.run(1)
        self.take()
        return guard

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.lab.run(seconds)

    def hear(self, *lines: bytes) -> Heard:
        """Lets lines come, one after the other, each as a datagram."""
        core = self.subscriber
        drops, duplicates = core.drops.copy(), core.counts["duplicates"]
        for line in lines:
            core.receive(Burst(line, len(line), self._server), self.lab.now)
        core.handle_timeout(self.lab.now)
        core.flush(self.lab.now)
        return Heard(self.take(), core.drops - drops, core.counts["duplicates"] - duplicates)

    def verdict(self, line: bytes) -> Delivery | Drop | None:
        """What becomes of one line; None for a duplicate."""
        deliveries, drops, duplicates = self.hear(line)
        assert len(deliveries) + drops.total() + duplicates == 1, (deliveries, drops, duplicates)
        return next(iter(deliveries), None) or next(iter(drops), None)

    def take(self) -> list[Delivery]:
        """Returns what was delivered since the last time, to whom ever."""
        found = []
        for told in self.subscriber.events():
            event: Event = told.event if isinstance(told, Guarded) else told
            if isinstance(event, Delivery):
                found.append(event)
            elif isinstance(event, Gap):
                self._gaps.append(event)
            elif isinstance(told, Guarded):
                self.told.append(told)
        return found

    def gaps(self) -> list[Gap]:
        """Returns the gaps that were told, since the last time."""
        self.take()
        found, self._gaps = self._gaps, []
        return found

    def told_of(self, kind: type) -> list[Any]:
        """Returns what guards have told of this kind, since the last time."""
        found = [each for each in self.told if isinstance(each.event, kind)]
        self.told = [each for each in self.told if not isinstance(each.event, kind)]
        return [each.event for each in found]


# --- Signed -------------------------------------------------------------------------------------------


def signed_stage(*allowed: Signer, **options: Any) -> Stage:
    """A subscriber that takes messages of these signers alone; by default of Alice."""
    stage = Stage(**options)
    keys = frozenset(each.key for each in allowed or (ALICE,))
    stage.subscribe(SignedGuard(senders_of(keys), stage.unix_s))
    return stage


def unsigned(
    seq: int = 1,
    *,
    sent_s: float = UNIX_S,
    publisher: str = "AbCdEfGhIjK",
    topic: bytes = NAME,
    payload: bytes = b"rain, 4 degrees",
) -> bytes:
    """A line with its time, before it is signed."""
    return b"%b %%@%b.%d;t=%d %b\n" % (topic, publisher.encode(), seq, round(sent_s * 1000), payload)


def signed(seq: int = 1, by: Signer = ALICE, **fields: Any) -> bytes:
    """A line that is signed alone."""
    return by.sign(unsigned(seq, **fields))


# --- Sealed -------------------------------------------------------------------------------------------


def epoch(number: int = 1, from_unix_s: int = UNIX_S - DAY_S, *, group: str = "ops", **fields: Any) -> Epoch:
    """An epoch whose secrets follow from its number. By default Alice and Bob are its senders."""
    made = sealed_by_hand.Epoch(group, number, 0x20 + number, fields.pop("topic_byte", 0x60 + number))
    fields.setdefault("senders", frozenset([ALICE.key, BOB.key]))
    fields.setdefault("owner", sealed_by_hand.from_base64url(made.owner.encode()))
    return Epoch(group, number, from_unix_s, made.public, made.topic_secret, made.private, **fields)


def group_of(*epochs: Epoch, until_unix_s: int = UNIX_S + 90 * DAY_S) -> Group:
    """A group whose member has these epochs."""
    verifier = OWNER.note_key.verifier
    held = epochs or (epoch(),)
    return Group(held[-1].group, verifier, held, until_unix_s, held[-1].number)


def sealed_stage(group: Group | None = None, name: bytes = NAME, **options: Any) -> Stage:
    """A subscriber in a group. Options of its guard are `allows`, `has_plain_topics`, and `times`."""
    of_guard = {key: options.pop(key) for key in ("allows", "has_plain_topics", "times") if key in options}
    stage = Stage(**options)
    stage.subscribe(SealedGuard(group or group_of(), stage.unix_s, **of_guard), name)
    return stage


class Process:
    """What seals for an epoch, on a topic of it, with Alice's key or another."""

    def __init__(
        self,
        of: Epoch | None = None,
        publisher: str = "AbCdEfGhIjK",
        secret: bytes = b"\x77" * 32,
        signer: Signs = ALICE,
        *,
        name: bytes = NAME,
        wire_topic: bytes | None = None,
    ) -> None:
        of = of or epoch()
        self.sealer = Sealer(of, publisher, secret)
        self.topic = hidden(of.topic_secret, name) if wire_topic is None else wire.encode_topic(wire_topic)
        self.signer = signer

    def line(self, seq: int = 1, sent_s: float = UNIX_S, payload: bytes = b"rain", **fields: Any) -> bytes:
        """The line of a message."""
        frame = Frame(payload, round(sent_s * 1000), **fields)
        return self.sealer.line(self.topic, seq, frame, self.signer)
