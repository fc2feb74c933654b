"""The asyncio driver: turns of the engine on an event loop, coroutines around it. For uvloop too.

async with Client("cluster.txt") as client:
    await client.publish("weather/oslo", "-3.5")
    async for delivery in client.subscribe("weather/oslo"):
        print(delivery.payload)
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from kcast.client.cluster import Cluster
from kcast.client.engine import (
    EVENTS_MAX,
    QUEUE_MAX,
    ClientClosed,
    Engine,
    Inbox,
    PublishOptions,
    Wrap,
    as_bytes,
)
from kcast.client.events import Delivery, Drop, Event, Published
from kcast.pubsub.limits import RENEWALS_PER_TTL

__all__ = ["Client", "ClientClosed", "Events", "Subscription"]

Item = TypeVar("Item")

TURN_RETRY_S = 1.0


class Client:
    """A client of one cluster; use it with `async with`, in one event loop.

    `cluster` is a Cluster or the path of a cluster file (ClusterError where it is wrong). Topics and payloads
    are bytes, or str that stand for their UTF-8. `avoid_dead` and `renewals_per_ttl` as in `ClientCore`,
    `path` and `kernel_times` as in `Engine`.
    """

    def __init__(
        self,
        cluster: Cluster | str | Path,
        *,
        avoid_dead: bool = True,
        publisher: str | None = None,
        rng: random.Random | None = None,
        path: Wrap | None = None,
        renewals_per_ttl: float = RENEWALS_PER_TTL,
        kernel_times: bool = False,
    ) -> None:
        self._engine = Engine(
            cluster,
            usage="async with Client(...) as client:",
            avoid_dead=avoid_dead,
            publisher=publisher,
            rng=rng,
            path=path,
            renewals_per_ttl=renewals_per_ttl,
            kernel_times=kernel_times,
        )
        self.cluster = self._engine.cluster
        self.core = self._engine.core
        self._timer: asyncio.TimerHandle | None = None
        self._is_turn_scheduled = False
        self._is_mint_scheduled = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._engine.open()
        self._loop.add_reader(self._engine.fileno(), self._turn)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._engine.is_open:
            return
        try:
            # What was published without waiting leaves before the socket does.
            self._turn()
        finally:
            self._loop.remove_reader(self._engine.fileno())
            self._wake_in(None)
            self._engine.close()

    # --- Verbs ---------------------------------------------------------------------------------------

    async def publish(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> Published:
        """Publishes, and returns what became of it at each server, once that is known.

        See `ClientCore.publish` for the options and errors. With `confirm=False` it returns as soon as all
        is sent.
        """
        return await self.publish_nowait(topic, payload, **options)

    def publish_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> "asyncio.Future[Published]":
        """Publishes, and returns at once with a future of the outcome, which need not be looked at.

        Of thousands that follow each other without any waiting, the last may be `queue-full`.
        """
        self._engine.require_open()
        outcome: asyncio.Future[Published] = self._loop.create_future()
        self._engine.publish(outcome, topic, payload, options)
        self._schedule_turn()
        return outcome

    def subscribe(self, topic: str | bytes, *, queue_max: int = QUEUE_MAX) -> "Subscription":
        """Subscribes from now on; iterate over the result with `async for`.

        Of deliveries that nobody takes, the newest `queue_max` are kept; the rest is dropped and counted as
        `slow-consumer`. Raises wire.TopicError.
        """
        subscription = Subscription(self._engine, as_bytes(topic), queue_max)
        self._schedule_turn()
        return subscription

    def events(self) -> "Events":
        """All that happens besides deliveries and settled publishes, from now on: lost and returned servers,
        lease changes, gaps. Iterate over it with `async for`."""
        return Events(self._engine)

    @property
    def drops(self) -> Counter[Drop]:
        """What arrived and was not delivered, by reason."""
        return self.core.drops

    @property
    def counts(self) -> Counter[str]:
        """How many datagrams, copies and deliveries there were: `datagrams_received`, `copies_received`,
        `deliveries`."""
        return self.core.counts

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped because this process did not read them in time."""
        return self._engine.kernel_drops

    @property
    def send_errors(self) -> Counter[str]:
        """Datagrams that could not be sent, by errno's name."""
        return self._engine.send_errors

    @property
    def local_port(self) -> int:
        """The socket's port; 0 until it is open."""
        return self._engine.local_port

    # --- Turns ---------------------------------------------------------------------------------------

    def _schedule_turn(self) -> None:
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_scheduled = False
        if not self._engine.is_open:
            return
        self._wake_in(TURN_RETRY_S)  # a turn that raises must not be the last
        self._wake_in(self._engine.turn())
        if self.core.is_minting and not self._is_mint_scheduled:
            self._is_mint_scheduled = True
            self._loop.call_soon(self._mint)

    def _mint(self) -> None:
        self._is_mint_scheduled = False
        if self._engine.is_open:
            self._engine.mint()
            self._turn()

    def _wake_in(self, delay_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self._loop.call_later(delay_s, self._turn)


class _Inbox(Inbox[Item]):
    def __init__(self, size_max: int) -> None:
        super().__init__(size_max)
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()


class _Stream(Generic[Item]):
    """Items as an async iterator that waits for them."""

    def __init__(self, engine: Engine, size_max: int) -> None:
        self._engine = engine
        self._inbox: _Inbox[Item] = _Inbox(size_max)

    async def get(self, timeout_s: float | None = None) -> Item | None:
        """The next one; None where none comes in time, or none will come any more.

        Raises ClientClosed where the client belongs to the process that this was forked from.
        """
        self._engine.refuse_forked()
        items = self._inbox.items
        if not items:
            await self._wait(lambda: bool(items), timeout_s)
        return items.popleft() if items else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        item = await self.get()
        if item is None:
            raise StopAsyncIteration
        return item

    async def _wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Returns when the condition holds, the time is over, or no more will come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition() and not self._inbox.is_ended:
                    self._inbox.changed.clear()
                    await self._inbox.changed.wait()


class Subscription(_Stream[Delivery]):
    """The deliveries of one topic, as an async iterator. `close` stops it; so does the client's end."""

    def __init__(self, engine: Engine, topic: bytes, queue_max: int) -> None:
        super().__init__(engine, queue_max)
        self.topic = topic
        engine.subscribe(topic, self._inbox)

    @property
    def leases(self) -> tuple[int, int]:
        """How many of the topic's servers hold a lease for us now, of how many we want; none once closed."""
        return self._inbox.leases

    async def ready(self, timeout_s: float | None = None) -> tuple[int, int]:
        """Waits until all wanted leases stand, the time is over, or it is closed; returns `leases` then.

        Raises ClientClosed as `get` does.
        """
        self._engine.refuse_forked()
        await self._wait(lambda: self.leases[0] == self.leases[1], timeout_s)
        return self.leases

    def close(self) -> None:
        """Stops renewing, and ends the iteration once what has come is taken."""
        self._engine.unsubscribe(self.topic, self._inbox)


class Events(_Stream[Event]):
    """What happens, as an async iterator; of what nobody takes, the newest 4096 are kept.

    `close` ends it; so does the client's end. One that is simply dropped is forgotten.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, EVENTS_MAX)
        engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        self._engine.ignore(self._inbox)
