"""spark/session/local_files.py: what can be known of paths before Spark is started."""

import errno
from pathlib import Path

import pytest

from kcast.spark.session import local_files
from kcast.spark.session.local_files import LocalFiles, is_on_this_machine, refuse_unwritable, shown

FILES = LocalFiles()


@pytest.mark.parametrize("path", ["run", "/tmp/run", "../a b", "file:/tmp/run", "file:///tmp/run", "c:"])
def test_paths_of_this_machine(path: str) -> None:
    assert is_on_this_machine(path, {"PATH": "/bin", "SPARK_HOME": ""})


@pytest.mark.parametrize("path", ["hdfs://host/run", "s3a://bucket/run", "HDFS:/run"])
def test_paths_elsewhere(path: str) -> None:
    assert not is_on_this_machine(path, {})


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"])
def test_where_hadoop_is_configured_only_a_scheme_says_that_it_is_here(name: str) -> None:
    assert not is_on_this_machine("run", {name: "/etc/x"})
    assert is_on_this_machine("file:/run", {name: "/etc/x"})


def test_paths_are_qualified_as_hadoop_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a/../run", "run/", str(tmp_path / "run"), f"file://{tmp_path}/run", f"file:{tmp_path}/run"):
        assert FILES.qualify(path) == f"file:{tmp_path}/run"
        assert shown(FILES.qualify(path)) == f"{tmp_path}/run"


def test_files_are_read_and_listed(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"text")
    (tmp_path / "a").mkdir()
    folder = FILES.qualify(str(tmp_path))
    assert FILES.names(folder) == ["a", "b"]
    assert FILES.names(f"{folder}/none") == FILES.names(f"{folder}/b") == []
    assert (FILES.exists(f"{folder}/a"), FILES.exists(f"{folder}/none")) == (True, False)
    assert FILES.read(f"{folder}/b") == b"text"
    for missing in ("none", "b/run.json"):
        with pytest.raises(FileNotFoundError):
            FILES.read(f"{folder}/{missing}")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    refuse_unwritable(tmp_path)
    refuse_unwritable(tmp_path / "new" / "newer")
    for folder in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(NotADirectoryError, match="give another --out"):
            refuse_unwritable(folder)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"], "what was tried is undone"

    # As root, who may write everywhere, would see it on a read-only disk.
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(local_files, "TemporaryFile", refuse)
    with pytest.raises(PermissionError, match=r"read-only file system.: give another --out"):
        refuse_unwritable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
