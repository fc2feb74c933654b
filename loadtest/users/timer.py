"""Wakes greenlets at exact times: by a timerfd on Linux, elsewhere by gevent's timers.

How late each message was published is recorded in any case.
"""

from heapq import heappop, heappush
from time import monotonic_ns

import gevent
from gevent.event import Event

from kcast.loadtest.timerfd import TimerFd

_READ = 1


class Timer:
    """A timer for any number of greenlets of one process. Call `close` when done."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Event]] = []  # a heap; the number keeps events from being compared
        self._count = 0
        self._timer = TimerFd.open()
        if self._timer is not None:
            self._greenlet = gevent.spawn(self._run, self._timer)

    def wait_until(self, at_ns: int) -> bool:
        """Returns at `at_ns` of the monotonic clock, at once if that has passed. True if it had to wait."""
        if at_ns <= monotonic_ns():
            return False
        if self._timer is None:
            while (left_ns := at_ns - monotonic_ns()) > 0:
                gevent.sleep(left_ns / 1e9)
            return True
        event = Event()
        self._count += 1
        heappush(self._due, (at_ns, self._count, event))
        if self._due[0][2] is event:
            self._timer.set(at_ns)
        event.wait()
        return True

    def close(self) -> None:
        """Closes the timerfd. No greenlet may be waiting."""
        if self._timer is not None:
            self._greenlet.kill()
            self._timer.close()
            self._timer = None

    def _run(self, timer: TimerFd) -> None:
        hub = gevent.get_hub()
        with hub.loop.io(timer.fileno(), _READ) as readable:
            while True:
                hub.wait(readable)
                timer.clear()
                now_ns = monotonic_ns()
                while self._due and self._due[0][0] <= now_ns:
                    heappop(self._due)[2].set()
                if self._due:
                    timer.set(self._due[0][0])
