"""spark/launch.py: what comes before Spark is started, and after it has ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kcast.client.cli.common import EXIT_FAILURE
from kcast.spark import launch as module
from kcast.spark import run
from kcast.spark.findings.findings import Findings
from kcast.spark.launch import launch
from kcast.spark.request import AnalysisRequest
from kcast.spark.session.failures import SparkFailed


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that were started. Within one, a broken connection is a failure of Spark."""
    sessions: list[str] = []

    @contextmanager
    def start(master: str, **_: Any) -> Iterator[Any]:
        sessions.append(master)
        try:
            yield SimpleNamespace()
        except ConnectionError as error:
            raise SparkFailed("Java has ended") from error

    monkeypatch.setattr(module, "start", start)
    monkeypatch.setattr(run, "find", lambda *_: Findings({}))
    return sessions


def test_who_reads_no_further_is_no_failure_of_spark(
    began: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `kcast analyse RUN | head`."""

    def report(*_: Any) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(run, "report", report)
    with pytest.raises(BrokenPipeError):
        launch(AnalysisRequest((), tmp_path))
    assert began == ["local[*]"]


def test_a_store_without_runs_is_told_before_spark_is_started(
    began: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").mkdir()
    assert launch(AnalysisRequest((), tmp_path, store=tmp_path / "store")) == EXIT_FAILURE
    assert "no run in it" in capsys.readouterr().err
    assert began == []
