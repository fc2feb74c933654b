"""The client for asyncio, and for event loops with its interface, such as uvloop's.

    async with Client("cluster.txt") as client:
        await client.publish("weather/oslo", "-3.5")
        async for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

It makes turns of the engine on the event loop: soon after something was asked for or has arrived, and when
the last turn said.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Any, NoReturn, Self, Unpack, overload

from kcast.client.aio_layers import LayersClient
from kcast.client.clusters.cluster import Cluster, ClusterError
from kcast.client.clusters.facts import ListState
from kcast.client.driving.aio_items import (
    Cover,
    Events,
    LoopWaker,
    Stream,
    Subscription,
    refuse_other_loop,
)
from kcast.client.driving.arguments import (
    CoverOptions,
    PublishOptions,
    ReadOptions,
    Topics,
    WildcardWarning,
    WriteOptions,
    as_topics,
    confirmed,
    inboxes_of,
    plain_function,
    warn_of_patterns,
)
from kcast.client.driving.base import Figure
from kcast.client.driving.engine import CLOSE_S, QUEUE_MAX
from kcast.client.driving.inbox import DeliveryInbox, Inbox
from kcast.client.driving.ticker import Ticker
from kcast.client.errors import (
    Backlog,
    ClientClosed,
    MessageTooLarge,
    NoReceipt,
    NoWorker,
    RemoteError,
    RequestTimeout,
)
from kcast.client.events import (
    AllServersLost,
    ClockDoubt,
    ClusterChanged,
    ClusterRefused,
    Delivery,
    Drop,
    Event,
    FamilyMissing,
    FloorRose,
    Forged,
    Gap,
    GapFilled,
    GroupTrouble,
    LeaseRefused,
    LeasesChanged,
    Limited,
    ListChanged,
    ListTrouble,
    LogTrouble,
    MachineSuspended,
    MayHaveMissed,
    Outcome,
    Published,
    PublishedMany,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
)
from kcast.client.layers.limit import FixedWindow
from kcast.client.session.outbox import WAIT_S
from kcast.client.trust.extras import MissingExtra
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError

__all__ = [
    "AllServersLost", "Backlog", "Client", "ClientClosed", "ClockDoubt", "Cluster", "ClusterChanged",
    "ClusterError", "ClusterRefused", "Cover", "Delivery", "Drop", "Event", "Events", "FamilyMissing",
    "FixedWindow", "FloorRose", "Forged", "Gap", "GapFilled", "GroupTrouble", "KcastError", "LeaseRefused",
    "LeasesChanged", "Limited", "ListChanged", "ListState", "ListTrouble", "LogTrouble",
    "MachineSuspended", "MayHaveMissed", "MessageTooLarge", "MissingExtra", "NoReceipt", "NoWorker",
    "Outcome", "PublishOptions", "Published", "PublishedMany", "RemoteError", "RequestTimeout",
    "ServerDraining", "ServerForgot", "ServerLost", "ServerReturned", "Stream", "Subscription",
    "TopicError", "WildcardWarning",
]  # fmt: skip

TURN_RETRY_S = 1.0


class Client(LayersClient):
    """A client of one cluster, for one event loop; use it with `async with`, or `open` and `close`. In
    another loop, and in a thread without one, whatever would send or wait raises RuntimeError.

    It can be opened once (ClientClosed after that).
    """

    _usage = "'async with Client(...) as client:', or await its open()"

    def _prepare(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._ticker: Ticker | None = None  # in place of the timer, once there has been cover traffic
        self._is_turn_scheduled = False
        self._has_sent = False  # at once, since the last turn
        self._is_mint_scheduled = False
        self._engine.layers.send = self._send_soon

    def _read(self, read: Callable[[], Figure]) -> Figure:
        return read()

    def __enter__(self) -> NoReturn:
        raise TypeError("use `async with`; for programs without asyncio there is kcast.client.blocking")

    def __exit__(self, *_: object) -> None:
        """Is never reached, since `__enter__` raises: Python looks for both first."""

    async def open(self) -> Self:
        """Opens the socket, for the event loop that runs. Raises OSError; ClientClosed where it was open
        before."""
        loop = asyncio.get_running_loop()
        self._engine.open()
        self._loop = loop
        self._loop.add_reader(self._engine.fileno(), self._take_in)
        # The engine may close by itself.
        self._engine.resources.callback(self._stop_reading, self._engine.fileno())
        self._schedule_turn()  # from which on it looks whether the cluster is another one
        return self

    def _stop_reading(self, descriptor: int) -> None:
        # A forked process shares the epoll of its parent's loop: what it took out would be out there, too.
        if not self._engine.is_forked:
            self._loop.remove_reader(descriptor)

    async def close(self) -> None:
        """Sends what was published, for 15 s at most, and ends all waiting; does nothing where it is closed
        already."""
        if not self._engine.is_open:
            return
        refuse_other_loop(self._engine, self._loop)
        try:
            # What was published without waiting leaves before the socket does.
            self._turn()
            until = self._loop.time() + CLOSE_S
            while self._engine.is_open and self.core.holds_back and self._loop.time() < until:
                await asyncio.sleep(WAIT_S / 4)
        finally:
            self._wake_in(None)
            self._engine.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- Verbs ---------------------------------------------------------------------------------------

    async def publish(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> Published:
        """Publishes a message; returns what became of it at each server, once that is known.

        - `topic`: str (its UTF-8 is sent) or bytes, 1 to 255 of them. Spaces, % and bytes outside of
          printable ASCII count three times.
        - `payload`: str (its UTF-8 is sent) or bytes. On a topic of 12 bytes any 800 bytes fit, and 1071
          bytes of text, of which % and control bytes count three times.
        - `repeat`: number of times that the message is sent, 1 by default. Subscribers see it once, but a raw
          one perhaps each time.
        - `repeat_interval_s`: seconds from one time to the next, 0.2 by default. Beyond 120 s subscribers
          take each time for another message.
        - `confirm`: whether each server is asked for a receipt; True by default. With False a busy
          publisher's messages are `sent` as soon as they have left, and nothing comes back, except for those
          at a server before its first receipt.
        - `raw`: whether to leave out the publisher's name and the message's number; False by default.
          Subscribers cannot notice that a raw message is missing, nor tell its repeats from other messages.
        - `sign`: whether to sign with the client's `identity`; True by default where it has one.
        - `seal`: the group to seal for: a `Group`, its name, or its file. By default the client's `group`;
          with False the message travels in clear text.
        - `plain_topic`: whether a group's topic travels under its own name; False by default.
        - `senders`: all keys that the topic's name stands for (`~HASH/...`), where it is not this one alone.

        Raises NoReceipt, with the outcome in it, where no server gave a receipt and `confirm` is True;
        TopicError; MessageTooLarge; Backlog where 65,536 publishes await their outcome; ClientClosed where
        the client is not open, or is closed before the outcome is known; ValueError and TypeError for
        options that make no sense.
        """
        outcome = await self.publish_nowait(topic, payload, **options)
        return confirmed(outcome, options.get("confirm", True), self._asked_at)

    def publish_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> "asyncio.Future[Published]":
        """Publishes a message, and returns at once with a future of its outcome, which may be ignored.

        It takes the options of `publish`, and raises the same errors, with two exceptions: the future has the
        outcome where `publish` would raise NoReceipt, and ClientClosed is set in the future where the client
        is closed before the outcome is known. Of thousands that follow each other
        without any waiting, the last may not be sent to every server: their outcome there is `queue-full`.
        """
        outcome: asyncio.Future[Published] = self._loop_if_open().create_future()
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
        **options: Unpack[WriteOptions],
    ) -> PublishedMany:
        """Publishes messages of one topic, in order; returns what became of them, once that is known.

        Each goes to a draw of servers of its own, as with `publish`. What goes to one server is packed
        together, and leaves as fast as the server takes it.

        - `topic`, `confirm`, `raw`, `sign`, `seal`, `plain_topic`, `senders`: as in `publish`.
        - `payloads`: str (its UTF-8 is sent) or bytes each; at most 65,536.

        Raises NoReceipt, with the outcome in it, where no server gave a receipt for any of them and `confirm`
        is True; what `publish` raises, and then none was sent.
        """
        outcome = await self.publish_many_nowait(topic, payloads, confirm=confirm, raw=raw, **options)
        return confirmed(outcome, confirm, self._asked_at)

    def publish_many_nowait(
        self,
        topic: str | bytes,
        payloads: Iterable[str | bytes],
        *,
        confirm: bool = True,
        raw: bool = False,
        **options: Unpack[WriteOptions],
    ) -> "asyncio.Future[PublishedMany]":
        """Publishes messages of one topic, and returns at once with a future of their outcome, which may be
        ignored.

        It takes what `publish_many` takes, and raises as `publish_nowait` does.
        """
        outcome: asyncio.Future[PublishedMany] = self._loop_if_open().create_future()
        self._engine.publish_many(outcome, topic, payloads, options, confirm=confirm, raw=raw)
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
        flushed: asyncio.Future[None] = self._loop_if_open().create_future()
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
        limit: FixedWindow | None = None,
        **options: Unpack[ReadOptions],
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
        - `limit`: what one sender may send (`FixedWindow`). What is more is dropped (`limited`); the event
          `Limited` tells of it. By default any number.
        - `senders`, `group`, `seal`, `plain_topic`, `back_s`, `ahead_s`: what is to be proven of messages
          (`kcast.client.arguments`). By default nothing; in a client with a `group`, what that asks for.

        Raises TopicError; ClientClosed where the client is not open; ValueError and TypeError for arguments
        that make no sense.
        """
        wanted = as_topics(topics)
        warn_of_patterns(wanted, stacklevel=2)
        waker = LoopWaker(self._loop_if_open())
        inbox = DeliveryInbox(waker, queue_max, hold_s, plain_function(on_delivery), limit)
        inbox.guard = self._engine.guard(wanted, options, limit)
        subscription = Subscription(self._engine, wanted, inbox, waker)
        self._schedule_turn()
        return subscription

    def cover(self, topic: str | bytes, **options: Unpack[CoverOptions]) -> Cover:
        """Begins cover traffic on a topic: from now on one line leaves on each tick, all of one size, and
        whoever watches does not see which of them are messages. Use the
        result with `async with`, and give messages to its `put`.

        - `topic`: as in `publish`. Until the end of this, other publishes of this client on it, in this
          group, raise ValueError.
        - `rate`: lines a second, more than 0 and at most 1000. Ticks that come too late are skipped.
        - `size`: bytes of the largest message that can be given. All lines are as long as one of these.
        - `queue_max`: number of messages that wait for their tick, 1024 by default.
        - `group`: the group to seal for: a `Group`, its name, or its file. By default the client's.
        - `plain_topic`, `senders`, `repeat`, `repeat_interval_s`, `confirm`: as in `publish`; they
          hold for each line.

        Raises ValueError and TypeError for options that make no sense, also for a size that does not fit;
        ClientClosed where the client is not open; KcastError where the group takes nothing from us now.
        """
        self._loop_if_open()
        cover = self._engine.cover(topic, options)
        if self._ticker is None:
            self._wake_in(None)
            self._ticker = Ticker(self._turn_from_thread)
            self._engine.resources.callback(self._ticker.close)
        self._schedule_turn()
        return Cover(self._engine, cover, self._loop)

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
        waker = LoopWaker(self._loop_if_open())
        return Stream(self._engine, inboxes_of(sources, self._engine), Inbox(waker, queue_max), waker)

    def events(self) -> "Events":
        """Returns what happens from now on: servers lost, returned or draining; leases gained, ended or
        refused; gaps. Deliveries and outcomes are not among it.

        Iterate over the result with `async for`, or `get` from it. Raises ClientClosed where the client is
        not open.
        """
        return Events(self._engine, LoopWaker(self._loop_if_open()))

    def _loop_if_open(self) -> asyncio.AbstractEventLoop:
        """Returns the event loop. Raises ClientClosed where the client is not open, and RuntimeError outside
        of the loop."""
        self._engine.require_open()
        refuse_other_loop(self._engine, self._loop)
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
        if self._ticker is not None:
            self._ticker.wake_in(delay_s)
            return
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

    def _turn_from_thread(self) -> None:
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            self._loop.call_soon_threadsafe(self._turn)
