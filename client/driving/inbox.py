"""Where deliveries and events wait until the application takes them. No clock and no waiting of its own.

The engine puts items in; a driver's stream takes them from `items`, and waits on what its `Waker` wakes. Two
things may stand between: a `Sequencer`, which puts deliveries in order, and another inbox that takes the
items of several.
"""

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from numbers import Integral, Real
from typing import Any, Generic, Protocol, TypeVar

from kcast.client.events import Delivery
from kcast.client.layers.limit import FixedWindow, Windows
from kcast.client.messages.guard_and_writer import Guard
from kcast.client.receiving.order import Sequencer

Item = TypeVar("Item")

BATCH_MAX = 1024  # items taken at a time, where nothing else is said


class Waker(Protocol):
    """How a driver tells the application that an inbox has changed. It is called in the engine's turns."""

    def wake(self) -> None:
        """Wakes all who wait, so that they look at the inbox again."""

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        """Calls a function of the application's with an item, soon."""


class Inbox(Generic[Item]):
    """Keeps the newest `size_max` items until they are taken from `items`.

    Threads may take items at any time, so what is there at one moment may be gone at the next.
    """

    def __init__(self, waker: Waker, size_max: int) -> None:
        _refuse_other_than(Integral, "queue_max", size_max, "a whole number")
        if size_max < 1:
            raise ValueError(f"queue_max is {size_max}: give 1 or more")
        self.items: deque[Item] = deque()
        self.is_called = False  # whether items are not kept, but a function is called with each
        self.is_ended = False
        self._waker = waker
        self._size_max = size_max
        # Who takes the items instead: weakly, so that a stream that nobody reads any more takes nothing.
        self._target: Callable[[], Inbox[Any] | None] = _nobody
        self._sources: set[Inbox[Any]] = set()  # whose items are taken, until they end
        self._ends_with_sources = False

    def put(self, items: Sequence[Item]) -> Sequence[object]:
        """Adds items; returns the oldest ones, as many as had to go for them."""
        target = self._target()
        if target is not None:
            return target.put(items)
        self.items.extend(items)
        gone = []
        with suppress(IndexError):
            while len(self.items) > self._size_max:
                gone.append(self.items.popleft())
        self._waker.wake()
        return gone

    def end(self) -> None:
        """Ends the waiting, since no more will come. What is there can still be taken."""
        if not self.is_ended:
            self.is_ended = True
            self._waker.wake()
            target = self._target()
            if target is not None:
                self._target = _nobody
                target._forget(self)

    # --- Several in one ------------------------------------------------------------------------------

    def sources(self) -> "tuple[Inbox[Any], ...]":
        """Returns the inboxes whose items this one takes."""
        return tuple(self._sources)

    @property
    def target(self) -> "Inbox[Any]":
        """The inbox in which items can be taken: another one as long as that takes the items of this one."""
        target = self._target()
        return self if target is None else target.target

    def take_over(self, source: "Inbox[Any]") -> list[object]:
        """Takes what waits in another inbox, and what will come; returns what had to go for it."""
        if not source.is_ended:
            source._target = weakref.ref(self)
            self._sources.add(source)
        gone: list[object] = []
        with suppress(IndexError):
            while True:
                gone += self.put((source.items.popleft(),))
        return gone

    def end_with_sources(self) -> None:
        """Ends once all of the sources have ended."""
        self._ends_with_sources = True
        if not self._sources:
            self.end()

    def give_back(self) -> None:
        """Lets the sources keep what comes to them from now on, and ends."""
        for source in self._sources:
            source._target = _nobody
        self._sources.clear()
        self.end()

    def _forget(self, source: "Inbox[Any]") -> None:
        self._sources.discard(source)
        if self._ends_with_sources and not self._sources:
            self.end()


def batch_size(given: object) -> int:
    """Returns how many items a batch has at most. Raises TypeError and ValueError."""
    _refuse_other_than(Integral, "max", given, "a whole number")
    size_max: Any = given
    if size_max < 1:
        raise ValueError(f"max is {size_max}: give 1 or more")
    return int(size_max)


def take(items: deque[Item], count: int) -> list[Item]:
    """Takes the oldest items, `count` at most, while others may do so too."""
    taken: list[Item] = []
    with suppress(IndexError):
        for _ in range(min(count, len(items))):
            taken.append(items.popleft())
    return taken


def _nobody() -> None:
    """Returns the inbox that takes the items of one that no stream has."""


class DeliveryInbox(Inbox[Delivery]):
    """An inbox for the deliveries of some topics, with the numbers of their leases.

    `hold_s`: seconds for which a delivery waits at most for earlier ones of its publisher; 0 for not at all.
    `limit`: what one sender may send; what is more does not come here.
    With `on_delivery`, deliveries are not kept: each goes to this function.
    """

    def __init__(
        self,
        waker: Waker,
        size_max: int,
        hold_s: float = 0.0,
        on_delivery: Callable[[Delivery], object] | None = None,
        limit: FixedWindow | None = None,
    ) -> None:
        super().__init__(waker, size_max)
        _refuse_other_than(Real, "hold_s", hold_s, "a number of seconds")
        if not 0 <= hold_s < inf:
            raise ValueError(f"hold_s is {hold_s}: give 0 or more seconds")
        self.leases = (0, 0)  # the number that stand, and the number wanted, of all topics together
        self.sequencer = Sequencer(hold_s) if hold_s else None
        self._leases: dict[bytes, tuple[int, int]] = {}
        self.guard: Guard | None = None  # what judges the deliveries, before it is subscribed
        self.windows = None if limit is None else Windows(limit)
        self.is_called = on_delivery is not None
        self._on_delivery = on_delivery

    def topics(self) -> tuple[bytes, ...]:
        """Returns the topics of which leases were told, until it ends."""
        return tuple(self._leases)

    def put(self, items: Sequence[Delivery]) -> Sequence[object]:
        """Adds deliveries, or has the function called with each; returns as `Inbox.put` does."""
        if self._on_delivery is None:
            return super().put(items)
        for item in items:
            self._waker.call(self._on_delivery, item)
        return ()

    def put_leases(self, topic: bytes, leased: int, wanted: int) -> None:
        """Takes the new numbers of one topic's leases."""
        leased_before, wanted_before = self._leases.get(topic, (0, 0))
        self._leases[topic] = leased, wanted
        self.leases = self.leases[0] + leased - leased_before, self.leases[1] + wanted - wanted_before
        self._waker.wake()

    def end(self) -> None:
        """Ends the waiting; no lease stands or is wanted any more."""
        if not self.is_ended:
            self._leases.clear()
            self.leases = (0, 0)
        super().end()


def _refuse_other_than(kind: type, name: str, given: object, wanted: str) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{name} is of type {type(given).__name__}: give {wanted}")
