"""The blocking driver: a thread makes the engine's turns, so leases live on while the user's code computes.

    with Client("cluster.txt") as client:
        client.publish("weather/oslo", "-3.5")
        for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

The verbs are those of `kcast.client.aio`, for any number of threads. One lock guards the engine; the thread
holds it during its turns, and nobody holds it while waiting. Whoever asks for something wakes the thread
through a socket pair, since it waits for the network and for users at once.

A signal's handler, or a finalizer, may run while its own thread holds a lock. If that is the engine's, the
engine is in the middle of something: `publish_nowait` and `close` are left to the next turn, and other verbs
raise. If it is that of a future or an inbox, the handler may have to wait for the engine's: so nobody who has
that ever waits for another.

Where gevent's monkey patches were made before this is imported, the thread is a greenlet, and waiting lets
others run. Nothing here knows gevent: only what it patches is used.
"""

import _thread
import random
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
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
Result = TypeVar("Result")
Told = TypeVar("Told")

CLOSE_TIMEOUT_S = 5.0

_TIMER_SLACK_S = 0.001  # selectors round to milliseconds
# After a turn or a slice of minting, where others have to do. Locks are not fair: without a pause the thread
# would have it again before another has woken up.
_PAUSE_S = 0.00005


class Client:
    """A client of one cluster, for any number of threads; use it with `with`, or `open` and `close`.

    `cluster` is a Cluster or the path of a cluster file (ClusterError where it is wrong). Topics and payloads
    are bytes, or str that stand for their UTF-8. `avoid_dead` and `renewals_per_ttl` as in `ClientCore`,
    `path` and `kernel_times` as in `Engine`.

    A signal's handler should use no more than `publish_nowait` and `close`, also of subscriptions. Where it
    has interrupted a verb of the same client they take effect a moment later, an error of the publish is in
    its future, and other verbs raise RuntimeError, since they could wait for ever.

    A forked process cannot use the client of its parent: all there raises ClientClosed.
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
            usage="with Client(...) as client:",
            avoid_dead=avoid_dead,
            publisher=publisher,
            rng=rng,
            path=path,
            renewals_per_ttl=renewals_per_ttl,
            kernel_times=kernel_times,
        )
        self.cluster = self._engine.cluster
        # Reentrant, since a signal's handler may come when its thread has the lock but is not `_user` yet, or
        # is so no more. Nothing is in the middle then.
        self._lock = threading.RLock()
        self._user = 0  # the thread that is in the middle of using the engine
        self._waiting: set[int] = set()  # the threads that want the lock, or have it
        self._deferred: deque[Callable[[], None]] = deque()  # what the next turn begins with
        self._untold: deque[Callable[[], None]] = deque()  # tells who waits, once the lock is let go
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
        """Sends what was published, and ends all waiting. Harmless where it is closed already.

        Returns when that is done; in a handler that has interrupted a verb, or a callback, before.
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
        """Publishes, waits, and returns what became of it at each server.

        See `ClientCore.publish` for the options and errors. With `confirm=False` it returns as soon as all
        is sent.
        """
        self._refuse_waiting()
        return self.publish_nowait(topic, payload, **options).result()

    def publish_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[PublishOptions]
    ) -> "Future[Published]":
        """Publishes, and returns at once with a future of the outcome, which need not be looked at.

        Its callbacks run in the client's thread, where they must not wait. Of thousands that follow each
        other without any waiting, the last may be `queue-full`.
        """
        self._engine.require_open()
        outcome: Future[Published] = Future()
        outcome.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        waiter = _Waiter(outcome, self._untold)
        publish = partial(self._engine.publish, waiter, topic, payload, options)
        self._use_or_defer(publish, waiter.set_exception)
        return outcome

    def subscribe(self, topic: str | bytes, *, queue_max: int = QUEUE_MAX) -> "Subscription":
        """Subscribes from now on; iterate over the result, or `get` from it.

        Of deliveries that nobody takes, the newest `queue_max` are kept; the rest is dropped and counted as
        `slow-consumer`. Raises wire.TopicError.
        """
        self._engine.require_open()

        def subscribe() -> Subscription:
            subscription = Subscription(self, as_bytes(topic), queue_max)
            self._wake()
            return subscription

        return self._use(subscribe)

    def events(self) -> "Events":
        """All that happens besides deliveries and settled publishes, from now on: lost and returned servers,
        lease changes, gaps. Iterate over it, or `get` from it."""
        self._engine.require_open()
        return self._use(lambda: Events(self))

    @property
    def drops(self) -> Counter[Drop]:
        """What arrived and was not delivered until now, by reason."""
        self._engine.refuse_forked()
        return self._use(lambda: Counter(self._engine.core.drops))

    @property
    def counts(self) -> Counter[str]:
        """How many datagrams, copies and deliveries there were until now: `datagrams_received`,
        `copies_received`, `deliveries`."""
        self._engine.refuse_forked()
        return self._use(lambda: Counter(self._engine.core.counts))

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped because this process did not read them in time."""
        self._engine.refuse_forked()
        return self._use(lambda: self._engine.kernel_drops)

    @property
    def send_errors(self) -> Counter[str]:
        """Datagrams that could not be sent until now, by errno's name."""
        self._engine.refuse_forked()
        return self._use(lambda: Counter(self._engine.send_errors))

    @property
    def local_port(self) -> int:
        """The socket's port; 0 until it is open."""
        self._engine.refuse_forked()
        return self._engine.local_port

    # --- The lock ------------------------------------------------------------------------------------

    def _use(self, act: Callable[[], Result]) -> Result:
        """Acts with the lock held, for which the thread makes room.

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
        """Acts, and has a turn made; where this thread is in the middle of an act, with the next turn."""

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
        """Has a turn made soon; with the lock held."""
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
                self._tell()
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
            self._tell()
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

    def _tell(self) -> None:
        """Tells those who wait, with the lock let go: they may want it while they hold their own."""
        while self._untold:
            self._untold.popleft()()

    def _wait(self, delay_s: float | None) -> None:
        """Until something arrives, somebody asks for a turn, or one is due."""
        if self._waiting:
            time.sleep(_PAUSE_S)
        timeout_s = None if delay_s is None else delay_s + _TIMER_SLACK_S
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(64)
                # In this order: whoever finds it woken is in time for the turn that follows.
                self._is_woken = False


class _Waiter:
    """What the engine sees of a future, whose own lock is wanted only once the client's is let go."""

    def __init__(self, outcome: "Future[Published]", untold: deque[Callable[[], None]]) -> None:
        self._outcome = outcome
        self._untold = untold

    def done(self) -> bool:
        return False  # it cannot be cancelled

    def set_result(self, result: Published) -> None:
        self._untold.append(lambda: self._settle(self._outcome.set_result, result))

    def set_exception(self, error: BaseException) -> None:
        self._untold.append(lambda: self._settle(self._outcome.set_exception, error))

    def exception(self) -> BaseException | None:
        return None  # whether anybody looks at one does not matter here

    def _settle(self, settle: Callable[[Told], None], what: Told) -> None:
        if not self._outcome.done():
            settle(what)


class _Inbox(Inbox[Item]):
    """Its items are put in with the client's lock held, and taken with its own; who waits is told later."""

    def __init__(self, size_max: int, untold: deque[Callable[[], None]]) -> None:
        super().__init__(size_max)
        self.changed = threading.Condition()
        self._untold = untold
        self._is_to_tell = False

    def wake(self) -> None:
        if not self._is_to_tell:
            self._is_to_tell = True
            self._untold.append(self._tell)

    def _tell(self) -> None:
        self._is_to_tell = False  # first: what is put in from now on is told again
        with self.changed:
            self.changed.notify_all()


class _Stream(Generic[Item]):
    """Items as an iterator that waits for them."""

    def __init__(self, client: Client, size_max: int) -> None:
        self._client = client
        self._engine = client._engine
        self._inbox: _Inbox[Item] = _Inbox(size_max, client._untold)

    def get(self, timeout_s: float | None = None) -> Item | None:
        """The next one; None where none comes in time, or none will come any more.

        Raises ClientClosed where the client has failed, or belongs to the process that this was forked from.
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
    """The deliveries of one topic, as an iterator. `close` stops it; so does the client's end."""

    def __init__(self, client: Client, topic: bytes, queue_max: int) -> None:
        super().__init__(client, queue_max)
        self.topic = topic
        self._engine.subscribe(topic, self._inbox)

    @property
    def leases(self) -> tuple[int, int]:
        """How many of the topic's servers hold a lease for us now, of how many we want; none once closed."""
        self._engine.refuse_forked()
        return self._inbox.leases

    def ready(self, timeout_s: float | None = None) -> tuple[int, int]:
        """Waits until all wanted leases stand, the time is over, or it is closed; returns `leases` then.

        Raises ClientClosed as `get` does.
        """
        inbox = self._inbox
        self._engine.refuse_forked()
        self._client._refuse_waiting()
        with inbox.changed:
            inbox.changed.wait_for(lambda: inbox.leases[0] == inbox.leases[1], timeout_s)
        self._engine.refuse_failed()
        return inbox.leases

    def close(self) -> None:
        """Stops renewing, and ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._client._use_or_defer(lambda: self._engine.unsubscribe(self.topic, self._inbox))


class Events(_Stream[Event]):
    """What happens, as an iterator; of what nobody takes, the newest 4096 are kept.

    `close` ends it; so does the client's end. One that is simply dropped is forgotten.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client, EVENTS_MAX)
        self._engine.listen(self._inbox)

    def close(self) -> None:
        """Ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            self._client._use_or_defer(lambda: self._engine.ignore(self._inbox))
