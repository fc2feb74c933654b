"""Files on all file systems that Spark's Hadoop knows: this machine's, hdfs, s3a and others.

Paths are text with their scheme, as `qualify` returns them.
"""

import io
from collections.abc import Callable
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kcast.spark.session.failures import first_line
from kcast.spark.session.local_files import LocalFiles
from kcast.spark.session.local_files import shown as shown

_T = TypeVar("_T")

_LOCAL = "file:"
_GLOB = "\\{}[]*?"
_HERE = LocalFiles()


def literal(path: str) -> str:
    """A path for Spark's readers, with the characters escaped that these take for patterns."""
    return "".join(f"\\{char}" if char in _GLOB else char for char in path)


class Files:
    """Reads and lists files through a session, in any thread. All methods raise OSError."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        self._conf: Any = context._jsc.hadoopConfiguration()
        self._path: Any = self._java_class("org.apache.hadoop.fs.Path")

    def qualify(self, path: str) -> str:
        """The absolute path with its scheme. Raises OSError, also if no file system has this scheme."""

        def ask() -> str:
            file_system, place = self._at(path)
            return str(file_system.makeQualified(place).toString())

        return _asked(path, ask)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at this path."""
        if path.startswith(_LOCAL):
            return _HERE.exists(path)

        def ask() -> bool:
            file_system, place = self._at(path)
            return bool(file_system.exists(place))

        return _asked(path, ask)

    def read(self, path: str) -> bytes:
        """The content of a small file. Raises FileNotFoundError if there is none."""
        if path.startswith(_LOCAL):
            return _HERE.read(path)

        def ask() -> bytes:
            file_system, place = self._at(path)
            stream = file_system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return _asked(path, ask)

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a folder, sorted; none if there is no such folder."""
        if folder.startswith(_LOCAL):
            return _HERE.names(folder)

        def ask() -> list[str]:
            file_system, place = self._at(folder)
            file_util = self._java_class("org.apache.hadoop.fs.FileUtil")
            found = file_util.stat2Paths(file_system.listStatus(place))
            # In one text: each call to Java takes time.
            lines = str(self._java_class("scala.Predef").genericWrapArray(found).mkString("\n"))
            return sorted(line.rpartition("/")[2] for line in lines.split("\n") if line)

        try:
            return _asked(folder, ask)
        except FileNotFoundError:
            return []

    def open(self, path: str) -> Any:
        """A path or file object from which pyarrow can read the file."""
        if path.startswith(_LOCAL):
            return shown(path)

        def ask() -> _HadoopFile:
            file_system, place = self._at(path)
            size = int(file_system.getFileStatus(place).getLen())
            return _HadoopFile(path, file_system.open(place), size)

        return _asked(path, ask)

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._path(path)
        return place.getFileSystem(self._conf), place

    def _java_class(self, name: str) -> Any:
        # By its whole name: of `jvm.org.apache`, Java would look for each part in hundreds of files.
        return getattr(self._jvm, name)


class _HadoopFile(io.RawIOBase):
    """A stream of a Hadoop file system as a Python file, read only."""

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
        size = min(len(buffer), max(0, self._size - self._at))
        if not size:
            return 0

        def ask() -> bytes:
            self._stream.seek(self._at)
            return bytes(self._stream.readNBytes(size))

        data = _asked(self._path, ask)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        """The rest of the file, with one call to Java."""

        def ask() -> bytes:
            self._stream.seek(self._at)
            return bytes(self._stream.readAllBytes())

        data = _asked(self._path, ask)
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _asked(path: str, ask: Callable[[], _T]) -> _T:
    """Java's answer. Raises OSError for its errors."""
    try:
        return ask()
    except PySparkException as error:  # to which PySpark converts some of Java's
        raise OSError(f"{shown(path)}: {first_line(error)}") from None
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getSimpleName())
        if kind in ("FileNotFoundException", "NoSuchFileException"):
            raise FileNotFoundError(f"{shown(path)}: there is no such file") from None
        raise OSError(f"{shown(path)}: {first_line(error)}") from None
