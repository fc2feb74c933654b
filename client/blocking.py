"""The blocking driver: a thread makes the engine's turns, so leases live on while the user's code computes.

    with Client("cluster.txt") as client:
        client.publish("weather/oslo", "-3.5")
        for delivery in client.subscribe("weather/oslo"):
            print(delivery.payload)

The verbs are those of `client.aio`, for any number of threads. One lock guards the engine; the thread holds
it during its turns, and nobody holds it while waiting. Whoever asks for something wakes the thread through a
socket pair, since it waits for the network and for users at once.

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
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

from client.cluster import Cluster
from client.engine import EVENTS_MAX, QUEUE_MAX, ClientClosed, Engine, Inbox, PublishOptions, as_bytes
from client.events import Delivery, Drop, Event, Published

__all__ = ["Client", "ClientClosed", "Events", "Subscription"]

Item = TypeVar("Item")

CLOSE_TIMEOUT_S = 5.0

_TIMER_SLACK_S = 0.001  # selectors round to milliseconds
# After a turn or a slice of minting, where others have to do. Locks are not fair: without a pause the thread
# would have it again before another has woken up.
_PAUSE_S = 0.00005


class Client:
    """A client of one cluster, for any number of threads; use it with `with`, or `open` and `close`.

    `cluster` is a Cluster or the path of a cluster file (ClusterError where it is wrong). Topics and payloads
    are bytes, or str that stand for their UTF-8. `avoid_dead` as in `ClientCore`.

    A forked process cannot use the client of its parent: all there raises ClientClosed.
    """

    def __init__(
        self,
        cluster: Cluster | str | Path,
        *,
        avoid_dead: bool = True,
        publisher: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._engine = Engine(
            cluster, usage="with Client(...) as client:", avoid_dead=avoid_dead, publisher=publisher, rng=rng
        )
        self.cluster = self._engine.cluster
        # A signal's handler may run while its thread holds the lock.
        self._lock = threading.RLock()
        self._waiting: deque[None] = deque()  # one for each who waits for the lock
        self._is_woken = False
        self._is_closing = False
        self._has_ended = threading.Event()
        self._thread_id = 0

    def open(self) -> Self:
        """Opens the socket and starts the thread. Raises OSError; ClientClosed where it was open before."""
        with self._lock:
            self._engine.open()
            resources = self._engine.resources
            try:
                self._wake_receiver, self._wake_sender = map(resources.enter_context, socket.socketpair())
                self._wake_receiver.setblocking(False)
                self._wake_sender.setblocking(False)
                self._selector = resources.enter_context(selectors.DefaultSelector())
                self._selector.register(self._engine.fileno(), selectors.EVENT_READ)
                self._selector.register(self._wake_receiver, selectors.EVENT_READ)
                # No threading.Thread: under gevent it goes on in a forked process, and cannot end well there.
                self._thread_id = _thread.start_new_thread(self._run, ())
            except BaseException:
                self._engine.close()
                raise
        return self

    def close(self) -> None:
        """Sends what was published, and ends all waiting. Harmless where it is closed already."""
        if not self._engine.is_open:
            return
        with self._locked():
            self._is_closing = True
            if self._engine.is_open:
                self._wake()
        if threading.get_ident() != self._thread_id:
            self._has_ended.wait(CLOSE_TIMEOUT_S)

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
        with self._locked():
            self._engine.publish(outcome, topic, payload, options)
            self._wake()
        return outcome

    def subscribe(self, topic: str | bytes, *, queue_max: int = QUEUE_MAX) -> "Subscription":
        """Subscribes from now on; iterate over the result, or `get` from it.

        Of deliveries that nobody takes, the newest `queue_max` are kept; the rest is dropped and counted as
        `slow-consumer`. Raises wire.TopicError.
        """
        self._engine.require_open()
        with self._locked():
            subscription = Subscription(self, as_bytes(topic), queue_max)
            self._wake()
        return subscription

    def events(self) -> "Events":
        """All that happens besides deliveries and settled publishes, from now on: lost and returned servers,
        lease changes, gaps. Iterate over it, or `get` from it."""
        self._engine.require_open()
        with self._locked():
            return Events(self)

    @property
    def drops(self) -> Counter[Drop]:
        """What arrived and was not delivered until now, by reason."""
        self._engine.refuse_forked()
        with self._locked():
            return Counter(self._engine.core.drops)

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped because this process did not read them in time."""
        self._engine.refuse_forked()
        with self._locked():
            return self._engine.kernel_drops

    # --- The thread ----------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock, for which the thread makes room."""
        self._waiting.append(None)
        with self._lock:
            self._waiting.pop()
            yield

    def _wake(self) -> None:
        """Has a turn made soon; with the lock held, and open."""
        if not self._is_woken:
            self._is_woken = True
            self._wake_sender.send(b"\0")

    def _run(self) -> None:
        failure = None
        try:
            while self._engine.is_open:
                is_last = self._is_closing  # read before the turn that is to send what was published before
                with self._lock:
                    delay_s = self._engine.turn()
                if is_last:
                    break
                if self._engine.core.is_minting:
                    with self._lock:
                        self._engine.mint()
                    time.sleep(_PAUSE_S)
                else:
                    self._wait(delay_s)
        except BaseException as error:  # for those who wait, now or later
            failure = error
        with self._lock:
            self._engine.close(failure)
        self._has_ended.set()

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


class _Inbox(Inbox[Item]):
    """With a lock of its own: takers must not wait for the client's, nor it for them."""

    def __init__(self, size_max: int) -> None:
        super().__init__(size_max)
        self.changed = threading.Condition()

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def put(self, item: Item) -> bool:
        with self.changed:
            return super().put(item)

    def end(self) -> None:
        with self.changed:
            super().end()


class _Stream(Generic[Item]):
    """Items as an iterator that waits for them."""

    def __init__(self, client: Client, size_max: int) -> None:
        self._client = client
        self._engine = client._engine
        self._inbox: _Inbox[Item] = _Inbox(size_max)

    def get(self, timeout_s: float | None = None) -> Item | None:
        """The next one; None where none comes in time, or none will come any more.

        Raises ClientClosed where the client has failed, or belongs to the process that this was forked from.
        """
        inbox = self._inbox
        self._engine.refuse_forked()
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
        with inbox.changed:
            inbox.changed.wait_for(lambda: inbox.leases[0] == inbox.leases[1], timeout_s)
        self._engine.refuse_failed()
        return inbox.leases

    def close(self) -> None:
        """Stops renewing, and ends the iteration once what has come is taken."""
        if not self._engine.is_forked:
            with self._client._locked():
                self._engine.unsubscribe(self.topic, self._inbox)


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
            with self._client._locked():
                self._engine.ignore(self._inbox)
