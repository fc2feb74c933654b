"""Files of this machine, read without Spark: so a path that is wrong is told before Spark is started."""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

PAIRS_FOLDER, MISSES_FOLDER = "pairs", "misses"
"""The folders beside a report that have what became of each pair."""

_LOCAL = "file:"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# Where one of these is set, Hadoop may take a path without a scheme for one on another file system.
_OF_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")


def is_on_this_machine(path: str, environment: Mapping[str, str]) -> bool:
    """Whether Spark will certainly look for the path on this machine."""
    if is_name(path):
        return True
    if _URL.match(path):
        return path.startswith(_LOCAL)
    return not any(environment.get(name) for name in _OF_HADOOP)


def is_name(path: str) -> bool:
    """Whether it is a relative path in which Hadoop would take for a scheme what stands before a colon."""
    return ":" in path.partition("/")[0] and (_URL.match(path) is None or Path(path).exists())


def shown(path: str) -> str:
    """A path as people write it: without a scheme if it is on this machine."""
    local = path.removeprefix(_LOCAL)
    return f"/{local.lstrip('/')}" if local != path else path


class LocalFiles:
    """Reads and lists files as `kcast.spark.session.files.Files` does."""

    def qualify(self, path: str) -> str:
        """The absolute path with its scheme. Raises OSError where it is none that Java can find."""
        whole = os.path.normpath(Path(path if is_name(path) else _plain(path)).absolute())
        refuse_bytes(whole)
        return f"{_LOCAL}{whole}"

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at this path."""
        return Path(_plain(path)).exists()

    def read(self, path: str) -> bytes:
        """The content of a small file. Raises FileNotFoundError if there is none, and other OSErrors."""
        try:
            return Path(_plain(path)).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{_plain(path)}: there is no such file") from None
        except OSError as error:
            raise _told(path, error) from None

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(each.name for each in Path(_plain(folder)).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _told(folder, error) from None


def refuse_bytes(path: str) -> None:
    """Raises OSError for a path with bytes that are no text, which Python finds and Java does not."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OSError("Spark finds names that are UTF-8 only: rename the file or folder") from None


def refuse_unwritable(folder: Path) -> None:
    """Raises OSError if files cannot be written into this folder, or it is not there and cannot be made.

    That is tried, and undone: rights alone do not tell of a disk that is read-only, or of /proc.
    """
    made = [each for each in (folder, *folder.absolute().parents) if not each.exists()]
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{there}: not a folder, so {folder} cannot be written: give another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise PermissionError(f"{folder}: cannot be written to ({why}): give another --out") from None
    finally:
        for each in made:
            with suppress(OSError):  # it was not made, or another program has written into it by now
                each.rmdir()


def refuse_other_pairs(out: Path) -> None:
    """Raises OSError if a folder of pairs in `out` has anything but what an earlier analysis wrote."""
    for name in (PAIRS_FOLDER, MISSES_FOLDER):
        folder = out / name
        if folder.exists() and not _is_ours(folder):
            raise FileExistsError(f"{folder} is no folder of an earlier analysis: give another --out")


def remove_earlier_pairs(out: Path) -> None:
    """Removes what an earlier analysis wrote: else a report would stand beside the pairs of another.

    Raises OSError.
    """
    for name in (PAIRS_FOLDER, MISSES_FOLDER):
        folder = out / name
        if folder.exists() and _is_ours(folder):
            shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    names = ("part-", ".part-", "_SUCCESS", "._SUCCESS", "_temporary")  # as Spark's files begin
    is_folder = folder.is_dir() and not folder.is_symlink()
    return is_folder and all(path.name.startswith(names) for path in folder.iterdir())


def _told(path: str, error: OSError) -> OSError:
    """The error as people are told it. It has no number, which would stand before its words."""
    return type(error)(f"{_plain(path)}: {(error.strerror or str(error)).lower()}")


def _plain(path: str) -> str:
    plain = path.removeprefix(_LOCAL)
    return f"/{plain.lstrip('/')}" if plain != path else path
