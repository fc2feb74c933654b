"""What the core knows of messages that are signed or sealed: who judges those that come, and who writes those
that go. Sans-IO. PROTOCOL §9.6, §9.7.

    a copy -> glance, which is cheap -> first copy? -> judge, which costs a signature -> delivery, or a drop

The core has no cryptography, and needs none of its libraries. What judges and writes, `kcast.client.sealed`
has; it satisfies these protocols. Who asks for no proof has neither, and nothing of this on a message's way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kcast.client.events import Drop, Event

BACK_S = 120.0  # how long ago a message may have been sent, and how far ahead of this clock, by default
AHEAD_S = 30.0
TIMES_S_MAX = 86_400.0


class Proven(NamedTuple):
    """A message that a guard lets pass: what its `Delivery` says of it.

    `by` is the key that has signed it: its numbers are a sequence of their own. `sender` is that key as text.
    """

    payload: bytes
    publisher: str
    seq: int
    attributes: Mapping[str, str]
    sender: str
    group: str | None
    sent_at: float
    by: bytes


class Taken:
    """What a guard returns of a message that it has taken itself: nobody is told of it."""


TAKEN = Taken()


class Guard(Protocol):
    """What judges the messages of one subscription. `mark` tells it from others, in what is remembered."""

    mark: bytes

    def places(self, name: bytes, unix_s: float, lead_s: float) -> tuple[Mapping[bytes, bool], float]:
        """Returns the topics on which messages of a topic travel at a time, in seconds since 1970, and until
        when that holds. One that is True is in force. Those that begin within `lead_s` are among them."""

    def glance(self, wire_topic: bytes, message: bytes, unix_s: float) -> Any:
        """Returns why a message is dropped at first sight (a `Drop`), `TAKEN`, or what `judge` is given."""

    def judge(self, name: bytes, claim: Any, unix_s: float) -> Proven | Taken | Drop:
        """Returns a message that is proven and no repeat, `TAKEN`, or why it is dropped. It is for first
        copies."""

    def take_events(self) -> Sequence[Event]:
        """Returns what is to be told beside deliveries, since the last call."""


@runtime_checkable
class Prover(Guard, Protocol):
    """A guard that also judges what was kept. Where it `is_sealed`, nobody signs in clear what they have."""

    is_sealed: bool

    def prove(self, wire_topic: bytes, message: bytes) -> Proven | Drop:
        """Returns a message that is proven, whenever it was sent, or why it is not."""


class Writer(Protocol):
    """What makes lines of messages that are to be signed, or sealed.

    Where `is_once`, each goes to one server alone, if subscribers use all: who writes it, sends it again.
    """

    is_once: bool = False

    def place(self, name: bytes, unix_s: float) -> bytes:
        """Returns the topic on which messages of a topic travel. Raises KcastError where none may."""

    def lines(
        self, wire_topic: bytes, payloads: Sequence[bytes], unix_s: float
    ) -> tuple[int, Sequence[bytes]]:
        """Returns the number of the first of some messages in a row, and their lines, each with the LF.

        Raises MessageTooLarge, which tells the index of several; then none of the numbers is used.
        """


@dataclass(frozen=True, slots=True)
class Guarded:
    """An event of a subscription that has a guard, for that subscription alone."""

    guard: Guard
    event: Event


Told = Event | Guarded
"""What the core tells."""
