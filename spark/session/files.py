"""Files on all file systems that Spark's Hadoop knows: this machine's, hdfs, s3a and others.

Paths are text with their scheme, as `qualify` returns them.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kcast.spark.session.failures import first_line
from kcast.spark.session.local_files import LocalFiles, is_name
from kcast.spark.session.local_files import shown as shown

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
        if is_name(path):
            return _HERE.qualify(path)
        with _os_errors(path):
            file_system, place = self._at(path)
            return str(file_system.makeQualified(place).toString())

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at this path."""
        if path.startswith(_LOCAL):
            return _HERE.exists(path)
        with _os_errors(path):
            file_system, place = self._at(path)
            return bool(file_system.exists(place))

    def read(self, path: str) -> bytes:
        """The content of a file. Raises FileNotFoundError if there is none."""
        if path.startswith(_LOCAL):
            return _HERE.read(path)
        with _os_errors(path):
            file_system, place = self._at(path)
            stream = file_system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a folder, sorted; none if there is no such folder."""
        if folder.startswith(_LOCAL):
            return _HERE.names(folder)
        with suppress(FileNotFoundError), _os_errors(folder):
            file_system, place = self._at(folder)
            file_util = self._java_class("org.apache.hadoop.fs.FileUtil")
            found = file_util.stat2Paths(file_system.listStatus(place))
            # In one text: each call to Java takes time.
            lines = str(self._java_class("scala.Predef").genericWrapArray(found).mkString("\n"))
            return sorted(line.rpartition("/")[2] for line in lines.split("\n") if line)
        return []

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._path(path)
        return place.getFileSystem(self._conf), place

    def _java_class(self, name: str) -> Any:
        # By its whole name: of `jvm.org.apache`, Java would look for each part in hundreds of files.
        return getattr(self._jvm, name)


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raises OSError for errors of Java."""
    try:
        yield
    except PySparkException as error:  # to which PySpark converts some of Java's
        raise OSError(f"{shown(path)}: {first_line(error)}") from None
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getSimpleName())
        if kind in ("FileNotFoundException", "NoSuchFileException"):
            raise FileNotFoundError(f"{shown(path)}: there is no such file") from None
        raise OSError(f"{shown(path)}: {first_line(error)}") from None
