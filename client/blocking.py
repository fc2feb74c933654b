"""The client for programs without an event loop: it blocks, and any number of threads may use it.

    with Client("cluster.txt") as client:
        client.publish("weather/oslo", "-3.5")
        for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

The methods are those of `kcast.client.aio`. A thread makes the engine's turns (`EngineThread`), so leases
live on while the user's code computes. Under gevent's monkey patches the thread is a greenlet.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, Self, TypeVar, Unpack, overload

from kcast.client.blocking_layers import LayersClient
from kcast.client.clusters.cluster import Cluster, ClusterError
from kcast.client.clusters.facts import ListState
from kcast.client.driving.arguments import (
    CoverOptions,
    PublishOptions,
    ReadOptions,
    Topics,
    WildcardWarning,
    WriteOptions,
    as_payloads,
    as_topics,
    confirmed,
    inboxes_of,
    plain_function,
    warn_of_patterns,
)
from kcast.client.driving.base import Figure
from kcast.client.driving.blocking_items import Cover, Events, Stream, Subscription, ThreadWaker
from kcast.client.driving.engine import QUEUE_MAX
from kcast.client.driving.engine_thread import EngineThread
from kcast.client.driving.inbox import DeliveryInbox, Inbox
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

Made = TypeVar("Made")
Told = TypeVar("Told")


class Client(LayersClient):
    """A client of one cluster, for any number of threads; use it with `with`, or `open` and `close`.

    It can be opened once (ClientClosed after that). A forked process cannot use the client of its parent:
    there every method raises ClientClosed.

    A signal's handler should use only `publish_nowait`, and `close` of the client and of subscriptions. Where
    it has interrupted a method of the same client, these take effect a moment later, and an error of the
    publish is in its future; other methods raise RuntimeError, since they could wait for ever.
    """

    _usage = "'with Client(...) as client:', or call its open()"

    def _prepare(self) -> None:
        self._thread = EngineThread(self._engine)

    def open(self) -> Self:
        """Opens the socket and starts the thread. Raises OSError; ClientClosed where it was open before."""
        self._thread.open()
        return self

    def close(self) -> None:
        """Sends what was published, for 15 s at most, and ends all waiting; does nothing where it is closed
        already.

        Returns when that is done, but earlier in a callback, or a handler that has interrupted a method.
        """
        self._thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        raise TypeError("use `with`; for programs with asyncio there is kcast.client.aio")

    async def __aexit__(self, *_: object) -> None:
        """Is never reached, since `__aenter__` raises: Python looks for both first."""

    # --- Verbs ---------------------------------------------------------------------------------------

    def publish(
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
        self._thread.refuse_waiting()
        outcome = self.publish_nowait(topic, payload, **options).result()
        return confirmed(outcome, options.get("confirm", True), self._asked_at)

    def publish_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> "Future[Published]":
        """Publishes a message, and returns at once with a future of its outcome, which may be ignored.

        It takes the options of `publish`, and raises the same errors, with two exceptions: the future has the
        outcome where `publish` would raise NoReceipt, and ClientClosed is set in the future where the client
        is closed before the outcome is known. Of thousands that follow each other
        without any waiting, the last may not be sent to every server: their outcome there is `queue-full`.

        The future cannot be cancelled. Its callbacks run in the client's thread, where they must not wait.
        """
        self._engine.require_open()
        outcome: Future[Published] = Future()
        waiter = self._waiter(outcome)
        publish = partial(self._engine.publish, waiter, topic, payload, options)
        self._thread.send_or_defer(publish, waiter.set_exception)
        return outcome

    def publish_many(
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
        self._thread.refuse_waiting()
        outcome = self.publish_many_nowait(topic, payloads, confirm=confirm, raw=raw, **options).result()
        return confirmed(outcome, confirm, self._asked_at)

    def publish_many_nowait(
        self,
        topic: str | bytes,
        payloads: Iterable[str | bytes],
        *,
        confirm: bool = True,
        raw: bool = False,
        **options: Unpack[WriteOptions],
    ) -> "Future[PublishedMany]":
        """Publishes messages of one topic, and returns at once with a future of their outcome, which may be
        ignored.

        It takes what `publish_many` takes, and raises as `publish_nowait` does.
        """
        self._engine.require_open()
        several = as_payloads(payloads)  # an iterator may be one that uses this client
        outcome: Future[PublishedMany] = Future()
        waiter = self._waiter(outcome)
        publish = partial(
            self._engine.publish_many, waiter, topic, several, options, confirm=confirm, raw=raw
        )
        self._thread.send_or_defer(publish, waiter.set_exception)
        return outcome

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until the outcome of all that was published until now is known: what needs no receipt has
        left, and the rest has been answered or given up.

        - `timeout_s`: seconds to wait at most; without limit by default. Outcomes are known within seconds,
          whatever servers do.

        Raises TimeoutError where that takes longer; ClientClosed where the client is not open, or is closed
        meanwhile.
        """
        self._engine.require_open()
        self._thread.refuse_waiting()
        flushed: Future[None] = Future()
        waiter = self._waiter(flushed)
        self._acting(lambda: self._engine.flush(waiter))
        try:
            flushed.result(timeout_s)
        except TimeoutError:
            raise TimeoutError(f"not all that was published has an outcome after {timeout_s} s") from None

    def _waiter(self, outcome: "Future[Any]") -> "_Waiter":
        outcome.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        return _Waiter(outcome, self._thread.wake_calls)

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
        """Subscribes to a topic, or several, from now on. Iterate over the result with `for`, or `get`
        from it.

        - `topics`: str (its UTF-8 is sent) or bytes, or a list of them, whose deliveries come in one stream.
          Each is one topic, and no pattern. A WildcardWarning tells of those that look like one of MQTT,
          NATS or Redis.
        - `queue_max`: number of deliveries that wait until they are taken, 65,536 by default. Where more
          come, the oldest go, and are counted in `drops` as `slow-consumer`.
        - `hold_s`: seconds for which a delivery waits at most for earlier ones of its publisher on its
          topic, so that they come in the order in which they were published; twice that while more arrives
          than is read. 0 by default: none waits.
        - `on_delivery`: a function that the client's thread calls with each delivery; then nothing is queued,
          and the iteration only ends. By default none. It must not wait. What it raises is logged.
        - `limit`: what one sender may send (`FixedWindow`). What is more is dropped (`limited`); the event
          `Limited` tells of it. By default any number.
        - `senders`, `group`, `seal`, `plain_topic`, `back_s`, `ahead_s`: what is to be proven of messages
          (`kcast.client.arguments`). By default nothing; in a client with a `group`, what that asks for.

        Raises TopicError; ClientClosed where the client is not open; ValueError and TypeError for arguments
        that make no sense.
        """
        self._engine.require_open()
        wanted = as_topics(topics)
        warn_of_patterns(wanted, stacklevel=2)
        waker, function = ThreadWaker(self._thread.wake_calls), plain_function(on_delivery)

        def subscribe() -> Subscription:
            inbox = DeliveryInbox(waker, queue_max, hold_s, function, limit)
            inbox.guard = self._engine.guard(wanted, options, limit)
            return Subscription(self._thread, wanted, inbox, waker)

        return self._acting(subscribe)

    def cover(self, topic: str | bytes, **options: Unpack[CoverOptions]) -> Cover:
        """Begins cover traffic on a topic: from now on one line leaves on each tick, all of one size, and
        whoever watches does not see which of them are messages. Use the
        result with `with`, and give messages to its `put`.

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

        def begin() -> Cover:
            cover = self._engine.cover(topic, options)
            self._thread.wake_exactly()
            return Cover(self._thread, cover, self._waiter)

        self._engine.require_open()
        return self._acting(begin)

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
        self._engine.require_open()
        waker = ThreadWaker(self._thread.wake_calls)
        inboxes, inbox = inboxes_of(sources, self._engine), Inbox[Any](waker, queue_max)
        return self._acting(lambda: Stream(self._thread, inboxes, inbox, waker))

    def events(self) -> "Events":
        """Returns what happens from now on: servers lost, returned or draining; leases gained, ended or
        refused; gaps. Deliveries and outcomes are not among it.

        Iterate over the result with `for`, or `get` from it. Raises ClientClosed where the client is
        not open.
        """
        self._engine.require_open()
        return self._acting(lambda: Events(self._thread, ThreadWaker(self._thread.wake_calls)))

    def _acting(self, act: Callable[[], Made]) -> Made:
        """Acts with the engine, and has a turn made."""

        def act_and_wake() -> Made:
            made = act()
            self._thread.wake()
            return made

        return self._thread.use(act_and_wake)

    @property
    def local_port(self) -> int:
        """The UDP port of the client's socket; 0 until it is open. It can be read at any time."""
        self._engine.refuse_forked()
        return self._engine.local_port

    def _read(self, read: Callable[[], Figure]) -> Figure:
        self._engine.refuse_forked()
        return self._thread.use(read)


class _Waiter:
    """A future, as the engine sees it. The future's lock is taken only once the client's is released."""

    def __init__(self, outcome: "Future[Any]", wake_calls: deque[Callable[[], None]]) -> None:
        self._outcome = outcome
        self._wake_calls = wake_calls

    def done(self) -> bool:
        return False  # it cannot be cancelled

    def set_result(self, result: Any) -> None:
        self._wake_calls.append(lambda: self._settle(self._outcome.set_result, result))

    def set_exception(self, error: BaseException) -> None:
        self._wake_calls.append(lambda: self._settle(self._outcome.set_exception, error))

    def exception(self) -> BaseException | None:
        return None  # whether anybody looks at one does not matter here

    def _settle(self, settle: Callable[[Told], None], what: Told) -> None:
        if not self._outcome.done():
            settle(what)
