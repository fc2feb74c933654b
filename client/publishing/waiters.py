"""The futures of what becomes of publishes. No clock and no waiting of its own."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from kcast.client.events import Published, PublishedMany


class Waiter(Protocol):
    """Where an outcome goes: a future of asyncio or of concurrent.futures."""

    def done(self) -> bool:
        """Returns whether there is nothing to wait for any more."""

    def set_result(self, result: Any, /) -> None:
        """Takes the outcome: of a publish, or of several; None where that is all there is to tell."""

    def set_exception(self, error: BaseException, /) -> None:
        """Takes the reason why there will be no outcome."""

    def exception(self) -> BaseException | None:
        """Returns the error that was set, which from then on counts as seen."""


def fail(waiter: Waiter, error: BaseException) -> None:
    """Gives an error to who waits, if anybody still does."""
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # asyncio complains of errors that nobody has looked at


class Waiters:
    """Waiters for the outcome of one publish each, and waiters for those of all until now.

    `is_flushing` is whether there are some of the latter kind.
    """

    def __init__(self) -> None:
        self.is_flushing = False
        self._of_one: dict[int, Waiter] = {}
        self._of_all: deque[tuple[int, Waiter]] = deque()  # with the newest handle that each waits for

    def __len__(self) -> int:
        return len(self._of_one) + len(self._of_all)

    def put(self, handle: int, waiter: Waiter) -> None:
        """Lets somebody wait for the outcome of this handle."""
        self._of_one[handle] = waiter

    def tell(self, outcome: Published | PublishedMany) -> None:
        """Gives an outcome to who waits for it."""
        waiter = self._of_one.pop(outcome.handle, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    def put_flushing(self, newest: int, waiter: Waiter) -> None:
        """Lets somebody wait for the outcomes of all handles up to the newest."""
        self._of_all.append((newest, waiter))
        self.is_flushing = True

    def look_for_flushed(self, oldest: int | None) -> None:
        """Tells those who wait for all until then. `oldest` is the first handle without an outcome."""
        while self._of_all and (oldest is None or oldest > self._of_all[0][0]):
            _, waiter = self._of_all.popleft()
            if not waiter.done():
                waiter.set_result(None)
        self.is_flushing = bool(self._of_all)

    def end(self, make_error: Callable[[], BaseException]) -> None:
        """Tells all that there will be no outcome."""
        for waiter in (*self._of_one.values(), *[waiter for _, waiter in self._of_all]):
            fail(waiter, make_error())
        self._of_one.clear()
        self._of_all.clear()
        self.is_flushing = False
