"""spark/run.py: what is wrong with a request is told before Spark is started."""

from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.scenario import Scenario
from kcast.spark import run
from kcast.spark.request import AnalysisRequest


class Started(Exception):
    """Spark would have been started."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise Started

    monkeypatch.setattr(run, "start", start)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return str(create_run(tmp_path / "run", [Scenario()], seed=1, command=()).path)


def refused(capsys: pytest.CaptureFixture[str], request: AnalysisRequest) -> str:
    assert run.run(request) == 1
    assert not request.out.exists()
    return capsys.readouterr().err


def test_a_run_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = AnalysisRequest((str(tmp_path / "nosuch"),), tmp_path / "out")
    assert "nosuch: no such folder, and so no run.json" in refused(capsys, missing)
    assert "not a capture" in refused(capsys, missing._replace(runs=(str(tmp_path),)))
    assert "nosuch" in refused(capsys, missing._replace(runs=("hdfs://host/run", *missing.runs)))


def test_what_is_asked_of_a_run_is_compared_with_it(
    capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = AnalysisRequest((capture,), tmp_path / "out")
    assert "give it once" in refused(capsys, there._replace(runs=(capture, capture)))
    assert "no scenario is named 'x'" in refused(capsys, there._replace(only=("x",)))
    for sound in (there, there._replace(runs=("hdfs://host/run",), only=("x",))):
        with pytest.raises(Started):
            run.run(sound)


def test_a_folder_that_cannot_be_written_is_told(capture: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="give another --out"):
        run.run(AnalysisRequest((capture,), tmp_path / "file" / "out"))
