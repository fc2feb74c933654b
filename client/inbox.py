"""Where deliveries and events wait until the application takes them. No clock and no waiting of its own.

The engine puts items in; a driver's stream takes them from `items`, and waits on what its `Waker` wakes. Two
things may stand between: a `Sequencer`, which puts deliveries in order, and another inbox that takes the
items of several.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kcast.client.events import Delivery
from kcast.client.order import Sequencer

Item = TypeVar("Item")


class Waker(Protocol):
    """How a driver tells the application that an inbox has changed. It is called in the engine's turns."""

    def wake(self) -> None:
        """Wakes all who wait, so that they look at the inbox again."""

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        """Calls a function of the application's with an item, soon."""


class Inbox(Generic[Item]):
    """Keeps the newest `size_max` items until they are taken from `items`."""

    def __init__(self, waker: Waker, size_max: int) -> None:
        if size_max < 1:
            raise ValueError(f"queue_max is {size_max}: give 1 or more")
        # The deque has its own bound: a thread that finds an item can take one, whatever another puts in.
        self.items: deque[Item] = deque(maxlen=size_max)
        self.is_ended = False
        self._waker = waker
        self._size_max = size_max
        self._target: Inbox[Any] | None = None  # takes the items instead
        self._sources: list[Inbox[Any]] = []  # whose items are taken

    def put(self, item: Item) -> bool:
        """Adds an item; returns False where the oldest had to go for it."""
        if self._target is not None:
            return self._target.put(item)
        fits = len(self.items) < self._size_max
        self.items.append(item)
        self._waker.wake()
        return fits

    def end(self) -> None:
        """Ends the waiting, since no more will come. What is there can still be taken."""
        if not self.is_ended:
            self.is_ended = True
            self._waker.wake()
            if self._target is not None:
                self._target.end_with(self._target._sources)

    # --- Several in one ------------------------------------------------------------------------------

    @property
    def is_merged(self) -> bool:
        """Whether another inbox takes the items of this one."""
        return self._target is not None

    def take_over(self, source: "Inbox[Any]") -> None:
        """Takes what has come to another inbox, and what will come."""
        source._target = self
        self._sources.append(source)
        while source.items:
            try:
                self.put(source.items.popleft())
            except IndexError:  # another thread took the last one
                break

    def give_back(self) -> None:
        """Lets the sources keep what comes to them from now on, and ends."""
        for source in self._sources:
            source._target = None
        self._sources.clear()
        self.end()

    def end_with(self, sources: "Sequence[Inbox[Any]]") -> None:
        """Ends where all of the sources have ended."""
        if all(source.is_ended for source in sources):
            self.end()


class DeliveryInbox(Inbox[Delivery]):
    """An inbox for the deliveries of some topics, with the numbers of their leases.

    `hold_s`: seconds for which a delivery waits at most for earlier ones of its publisher; 0 for not at all.
    With `on_delivery`, deliveries are not kept: each goes to this function.
    """

    def __init__(
        self,
        waker: Waker,
        size_max: int,
        hold_s: float = 0.0,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> None:
        super().__init__(waker, size_max)
        self.leases = (0, 0)  # the number that stand, and the number wanted, of all topics together
        self.sequencer = Sequencer(hold_s) if hold_s else None
        self._leases: dict[bytes, tuple[int, int]] = {}
        self._on_delivery = on_delivery

    def put(self, item: Delivery) -> bool:
        """Adds a delivery, or has the function called with it; returns as `Inbox.put` does."""
        if self._on_delivery is None:
            return super().put(item)
        self._waker.call(self._on_delivery, item)
        return True

    def put_leases(self, topic: bytes, leased: int, wanted: int) -> None:
        """Takes the new numbers of one topic's leases."""
        leased_before, wanted_before = self._leases.get(topic, (0, 0))
        self._leases[topic] = leased, wanted
        self.leases = self.leases[0] + leased - leased_before, self.leases[1] + wanted - wanted_before
        self._waker.wake()

    def end(self) -> None:
        """Lets go of what was held, and ends the waiting."""
        if not self.is_ended:
            for delivery in self.sequencer.release_all() if self.sequencer is not None else ():
                self.put(delivery)
            self._leases.clear()
            self.leases = (0, 0)
        super().end()
