"""spark/launch.py: what comes before Spark is started, and after it has ended."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kcast.client.cli.common import EXIT_FAILURE
from kcast.spark import analysis, run
from kcast.spark import launch as module
from kcast.spark.findings.findings import Findings
from kcast.spark.launch import launch
from kcast.spark.request import MEMORY_DEFAULT, AnalysisRequest
from kcast.spark.session.failures import SparkFailed
from kcast.spark.session.start import LEAN


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that were started. Within one, a broken connection is a failure of Spark."""
    sessions: list[str] = []

    @contextmanager
    def start(master: str, *, memory: str | None, conf: object) -> Iterator[Any]:
        assert (memory, conf) == (MEMORY_DEFAULT, LEAN)
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


LAUNCHED = """
import sys, threading
from contextlib import contextmanager
from pathlib import Path
from kcast.spark import launch
from kcast.spark.request import AnalysisRequest

def imported():
    return [name for name in launch._HEAVY if name in sys.modules]

@contextmanager
def start(*_, **__):
    for thread in threading.enumerate():
        if thread.name == "kcast-ahead":
            thread.join()
    print("while Java starts:", *imported())
    raise launch.SparkFailed("it was seen")
    yield

launch.start = start
print("before:", *imported())
launch.launch(AnalysisRequest((), Path()))
"""


def test_what_is_heavy_is_imported_while_java_starts() -> None:
    done = subprocess.run([sys.executable, "-c", LAUNCHED], capture_output=True, text=True, timeout=60)
    assert "it was seen" in done.stderr
    assert done.stdout.splitlines() == ["before:", "while Java starts: kcast.spark.run scipy.special"]


@pytest.mark.parametrize(
    ("simulates", "ends"), [(False, ["counts", "end", "tables"]), (True, ["counts", "tables"])]
)
def test_spark_ends_while_python_works_out_what_was_counted(
    simulates: bool, ends: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unless it simulates afterwards, which takes Spark."""
    done: list[str] = []

    def noted(what: str) -> Callable[..., dict[str, Any]]:
        def note(*_: Any, **__: Any) -> dict[str, Any]:
            done.append(what)
            return {}

        return note

    judge = SimpleNamespace(counts=noted("counts"), sums=lambda counts: counts)
    monkeypatch.setattr(analysis, "judging", lambda _: nullcontext(judge))
    monkeypatch.setattr(analysis, "tables_of", noted("tables"))
    monkeypatch.setattr(
        run, "open_captures", lambda *_, **__: SimpleNamespace(cells=(), about=(), problems=())
    )
    monkeypatch.setattr(run, "end_ahead", noted("end"))
    request = AnalysisRequest(("run",), tmp_path, simulates=simulates)
    run._analysed(Mock(), request, Mock())
    assert done == ends
