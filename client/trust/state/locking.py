"""Folders of state: whose they are, and who may write there now."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kcast.client.trust.state.places import StateError

LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.05


class Busy(StateError):
    """Another process has held the lock for too long."""


def require_ours(folder: Path) -> None:
    """Sees that nobody else writes to a folder, where it is there. Raises StateError."""
    try:
        found = folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StateError(f"{folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise StateError(f"{folder}: it is no folder: move it away")
    require_unshared(folder, found)


def require_unshared(path: Path, found: os.stat_result) -> None:
    """Sees that nobody else writes to a folder or file, by what the system tells of it. Raises StateError."""
    if found.st_uid not in (os.geteuid(), 0):
        raise StateError(f"{path}: it belongs to another user: use one of your own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StateError(f"{path}: others may write there: chmod go-w it, once you know who did")


@contextmanager
def locked(folder: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Keeps others who lock this folder out meanwhile, in this process and in others.

    Raises Busy where one does not end in this time. Where there is no folder, or none that can be read, there
    is nothing to lock: then it does nothing.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    _locks.add(descriptor)
    try:
        _lock(folder, descriptor, wait_s)
        yield
    finally:
        if descriptor in _locks:  # a forked process has let it go already
            _locks.remove(descriptor)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock(folder: Path, descriptor: int, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise Busy(f"{folder}: another kcast has been at work there for {wait_s:g} s") from None
        except OSError:  # a file system without locks: the order of writes still keeps it whole
            return None
        time.sleep(_LOCK_POLL_S)


_locks: set[int] = set()  # descriptors: a forked process must not keep a lock of its parent's


def _after_fork() -> None:
    while _locks:
        with suppress(OSError):
            os.close(_locks.pop())


os.register_at_fork(after_in_child=_after_fork)
