"""spark/session/files.py: which files need Java, and what is told of those that are not there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kcast.spark.session.files import Files


def files_with(jvm: Any) -> Files:
    context = SimpleNamespace(_jvm=jvm, _jsc=MagicMock())
    session: Any = SimpleNamespace(sparkContext=context)
    return Files(session)


class NoJava:
    """Tells that Java was asked, whatever it was asked for."""

    def __getattr__(self, name: str) -> Any:
        def asked(*_: object) -> None:
            raise AssertionError(f"Java was asked for {name}")

        return asked


def test_files_of_this_machine_are_read_without_java(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").mkdir()
    files, folder = files_with(NoJava()), f"file:{tmp_path}"
    assert files.names(folder) == ["a", "b"]
    assert files.names(f"{folder}/none") == files.names(f"{folder}/a") == []
    assert files.read(f"{folder}/a") == b"1"
    assert files.exists(folder) and not files.exists(f"{folder}/none")
    for missing in ("none", "a/none"):
        with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/{missing}: there is no such file"):
            files.read(f"{folder}/{missing}")


def test_files_that_cannot_be_read_are_told_in_words(tmp_path: Path) -> None:
    files = files_with(NoJava())
    with pytest.raises(OSError, match=f"^{tmp_path}: is a directory$"):
        files.read(f"file:{tmp_path}")
    with pytest.raises(OSError, match=r"^/.*: file name too long$"):
        files.names(f"file:{tmp_path}/{'x' * 300}")


def test_other_files_are_asked_of_java() -> None:
    place = MagicMock()
    place.getFileSystem.return_value.exists.return_value = True
    files = files_with(SimpleNamespace(**{"org.apache.hadoop.fs.Path": lambda path: place}))
    assert files.exists("hdfs:///run")
    place.getFileSystem.return_value.exists.assert_called_once_with(place)
