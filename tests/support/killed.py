"""Processes that are killed before they change the disk, as by `kill -9`."""

import os
import signal
import sys
from collections.abc import Callable

EVENTS = ("open", "os.rename", "os.mkdir", "os.symlink", "os.link", "os.remove", "os.rmdir", "shutil.rmtree")


def child(act: Callable[[], object]) -> int:
    """Acts in a forked process, and returns its exit status."""
    return os.waitpid(forked(act), 0)[1]


def forked(act: Callable[[], object]) -> int:
    """Begins to act in another process, whose number it returns; its exit code is 1 where that fails."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


def killed_at(count: int, act: Callable[[], object]) -> int:
    """Acts in a process that is killed by SIGKILL before its `count`-th change to the disk."""
    left = count

    def hook(event: str, given: tuple[object, ...]) -> None:
        nonlocal left
        is_reading = event == "open" and not int(str(given[2] or 0)) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if event in EVENTS and not is_reading:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def hooked() -> None:
        sys.addaudithook(hook)
        act()

    return child(hooked)
