"""The files of a tap: FILE is being written, FILE.1 is the one before it, and so on.

Their total size is bounded. Files are renamed and deleted before anything is written, so the bound holds at
every moment. Files of an earlier life of the server are kept as far as the bound allows, because they may
explain a loss. Files that are no tap files are never touched.
"""

import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from kcast.pubsub.tap_format import MAGIC, TapError

FILES_PER_BOUND = 8  # a file is full at this fraction of the bound, which is lost when the oldest file goes
FILES_MAX = 64  # a server that keeps crashing leaves many short ones


def numbered(path: Path, number: int) -> Path:
    """Returns the path of the file that was `path` this many files ago; `path` itself for 0."""
    return path.with_name(f"{path.name}.{number}") if number else path


class TapFiles:
    """Creates `path` and writes to it; `rotate` goes on to the next file.

    All files together never take more than `size_bytes_max`, as long as the caller writes none beyond
    `file_bytes_max`. Only their owner can read them, since they tell who subscribes to what.

    Raises TapError if `path` or a numbered file is no tap file, or another process writes it; OSError if the
    system refuses. For one thread at a time.
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
            # Locked until the new file is there, so that of two servers that start at once one is refused.
            self._make_room()
            self._descriptor = self._create()

    def write(self, data: bytes | bytearray) -> None:
        """Writes all of it, without buffers of this process. Raises OSError if that fails."""
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
        # O_EXCL: if another process has created the file meanwhile, that process writes it.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, self._path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _make_room(self) -> None:
        """Renumbers all files, and deletes the oldest, so that there is room for a full file."""
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
