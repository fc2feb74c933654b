"""Threads and locks of the system's, also where gevent's monkey patches stand in for them.

A patched thread is a greenlet: it would write files in the loop that it is to be kept out of. gevent keeps
what it has replaced, and gives it back on request; gevent need not be there.

Such a thread must use nothing that gevent has replaced: no `threading`, `queue`, `logging` or `time.sleep`.
"""

import sys
from _thread import LockType
from collections.abc import Callable
from typing import Any


def spawn(work: Callable[[], None]) -> None:
    """Runs it in a thread of the system's, which does not keep the process alive."""
    _original("_thread", "start_new_thread")(work, ())


def new_lock() -> LockType:
    """A lock that makes a whole thread wait, with all its greenlets: to be held for microseconds only."""
    lock: LockType = _original("_thread", "allocate_lock")()
    return lock


def sleep(seconds: float) -> None:
    """Makes the whole thread wait, with all its greenlets."""
    _original("time", "sleep")(seconds)


def _original(module: str, name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(__import__(module), name)
