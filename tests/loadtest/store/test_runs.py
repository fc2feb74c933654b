"""loadtest/store/runs.py and overview.py: runs in the order of time, and each scenario over them."""

import json
from pathlib import Path

import pytest

from kcast.loadtest.capture.folder import CaptureError, create_run, open_run
from kcast.loadtest.results.verdicts import Verdict
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.store.changes import difference_interval
from kcast.loadtest.store.overview import overview
from kcast.loadtest.store.runs import read_store, series
from tests.support.stored_runs import result, write_run, write_store

SCENARIO = Scenario(name="5-3-5", outages="independent", outage=0.1)


def test_runs_come_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    for name, day in (("a", 9), ("b", 3), ("deep/c", 5)):
        write_run(tmp_path / name, day, [result(SCENARIO, 0.99)])
    store = read_store(tmp_path)
    assert [run.path.name for run in store.runs] == ["b", "c", "a"]
    assert [run.started[:10] for run in store.runs] == ["2026-11-03", "2026-11-05", "2026-11-09"]
    assert all(run.version for run in store.runs)
    assert store.problems == []


def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    write_store(tmp_path, SCENARIO, [0.99])
    create_run(tmp_path / "begun", [SCENARIO], seed=1)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    write_run(tmp_path / "twin", 2, [result(SCENARIO, 0.9)])
    open_run(tmp_path / "run-01").update(run_id=open_run(tmp_path / "twin").run_id)
    store = read_store(tmp_path)
    assert len(store.runs) == 1
    told = "\n".join(store.problems)
    assert "begun: none of its scenarios is complete" in told
    assert "broken" in told and str(tmp_path) in told
    assert len(store.problems) == 3


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        ("", "no such folder: name one that has runs of kcast load in it"),
        ("empty", "no run in it: name a folder of folders that kcast load wrote"),
    ],
)
def test_a_folder_without_runs_is_refused(tmp_path: Path, make: str, complaint: str) -> None:
    folder = tmp_path / "store"
    if make:
        folder.mkdir()
    with pytest.raises(CaptureError, match=complaint):
        read_store(folder)


def test_runs_with_other_settings_are_a_series_of_their_own(tmp_path: Path) -> None:
    other = SCENARIO.with_(loss_in=0.1)
    for day, scenario in enumerate((SCENARIO, other, SCENARIO.with_(seed=7), other), 1):
        write_run(tmp_path / str(day), day, [result(scenario, 0.99)])
    found = series(read_store(tmp_path))
    assert [(one.name, [point.place for point in one.points]) for one in found] == [
        ("5-3-5", [0, 2]),
        ("5-3-5 (settings 2)", [1, 3]),
    ]
    assert [one.has_same_outages for one in found] == [False, True]
    assert [one.trials for one in found] == [[1000.0, 1000.0], [2000.0, 2000.0]]


def test_the_overview_has_each_run_beside_the_first(tmp_path: Path) -> None:
    write_store(tmp_path, SCENARIO, [0.99, 0.991, 0.95])
    found = overview(read_store(tmp_path))
    assert json.loads(json.dumps(found)) == found
    assert [row["difference"] for row in found["results"]] == [
        None,
        pytest.approx(0.001),
        pytest.approx(-0.04),
    ]
    for row, contains_0 in zip(found["results"][1:], (True, False), strict=True):
        assert row["difference_low"] < row["difference"] < row["difference_high"]
        assert (row["difference_low"] <= 0 <= row["difference_high"]) is contains_0
    (change,) = found["changes"]
    assert (change["figure"], change["place"]) == ("delivered", 2)
    assert change["low"] < -0.03 and change["high"] < 0


def test_runs_that_are_not_valid_are_compared_with_none(tmp_path: Path) -> None:
    good, bad = Verdict(), Verdict(("the machine stood still",))
    for day, (share, verdict) in enumerate([(0.5, bad), (0.99, good), (0.2, bad), (0.985, good)], 1):
        write_run(tmp_path / str(day), day, [result(SCENARIO, share, delivery_verdict=verdict)])
    rows = overview(read_store(tmp_path))["results"]
    assert [row["difference"] for row in rows] == [None, None, None, pytest.approx(-0.005)]
    low, high = difference_interval(0.99, 2000.0, 0.985, 2000.0)  # there is one difference: 95 % is its own
    assert (rows[3]["difference_low"], rows[3]["difference_high"]) == (low, high)
    assert all(row["difference_low"] is row["difference_high"] is None for row in rows[:3])


def test_runs_that_are_not_valid_are_in_no_change(tmp_path: Path) -> None:
    bad = Verdict(("the machine stood still",))
    for day in range(1, 16):
        broken = {"delivery_verdict": bad, "latency_verdict": bad} if day == 5 else {}
        share, p50_ms = (0.5, 900.0) if day == 5 else (0.99, 2.0 if day < 9 else 4.0)
        write_run(tmp_path / str(day), day, [result(SCENARIO, share, p50_ms, **broken)])
    found = overview(read_store(tmp_path))
    assert [(change["figure"], change["place"]) for change in found["changes"]] == [
        ("p50_ms", 8),
        ("p99_ms", 8),
    ]
    assert [row["delivery_valid"] for row in found["results"]].count(False) == 1
