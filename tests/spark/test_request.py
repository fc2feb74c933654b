"""spark/request.py: what is wrong with a request is told at once, before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.scenario import Scenario
from kcast.spark.request import AnalysisRequest, refuse, scenarios


@pytest.fixture(autouse=True)
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return str(create_run(tmp_path / "run", [Scenario()], seed=1, command=()).path)


def refused(request: AnalysisRequest) -> str:
    with pytest.raises(CaptureError) as error:
        refuse(request)
    assert not request.out.exists()
    return str(error.value)


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = AnalysisRequest((str(tmp_path / "nosuch"),), tmp_path / "out")
    assert "nosuch: no such folder; name a folder" in refused(missing)
    assert "not a capture" in refused(missing._replace(runs=(str(tmp_path),)))
    assert "nosuch" in refused(missing._replace(runs=("hdfs://host/run", *missing.runs)))


def test_what_is_asked_of_a_run_is_compared_with_it(capture: str, tmp_path: Path) -> None:
    there = AnalysisRequest((capture,), tmp_path / "out")
    assert "give it once" in refused(there._replace(runs=(capture, capture)))
    assert "no scenario is named 'x'" in refused(there._replace(only=("x",)))
    for sound in (there, there._replace(runs=("hdfs://host/run",), only=("x",))):
        refuse(sound)


def test_a_folder_that_cannot_be_written_is_told(capture: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="give another --out"):
        refuse(AnalysisRequest((capture,), tmp_path / "file" / "out"))


@pytest.mark.parametrize("arguments", [("nosuch",), (".", "--only", "x"), (".", "--out", "/proc/x")])
def test_nothing_heavy_is_imported_before_it_is_told(
    arguments: tuple[str, ...], capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import sys
from kcast.client.cli import main
try:
    main(["analyse", *sys.argv[1:]])
finally:
    assert not {"pyspark", "pandas", "pyarrow", "scipy", "numpy"} & set(sys.modules), sys.modules
"""
    monkeypatch.chdir(capture)
    done = subprocess.run(
        (sys.executable, "-c", program, *arguments), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("kcast analyse: ") and done.stderr.count("\n") == 1


def test_a_folder_in_the_way_of_pairs_is_told(capture: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "misses").mkdir(parents=True)
    (out / "misses" / "notes.txt").write_text("mine")
    refuse(AnalysisRequest((capture,), out))
    with pytest.raises(FileExistsError, match="misses is no folder of an earlier analysis"):
        refuse(AnalysisRequest((capture,), out, keeps_pairs=True))


def test_scenarios_are_those_that_are_analysed(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", [Scenario(name="a"), Scenario(name="b")], seed=1, command=()).path
    asked = AnalysisRequest((str(run),), tmp_path)
    assert [each.name for each in scenarios(asked)] == ["a", "b"]
    assert [each.name for each in scenarios(asked._replace(only=("b",)))] == ["b"]
    assert scenarios(asked._replace(runs=("hdfs://host/run",))) == []
