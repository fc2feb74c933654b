"""Real threads and locks, even where gevent has monkey-patched Python's.

A patched thread is a greenlet: the writer's would block the loop while it writes files. gevent keeps the
functions that it replaces, and returns them on request. It need not be installed.

Such a thread must use nothing that gevent replaces: no `threading`, `queue`, `logging` or `time.sleep`.
"""

import sys
from _thread import LockType
from collections.abc import Callable
from typing import Any


def spawn(work: Callable[[], None]) -> None:
    """Runs `work` in a real thread, which does not keep the process alive."""
    _original("_thread", "start_new_thread")(work, ())


def new_lock() -> LockType:
    """Returns a lock that blocks a whole thread with all its greenlets: hold it for microseconds only."""
    lock: LockType = _original("_thread", "allocate_lock")()
    return lock


def sleep(seconds: float) -> None:
    """Blocks the whole thread, with all its greenlets."""
    _original("time", "sleep")(seconds)


def _original(module: str, name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(__import__(module), name)
