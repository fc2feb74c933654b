"""What a client for asyncio gives its user to wait on: the items of subscriptions, events, streams of them,
and cover traffic."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kcast.client.driving.arguments import as_bytes
from kcast.client.driving.engine import EVENTS_MAX, Engine
from kcast.client.driving.inbox import BATCH_MAX, DeliveryInbox, Inbox, batch_size, take
from kcast.client.driving.reprs import described, of_inbox, of_topics
from kcast.client.events import Delivery, Event, Published

if TYPE_CHECKING:  # its libraries are those of an extra
    from kcast.client.sealed.cover import Cover as RunningCover

Item = TypeVar("Item")


def refuse_other_loop(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Raises RuntimeError outside of the event loop of a client that is open: nothing wakes who waits there,
    and nothing is locked."""
    try:
        if asyncio.get_running_loop() is loop or not engine.is_open:
            return
    except RuntimeError:
        if not engine.is_open:
            return
        raise RuntimeError(
            "this client belongs to an event loop, and none runs here: use loop.call_soon_threadsafe, or "
            "kcast.client.blocking"
        ) from None
    raise RuntimeError("this client belongs to another event loop: open one in this loop")


class LoopWaker:
    """Wakes the tasks that wait for an inbox; they are in `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.changed = asyncio.Event()
        self.loop = loop

    def wake(self) -> None:
        """Wakes them."""
        self.changed.set()

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        """Lets the loop call a function soon."""
        self.loop.call_soon(function, item)


class _Items(Generic[Item]):
    """The items of an inbox as an async iterator that waits for them."""

    def __init__(self, engine: Engine, inbox: Inbox[Item], waker: LoopWaker) -> None:
        self._engine = engine
        self._inbox = inbox
        self._waker = waker

    async def get(self, timeout_s: float | None = None) -> Item | None:
        """Waits for the next item, and returns it; None once no more will come.

        - `timeout_s`: seconds to wait at most, 0 for not at all; without limit by default.

        Raises TimeoutError where none comes in this time; ClientClosed where the client has failed, and in a
        process that was forked from the client's; RuntimeError outside of the client's event loop.
        """
        self._engine.refuse_forked()
        self._refuse_other_loop()
        items = self._inbox.items
        if not items:
            await self._wait(lambda: bool(items), timeout_s)
        if items:
            return items.popleft()
        self._engine.refuse_failed()
        if not self._inbox.is_ended:
            raise TimeoutError(f"nothing came in {timeout_s} s")
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        items = self._inbox.items
        if items and not self._engine.is_forked and asyncio.get_running_loop() is self._waker.loop:
            return items.popleft()
        item = await self.get()
        if item is None:
            raise StopAsyncIteration
        return item

    def __repr__(self) -> str:
        return described(self, lambda: of_inbox(self._inbox, getattr(self, "topics", ())))

    def batches(self, max: int = BATCH_MAX) -> AsyncIterator[list[Item]]:  # noqa: A002 - as programs write it
        """Iterates over what comes, several at a time: all that waits to be taken, but `max` at most.

        - `max`: 1024 by default.

        It ends where the iteration over single ones would, and raises what that raises; ValueError and
        TypeError at once for a `max` that makes no sense.
        """
        return self._batches(batch_size(max))

    async def _batches(self, size_max: int) -> AsyncIterator[list[Item]]:
        while (first := await self.get()) is not None:
            yield [first, *take(self._inbox.items, size_max - 1)]

    def _refuse_other_loop(self) -> None:
        refuse_other_loop(self._engine, self._waker.loop)

    async def _wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Waits until the condition holds, the time is over, or no more will come."""
        if timeout_s is None:
            while not condition() and not self._inbox.is_ended:
                self._waker.changed.clear()
                await self._waker.changed.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wait(condition, None)


class Subscription(_Items[Delivery]):
    """The deliveries of some topics, as an async iterator. It ends with `close`, and with the client.

    `topics` are the topics, as bytes.
    """

    _inbox: DeliveryInbox

    def __init__(
        self, engine: Engine, topics: tuple[bytes, ...], inbox: DeliveryInbox, waker: LoopWaker
    ) -> None:
        super().__init__(engine, inbox, waker)
        self.topics = topics
        engine.subscribe(topics, inbox)

    @property
    def leases(self) -> tuple[int, int]:
        """The number of leases that stand now, one for each topic at each of its servers, and the number
        wanted; both are 0 once it is closed."""
        return self._inbox.leases

    async def ready(self, timeout_s: float | None = None) -> tuple[int, int]:
        """Waits until all wanted leases stand, and returns `leases`; earlier where the time is over or the
        subscription ends.

        - `timeout_s`: seconds to wait at most, 0 for not at all; without limit by default.

        Raises ClientClosed where the client has failed, and in a process that was forked from the client's;
        RuntimeError outside of the client's event loop.
        """
        self._engine.refuse_forked()
        self._refuse_other_loop()
        await self._wait(lambda: self.leases[0] == self.leases[1], timeout_s)
        self._engine.refuse_failed()
        return self.leases

    def close(self) -> None:
        """Lets the leases run out, and ends the iteration once what has come is taken."""
        self._refuse_other_loop()
        self._engine.unsubscribe(self.topics, self._inbox)


class Events(_Items[Event]):
    """The events of a client, as an async iterator. The newest 4096 are kept until they are taken.

    It ends with `close`, and with the client. One that is no longer referred to needs no `close`.
    """

    def __init__(self, engine: Engine, waker: LoopWaker) -> None:
        super().__init__(engine, Inbox(waker, EVENTS_MAX), waker)
        engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        self._refuse_other_loop()
        self._engine.recipients.ignore(self._inbox)


class Stream(_Items[Item]):
    """The items of several subscriptions and events, as an async iterator, in order of arrival.

    It ends with `close`, after which its sources keep their own items again. One that is no longer referred
    to needs no `close`; what waited in it is lost.
    """

    def __init__(
        self, engine: Engine, sources: Sequence[Inbox[Any]], inbox: Inbox[Any], waker: LoopWaker
    ) -> None:
        super().__init__(engine, inbox, waker)
        engine.merge(self._inbox, sources)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        self._refuse_other_loop()
        self._engine.recipients.unmerge(self._inbox)


class Cover:
    """Cover traffic on a topic (`Client.cover`); use it with `async with`, or `close` it.

    It begins and ends apart from what is said: leaving it does not wait for messages that have not had their
    tick. To be sure of one, await what `put` returned.
    """

    def __init__(self, engine: Engine, cover: "RunningCover", loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._cover = cover
        self._loop = loop

    def put(self, payload: str | bytes) -> "asyncio.Future[Published]":
        """Lets a message wait for its tick; returns at once with a future of its outcome, as
        `publish_nowait` does. One that is cancelled before its tick does not leave.

        The future has ClientClosed where the stream is closed before the tick, or the client before the
        outcome is known; and KcastError where the group takes nothing from us at the tick.

        Raises MessageTooLarge where the message has more than `size` bytes; Backlog where too many wait;
        ClientClosed where the stream has ended.
        """
        self._engine.require_open()
        refuse_other_loop(self._engine, self._loop)
        outcome: asyncio.Future[Published] = self._loop.create_future()
        self._cover.put(as_bytes(payload, "payload"), outcome)
        return outcome

    def __repr__(self) -> str:
        return described(self, lambda: f"{of_topics((self._cover.name,))}, {self.waiting} waiting")

    @property
    def waiting(self) -> int:
        """The number of messages that wait for their tick."""
        return self._cover.waiting

    @property
    def skipped(self) -> int:
        """The number of ticks without a line until now: there was no turn in time, or the group took none."""
        return self._cover.skipped

    def close(self) -> None:
        """Ends it at once. Messages that wait do not leave, and their futures have ClientClosed."""
        refuse_other_loop(self._engine, self._loop)
        self._cover.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
