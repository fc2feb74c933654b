"""Files by any path that Spark's Hadoop file systems know: of this machine, hdfs, s3a and others.

Paths are text, with their scheme, as `qualify` gives them.
"""

import io
from collections.abc import Callable
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kcast.spark.session.failures import first_line

_T = TypeVar("_T")

_LOCAL = "file:"
_GLOB = "\\{}[]*?"


def shown(path: str) -> str:
    """A path as people write it."""
    local = path.removeprefix(_LOCAL)
    return f"/{local.lstrip('/')}" if local != path else path


def literal(path: str) -> str:
    """A path for Spark's readers, which take some characters for patterns."""
    return "".join(f"\\{char}" if char in _GLOB else char for char in path)


class Files:
    """Reads and lists files through a session. For any number of threads. Methods raise OSError."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        self._conf: Any = context._jsc.hadoopConfiguration()

    def qualify(self, path: str) -> str:
        """The whole path, with its scheme. Raises OSError also where no file system knows it."""

        def ask() -> str:
            file_system, place = self._at(path)
            return str(file_system.makeQualified(place).toString())

        return _asked(path, ask)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

        def ask() -> bool:
            file_system, place = self._at(path)
            return bool(file_system.exists(place))

        return _asked(path, ask)

    def read(self, path: str) -> bytes:
        """All that a small file has. Raises FileNotFoundError, too."""

        def ask() -> bytes:
            file_system, place = self._at(path)
            stream = file_system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return _asked(path, ask)

    def names(self, folder: str) -> list[str]:
        """The names of what is in a folder, sorted; none where there is no folder."""

        def ask() -> list[str]:
            file_system, place = self._at(folder)
            found = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(file_system.listStatus(place))
            # In one text, since each question to Java takes its time.
            lines = str(self._jvm.scala.Predef.genericWrapArray(found).mkString("\n"))
            return sorted(line.rpartition("/")[2] for line in lines.split("\n") if line)

        try:
            return _asked(folder, ask)
        except FileNotFoundError:
            return []

    def open(self, path: str) -> Any:
        """What pyarrow can read a file from."""
        if path.startswith(_LOCAL):
            return shown(path)

        def ask() -> _Stream:
            file_system, place = self._at(path)
            size = int(file_system.getFileStatus(place).getLen())
            return _Stream(path, file_system.open(place), size)

        return _asked(path, ask)

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._conf), place


class _Stream(io.RawIOBase):
    """A Hadoop file system's stream as a Python file."""

    def __init__(self, path: str, stream: Any, size: int) -> None:
        super().__init__()
        self._path, self._stream, self._size, self._at = path, stream, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._size - self._at))
        if not wanted:
            return 0

        def ask() -> bytes:
            self._stream.seek(self._at)
            return bytes(self._stream.readNBytes(wanted))

        data = _asked(self._path, ask)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _asked(path: str, ask: Callable[[], _T]) -> _T:
    """What Java answers; its complaints as OSError."""
    try:
        return ask()
    except PySparkException as error:  # Spark makes its own of some of Java's
        raise OSError(f"{shown(path)}: {first_line(error)}") from None
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getSimpleName())
        if kind in ("FileNotFoundException", "NoSuchFileException"):
            raise FileNotFoundError(f"{shown(path)}: there is no such file") from None
        raise OSError(f"{shown(path)}: {first_line(error)}") from None
