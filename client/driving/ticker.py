"""Wakes an event loop on time, more exactly than its own timers do.

Event loops round the time that they wait, from the moment at which they begin to wait, up to milliseconds. So
when a timer goes off tells when the loop was last awake, and that can be when a program had something to say.
Cover traffic must not tell this. A thread of its own waits until the time itself.
"""

import os
import threading
from collections.abc import Callable
from math import inf
from time import monotonic

_WAIT_MAX_S = 3600.0


class Ticker:
    """Calls a function, from a thread of its own, once the time has come that was set last."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._at = inf
        self._is_closed = False
        self._changed = threading.Condition()
        self._process = os.getpid()
        threading.Thread(target=self._run, name="kcast-ticker", daemon=True).start()

    def wake_in(self, delay_s: float | None) -> None:
        """Sets the time: after this number of seconds; None for never."""
        at = inf if delay_s is None else monotonic() + delay_s
        with self._changed:
            is_earlier = at < self._at
            self._at = at
            if is_earlier:
                self._changed.notify()

    def close(self) -> None:
        """Ends it. A forked process does not have its thread, and may find its lock taken for ever."""
        self._is_closed = True
        if os.getpid() == self._process:
            with self._changed:
                self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed:
                wait_s = self._at - monotonic()
                if wait_s > 0:
                    self._changed.wait(min(wait_s, _WAIT_MAX_S))
                else:
                    self._at = inf
                    self._call()
