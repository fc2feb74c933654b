"""spark/session/local_files.py: what can be known of paths before Spark is started."""

import errno
import os
from pathlib import Path

import pytest

from kcast.spark.request import AnalysisRequest, refuse
from kcast.spark.session import local_files
from kcast.spark.session.local_files import (
    LocalFiles,
    is_on_this_machine,
    refuse_other_pairs,
    refuse_unwritable,
    remove_earlier_pairs,
    shown,
)

FILES = LocalFiles()


def test_a_path_is_on_this_machine_or_may_be_elsewhere() -> None:
    for path in ("run", "/tmp/run", "../a b", "file:/tmp/run", "file:///tmp/run", "c:"):
        assert is_on_this_machine(path, {"PATH": "/bin", "SPARK_HOME": ""}), path
    for path in ("hdfs://host/run", "s3a://bucket/run", "HDFS:/run"):
        assert not is_on_this_machine(path, {}), path
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):  # where Hadoop is configured
        assert not is_on_this_machine("run", {name: "/etc/x"}), name
        assert is_on_this_machine("file:/run", {name: "/etc/x"}), name


def test_paths_are_qualified_as_hadoop_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a/../run", "run/", str(tmp_path / "run"), f"file://{tmp_path}/run", f"file:{tmp_path}/run"):
        assert FILES.qualify(path) == f"file:{tmp_path}/run"
        assert shown(FILES.qualify(path)) == f"{tmp_path}/run"


def test_a_name_that_looks_like_a_url_is_found_as_python_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run-2026-11-28T08:50:00", "a:b", "9:x", "file:x", "s3a:", "é:ü", "hdfs:/run"):
        (tmp_path / name).mkdir(parents=True)
        for path in (name, f"{name}/", f"./{name}"):
            assert is_on_this_machine(path, {}), path
            assert FILES.qualify(path) == f"file:{tmp_path}/{path.removeprefix('./').rstrip('/')}"
        assert is_on_this_machine(name, {"HADOOP_CONF_DIR": "/etc/x"}), "no other file system has such a name"
    for missing in ("run:x", "file:none"):
        assert is_on_this_machine(missing, {}), "so that it is told before Spark is started"


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="UTF-8 only"):
        FILES.qualify(os.fsdecode(b"run-\xff"))
    with pytest.raises(OSError, match=r"out-.*: Spark finds names that are UTF-8 only"):
        refuse(AnalysisRequest((), tmp_path / os.fsdecode(b"out-\xff"), keeps_pairs=True))


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


# --- Folders of pairs --------------------------------------------------------------------------------


def folder(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_text("x")
    return path


def test_an_earlier_analysis_s_files_are_removed(tmp_path: Path) -> None:
    pairs = folder(tmp_path / "pairs", "_SUCCESS", "._SUCCESS.crc", "part-0.snappy.parquet", ".part-0.crc")
    cut_short = folder(tmp_path / "misses")
    (cut_short / "_temporary").mkdir()
    refuse_other_pairs(tmp_path)
    remove_earlier_pairs(tmp_path)
    assert not pairs.exists() and not cut_short.exists()
    remove_earlier_pairs(tmp_path)


def test_what_is_someone_s_own_stays_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "pairs").symlink_to(folder(tmp_path / "elsewhere", "part-0.parquet"))
    own = folder(tmp_path / "misses", "_SUCCESS", "notes.txt")
    for told in ("pairs", "misses"):
        with pytest.raises(FileExistsError, match=rf"{told} is no folder of an earlier analysis"):
            refuse_other_pairs(tmp_path)
        remove_earlier_pairs(tmp_path)
        assert (own / "notes.txt").exists() and (tmp_path / "elsewhere" / "part-0.parquet").exists()
        (tmp_path / "pairs").unlink(missing_ok=True)
    (tmp_path / "pairs").write_text("x")
    remove_earlier_pairs(tmp_path)
    assert (tmp_path / "pairs").exists()
