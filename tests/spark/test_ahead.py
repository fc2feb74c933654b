"""spark/ahead.py: what is simulated while Spark starts is what figures are held against afterwards."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.results import plan_simulator
from kcast.loadtest.scenario import Scenario
from kcast.spark import ahead as module
from kcast.spark.ahead import ahead
from kcast.spark.findings import plan_laws
from kcast.spark.refusal import scenarios
from kcast.spark.request import AnalysisRequest
from tests.spark.findings.test_plan_laws import README, verdicts


@pytest.mark.long
def test_figures_need_no_more_simulated_runs_than_were_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_simulator.simulated_given_outages.cache_clear()
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
    assert made == ["ahead"] * 2 * len(README)


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


def test_scenarios_are_those_that_are_analysed(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", [Scenario(name="a"), Scenario(name="b")], seed=1, command=())

    def named(only: Sequence[str], *runs: str) -> list[str]:
        return [each.name for each in scenarios(AnalysisRequest(runs, tmp_path, only=tuple(only)))]

    assert named((), str(run.path)) == ["a", "b"]
    assert named(("b",), str(run.path)) == ["b"]
    assert named(("b",), "hdfs://host/run") == []
