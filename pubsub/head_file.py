"""The file of `kcast serve --head @FILE`: looked at when the server starts, and then once a minute.

It is read in a thread of its own. So a file on a disk that hangs cannot make the server deaf.
"""

import os
import stat
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from kcast.pubsub import wire
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import HEAD_CHARS_MAX
from kcast.pubsub.log import Log

LOOK_INTERVAL_S = 60.0

_FILE_BYTES_MAX = 1024  # a head with blank space around it


class HeadFileError(KcastError):
    """The file has no head in it, or cannot be read."""


def read_head(path: str) -> str:
    """Returns the text of a file without the blank space around it. Raises HeadFileError if it is no head.

    An empty file is no head: a program that writes the file anew may be seen between its two steps.
    """
    try:
        # Opening a device, or a pipe that nobody writes to, could have effects or wait for ever.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise HeadFileError(f"{path}: not a file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _FILE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HeadFileError(f"{path}: {error.strerror or error}") from None
    except ValueError:  # a zero byte in the path
        raise HeadFileError(f"{path!r}: not the name of a file") from None
    head = data.removeprefix(BOM_UTF8).decode("latin-1").strip(" \t\r\n")
    if not head:
        raise HeadFileError(f"{path}: empty")
    if len(data) > _FILE_BYTES_MAX or not wire.is_head(head):
        raise HeadFileError(f"{path}: not one line of {HEAD_CHARS_MAX} printable ASCII, no spaces, at most")
    return head


class HeadFile:
    """Looks at the file. `head` is the head now; a new one goes to `use`.

    While the file is wrong, the last good head stays. Each change makes one line in the log.
    """

    def __init__(self, path: str, head: str, use: Callable[[str], None], log: Log) -> None:
        self.failed_looks = 0
        self._path = path
        self._head = head
        self._use = use
        self._log = log
        self._trouble = ""
        self._closed = Event()

    def look(self) -> None:
        """Reads the file once."""
        before = self._head, self._trouble
        try:
            self._head, self._trouble = read_head(self._path), ""
        except HeadFileError as error:
            self._trouble = str(error)
            self.failed_looks += 1
        if (self._head, self._trouble) == before:
            return
        if self._trouble:
            text = f"--head: {self._trouble}; answers go on carrying {self._head}"
            self._log.warning("head", text, head=self._head)
        else:
            self._use(self._head)
            self._log.info("head", f"--head: answers carry {self._head}", head=self._head)

    def watch(self) -> None:
        """Starts the thread that looks now, and then once a minute."""
        Thread(target=self._look_on, name="head", daemon=True).start()

    def close(self) -> None:
        """Ends the thread. It does not wait for a look that hangs."""
        self._closed.set()

    def _look_on(self) -> None:
        while not self._closed.is_set():
            self.look()
            self._closed.wait(LOOK_INTERVAL_S)
