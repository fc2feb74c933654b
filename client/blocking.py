"""The client for programs without an event loop: it blocks, and any number of threads may use it.

    with Client("cluster.txt") as client:
        client.publish("weather/oslo", "-3.5")
        for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

The methods are those of `kcast.client.aio`. A thread makes the engine's turns (`EngineThread`), so leases
live on while the user's code computes. Under gevent's monkey patches the thread is a greenlet.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, Unpack, overload

from kcast.client.arguments import (
    PublishOptions,
    Topics,
    as_payloads,
    as_topics,
    confirmed,
    inboxes_of,
    plain_function,
)
from kcast.client.base import ClientBase, Figure
from kcast.client.cluster import Cluster, ClusterError
from kcast.client.engine import EVENTS_MAX, QUEUE_MAX
from kcast.client.engine_thread import EngineThread
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
Made = TypeVar("Made")
Told = TypeVar("Told")

logger = logging.getLogger(__name__)


class Client(ClientBase):
    """A client of one cluster, for any number of threads; use it with `with`, or `open` and `close`.

    It can be opened once (ClientClosed after that). A forked process cannot use the client of its parent:
    there every method raises ClientClosed.

    A signal's handler should use only `publish_nowait`, and `close` of the client and of subscriptions. Where
    it has interrupted a method of the same client, these take effect a moment later, and an error of the
    publish is in its future; other methods raise RuntimeError, since they could wait for ever.
    """

    _usage = "with Client(...) as client:"

    def _prepare(self) -> None:
        self._thread = EngineThread(self._engine)

    def open(self) -> Self:
        """Opens the socket and starts the thread. Raises OSError; ClientClosed where it was open before."""
        self._thread.open()
        return self

    def close(self) -> None:
        """Sends what was published, and ends all waiting; does nothing where it is closed already.

        Returns when that is done, but earlier in a callback, or a handler that has interrupted a method.
        """
        self._thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        self._thread.refuse_waiting()
        return confirmed(
            self.publish_nowait(topic, payload, **options).result(), options.get("confirm", True)
        )

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
    ) -> PublishedMany:
        """Publishes messages of one topic, in order; returns what became of them, once that is known.

        Each goes to a draw of servers of its own, as with `publish`. What goes to one server is packed
        together, and leaves as fast as the server takes it.

        - `topic`, `confirm`, `raw`: as in `publish`.
        - `payloads`: str (its UTF-8 is sent) or bytes each; at most 65,536.

        Raises NoReceipt, with the outcome in it, where no server gave a receipt for any of them and `confirm`
        is True; what `publish` raises, and then none was sent.
        """
        self._thread.refuse_waiting()
        return confirmed(
            self.publish_many_nowait(topic, payloads, confirm=confirm, raw=raw).result(), confirm
        )

    def publish_many_nowait(
        self,
        topic: str | bytes,
        payloads: Iterable[str | bytes],
        *,
        confirm: bool = True,
        raw: bool = False,
    ) -> "Future[PublishedMany]":
        """Publishes messages of one topic, and returns at once with a future of their outcome, which may be
        ignored.

        It takes what `publish_many` takes, and raises as `publish_nowait` does.
        """
        self._engine.require_open()
        several = as_payloads(payloads)  # an iterator may be one that uses this client
        outcome: Future[PublishedMany] = Future()
        waiter = self._waiter(outcome)
        publish = partial(self._engine.publish_many, waiter, topic, several, confirm=confirm, raw=raw)
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

        Raises TopicError; ClientClosed where the client is not open; ValueError and TypeError for arguments
        that make no sense.
        """
        self._engine.require_open()
        wanted = as_topics(topics)
        warn_of_patterns(wanted, stacklevel=2)
        waker = _Waker(self._thread.wake_calls)
        inbox = DeliveryInbox(waker, queue_max, hold_s, plain_function(on_delivery))
        return self._acting(lambda: Subscription(self._thread, wanted, inbox, waker))

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
        waker = _Waker(self._thread.wake_calls)
        inboxes, inbox = inboxes_of(sources, self._engine), Inbox[Any](waker, queue_max)
        return self._acting(lambda: Stream(self._thread, inboxes, inbox, waker))

    def events(self) -> "Events":
        """Returns what happens from now on: servers lost, returned or draining; leases gained, ended or
        refused; gaps. Deliveries and outcomes are not among it.

        Iterate over the result with `for`, or `get` from it. Raises ClientClosed where the client is
        not open.
        """
        self._engine.require_open()
        return self._acting(lambda: Events(self._thread, _Waker(self._thread.wake_calls)))

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


class _Waker:
    """Wakes the threads that wait for an inbox, once the engine's lock is released.

    Items are put in while that lock is held, and taken with the lock of `changed`.
    """

    def __init__(self, wake_calls: deque[Callable[[], None]]) -> None:
        self.changed = threading.Condition()
        self._wake_calls = wake_calls
        self._is_notify_due = False

    def wake(self) -> None:
        if not self._is_notify_due:
            self._is_notify_due = True
            self._wake_calls.append(self._notify)

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        self._wake_calls.append(partial(self._call, function, item))

    def _notify(self) -> None:
        self._is_notify_due = False  # first: what is put in from now on is notified again
        with self.changed:
            self.changed.notify_all()

    def _call(self, function: Callable[[Any], object], item: Any) -> None:
        try:
            function(item)
        except Exception:
            logger.exception("on_delivery has failed: %r", function)


class _Items(Generic[Item]):
    """The items of an inbox as an iterator that waits for them."""

    def __init__(self, thread: EngineThread, inbox: Inbox[Item], waker: _Waker) -> None:
        self._thread = thread
        self._engine = thread.engine
        self._inbox = inbox
        self._changed = waker.changed

    def get(self, timeout_s: float | None = None) -> Item | None:
        """Waits for the next item, and returns it; None once no more will come.

        - `timeout_s`: seconds to wait at most, 0 for not at all; without limit by default.

        Raises TimeoutError where none comes in this time; ClientClosed where the client has failed, and in a
        process that was forked from the client's.
        """
        inbox = self._inbox
        self._engine.refuse_forked()
        self._thread.refuse_waiting()
        taken: list[Item] = []

        def is_over() -> bool:
            was_ended = inbox.is_ended  # read first: what came before the end is taken
            with suppress(IndexError):  # a stream may take the last one at any time
                taken.append(inbox.items.popleft())
            return was_ended or bool(taken)

        with self._changed:
            has_come = self._changed.wait_for(is_over, timeout_s)
        if taken:
            return taken[0]
        self._engine.refuse_failed()
        if not has_come:
            raise TimeoutError(f"nothing came in {timeout_s} s")
        return None

    def batches(self, max: int = BATCH_MAX) -> Iterator[list[Item]]:  # noqa: A002 - as programs write it
        """Iterates over what comes, several at a time: all that waits to be taken, but `max` at most.

        - `max`: 1024 by default.

        It ends where the iteration over single ones would, and raises what that raises; ValueError and
        TypeError at once for a `max` that makes no sense.
        """
        return self._batches(batch_size(max))

    def _batches(self, size_max: int) -> Iterator[list[Item]]:
        while (first := self.get()) is not None:
            yield [first, *take(self._inbox.items, size_max - 1)]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        item = self.get()
        if item is None:
            raise StopIteration
        return item


class Subscription(_Items[Delivery]):
    """The deliveries of some topics, as an iterator. It ends with `close`, and with the client.

    `topics` are the topics, as bytes.
    """

    _inbox: DeliveryInbox

    def __init__(
        self, thread: EngineThread, topics: tuple[bytes, ...], inbox: DeliveryInbox, waker: _Waker
    ) -> None:
        super().__init__(thread, inbox, waker)
        self.topics = topics
        self._engine.subscribe(topics, inbox)

    @property
    def leases(self) -> tuple[int, int]:
        """The number of leases that stand now, one for each topic at each of its servers, and the number
        wanted; both are 0 once it is closed."""
        self._engine.refuse_forked()
        return self._inbox.leases

    def ready(self, timeout_s: float | None = None) -> tuple[int, int]:
        """Waits until all wanted leases stand, and returns `leases`; earlier where the time is over or the
        subscription ends.

        - `timeout_s`: seconds to wait at most, 0 for not at all; without limit by default.

        Raises ClientClosed where the client has failed, and in a process that was forked from the client's.
        """
        inbox = self._inbox
        self._engine.refuse_forked()
        self._thread.refuse_waiting()
        with self._changed:
            self._changed.wait_for(lambda: inbox.leases[0] == inbox.leases[1], timeout_s)
        self._engine.refuse_failed()
        return inbox.leases

    def close(self) -> None:
        """Lets the leases run out, and ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._thread.use_or_defer(lambda: self._engine.unsubscribe(self.topics, self._inbox))


class Events(_Items[Event]):
    """The events of a client, as an iterator. The newest 4096 are kept until they are taken.

    It ends with `close`, and with the client. One that is no longer referred to needs no `close`.
    """

    def __init__(self, thread: EngineThread, waker: _Waker) -> None:
        super().__init__(thread, Inbox(waker, EVENTS_MAX), waker)
        self._engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._thread.use_or_defer(lambda: self._engine.ignore(self._inbox))


class Stream(_Items[Item]):
    """The items of several subscriptions and events, as an iterator, in order of arrival.

    It ends with `close`, after which its sources keep their own items again. One that is no longer referred
    to needs no `close`; what waited in it is lost.
    """

    def __init__(
        self, thread: EngineThread, sources: Sequence[Inbox[Any]], inbox: Inbox[Any], waker: _Waker
    ) -> None:
        super().__init__(thread, inbox, waker)
        self._engine.merge(self._inbox, sources)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._thread.use_or_defer(lambda: self._engine.unmerge(self._inbox))
