"""Work that a watch has done beside the engine's turns: in a thread, under gevent in a greenlet."""

import _thread
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kcast.pubsub.errors import KcastError

Start = Callable[[Callable[[], None]], object]
_Found = TypeVar("_Found")


def in_thread(act: Callable[[], None]) -> None:
    """Runs something in a thread that the interpreter does not wait for when it ends."""
    _thread.start_new_thread(act, ())


class Aside(Generic[_Found]):
    """One piece of work at a time, which `start` runs. It `is_busy` from `begin` until `take` has returned
    what came of it."""

    def __init__(self, start: Start = in_thread) -> None:
        self.is_busy = False
        self._start = start
        self._found: deque[_Found | KcastError] = deque()  # the thread appends to it

    def begin(self, work: Callable[[], _Found]) -> None:
        """Has something done."""
        self.is_busy = True

        def act() -> None:
            try:
                self._found.append(work())
            except KcastError as error:
                self._found.append(error)
            except BaseException as error:  # whatever ends the thread must not end all work for good
                self._found.append(KcastError(f"{type(error).__name__}: {error}"))
                raise

        try:
            self._start(act)
        except RuntimeError as error:  # the system gives no thread now
            self._found.append(KcastError(str(error)))

    def take(self) -> _Found | KcastError | None:
        """Returns what was found, or why nothing was; None where that is not there yet."""
        if not self._found:
            return None
        self.is_busy = False
        return self._found.popleft()
