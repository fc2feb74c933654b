"""spark/launch.py: what comes before Spark is started, and after it has ended."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kcast.loadtest.results import plan_simulator
from kcast.loadtest.scenario import Scenario
from kcast.spark import analysis, run
from kcast.spark import launch as module
from kcast.spark.findings import plan_laws
from kcast.spark.findings.findings import Findings
from kcast.spark.launch import ahead, launch
from kcast.spark.request import MEMORY_DEFAULT, AnalysisRequest
from kcast.spark.session.failures import SparkFailed
from kcast.spark.session.start import LEAN
from tests.spark.findings.test_plan_laws import README, verdicts


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


# --- What is done while Spark starts -----------------------------------------------------------------


@pytest.mark.long
def test_figures_need_no_more_simulated_runs_than_were_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_simulator._simulated.cache_clear()
    known = threading.Event()
    made: list[str] = []

    def simulate(scenario: Scenario, *others: Any) -> plan_simulator.Runs:
        made.append("after" if known.is_set() else "ahead")
        return simulate_runs(scenario, *others)

    simulate_runs = plan_simulator.simulate
    monkeypatch.setattr(plan_simulator, "simulate", simulate)
    monkeypatch.setattr(plan_laws, "simulate_ahead", all_of(plan_laws.simulate_ahead, len(README)))
    with ahead((), [scenario.with_(seed=3) for scenario in README]):
        assert all_are_simulated.wait(120)
    known.set()
    verdicts(README, 3)
    assert made == ["ahead"] * len(README)


all_are_simulated = threading.Event()


def all_of(simulated_ahead: Any, count: int) -> Any:
    """Does the same, and tells when it was done for so many."""
    done: list[Scenario] = []

    def counted(scenario: Scenario) -> None:
        simulated_ahead(scenario)
        done.append(scenario)
        if len(done) == count:
            all_are_simulated.set()

    return counted


def test_what_has_begun_is_completed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    ends: list[threading.Event] = []
    seen: list[str] = []

    def simulate_ahead(scenario: Scenario) -> None:
        begun.set()
        assert ends[0].wait(60)
        seen.append(scenario.name)

    def work(modules: Sequence[str], scenarios: Sequence[Scenario], is_over: threading.Event) -> None:
        ends.append(is_over)
        begin(modules, scenarios, is_over)

    begin = module._work
    monkeypatch.setattr(module, "_work", work)
    monkeypatch.setattr(plan_laws, "simulate_ahead", simulate_ahead)
    with ahead((), [Scenario(name="a"), Scenario(name="b")]):
        assert begun.wait(60)
    assert seen == ["a"]


def test_an_error_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def simulate_ahead(scenario: Scenario) -> None:
        begun.set()
        assert goes_on.wait(60)
        seen.append(scenario.name)

    monkeypatch.setattr(plan_laws, "simulate_ahead", simulate_ahead)
    with pytest.raises(KeyboardInterrupt), ahead((), [Scenario(name="a"), Scenario(name="b")]):
        assert begun.wait(60)
        raise KeyboardInterrupt
    assert seen == []
    (thread,) = (each for each in threading.enumerate() if each.name == "kcast-ahead")
    goes_on.set()
    thread.join(60)
    assert seen == ["a"]
