"""The files of a tap: FILE is being written, FILE.1 was before it, and so on; a bound holds for all together.

Files are moved and deleted before anything is written, so the bound holds at every moment. What an earlier
life of the server has left is kept too, as far as the bound allows: it may be what explains a loss. Files
that are no tap files are never touched.
"""

import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from kcast.pubsub.tap_format import MAGIC, TapError

FILES_PER_BOUND = 8  # a file is full at this part of the bound: so much is lost when the oldest goes
FILES_MAX = 64  # a server that keeps crashing leaves short ones


def numbered(path: Path, number: int) -> Path:
    """`path` itself for 0, and the file that was it so many files ago."""
    return path.with_name(f"{path.name}.{number}") if number else path


class TapFiles:
    """Creates `path` and writes to it; `rotate` goes on to the next file.

    All files together never take more than `size_bytes_max`, so long as none is written beyond
    `file_bytes_max`. Readable by their owner only: they tell who subscribes to what.

    Raises TapError where `path` or one of the numbered files is no tap file, or another process writes it;
    OSError where the system refuses. For one thread at a time.
    """

    def __init__(self, path: Path, size_bytes_max: int) -> None:
        self.file_bytes_max = size_bytes_max // FILES_PER_BOUND
        self._path = path
        self._size_bytes_max = size_bytes_max
        for number in range(FILES_MAX):
            _check(numbered(path, number))
        with ExitStack() as stack:
            with suppress(FileNotFoundError):
                before = stack.enter_context(path.open("rb"))
                _lock(before.fileno(), path)
            # Held until there is a new one, so that of two servers that start at once one is refused.
            self._make_room()
            self._descriptor = self._create()

    def write(self, data: bytes | bytearray) -> None:
        """Writes all of it, past every buffer of this process; OSError where that is not possible."""
        written = os.write(self._descriptor, data)
        while written < len(data):
            written += os.write(self._descriptor, memoryview(data)[written:])

    def rotate(self) -> None:
        """Goes on to a new file."""
        self._make_room()
        descriptor, self._descriptor = self._descriptor, self._create()
        os.close(descriptor)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def _create(self) -> int:
        # O_EXCL: whoever has created it in the meantime writes there.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, self._path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _make_room(self) -> None:
        """Moves all files on by one, and deletes the oldest, so that there is room for a full one."""
        found = [(number, _size_bytes(numbered(self._path, number))) for number in range(FILES_MAX)]
        kept_bytes = sum(size_bytes or 0 for _, size_bytes in found)
        for number, size_bytes in reversed(found):
            if size_bytes is None:
                continue
            file = numbered(self._path, number)
            is_too_much = kept_bytes + self.file_bytes_max > self._size_bytes_max
            if is_too_much or not size_bytes or number == FILES_MAX - 1:
                file.unlink(missing_ok=True)
                kept_bytes -= size_bytes
            else:
                with suppress(FileNotFoundError):
                    file.rename(numbered(self._path, number + 1))


def _size_bytes(file: Path) -> int | None:
    try:
        return file.lstat().st_size
    except FileNotFoundError:
        return None


def _check(file: Path) -> None:
    if _size_bytes(file) is None:
        return
    if file.is_symlink() or not file.is_file():
        raise TapError(f"{file} is no regular file")
    with file.open("rb") as opened:
        begin = opened.read(len(MAGIC))
    if not MAGIC.startswith(begin):
        raise TapError(f"{file} is no tap file, and would be moved or deleted; give another name")


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TapError(f"{path} is being written by another server; give another name") from None
    except OSError:
        pass  # a file system without locks
