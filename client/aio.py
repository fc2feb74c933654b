"""The asyncio driver: one socket, one core, coroutines around it.

async with Client("cluster.txt") as client:
    await client.publish("weather/oslo", "-3.5")
    async for delivery in client.subscribe("weather/oslo"):
        print(delivery.payload)
"""

import asyncio
import os
import random
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from client import cluster as clusters
from client.cluster import Cluster
from client.core import REPEAT_INTERVAL_S, ClientCore
from client.events import Delivery, Drop, Event, LeasesChanged, Published
from pubsub.udp import UdpPort, open_socket

Item = TypeVar("Item")

QUEUE_MAX = 65_536
EVENTS_MAX = 4096
TURN_RETRY_S = 1.0


class ClientClosed(RuntimeError):
    """The client was used outside of its `async with` block."""


class Client:
    """A client of one cluster; use it with `async with`, in one event loop.

    `cluster` is a Cluster or the path of a cluster file (ClusterError where it is wrong). Topics and payloads
    are bytes, or str that stand for their UTF-8. `avoid_dead` as in `ClientCore`.
    """

    def __init__(
        self,
        cluster: Cluster | str | Path,
        *,
        avoid_dead: bool = True,
        publisher: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.cluster = cluster if isinstance(cluster, Cluster) else clusters.load(cluster)
        self.core = ClientCore(
            self.cluster, rng or random.SystemRandom(), avoid_dead=avoid_dead, publisher=publisher
        )
        _cores.add(self.core)
        self._port: UdpPort | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_scheduled = False
        self._subscriptions: dict[bytes, list[Subscription]] = {}
        self._publishes: dict[int, asyncio.Future[Published]] = {}
        self._listeners: list[_Queue[Event]] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        # A wildcard IPv6 socket takes IPv4 too; where IPv4 is all there is, nothing must hang on IPv6.
        any_ipv6 = any(":" in server.addresses[0][0] for server in self.cluster.servers)
        self._port = UdpPort(open_socket("::" if any_ipv6 else "0.0.0.0", 0, report_unreachable=True))
        self._loop.add_reader(self._port.fileno(), self._readable)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._port is not None:
            # What was published without waiting leaves before the socket does.
            self._turn()
            self._loop.remove_reader(self._port.fileno())
            self._port.close()
            self._port = None
        if self._timer is not None:
            self._timer.cancel()
        for future in self._publishes.values():
            if not future.done():
                future.set_exception(ClientClosed("the client was closed before the outcome was known"))
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription._end()
        for listener in self._listeners:
            listener.close()

    # --- Verbs ---------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str | bytes,
        payload: str | bytes,
        *,
        repeat: int = 1,
        repeat_interval_s: float = REPEAT_INTERVAL_S,
        confirm: bool = True,
        raw: bool = False,
    ) -> Published:
        """Publishes, and returns what became of it at each server, once that is known.

        See `ClientCore.publish` for the arguments and errors. To publish without waiting, make tasks of it,
        or use `confirm=False`, which returns as soon as all is sent.
        """
        self._require_open()
        handle = self.core.publish(
            _bytes(topic),
            _bytes(payload),
            time.monotonic(),
            repeat=repeat,
            repeat_interval_s=repeat_interval_s,
            confirm=confirm,
            raw=raw,
        )
        future: asyncio.Future[Published] = self._loop.create_future()
        self._publishes[handle] = future
        self._schedule_turn()
        return await future

    def subscribe(self, topic: str | bytes, *, queue_max: int = QUEUE_MAX) -> "Subscription":
        """Subscribes from now on; iterate over the result with `async for`.

        Of deliveries that nobody takes, the newest `queue_max` are kept; the rest is dropped and counted as
        `slow-consumer`. Raises wire.TopicError.
        """
        self._require_open()
        name = _bytes(topic)
        self.core.subscribe(name, time.monotonic())
        subscription = Subscription(self, name, queue_max)
        self._subscriptions.setdefault(name, []).append(subscription)
        self._schedule_turn()
        return subscription

    def events(self) -> AsyncIterator[Event]:
        """All that happens besides deliveries and settled publishes, from now on: lost and returned servers,
        lease changes, gaps."""
        self._require_open()
        # Not in the generator's body, which would listen only from its first step on.
        queue: _Queue[Event] = _Queue(EVENTS_MAX)
        self._listeners.append(queue)
        return self._take_events(queue)

    async def _take_events(self, queue: "_Queue[Event]") -> AsyncIterator[Event]:
        try:
            while True:
                event = await queue.get()
                if event is None:
                    return
                yield event
        finally:
            if queue in self._listeners:
                self._listeners.remove(queue)

    @property
    def drops(self) -> Counter[Drop]:
        """What arrived and was not delivered, by reason."""
        return self.core.drops

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped because this process did not read them in time."""
        return self._port.overflow_count if self._port is not None else 0

    # --- Turns ---------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._port is None:
            raise ClientClosed("this client is not open: use it within 'async with Client(...) as client:'")

    def _schedule_turn(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._turn)

    def _readable(self) -> None:
        assert self._port is not None
        now = time.monotonic()
        for burst in self._port.receive():
            self.core.receive(burst, now)
        for server in self._port.unreachable():
            self.core.handle_unreachable(server, now)
        self._turn()

    def _turn(self) -> None:
        """One turn of the core: what is due, what is to be sent, what happened, when to wake up again."""
        self._flush_scheduled = False
        if self._port is None:
            return
        self._wake_in(TURN_RETRY_S)  # a turn that raises must not be the last
        now = time.monotonic()
        self.core.handle_timeout(now)
        self._port.send(self.core.flush(now))
        for event in self.core.events():
            self._dispatch(event)
        wake_at = self.core.next_timeout()
        self._wake_in(None if wake_at is None else max(0.0, wake_at - now))

    def _wake_in(self, delay_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self._loop.call_later(delay_s, self._turn)

    def _dispatch(self, event: Event) -> None:
        match event:
            case Delivery():
                for subscription in self._subscriptions.get(event.topic, ()):
                    if not subscription._queue.put(event):
                        self.core.drops[Drop.SLOW_CONSUMER] += 1
                return
            case Published():
                future = self._publishes.pop(event.handle, None)
                if future is not None and not future.done():
                    future.set_result(event)
                return
            case LeasesChanged():
                for subscription in self._subscriptions.get(event.topic, ()):
                    subscription._leases_changed()
        for listener in self._listeners:
            listener.put(event)

    def _close_subscription(self, subscription: "Subscription") -> None:
        subscriptions = self._subscriptions.get(subscription.topic, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
            if not subscriptions:
                del self._subscriptions[subscription.topic]
                self.core.unsubscribe(subscription.topic)


class Subscription:
    """The deliveries of one topic, as an async iterator. `close` stops it; so does the client's end."""

    def __init__(self, client: Client, topic: bytes, queue_max: int) -> None:
        self.topic = topic
        self._client = client
        self._queue: _Queue[Delivery] = _Queue(queue_max)
        self._changed = asyncio.Event()

    @property
    def leases(self) -> tuple[int, int]:
        """How many of the topic's servers hold a lease for us now, of how many we want; none once closed."""
        return (0, 0) if self._queue.is_closed else self._client.core.lease_counts(self.topic)

    async def ready(self, timeout_s: float | None = None) -> tuple[int, int]:
        """Waits until all wanted leases stand, the time is over, or it is closed; returns `leases` then."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.leases[0] < self.leases[1]:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.leases

    def close(self) -> None:
        """Stops renewing, and ends the iteration."""
        self._client._close_subscription(self)
        self._end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self._queue.get()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    def _leases_changed(self) -> None:
        self._changed.set()

    def _end(self) -> None:
        self._queue.close()
        self._changed.set()


class _Queue(Generic[Item]):
    """A queue that keeps the newest `size_max` items, for one taker at a time."""

    def __init__(self, size_max: int) -> None:
        self._items: deque[Item] = deque()
        self._size_max = size_max
        self._filled = asyncio.Event()
        self.is_closed = False

    def put(self, item: Item) -> bool:
        """Adds an item; False where the oldest had to go for it."""
        self._items.append(item)
        self._filled.set()
        if len(self._items) <= self._size_max:
            return True
        self._items.popleft()
        return False

    def close(self) -> None:
        """What is in the queue can still be taken; after that there is nothing to wait for."""
        self.is_closed = True
        self._filled.set()

    async def get(self) -> Item | None:
        """The oldest item; None once the queue is closed and empty."""
        while not self._items:
            if self.is_closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        return self._items.popleft()


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


_cores: "weakref.WeakSet[ClientCore]" = weakref.WeakSet()


def _renew_publishers() -> None:
    for core in _cores:
        core.renew_publisher()


# Two processes with one publisher's name would number different messages alike.
os.register_at_fork(after_in_child=_renew_publishers)
