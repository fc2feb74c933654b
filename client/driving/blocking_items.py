"""What a client for threads gives its user to wait on: the items of subscriptions, events, streams of them,
and cover traffic."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kcast.client.driving.arguments import as_bytes
from kcast.client.driving.engine import EVENTS_MAX
from kcast.client.driving.engine_thread import EngineThread
from kcast.client.driving.inbox import BATCH_MAX, DeliveryInbox, Inbox, batch_size, take
from kcast.client.driving.reprs import described, of_inbox, of_topics
from kcast.client.events import Delivery, Event, Published

if TYPE_CHECKING:  # its libraries are those of an extra
    from kcast.client.publishing.waiters import Waiter
    from kcast.client.sealed.cover import Cover as RunningCover

Item = TypeVar("Item")

NewWaiter = Callable[["Future[Published]"], "Waiter"]

logger = logging.getLogger(__name__)


class ThreadWaker:
    """Wakes the threads that wait for an inbox, once the engine's lock is released.

    Items are put in while that lock is held, and taken with the lock of `changed`.
    """

    def __init__(self, wake_calls: deque[Callable[[], None]]) -> None:
        self.changed = threading.Condition()
        self._wake_calls = wake_calls
        self._is_notify_due = False

    def wake(self) -> None:
        """Wakes them once the lock is released."""
        if not self._is_notify_due:
            self._is_notify_due = True
            self._wake_calls.append(self._notify)

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        """Calls a function once the lock is released."""
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

    def __init__(self, thread: EngineThread, inbox: Inbox[Item], waker: ThreadWaker) -> None:
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

    def __repr__(self) -> str:
        return described(self, lambda: of_inbox(self._inbox, getattr(self, "topics", ())))

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
        self, thread: EngineThread, topics: tuple[bytes, ...], inbox: DeliveryInbox, waker: ThreadWaker
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

    def __init__(self, thread: EngineThread, waker: ThreadWaker) -> None:
        super().__init__(thread, Inbox(waker, EVENTS_MAX), waker)
        self._engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._thread.use_or_defer(lambda: self._engine.recipients.ignore(self._inbox))


class Stream(_Items[Item]):
    """The items of several subscriptions and events, as an iterator, in order of arrival.

    It ends with `close`, after which its sources keep their own items again. One that is no longer referred
    to needs no `close`; what waited in it is lost.
    """

    def __init__(
        self, thread: EngineThread, sources: Sequence[Inbox[Any]], inbox: Inbox[Any], waker: ThreadWaker
    ) -> None:
        super().__init__(thread, inbox, waker)
        self._engine.merge(self._inbox, sources)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._thread.use_or_defer(lambda: self._engine.recipients.unmerge(self._inbox))


class Cover:
    """Cover traffic on a topic (`Client.cover`); use it with `with`, or `close` it.

    It begins and ends apart from what is said: leaving it does not wait for messages that have not had their
    tick. To be sure of one, wait for the result of what `put` returned.
    """

    def __init__(self, thread: EngineThread, cover: "RunningCover", new_waiter: "NewWaiter") -> None:
        self._thread = thread
        self._cover = cover
        self._new_waiter = new_waiter

    def put(self, payload: str | bytes) -> "Future[Published]":
        """Lets a message wait for its tick; returns at once with a future of its outcome, as
        `publish_nowait` does.

        The future has ClientClosed where the stream is closed before the tick, or the client before the
        outcome is known; and KcastError where the group takes nothing from us at the tick.

        Raises MessageTooLarge where the message has more than `size` bytes; Backlog where too many wait;
        ClientClosed where the stream has ended.
        """
        self._thread.engine.require_open()
        content = as_bytes(payload, "payload")
        outcome: Future[Published] = Future()
        waiter = self._new_waiter(outcome)
        self._thread.use(lambda: self._cover.put(content, waiter))  # and no turn is made for it
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
        if not self._thread.engine.is_forked:
            self._thread.use_or_defer(self._cover.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
