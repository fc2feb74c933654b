"""The client for asyncio, and for event loops with its interface, such as uvloop's.

    async with Client("cluster.txt") as client:
        await client.publish("weather/oslo", "-3.5")
        async for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

It makes turns of the engine on the event loop: soon after something was asked for or has arrived, and when
the last turn said.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, Unpack, overload

from kcast.client.arguments import PublishOptions, Topics, as_topics, confirmed, inboxes_of, plain_function
from kcast.client.base import ClientBase, Figure
from kcast.client.cluster import Cluster, ClusterError
from kcast.client.engine import CLOSE_S, EVENTS_MAX, QUEUE_MAX, Engine
from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge, NoReceipt
from kcast.client.events import (
    AllServersLost,
    ClusterChanged,
    ClusterRefused,
    Delivery,
    Drop,
    Event,
    FamilyMissing,
    Gap,
    GapFilled,
    GroupTrouble,
    LeaseRefused,
    LeasesChanged,
    ListChanged,
    ListTrouble,
    MachineSuspended,
    Outcome,
    Published,
    PublishedMany,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
)
from kcast.client.inbox import BATCH_MAX, DeliveryInbox, Inbox, batch_size, take
from kcast.client.list_state import ListState
from kcast.client.wildcards import WildcardWarning, warn_of_patterns
from kcast.client.window import WAIT_S
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError

__all__ = [
    "AllServersLost", "Backlog", "Client", "ClientClosed", "Cluster", "ClusterChanged", "ClusterError",
    "ClusterRefused", "Delivery", "Drop", "Event", "Events", "FamilyMissing", "Gap", "GapFilled",
    "GroupTrouble", "KcastError", "LeaseRefused", "LeasesChanged", "ListChanged", "ListState",
    "ListTrouble", "MachineSuspended", "MessageTooLarge", "NoReceipt", "Outcome", "PublishOptions",
    "Published", "PublishedMany", "ServerDraining", "ServerForgot", "ServerLost", "ServerReturned",
    "Stream", "Subscription", "TopicError", "WildcardWarning",
]  # fmt: skip

Item = TypeVar("Item")

TURN_RETRY_S = 1.0


class Client(ClientBase):
    """A client of one cluster, for one event loop; use it with `async with`.

    Entering it opens the socket (OSError where that fails). Leaving it sends what was published, and ends all
    waiting. It can be entered once (ClientClosed after that).
    """

    _usage = "async with Client(...) as client:"

    def _prepare(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_turn_scheduled = False
        self._has_sent = False  # at once, since the last turn
        self._is_mint_scheduled = False

    def _read(self, read: Callable[[], Figure]) -> Figure:
        return read()

    def __enter__(self) -> NoReturn:
        raise TypeError("use `async with`; for programs without asyncio there is kcast.client.blocking")

    def __exit__(self, *_: object) -> None:
        """Is never reached, since `__enter__` raises: Python looks for both first."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._engine.open()
        self._loop.add_reader(self._engine.fileno(), self._take_in)
        # The engine may close by itself.
        self._engine.resources.callback(self._loop.remove_reader, self._engine.fileno())
        self._schedule_turn()  # from which on it looks whether the cluster is another one
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._engine.is_open:
            return
        try:
            # What was published without waiting leaves before the socket does.
            self._turn()
            until = self._loop.time() + CLOSE_S
            while self._engine.is_open and self.core.holds_back and self._loop.time() < until:
                await asyncio.sleep(WAIT_S / 4)
        finally:
            self._wake_in(None)
            self._engine.close()

    # --- Verbs ---------------------------------------------------------------------------------------

    async def publish(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> Published:
        """Publishes a message; returns what became of it at each server, once that is known.

        - `topic`: str (its UTF-8 is sent) or bytes, 1 to 255 of them. Spaces, % and bytes outside of
          printable ASCII count three times.
        - `payload`: str (its UTF-8 is sent) or bytes. On a topic of 12 bytes any 800 bytes fit, and 1071
          bytes of text, of which % and control bytes count three times.
        - `repeat`: number of times that the message is sent, 1 by default. Subscribers see it once.
        - `repeat_interval_s`: seconds from one time to the next, 0.2 by default.
        - `confirm`: whether each server is asked for a receipt; True by default. With False a busy
          publisher's messages are `sent` as soon as they have left, and nothing comes back.
        - `raw`: whether to leave out the publisher's name and the message's number; False by default.
          Subscribers cannot notice that a raw message is missing.

        Raises NoReceipt, with the outcome in it, where no server gave a receipt and `confirm` is True;
        TopicError; MessageTooLarge; Backlog where 65,536 publishes await their outcome; ClientClosed where
        the client is not open, or is closed before the outcome is known; ValueError and TypeError for
        options that make no sense.
        """
        return confirmed(await self.publish_nowait(topic, payload, **options), options.get("confirm", True))

    def publish_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> "asyncio.Future[Published]":
        """Publishes a message, and returns at once with a future of its outcome, which may be ignored.

        It takes the options of `publish`, and raises the same errors, with two exceptions: the future has the
        outcome where `publish` would raise NoReceipt, and ClientClosed is set in the future where the client
        is closed before the outcome is known. Of thousands that follow each other
        without any waiting, the last may not be sent to every server: their outcome there is `queue-full`.
        """
        self._engine.require_open()
        outcome: asyncio.Future[Published] = self._loop.create_future()
        self._engine.publish(outcome, topic, payload, options)
        self._send_soon()
        return outcome

    async def publish_many(
        self,
        topic: str | bytes,
        payloads: Iterable[str | bytes],
        *,
        confirm: bool = True,
        raw: bool = False,
    ) -> PublishedMany:
        """Publishes messages of one topic, in order; returns what became of them, once that is known.

        Each goes to a draw of servers of its own, as with `publish`. What goes to one server is packed
        together, and leaves as fast as the server takes it.

        - `topic`, `confirm`, `raw`: as in `publish`.
        - `payloads`: str (its UTF-8 is sent) or bytes each; at most 65,536.

        Raises NoReceipt, with the outcome in it, where no server gave a receipt for any of them and `confirm`
        is True; what `publish` raises, and then none was sent.
        """
        return confirmed(await self.publish_many_nowait(topic, payloads, confirm=confirm, raw=raw), confirm)

    def publish_many_nowait(
        self,
        topic: str | bytes,
        payloads: Iterable[str | bytes],
        *,
        confirm: bool = True,
        raw: bool = False,
    ) -> "asyncio.Future[PublishedMany]":
        """Publishes messages of one topic, and returns at once with a future of their outcome, which may be
        ignored.

        It takes what `publish_many` takes, and raises as `publish_nowait` does.
        """
        self._engine.require_open()
        outcome: asyncio.Future[PublishedMany] = self._loop.create_future()
        self._engine.publish_many(outcome, topic, payloads, confirm=confirm, raw=raw)
        self._send_soon()
        return outcome

    async def flush(self, timeout_s: float | None = None) -> None:
        """Waits until the outcome of all that was published until now is known: what needs no receipt has
        left, and the rest has been answered or given up.

        - `timeout_s`: seconds to wait at most; without limit by default. Outcomes are known within seconds,
          whatever servers do.

        Raises TimeoutError where that takes longer; ClientClosed where the client is not open, or is closed
        meanwhile.
        """
        self._engine.require_open()
        flushed: asyncio.Future[None] = self._loop.create_future()
        self._engine.flush(flushed)
        try:
            async with asyncio.timeout(timeout_s):
                await flushed
        except TimeoutError:
            raise TimeoutError(f"not all that was published has an outcome after {timeout_s} s") from None

    def subscribe(
        self,
        topics: Topics,
        *,
        queue_max: int = QUEUE_MAX,
        hold_s: float = 0.0,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> "Subscription":
        """Subscribes to a topic, or several, from now on. Iterate over the result with `async for`, or `get`
        from it.

        - `topics`: str (its UTF-8 is sent) or bytes, or a list of them, whose deliveries come in one stream.
          Each is one topic, and no pattern. A WildcardWarning tells of those that look like one of MQTT,
          NATS or Redis.
        - `queue_max`: number of deliveries that wait until they are taken, 65,536 by default. Where more
          come, the oldest go, and are counted in `drops` as `slow-consumer`.
        - `hold_s`: seconds for which a delivery waits at most for earlier ones of its publisher on its
          topic, so that they come in the order in which they were published; twice that while more arrives
          than is read. 0 by default: none waits.
        - `on_delivery`: a function that the event loop calls with each delivery; then nothing is queued, and
          the iteration only ends. By default none. What it raises goes to the loop's exception handler.

        Raises TopicError; ClientClosed where the client is not open; ValueError and TypeError for arguments
        that make no sense.
        """
        wanted = as_topics(topics)
        warn_of_patterns(wanted, stacklevel=2)
        waker = _Waker(self._loop_if_open())
        inbox = DeliveryInbox(waker, queue_max, hold_s, plain_function(on_delivery))
        subscription = Subscription(self._engine, wanted, inbox, waker)
        self._schedule_turn()
        return subscription

    @overload
    def stream(self, *sources: "Subscription", queue_max: int = QUEUE_MAX) -> "Stream[Delivery]": ...

    @overload
    def stream(self, *sources: "Subscription | Events", queue_max: int = QUEUE_MAX) -> "Stream[Event]": ...

    def stream(self, *sources: "Subscription | Events", queue_max: int = QUEUE_MAX) -> "Stream[Any]":
        """Returns what comes to any of these subscriptions and events, in one stream, in order of arrival.

        Without arguments: the deliveries of all subscriptions of this client, later ones too, but not of
        those with an `on_delivery`; it ends with `close` or the client. With arguments it ends, too, when all
        its sources have ended. What the stream takes, its sources no longer have, until it is closed. First
        comes what waits to be taken from them, of one after the other.

        - `queue_max`: as in `subscribe`, in place of that of the sources.

        Raises ClientClosed where the client is not open; ValueError where a source is part of another stream,
        has an `on_delivery`, or belongs to another client; TypeError where it is none.
        """
        waker = _Waker(self._loop_if_open())
        return Stream(self._engine, inboxes_of(sources, self._engine), Inbox(waker, queue_max), waker)

    def events(self) -> "Events":
        """Returns what happens from now on: servers lost, returned or draining; leases gained, ended or
        refused; gaps. Deliveries and outcomes are not among it.

        Iterate over the result with `async for`, or `get` from it. Raises ClientClosed where the client is
        not open.
        """
        return Events(self._engine, _Waker(self._loop_if_open()))

    def _loop_if_open(self) -> asyncio.AbstractEventLoop:
        """Returns the event loop. Raises ClientClosed where the client is not open."""
        self._engine.require_open()
        return self._loop

    # --- Turns ---------------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        """Sends what was published: the first of a turn at once, what follows without waiting together."""
        if self._has_sent:
            self._schedule_turn()
            return
        self._has_sent = True
        if not self._is_turn_scheduled:
            self._loop.call_soon(self._begin_anew)
        try:
            self._plan(self._engine.send_at_once())
        except Exception as error:  # of a path: not for who publishes
            self._loop.call_exception_handler({"message": "a path has failed", "exception": error})
            self._schedule_turn()

    def _begin_anew(self) -> None:
        self._has_sent = False

    def _schedule_turn(self) -> None:
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _take_in(self) -> None:
        """Takes what has arrived. Who waited for a delivery goes on before the rest of the turn."""
        try:
            if self._engine.is_open:
                self._engine.take_in()
        finally:
            if not self._is_turn_scheduled:
                self._is_turn_scheduled = True
                self._loop.call_soon(self._finish_turn)

    def _turn(self) -> None:
        self._do(self._engine.turn)

    def _finish_turn(self) -> None:
        self._do(self._engine.finish_turn)

    def _do(self, turn: Callable[[], float | None]) -> None:
        self._is_turn_scheduled = self._has_sent = False
        if not self._engine.is_open:
            return
        delay_s: float | None = TURN_RETRY_S  # a turn that raises must not be the last
        try:
            delay_s = turn()
        finally:
            self._plan(delay_s)

    def _plan(self, delay_s: float | None) -> None:
        """Sees to it that a turn is made in time, and that stamps are minted meanwhile."""
        self._wake_in(delay_s)
        if self.core.is_minting and not self._is_mint_scheduled:
            self._is_mint_scheduled = True
            self._loop.call_soon(self._mint)

    def _mint(self) -> None:
        self._is_mint_scheduled = False
        if self._engine.is_open:
            self._engine.mint()
            self._turn()

    def _wake_in(self, delay_s: float | None) -> None:
        """Sees to it that a turn is made after this time at the latest; None is for never.

        A timer costs more than a turn has to do otherwise, so one that is set for earlier is left as it is.
        """
        at = inf if delay_s is None else self._loop.time() + delay_s
        if self._timer is not None:
            if self._timer_at <= at < inf:
                return
            self._timer.cancel()
            self._timer = None
        if delay_s is not None:
            self._timer, self._timer_at = self._loop.call_at(at, self._turn_on_time), at

    def _turn_on_time(self) -> None:
        self._timer = None
        self._turn()


class _Waker:
    """Wakes the tasks that wait for an inbox."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.changed = asyncio.Event()
        self._loop = loop

    def wake(self) -> None:
        self.changed.set()

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        self._loop.call_soon(function, item)


class _Items(Generic[Item]):
    """The items of an inbox as an async iterator that waits for them."""

    def __init__(self, engine: Engine, inbox: Inbox[Item], waker: _Waker) -> None:
        self._engine = engine
        self._inbox = inbox
        self._waker = waker

    async def get(self, timeout_s: float | None = None) -> Item | None:
        """Waits for the next item, and returns it; None once no more will come.

        - `timeout_s`: seconds to wait at most, 0 for not at all; without limit by default.

        Raises TimeoutError where none comes in this time; ClientClosed where the client has failed, and in a
        process that was forked from the client's.
        """
        self._engine.refuse_forked()
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
        if items and not self._engine.is_forked:
            return items.popleft()
        item = await self.get()
        if item is None:
            raise StopAsyncIteration
        return item

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
        self, engine: Engine, topics: tuple[bytes, ...], inbox: DeliveryInbox, waker: _Waker
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

        Raises ClientClosed where the client has failed, and in a process that was forked from the client's.
        """
        self._engine.refuse_forked()
        await self._wait(lambda: self.leases[0] == self.leases[1], timeout_s)
        self._engine.refuse_failed()
        return self.leases

    def close(self) -> None:
        """Lets the leases run out, and ends the iteration once what has come is taken."""
        self._engine.unsubscribe(self.topics, self._inbox)


class Events(_Items[Event]):
    """The events of a client, as an async iterator. The newest 4096 are kept until they are taken.

    It ends with `close`, and with the client. One that is no longer referred to needs no `close`.
    """

    def __init__(self, engine: Engine, waker: _Waker) -> None:
        super().__init__(engine, Inbox(waker, EVENTS_MAX), waker)
        engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        self._engine.ignore(self._inbox)


class Stream(_Items[Item]):
    """The items of several subscriptions and events, as an async iterator, in order of arrival.

    It ends with `close`, after which its sources keep their own items again. One that is no longer referred
    to needs no `close`; what waited in it is lost.
    """

    def __init__(
        self, engine: Engine, sources: Sequence[Inbox[Any]], inbox: Inbox[Any], waker: _Waker
    ) -> None:
        super().__init__(engine, inbox, waker)
        engine.merge(self._inbox, sources)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        self._engine.unmerge(self._inbox)
