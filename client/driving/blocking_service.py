"""Members and services for threads: threads around the layers of `kcast.client.layers`."""

import _thread
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Self

from kcast.client.driving.arguments import ServiceOptions
from kcast.client.driving.blocking_items import ThreadWaker, _Items
from kcast.client.driving.engine import QUEUE_MAX
from kcast.client.driving.engine_thread import EngineThread
from kcast.client.driving.inbox import Inbox
from kcast.client.driving.mailboxes import Handlers, ServiceBase, begin_members
from kcast.client.errors import ClientClosed
from kcast.client.layers.members import Member, MemberJoined, MemberLeft
from kcast.client.layers.service import Job
from kcast.pubsub import clock

CONCURRENCY = 16
READY_LOOK_S = 0.02


class Members(_Items[MemberJoined | MemberLeft]):
    """Who is there on a topic (`Client.members`): iterate over who joins and leaves. It ends with `close`,
    at the end of a `with`, and with the client."""

    def __init__(
        self, thread: EngineThread, topic: str | bytes, info: str | None, senders: Iterable[str] | None
    ) -> None:
        waker = ThreadWaker(thread.wake_calls)
        super().__init__(thread, Inbox(waker, QUEUE_MAX), waker)
        self._members = begin_members(thread.engine, self._inbox, topic, info, senders)
        self.topics = self._members.topics

    @property
    def alive(self) -> tuple[Member, ...]:
        """The members that are known now; this one is among them, once it has heard itself."""
        self._engine.refuse_forked()
        return self._thread.use(lambda: self._members.alive)

    def ready(self, timeout_s: float | None = None) -> None:
        """Waits until who is there has had time to say so, 0.5 s after the leases stand.

        - `timeout_s`: seconds to wait at most; without limit by default.
        """
        self._engine.refuse_forked()
        self._thread.refuse_waiting()
        until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not self._inbox.is_ended and not self._members.is_ready(clock.now()):
            if time.monotonic() >= until:
                break
            time.sleep(READY_LOOK_S)

    def close(self) -> None:
        """Leaves, and ends the iteration once what has come is taken."""
        if self._engine.is_open:
            leave = partial(self._engine.layers.use, self._members, self._members.leave)
            self._thread.use_or_defer(leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Service(ServiceBase):
    """A service (`Client.service`); use it with `with`, or `close` it. `name` is the worker's."""

    def __init__(
        self, thread: EngineThread, topic: str | bytes, handler: Handlers, options: ServiceOptions
    ) -> None:
        self._thread = thread
        self._over = threading.Event()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        super().__init__(thread.engine, topic, handler, options, CONCURRENCY, self._run, self._end)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the service has ended; returns whether it has.

        - `timeout_s`: seconds to wait at most; without limit by default.

        Raises ClientClosed where the client has failed, and in a process that was forked from the client's.
        """
        self._engine.refuse_forked()
        self._thread.refuse_waiting()
        is_over = self._over.wait(timeout_s)
        self._engine.refuse_failed()
        return is_over

    def close(self) -> None:
        """Takes no more requests, and waits for those that run, for 5 s at most."""
        if self._engine.is_open:
            self._thread.use_or_defer(partial(self._engine.layers.use, self._service, self._service.leave))
            self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, job: Job) -> None:
        needs_thread = self._service.running > self._threads
        self._threads += needs_thread
        self._thread.wake_calls.append(partial(self._hand_on, job, needs_thread))

    def _hand_on(self, job: Job, needs_thread: bool) -> None:
        if needs_thread:
            # No threading.Thread: under gevent it goes on in a forked process, and cannot end well there.
            _thread.start_new_thread(self._work, ())
        self._jobs.put(job)

    def _end(self) -> None:
        self._thread.wake_calls.append(self._over.set)
        self._thread.wake_calls.extend([partial(self._jobs.put, None)] * self._threads)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._handle(job)

    def _handle(self, job: Job) -> None:
        end: Callable[[float], None] = partial(self._service.finish, job, b"")  # whose time may be over
        if self._service.may_begin(job, clock.now()):
            try:
                end = self._answered(job, self._called(job))
            except BaseException as error:  # a thread that ended would be missing from now on
                end = self._failed(job, error)
        with suppress(ClientClosed):
            self._thread.send_or_defer(partial(self._engine.layers.use, self._service, end), _ignore)


def _ignore(error: Any) -> None:
    """The client was closed meanwhile."""
