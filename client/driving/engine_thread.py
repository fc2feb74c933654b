"""A thread that makes an engine's turns, and the lock by which other threads use that engine.

One lock guards the engine; the thread holds it during its turns, and nobody holds it while waiting. The
thread waits for the network and for users at once, so users wake it through a socket pair.

A signal's handler, or a finalizer, may run while its own thread holds a lock. If that is the engine's lock,
the engine is in the middle of something: what can wait is left to the next turn (`use_or_defer`), and all
else raises. If it is the lock of a future or an inbox, the handler may have to wait for the engine's lock: so
a thread that has the engine's lock never waits for one of those. It appends to `wake_calls` instead.

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
from contextlib import suppress
from functools import partial
from math import inf
from typing import TypeVar

from kcast.client.driving.engine import CLOSE_S, Engine
from kcast.client.driving.ticker import Ticker

Result = TypeVar("Result")

# In which the thread ends, if it runs at all: a function of the user's that does not return may hold it up.
CLOSE_TIMEOUT_S = CLOSE_S + 5.0

_TIMER_SLACK_S = 0.001  # selectors round to milliseconds
_WAIT_MAX_S = 3600.0  # they refuse to wait for months
# The pause after a turn or a slice of minting while others wait for the lock. Locks are not fair: without it
# the thread would have the lock again before another has woken up.
_PAUSE_S = 0.00005


class EngineThread:
    """Makes the turns of an engine from `open` to `close`, and lets other threads use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.wake_calls: deque[Callable[[], None]] = deque()  # wake waiters, once the lock is released
        # Reentrant, since a signal's handler may come when its thread has the lock but is not `_user` yet, or
        # is so no more. The engine is not in the middle of anything then.
        self._lock = threading.RLock()
        self._user = 0  # the thread that is in the middle of using the engine
        self._waiting: set[int] = set()  # the threads that want the lock, or have it
        self._deferred: deque[Callable[[], None]] = deque()  # what the next turn begins with
        self._path_error: Exception | None = None  # that the next turn raises
        self._is_woken = False
        self._wake_sender: socket.socket | None = None
        self._ticker: Ticker | None = None  # wakes the thread in place of the selector, which rounds
        self._is_closing = False
        self._ends_at = inf  # what is held back then is given up
        self._has_ended = threading.Event()
        self._thread_id = 0

    def open(self) -> None:
        """Opens the socket and starts the thread. Raises OSError; ClientClosed where it was open before."""
        self.use(self._open)

    def _open(self) -> None:
        self.engine.open()
        resources = self.engine.resources
        try:
            self._wake_receiver, wake_sender = map(resources.enter_context, socket.socketpair())
            self._wake_receiver.setblocking(False)
            wake_sender.setblocking(False)
            self._selector = resources.enter_context(selectors.DefaultSelector())
            self._selector.register(self.engine.fileno(), selectors.EVENT_READ)
            self._selector.register(self._wake_receiver, selectors.EVENT_READ)
            self._wake_sender = wake_sender
            # No threading.Thread: under gevent it goes on in a forked process, and cannot end well there.
            _thread.start_new_thread(self._run, ())
        except BaseException:
            self.engine.close()
            raise

    def close(self) -> None:
        """Sends what was published, and ends all waiting; does nothing where it is closed already.

        Returns when that is done, but earlier in a callback, or a handler that has interrupted a method.
        """
        if not self.engine.is_open:
            return
        self.use_or_defer(self._end_soon)
        if threading.get_ident() not in (self._thread_id, self._user):
            self._has_ended.wait(CLOSE_TIMEOUT_S)

    def _end_soon(self) -> None:
        self._is_closing = True

    # --- The lock ------------------------------------------------------------------------------------

    def use(self, act: Callable[[], Result]) -> Result:
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

    def send_or_defer(self, act: Callable[[], None], on_late_error: Callable[[Exception], None]) -> None:
        """Does as `use_or_defer`, and sends what comes of it at once, unless a turn is about to come: the
        first of a turn does not wait for the thread, and those that follow soon leave together."""

        def act_and_send() -> None:
            act()
            if not self._is_woken:
                try:
                    self.engine.send_at_once()  # the turn that follows sees to what is due
                except Exception as error:  # of a path: it is that turn which fails
                    self._path_error = error

        self.use_or_defer(act_and_send, on_late_error)

    def use_or_defer(
        self, act: Callable[[], None], on_late_error: Callable[[Exception], None] | None = None
    ) -> None:
        """Acts, and has a turn made. Where this thread is in the middle of an act, the next turn does it."""

        def act_now() -> None:
            act()
            self.wake()

        def act_late() -> None:
            try:
                act()
            except Exception as error:
                if on_late_error is None:
                    raise
                on_late_error(error)

        if self._is_reentered():
            self._deferred.append(act_late)
            self.wake()
        else:
            self.use(act_now)

    def defer(self, act: Callable[[], None]) -> None:
        """Lets the next turn begin with an act. It never waits for the lock: for threads for which somebody
        who holds it may wait."""
        self._deferred.append(act)
        self._ring()

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

    def refuse_waiting(self) -> None:
        """Raises RuntimeError where this thread would wait for itself."""
        self._refuse_reentry()
        if self._thread_id == threading.get_ident():
            raise RuntimeError(
                "a callback runs in the client's thread, which must not wait: use publish_nowait or "
                "request_nowait, or another thread"
            )

    def wake(self) -> None:
        """Wakes the thread for a turn. The lock must be held."""
        if not self._is_woken and self._wake_sender is not None and self.engine.is_open:
            self._is_woken = True
            self._wake_sender.send(b"\0")

    def wake_exactly(self) -> None:
        """Wakes the thread more exactly than its selector does, from now on. The lock must be held."""
        if self._ticker is None:
            self._ticker = Ticker(self._ring)
            self.engine.resources.callback(self._ticker.close)

    def _ring(self) -> None:
        sender = self._wake_sender
        if sender is not None:
            with suppress(OSError):  # it is full, or closed
                sender.send(b"\0")

    # --- The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        failure = None
        self._thread_id = threading.get_ident()
        try:
            while self.engine.is_open:
                is_closing = (
                    self._is_closing
                )  # read before the turn that is to send what was published before
                self._hold(self._take_in)
                self._wake_waiters()  # who waited for a delivery goes on before the rest of the turn
                delay_s = self._hold(self._finish_turn)
                self._wake_waiters()
                if is_closing and self._may_end():
                    break
                if self.engine.core.is_minting:
                    self._hold(self.engine.mint)
                    time.sleep(_PAUSE_S)
                else:
                    self._wait(delay_s)
        except BaseException as error:  # for those who wait, now or later
            failure = error
        try:
            self._hold(partial(self._end, failure))
            while self.wake_calls:
                try:
                    self._wake_waiters()
                except BaseException as error:  # of one function; the others are still to be called
                    failure = failure or error
        finally:
            self._thread_id = 0  # another thread may come to have it
            self._has_ended.set()
        if isinstance(failure, KeyboardInterrupt):
            raise failure  # under gevent: it was meant for the main thread, which we are in

    def _may_end(self) -> bool:
        """Whether nothing is held back any more, or has been for too long."""
        self._ends_at = min(self._ends_at, time.monotonic() + CLOSE_S)
        return not self.engine.core.holds_back or time.monotonic() >= self._ends_at

    def _take_in(self) -> None:
        if self._path_error is not None:
            raise self._path_error
        self._catch_up()
        self.engine.take_in()

    def _finish_turn(self) -> float | None:
        return self.engine.finish_turn() if self.engine.is_open else None

    def _end(self, failure: BaseException | None) -> None:
        self.engine.close(failure)
        self._catch_up()

    def _catch_up(self) -> None:
        """Does what was deferred until now."""
        for _ in range(len(self._deferred)):
            self._deferred.popleft()()

    def _wake_waiters(self) -> None:
        """Wakes those who wait. The lock must not be held: they may want it while they hold their own."""
        while self.wake_calls:
            self.wake_calls.popleft()()

    def _wait(self, delay_s: float | None) -> None:
        """Waits until something arrives, somebody asks for a turn, or one is due."""
        if self._waiting:
            time.sleep(_PAUSE_S)
        timeout_s = None if delay_s is None else min(delay_s + _TIMER_SLACK_S, _WAIT_MAX_S)
        if self._ticker is not None:
            self._ticker.wake_in(delay_s)
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(64)
                # Only after `recv`: who finds it woken need not send, since a turn is about to follow.
                self._is_woken = False
