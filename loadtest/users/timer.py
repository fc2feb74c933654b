"""Wakes greenlets at exact times: gevent's timers are up to a millisecond late, since epoll counts in those.

On Linux a timerfd wakes the loop within microseconds. Elsewhere, and where timerfd_create fails, gevent's
timers are used. How late each message was published is recorded in any case.
"""

import ctypes
import os
from contextlib import suppress
from heapq import heappop, heappush
from time import monotonic_ns

import gevent
from gevent.event import Event

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_READ = 1


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: the interval, which is not used, and the time; each in seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns"))


class Timer:
    """A timer for any number of greenlets of one process. Call `close` when done."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Event]] = []  # a heap; the number keeps events from being compared
        self._count = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        try:
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        except AttributeError:
            return  # not Linux
        if self._descriptor >= 0:
            self._greenlet = gevent.spawn(self._run)

    def wait_until(self, at_ns: int) -> bool:
        """Returns at `at_ns` of the monotonic clock, at once if that has passed. True if it had to wait."""
        if at_ns <= monotonic_ns():
            return False
        if self._descriptor < 0:
            while (left_ns := at_ns - monotonic_ns()) > 0:
                gevent.sleep(left_ns / 1e9)
            return True
        event = Event()
        self._count += 1
        heappush(self._due, (at_ns, self._count, event))
        if self._due[0][2] is event:
            self._set(at_ns)
        event.wait()
        return True

    def close(self) -> None:
        """Closes the timerfd. No greenlet may be waiting."""
        if self._descriptor >= 0:
            self._greenlet.kill()
            os.close(self._descriptor)
            self._descriptor = -1

    def _set(self, at_ns: int) -> None:
        spec = _TimerSpec(0, 0, *divmod(at_ns, 10**9))
        self._libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)

    def _run(self) -> None:
        hub = gevent.get_hub()
        with hub.loop.io(self._descriptor, _READ) as readable:
            while True:
                hub.wait(readable)
                with suppress(BlockingIOError):  # it was set again since it fired
                    os.read(self._descriptor, 8)
                now_ns = monotonic_ns()
                while self._due and self._due[0][0] <= now_ns:
                    heappop(self._due)[2].set()
                if self._due:
                    self._set(self._due[0][0])
