"""spark/watch: figures are shown while a capture grows, and the tables at its end are those of `analyse`."""

import itertools
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.folder import ScenarioFolder, create_run
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import Cause
from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import open_captures
from kcast.spark.findings.findings import Findings
from kcast.spark.session.files import Files
from kcast.spark.watch import watch as watch_module
from kcast.spark.watch.running_counts import RunningCounts
from kcast.spark.watch.running_scenario import RunningScenario
from kcast.spark.watch.watch import QUIET_MAX_S, watch
from tests.support.big_capture import big_scenario, write_run, write_scenario
from tests.support.growing_capture import GrowingCapture
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SMALL: dict[str, Any] = {
    **{"servers": 12, "rate": 12.0, "epoch_s": 1.0, "topics": 8, "topics_per_subscriber": 4, "k": 5},
    **{"subscribers": 8, "ttl_s": 10},
}
WAIT_S = 300.0


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of three scenarios of 14 s each."""
    path = tmp_path_factory.mktemp("source") / "run"
    lengths = [
        big_scenario(1000, name=name, k_prime=k, **SMALL) for name, k in (("a", 2), ("b", 1), ("c", 3))
    ]
    write_run(path, [scenario.with_(duration_s=14.0) for scenario in lengths])
    return path


@pytest.fixture
def growing(source: Path, tmp_path: Path) -> GrowingCapture:
    return GrowingCapture(source, tmp_path / "run")


class Told:
    """Collects the lines that are shown while watching."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)

    def live(self, name: str) -> list[str]:
        return [line for line in self.lines if line.startswith(f"{name}: ") and "delivered" in line]


def watch_while(
    spark: SparkSession, growing: GrowingCapture, told: Told, work: Callable[[], None]
) -> Findings:
    """Watches a capture while `work` lets it grow."""
    problems: list[BaseException] = []

    def grow() -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)
            growing.end("failed", reason="the test has failed")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        return watch(spark, str(growing.path), told, poll_s=0.2)
    finally:
        thread.join()
        assert problems == []


def test_it_ends_in_the_tables_of_analyse_even_if_the_run_dies(
    spark: SparkSession, growing: GrowingCapture
) -> None:
    """One scenario is complete from the start, one grows, and during one the run's process ends."""
    seed = 5
    rng, told = random.Random(seed), Told()
    kept = len(spark.sparkContext._jsc.getPersistentRDDs())
    first, second, third = growing.scenarios
    growing.begin(first)
    for files in growing.moments(first, rng):
        growing.appear(files)
    growing.complete(first)

    def work() -> None:
        growing.begin(second)
        for files in growing.moments(second, rng):
            growing.appear(files)
        wait_until(lambda: told.live("b"), "live figures", WAIT_S)
        growing.complete(second)
        growing.begin(third)
        growing.appear(growing.moments(third, rng)[0])
        growing.dies(dead())

    found = watch_while(spark, growing, told, work)
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) <= kept
    batch = analyse(spark, open_captures(spark, [str(growing.path)]))
    assert list(found.tables) == list(batch.tables), f"seed {seed}"
    for name, rows in batch.tables.items():
        assert list(found.table(name)) == list(rows), f"seed {seed}: {name}"
    assert [row["scenario"] for row in found.table("scenarios")] == ["a", "b"]
    assert [row["pairs"] > 100 for row in found.table("reliability")] == [True] * 2
    assert found.about["captures"] == batch.about["captures"]
    died, *left_out = found.problems
    assert died == f"{growing.path}: the run has ended, and is partial"
    assert left_out == list(batch.problems)
    assert "scenario c is left out" in left_out[0]


def test_live_figures_are_those_of_numpy_for_what_is_past_its_deadline(
    spark: SparkSession, growing: GrowingCapture
) -> None:
    scenario, files_of = growing.scenarios[0], Files(spark)
    growing.begin(scenario)
    folder = files_of.qualify(str(growing.path_of(scenario.path)))
    running = RunningScenario(spark, files_of, "run", 0, scenario.scenario, folder)
    assert not running.look() and not running.count_slice()
    until_s: list[float] = []
    most = 0
    moments = growing.moments(scenario, random.Random(3))
    half = len(moments) * 2 // 3
    for together in (moments[:half], moments[half:]):
        files = [path for moment in together for path in moment]
        growing.appear(files)
        assert running.look() and not running.look()
        most = max(most, remembered(running))
        assert running.count_slice() and not running.count_slice()
        assert running.figures is not None
        until_s.append(running.figures.until_s)
    figures = running.figures
    assert figures is not None and 2 < until_s[0] < until_s[1]
    pairs, delivered, misses = of_numpy(scenario, until_s[1])
    assert figures.pairs == pairs
    assert figures.share == delivered / pairs
    assert figures.low < figures.share < figures.high
    for cause in (Cause.DOWN, Cause.LOSS_IN, Cause.LOSS_OUT):
        assert figures.causes.get(cause.label, 0) == misses[cause]
    assert f"of {pairs:,} pairs" in running.text()
    # Files that no later slice needs are forgotten.
    assert remembered(running) < most
    running.close()


def remembered(running: RunningScenario) -> int:
    """The number of files that it remembers."""
    return sum(map(len, running._by_table.values()))


def of_numpy(scenario: ScenarioFolder, until_s: float) -> tuple[int, int, np.ndarray[Any, Any]]:
    """The pairs due by then, those of them delivered, and the misses by cause."""
    found = attribute(scenario)
    first_ns = scenario.read("publish", ["t_intended_ns"]).column(0).to_numpy().min()
    is_past = found.t_intended_ns < first_ns + round(until_s * 1e9)
    counts = np.bincount(found.causes[is_past], minlength=len(Cause))
    return int(is_past.sum()), int(counts[Cause.DELIVERED]), counts


def dead() -> dict[str, Any]:
    """The owner of a run whose process has ended."""
    program = "import json; from kcast.loadtest.capture.manifest import owner; print(json.dumps(owner()))"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    assert not manifest.is_running({"owner": found})
    return found


def test_a_run_that_dies_with_nothing_complete_cannot_be_analysed(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    growing = GrowingCapture(source, tmp_path / "run", dead())
    with pytest.raises(CaptureError, match=r"nothing to analyse: .*scenario a was not run"):
        watch(spark, str(growing.path), Told(), poll_s=0.1)


def test_a_folder_that_is_no_capture_is_not_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"not a capture: it has no run\.json"):
        watch(spark, str(tmp_path), Told())


# --- What may befall a run meanwhile -----------------------------------------------------------------


def away(growing: GrowingCapture) -> None:
    """Makes it a run of another machine, of which nobody here knows whether its process still exists."""
    growing.dies(manifest.owner() | {"clock_id": "elsewhere"})


def files_of(growing: GrowingCapture, scenario: ScenarioFolder) -> list[Path]:
    return [path for moment in growing.moments(scenario, random.Random(1)) for path in moment]


def test_a_run_elsewhere_goes_on_as_long_as_anything_is_written(
    spark: SparkSession, growing: GrowingCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a scenario that nobody wants to see, and while another one is counted."""
    away(growing)
    seconds = itertools.count(0.0, QUIET_MAX_S * 0.4)  # it is asked for at most twice in a look
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=None)
    monkeypatch.setattr(watch_module, "time", clock)
    first, second, _ = growing.scenarios
    growing.begin(first)
    watching = watch_module._Watching(spark, str(growing.path), Told(), ("b",))
    for path in [path for path in files_of(growing, first) if "table=process_stat" in str(path)]:
        growing.appear([path])
        assert not watching.look()
    growing.begin(second)
    assert not watching.look()
    assert [watching.look() for _ in range(4)][-1]


def test_a_scenario_that_is_run_again_is_looked_at_anew(spark: SparkSession, growing: GrowingCapture) -> None:
    told, scenario = Told(), growing.scenarios[0]
    growing.begin(scenario)
    watching = watch_module._Watching(spark, str(growing.path), told, ())
    moments = growing.moments(scenario, random.Random(3))
    growing.appear([path for moment in moments[:4] for path in moment])
    assert not watching.look()
    place = growing.path_of(scenario.path)
    place.rename(place.with_name(f".partial-{place.name}-1"))
    assert not watching.look()  # between two attempts
    growing.begin(scenario, started="again")
    for path in (path for moment in moments for path in moment):
        growing.appear([path])
        found = growing.path_of(path)
        found.rename(found.with_name(f"again-{found.name}"))  # of another process
    before = len(told.live("a"))
    assert not watching.look()
    assert len(told.live("a")) == before + 1
    until_s = [float(line.split()[1]) for line in told.live("a")]
    assert until_s[-1] > until_s[0]


@pytest.mark.parametrize("is_moved_meanwhile", [False, True])
def test_a_complete_scenario_that_is_run_again_is_counted_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_moved_meanwhile: bool
) -> None:
    """As with `kcast load --until-width`, seen between two attempts, or moved aside while it is counted."""
    short, other = (big_scenario(1000, name=name, **SMALL).with_(duration_s=6.0) for name in ("a", "b"))
    run = create_run(tmp_path / "run", [other, short], seed=1)
    for name in ("b", "a"):
        finish(run.begin(name))
    longer: list[ScenarioFolder] = []

    def begin_anew() -> None:
        longer.append(run.begin_anew(short.with_(duration_s=12.0)))

    def slowly(counts: RunningCounts, added: DataFrame) -> None:
        begin_anew()
        monkeypatch.undo()
        counts.add(added)

    if is_moved_meanwhile:
        monkeypatch.setattr(RunningCounts, "add", slowly)
    watching = watch_module._Watching(spark, str(run.path), Told(), ())
    assert not watching.look()
    if not longer:
        begin_anew()
    finish(*longer)
    run.finish("complete")
    assert watching.look()
    found, batch = watching.findings(0.0), analyse(spark, open_captures(spark, [str(run.path)]))
    assert [row["scenario"] for row in found.table("scenarios")] == ["b", "a"]
    for name, rows in batch.tables.items():
        assert list(found.table(name)) == list(rows), name


def finish(folder: ScenarioFolder) -> None:
    """Writes a scenario whole, and marks it as complete."""
    folder.finish("complete", tables=write_scenario(folder), servers=[], server_keys=[])


def test_a_scenario_whose_process_has_ended_is_not_waited_for(
    spark: SparkSession, growing: GrowingCapture
) -> None:
    """As with `kcast load --resume --only b`, after `a` was killed."""
    first, second, _ = growing.scenarios
    own = growing._owner
    growing._owner = dead()
    growing.begin(first)
    growing._owner = own
    growing.begin(second)
    told = Told()
    watching = watch_module._Watching(spark, str(growing.path), told, ())
    growing.appear(files_of(growing, second))
    assert not watching.look()
    assert told.live("b")


def test_what_appears_while_a_folder_is_listed_is_not_missed(
    spark: SparkSession, growing: GrowingCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, files = growing.scenarios[0], Files(spark)
    growing.begin(scenario)
    folder = files.qualify(str(growing.path_of(scenario.path)))
    every = files_of(growing, scenario)
    late = [path for path in every if "table=process_stat" in str(path)]
    late += [path for path in every if "table=deliver" in str(path)][-3:]
    growing.appear([path for path in every if path not in late])
    names = files.names

    def slowly(place: str) -> list[str]:
        found = names(place)
        if place.endswith("table=deliver"):
            growing.appear(late)
        return found

    monkeypatch.setattr(files, "names", slowly)
    running = RunningScenario(spark, files, "run", 0, scenario.scenario, folder)
    running.look()
    assert not running.count_slice()  # nobody has said that all was written
    monkeypatch.undo()
    whole = RunningScenario(spark, files, "run", 0, scenario.scenario, folder)
    for each in (running, whole):
        each.look()
        assert each.count_slice()
    assert running.figures == whole.figures
