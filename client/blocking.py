"""The client for programs without an event loop: it blocks, and any number of threads may use it.

    with Client("cluster.txt") as client:
        client.publish("weather/oslo", "-3.5")
        for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

The methods are those of `kcast.client.aio`. A thread makes the engine's turns, so leases live on while the
user's code computes. One lock guards the engine; the thread holds it during its turns, and nobody holds it
while waiting. The thread waits for the network and for users at once, so users wake it through a socket pair.

A signal's handler, or a finalizer, may run while its own thread holds a lock. If that is the engine's lock,
the engine is in the middle of something: `publish_nowait` and `close` are left to the next turn, and other
methods raise. If it is the lock of a future or an inbox, the handler may have to wait for the engine's lock:
so a thread that has the engine's lock never waits for one of those.

Where gevent's monkey patches were made before this is imported, the thread is a greenlet, and waiting lets
others run. Nothing here knows gevent: only what it patches is used.
"""

import _thread
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from kcast.client.base import ClientBase, Figure
from kcast.client.cluster import Cluster, ClusterError
from kcast.client.engine import EVENTS_MAX, QUEUE_MAX, Inbox, PublishOptions, as_bytes
from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge
from kcast.client.events import (
    Delivery,
    Drop,
    Event,
    FamilyMissing,
    Gap,
    GapFilled,
    LeaseRefused,
    LeasesChanged,
    Outcome,
    Published,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
)
from kcast.client.wildcards import WildcardWarning, warn_of_pattern
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError

__all__ = [
    "Backlog", "Client", "ClientClosed", "Cluster", "ClusterError", "Delivery", "Drop", "Event", "Events",
    "FamilyMissing", "Gap", "GapFilled", "KcastError", "LeaseRefused", "LeasesChanged", "MessageTooLarge",
    "Outcome", "PublishOptions", "Published", "ServerDraining", "ServerForgot", "ServerLost",
    "ServerReturned", "Subscription", "TopicError", "WildcardWarning",
]  # fmt: skip

Item = TypeVar("Item")
Result = TypeVar("Result")
Told = TypeVar("Told")

CLOSE_TIMEOUT_S = 5.0

_TIMER_SLACK_S = 0.001  # selectors round to milliseconds
# The pause after a turn or a slice of minting while others wait for the lock. Locks are not fair: without it
# the thread would have the lock again before another has woken up.
_PAUSE_S = 0.00005


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
        # Reentrant, since a signal's handler may come when its thread has the lock but is not `_user` yet, or
        # is so no more. The engine is not in the middle of anything then.
        self._lock = threading.RLock()
        self._user = 0  # the thread that is in the middle of using the engine
        self._waiting: set[int] = set()  # the threads that want the lock, or have it
        self._deferred: deque[Callable[[], None]] = deque()  # what the next turn begins with
        self._wake_calls: deque[Callable[[], None]] = deque()  # wake waiters, once the lock is released
        self._is_woken = False
        self._wake_sender: socket.socket | None = None
        self._is_closing = False
        self._has_ended = threading.Event()
        self._thread_id = 0

    def open(self) -> Self:
        """Opens the socket and starts the thread. Raises OSError; ClientClosed where it was open before."""
        self._use(self._open)
        return self

    def _open(self) -> None:
        self._engine.open()
        resources = self._engine.resources
        try:
            self._wake_receiver, wake_sender = map(resources.enter_context, socket.socketpair())
            self._wake_receiver.setblocking(False)
            wake_sender.setblocking(False)
            self._selector = resources.enter_context(selectors.DefaultSelector())
            self._selector.register(self._engine.fileno(), selectors.EVENT_READ)
            self._selector.register(self._wake_receiver, selectors.EVENT_READ)
            self._wake_sender = wake_sender
            # No threading.Thread: under gevent it goes on in a forked process, and cannot end well there.
            _thread.start_new_thread(self._run, ())
        except BaseException:
            self._engine.close()
            raise

    def close(self) -> None:
        """Sends what was published, and ends all waiting; does nothing where it is closed already.

        Returns when that is done, but earlier in a callback, or a handler that has interrupted a method.
        """
        if not self._engine.is_open:
            return
        self._use_or_defer(self._end_soon)
        if threading.get_ident() not in (self._thread_id, self._user):
            self._has_ended.wait(CLOSE_TIMEOUT_S)

    def _end_soon(self) -> None:
        self._is_closing = True

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

        Raises TopicError; MessageTooLarge; Backlog where 65,536 publishes await their outcome; ClientClosed
        where the client is not open, or is closed before the outcome is known; ValueError and TypeError for
        options that make no sense.
        """
        self._refuse_waiting()
        return self.publish_nowait(topic, payload, **options).result()

    def publish_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> "Future[Published]":
        """Publishes a message, and returns at once with a future of its outcome, which may be ignored.

        It takes the options of `publish`, and raises the same errors, except that ClientClosed is set in the
        future where the client is closed before the outcome is known. Of thousands that follow each other
        without any waiting, the last may not be sent to every server: their outcome there is `queue-full`.

        The future cannot be cancelled. Its callbacks run in the client's thread, where they must not wait.
        """
        self._engine.require_open()
        outcome: Future[Published] = Future()
        outcome.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        waiter = _Waiter(outcome, self._wake_calls)
        publish = partial(self._engine.publish, waiter, topic, payload, options)
        self._use_or_defer(publish, waiter.set_exception)
        return outcome

    def subscribe(self, topic: str | bytes, *, queue_max: int = QUEUE_MAX) -> "Subscription":
        """Subscribes to a topic from now on. Iterate over the result with `for`, or `get` from it.

        - `topic`: str (its UTF-8 is sent) or bytes. It is one topic, and no pattern; there is a
          WildcardWarning if it looks like a pattern of MQTT, NATS or Redis.
        - `queue_max`: number of deliveries that wait until they are taken, 65,536 by default. Where more
          come, the oldest go, and are counted in `drops` as `slow-consumer`.

        Raises TopicError; ClientClosed where the client is not open; ValueError and TypeError for arguments
        that make no sense.
        """
        self._engine.require_open()
        name = as_bytes(topic, "topic")
        warn_of_pattern(name, stacklevel=2)

        def subscribe() -> Subscription:
            subscription = Subscription(self, name, queue_max)
            self._wake()
            return subscription

        return self._use(subscribe)

    def events(self) -> "Events":
        """Returns what happens from now on: servers lost, returned or draining; leases gained, ended or
        refused; gaps. Deliveries and outcomes are not among it.

        Iterate over the result with `for`, or `get` from it. Raises ClientClosed where the client is
        not open.
        """
        self._engine.require_open()
        return self._use(lambda: Events(self))

    @property
    def local_port(self) -> int:
        """The UDP port of the client's socket; 0 until it is open. It can be read at any time."""
        self._engine.refuse_forked()
        return self._engine.local_port

    def _read(self, read: Callable[[], Figure]) -> Figure:
        self._engine.refuse_forked()
        return self._use(read)

    # --- The lock ------------------------------------------------------------------------------------

    def _use(self, act: Callable[[], Result]) -> Result:
        """Acts with the lock held, which the client's thread lets go for it.

        Raises RuntimeError where this thread is in the middle of such an act.
        """
        self._refuse_reentry()
        thread = threading.get_ident()
        try:
            self._waiting.add(thread)
            return self._hold(act)
        finally:  # also where a signal's handler ends the waiting by an exception
            self._waiting.discard(thread)

    def _use_or_defer(
        self, act: Callable[[], None], on_late_error: Callable[[Exception], None] | None = None
    ) -> None:
        """Acts, and has a turn made. Where this thread is in the middle of an act, the next turn does it."""

        def act_now() -> None:
            act()
            self._wake()

        def act_late() -> None:
            try:
                act()
            except Exception as error:
                if on_late_error is None:
                    raise
                on_late_error(error)

        if self._is_reentered():
            self._deferred.append(act_late)
            self._wake()
        else:
            self._use(act_now)

    def _hold(self, act: Callable[[], Result]) -> Result:
        thread = threading.get_ident()
        with self._lock:
            self._user = thread
            try:
                return act()
            finally:
                self._user = 0

    def _is_reentered(self) -> bool:
        """Whether this thread is in the middle of an act, so that the engine must not be touched."""
        return self._user == threading.get_ident()

    def _refuse_reentry(self) -> None:
        if self._is_reentered():
            raise RuntimeError(
                "a signal's handler or a finalizer has interrupted this client: there use publish_nowait, "
                "or leave it to another thread"
            )

    def _refuse_waiting(self) -> None:
        """Raises RuntimeError where this thread would wait for itself."""
        self._refuse_reentry()
        if self._thread_id == threading.get_ident():
            raise RuntimeError(
                "a callback runs in the client's thread, which must not wait: use publish_nowait"
            )

    def _wake(self) -> None:
        """Wakes the thread for a turn. The lock must be held."""
        if not self._is_woken and self._wake_sender is not None and self._engine.is_open:
            self._is_woken = True
            self._wake_sender.send(b"\0")

    # --- The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        failure = None
        self._thread_id = threading.get_ident()
        try:
            while self._engine.is_open:
                is_last = self._is_closing  # read before the turn that is to send what was published before
                delay_s = self._hold(self._turn)
                self._wake_waiters()
                if is_last:
                    break
                if self._engine.core.is_minting:
                    self._hold(self._engine.mint)
                    time.sleep(_PAUSE_S)
                else:
                    self._wait(delay_s)
        except BaseException as error:  # for those who wait, now or later
            failure = error
        try:
            self._hold(partial(self._end, failure))
            self._wake_waiters()
        finally:
            self._thread_id = 0  # another thread may come to have it
            self._has_ended.set()
        if isinstance(failure, KeyboardInterrupt):
            raise failure  # under gevent: it was meant for the main thread, which we are in

    def _turn(self) -> float | None:
        self._catch_up()
        return self._engine.turn()

    def _end(self, failure: BaseException | None) -> None:
        self._engine.close(failure)
        self._catch_up()

    def _catch_up(self) -> None:
        """Does what was deferred until now."""
        for _ in range(len(self._deferred)):
            self._deferred.popleft()()

    def _wake_waiters(self) -> None:
        """Wakes those who wait. The lock must not be held: they may want it while they hold their own."""
        while self._wake_calls:
            self._wake_calls.popleft()()

    def _wait(self, delay_s: float | None) -> None:
        """Waits until something arrives, somebody asks for a turn, or one is due."""
        if self._waiting:
            time.sleep(_PAUSE_S)
        timeout_s = None if delay_s is None else delay_s + _TIMER_SLACK_S
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(64)
                # Only after `recv`: who finds it woken need not send, since a turn is about to follow.
                self._is_woken = False


class _Waiter:
    """A future, as the engine sees it. The future's lock is taken only once the client's is released."""

    def __init__(self, outcome: "Future[Published]", wake_calls: deque[Callable[[], None]]) -> None:
        self._outcome = outcome
        self._wake_calls = wake_calls

    def done(self) -> bool:
        return False  # it cannot be cancelled

    def set_result(self, result: Published) -> None:
        self._wake_calls.append(lambda: self._settle(self._outcome.set_result, result))

    def set_exception(self, error: BaseException) -> None:
        self._wake_calls.append(lambda: self._settle(self._outcome.set_exception, error))

    def exception(self) -> BaseException | None:
        return None  # whether anybody looks at one does not matter here

    def _settle(self, settle: Callable[[Told], None], what: Told) -> None:
        if not self._outcome.done():
            settle(what)


class _Inbox(Inbox[Item]):
    """Items are put in while the client's lock is held, and taken with the inbox's own; waiters are woken
    later."""

    def __init__(self, size_max: int, wake_calls: deque[Callable[[], None]]) -> None:
        super().__init__(size_max)
        self.changed = threading.Condition()
        self._wake_calls = wake_calls
        self._is_notify_due = False

    def wake(self) -> None:
        if not self._is_notify_due:
            self._is_notify_due = True
            self._wake_calls.append(self._notify)

    def _notify(self) -> None:
        self._is_notify_due = False  # first: what is put in from now on is notified again
        with self.changed:
            self.changed.notify_all()


class _Stream(Generic[Item]):
    """Items as an iterator that waits for them."""

    def __init__(self, client: Client, size_max: int) -> None:
        self._client = client
        self._engine = client._engine
        self._inbox: _Inbox[Item] = _Inbox(size_max, client._wake_calls)

    def get(self, timeout_s: float | None = None) -> Item | None:
        """Waits for the next item, and returns it; None where none comes in time, or will come at all.

        - `timeout_s`: seconds to wait at most, 0 for not at all; without limit by default.

        Raises ClientClosed where the client has failed, and in a process that was forked from the client's.
        """
        inbox = self._inbox
        self._engine.refuse_forked()
        self._client._refuse_waiting()
        with inbox.changed:
            inbox.changed.wait_for(lambda: inbox.items or inbox.is_ended, timeout_s)
            if inbox.items:
                return inbox.items.popleft()
        self._engine.refuse_failed()
        return None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        item = self.get()
        if item is None:
            raise StopIteration
        return item


class Subscription(_Stream[Delivery]):
    """The deliveries of one topic, as an iterator. It ends with `close`, and with the client."""

    def __init__(self, client: Client, topic: bytes, queue_max: int) -> None:
        super().__init__(client, queue_max)
        self.topic = topic
        self._engine.subscribe(topic, self._inbox)

    @property
    def leases(self) -> tuple[int, int]:
        """The number of servers that hold a lease for this subscription now, and the number wanted; both are
        0 once it is closed."""
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
        self._client._refuse_waiting()
        with inbox.changed:
            inbox.changed.wait_for(lambda: inbox.leases[0] == inbox.leases[1], timeout_s)
        self._engine.refuse_failed()
        return inbox.leases

    def close(self) -> None:
        """Lets the leases run out, and ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._client._use_or_defer(lambda: self._engine.unsubscribe(self.topic, self._inbox))


class Events(_Stream[Event]):
    """The events of a client, as an iterator. The newest 4096 are kept until they are taken.

    It ends with `close`, and with the client. One that is no longer referred to needs no `close`.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client, EVENTS_MAX)
        self._engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._client._use_or_defer(lambda: self._engine.ignore(self._inbox))
