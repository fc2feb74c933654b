"""spark/session/pair_folders.py: only what an earlier analysis wrote is removed."""

from pathlib import Path

import pytest

from kcast.spark.session.pair_folders import refuse_others, remove_earlier


def folder(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_text("x")
    return path


def test_an_earlier_analysis_s_files_are_removed(tmp_path: Path) -> None:
    pairs = folder(tmp_path / "pairs", "_SUCCESS", "._SUCCESS.crc", "part-0.snappy.parquet", ".part-0.crc")
    cut_short = folder(tmp_path / "misses")
    (cut_short / "_temporary").mkdir()
    refuse_others(tmp_path)
    remove_earlier(tmp_path)
    assert not pairs.exists() and not cut_short.exists()
    remove_earlier(tmp_path)


@pytest.mark.parametrize("name", ["pairs", "misses"])
def test_what_is_someone_s_own_stays_and_is_told(tmp_path: Path, name: str) -> None:
    own = folder(tmp_path / name, "_SUCCESS", "notes.txt")
    remove_earlier(tmp_path)
    assert (own / "notes.txt").exists()
    with pytest.raises(FileExistsError, match=rf"{name} is no folder of an earlier analysis"):
        refuse_others(tmp_path)


def test_a_file_or_a_link_of_that_name_stays(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("x")
    (tmp_path / "misses").symlink_to(folder(tmp_path / "elsewhere", "part-0.parquet"))
    remove_earlier(tmp_path)
    assert (tmp_path / "pairs").exists() and (tmp_path / "elsewhere" / "part-0.parquet").exists()
