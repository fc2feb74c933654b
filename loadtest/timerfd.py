"""A timer of Linux that an event loop watches like a socket, and that is exact to some microseconds.

The timers of event loops are up to a millisecond late, since epoll counts in milliseconds.
"""

import ctypes
import os
from contextlib import suppress
from typing import Self

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: the interval, which is not used, and the time; each in seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns"))


class TimerFd:
    """A descriptor that becomes readable at the time that was set. Call `close` when done."""

    def __init__(self, descriptor: int, libc: ctypes.CDLL) -> None:
        self._descriptor = descriptor
        self._libc = libc

    @classmethod
    def open(cls) -> Self | None:
        """Returns a timer that is not set; None where the system has none."""
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            descriptor = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        except AttributeError:
            return None  # not Linux
        return cls(descriptor, libc) if descriptor >= 0 else None

    def fileno(self) -> int:
        """Returns the descriptor to watch for reading."""
        return self._descriptor

    def set(self, at_ns: int) -> None:
        """Sets the time, in ns of the monotonic clock, in place of the one that was set before."""
        spec = _TimerSpec(0, 0, *divmod(at_ns, 10**9))
        self._libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)

    def clear(self) -> None:
        """Makes it no longer readable; call this once it has become so."""
        with suppress(BlockingIOError):  # it was set again since
            os.read(self._descriptor, 8)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._descriptor)
