"""Tells what a process has open to close it where that process is forked."""

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What must not be used in two processes."""

    def after_fork(self) -> None:
        """Closes it in the forked process."""


_watched: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def watch(given: Forkable) -> None:
    """Sees that something is closed in each process forked from now on, as long as somebody refers to it."""
    _watched.add(given)


def _after_fork() -> None:
    for each in _watched:
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)
