"""What runs layers, and what a layer is. Sans-IO.

A layer is a state machine in the turns of a client's engine, so that asyncio, threads, gevent and the
simulation run the same code. It hears what its guard lets pass on its topics, and publishes as everybody
does.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Generic, Protocol, SupportsBytes, TypeVar

from kcast.client.events import Delivery, Drop
from kcast.pubsub.errors import KcastError

PART_OF_LEASES_S = 0.3


class Layer(Protocol):
    """A state machine on some topics."""

    @property
    def topics(self) -> Sequence[bytes]:
        """The names of its topics."""

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do; infinite for never."""

    @property
    def is_over(self) -> bool:
        """Whether it has nothing to do any more, and is to be stopped."""

    def hear(self, delivery: Delivery, now: float) -> None:
        """Takes a message on one of its topics."""

    def handle_timeout(self, now: float) -> None:
        """Does what is due. It is also called when leases have changed."""

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Ends all waiting: the client is closed, or the layer has failed. It is not called again."""


class Host(Protocol):
    """What a layer has of its client: chance, the numbers of its leases, and a way to publish."""

    rng: Random
    drops: Counter[Drop]

    def publish(self, topic: bytes, payload: bytes, now: float) -> None:
        """Publishes without receipts. Raises what the core raises."""

    def each_leases(self) -> Sequence[tuple[int, int]]:
        """Returns for each topic of the layer how many leases stand, and how many are wanted."""


class Readiness:
    """Since when a layer's leases stand: all of them, or for 0.3 s one of each topic. Infinite until then."""

    def __init__(self) -> None:
        self.since = inf
        self._partly_since = inf

    def look(self, leases: Sequence[tuple[int, int]], now: float) -> bool:
        """Returns whether they stand. Then that stays so."""
        if self.since == inf:
            if not all(leased for leased, _ in leases):
                self._partly_since = inf
            else:
                self._partly_since = min(self._partly_since, now)
                stand = all(leased >= wanted for leased, wanted in leases)
                if stand or now >= self._partly_since + PART_OF_LEASES_S:
                    self.since = now
        return self.since <= now

    @property
    def next_at(self) -> float:
        """When to look again, if the leases do not change."""
        return inf if self.since < inf else self._partly_since + PART_OF_LEASES_S


class _HasTime(Protocol):
    at: float


AnyItem = TypeVar("AnyItem", bound=_HasTime)


class Due(Generic[AnyItem]):
    """What has a time, `at`: the last one that was set counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, AnyItem]] = []
        self._pushed = 0
        self._most = 64

    @property
    def next_at(self) -> float:
        """The earliest time; infinite where there is none."""
        while self._heap and self._heap[0][0] != self._heap[0][2].at:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def put(self, item: AnyItem, at: float) -> None:
        """Sets a time."""
        item.at = at
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, item))
        if len(self._heap) > self._most:  # what is set again leaves times behind that count no more
            self._heap = [each for each in self._heap if each[0] == each[2].at]
            heapq.heapify(self._heap)
            self._most = 2 * len(self._heap) + 64

    def pop(self, now: float) -> AnyItem | None:
        """Returns one whose time has come, and has none any more; None where there is none."""
        if self.next_at > now:
            return None
        item = heapq.heappop(self._heap)[2]
        item.at = inf
        return item


def say(host: Host, topic: bytes, word: SupportsBytes, now: float) -> None:
    """Publishes a word. What cannot leave now is as if lost on its way: words are said again."""
    with suppress(KcastError):
        host.publish(topic, bytes(word), now)
