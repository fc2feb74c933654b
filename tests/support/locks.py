"""Locks that another thread has."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

WAIT_S = 30.0


@contextmanager
def held_elsewhere(*locks: AbstractContextManager[Any]) -> Iterator[None]:
    """Lets another thread have these until the `with` ends. A process forked meanwhile has them so."""
    held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            is_over.wait(WAIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(WAIT_S)
        yield
    finally:
        is_over.set()
        holder.join()
