import json
import subprocess
import sys
from math import inf
from typing import Any

import pytest

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import CaptureError, Stored
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario

SOUND = {"schema_version": SCHEMA_VERSION, "status": "complete"}


def parsed(**facts: Any) -> dict[str, Any]:
    return manifest.parse(json.dumps(SOUND | facts).encode(), "run.json")


def test_what_it_says_is_read() -> None:
    assert parsed(seed=7) == SOUND | {"seed": 7}


def test_what_is_none_of_ours_is_told_in_a_line() -> None:
    for text, complaint in [
        (b"", "run.json: cannot be read"),
        (b'{"schema_version": 1', "run.json: cannot be read"),
        (b"\xff\xfe\x00", "run.json: cannot be read"),
        (b"[]", "run.json: not a capture: it has no schema_version"),
        (b"{}", "run.json: not a capture: it has no schema_version"),
        (b'{"schema_version": 2}', "schema version is 2, and this kcast reads 1: use kcast of that time"),
        (b'{"schema_version": 2, "versions": {"kcast": "9"}}', "use kcast 9"),
        (b'{"schema_version": 2, "versions": "9"}', "use kcast of that time"),
        (b'{"schema_version": "2\\n"}', r"schema version is 2\\n, and"),
        (b"[" * 100_000, "run.json: cannot be read: "),
        (b'{"schema_version": 1}', "its status is None; was it edited?"),
        (b'{"schema_version": 1, "status": ["complete"]}', "its status is .*; was it edited?"),
    ]:
        with pytest.raises(CaptureError, match=complaint) as raised:
            manifest.parse(text, "run.json")
        assert "\n" not in str(raised.value)


def test_running_is_believed_of_a_process_that_is_there() -> None:
    mine = parsed(status="running", owner=manifest.owner())
    assert (manifest.status(mine), manifest.is_running(mine)) == ("running", True)
    assert manifest.is_of_this_machine(mine)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = mine | {"owner": manifest.owner() | {"pid": child.pid}}
        assert manifest.status(other) == "partial", "another process's number, begun at another time"


def test_running_is_not_believed_otherwise() -> None:
    cases: list[Any] = [
        *(None, {}, [], {"pid": "x"}),
        *(
            manifest.owner() | {"pid": "x"},
            manifest.owner() | {"pid": inf},
            manifest.owner() | {"clock_id": "?"},
        ),
    ]
    for owner in cases:
        info = parsed(status="running", owner=owner)
        assert (manifest.status(info), manifest.is_running(info)) == ("partial", False)
        for status in ("complete", "partial", "failed"):
            assert manifest.status(parsed(status=status, owner=owner)) == status


def test_a_run_has_a_name_and_scenarios() -> None:
    scenarios = (Scenario(name="one"), Scenario(name="two", k=8))
    info = parsed(run_id="load-1", scenarios=[each.as_json() for each in scenarios])
    assert manifest.run_id(info, "run.json") == "load-1"
    assert manifest.planned(info, "run.json") == scenarios
    info["scenarios"][1] |= {"scheme": "S", "k": 0}  # as kcast 0.1.0 wrote it
    assert manifest.planned(info, "run.json")[1] == Scenario(name="two", scheme="S")


def test_a_run_without_a_name_is_refused() -> None:
    for run_id in [None, "", 5, "a/b"]:
        with pytest.raises(CaptureError, match=r"run\.json: it has no run_id"):
            manifest.run_id(parsed(run_id=run_id), "run.json")


def test_scenarios_that_are_none_are_refused() -> None:
    for scenarios in [None, 5, [5], [{"colour": "red"}], [{"k": 0}], [{"a\nb": 1}], {"one": 1}]:
        with pytest.raises(CaptureError, match=r"run\.json: its scenarios cannot be read") as raised:
            manifest.planned(parsed(scenarios=scenarios), "run.json")
        assert "\n" not in str(raised.value)


def test_folders_have_names_that_file_systems_take() -> None:
    assert manifest.run_folder("load-1") == "run=load-1"
    assert manifest.scenario_folder("RCH k=8 50%/ü") == "scenario=RCH%20k%3D8%2050%25%2F%C3%BC"
    assert manifest.table_folder("deliver") == "table=deliver"


def test_what_is_of_another_run_is_told() -> None:
    manifest.check_folders("RUN", "a", ["x", "y"], ["run=a"], ["scenario=x"])
    manifest.check_folders("RUN", "a", ["x"], [], [])
    with pytest.raises(CaptureError, match="RUN/run=b: not part of run a: "):
        manifest.check_folders("RUN", "a", ["x"], ["run=a", "run=b"], [])
    with pytest.raises(CaptureError, match="RUN/run=a/scenario=z: not part of run a: "):
        manifest.check_folders("RUN", "a", ["x"], ["run=a"], ["scenario=x", "scenario=z"])


def test_how_much_was_written_is_read_for_all_tables() -> None:
    assert manifest.stored(parsed(), "scenario.json") is None
    found = manifest.stored(parsed(tables={"deliver": {"files": 2, "rows": 70_000}}), "scenario.json")
    assert found is not None
    assert found.pop("deliver") == Stored(2, 70_000)
    assert found == {table: Stored(0, 0) for table in TABLES if table != "deliver"}


def test_how_much_was_written_must_make_sense() -> None:
    for tables in [
        5,
        ["deliver"],
        {"deliver": 5},
        {"deliver": {"files": 1}},
        {"deliver": {"files": inf, "rows": 1}},
    ]:
        with pytest.raises(CaptureError, match=r"scenario\.json: its tables cannot be read"):
            manifest.stored(parsed(tables=tables), "scenario.json")


def test_hashes_are_read_for_all_tables() -> None:
    assert manifest.hashes(parsed(), "scenario.json") is None
    found = manifest.hashes(parsed(hashes={"deliver": {"a.parquet": "0" * 32}}), "scenario.json")
    assert found == {table: {} for table in TABLES} | {"deliver": {"a.parquet": "0" * 32}}


def test_hashes_must_make_sense() -> None:
    for hashes in [5, ["deliver"], {"deliver": 5}, {"deliver": ["a.parquet"]}]:
        with pytest.raises(CaptureError, match=r"scenario\.json: its hashes cannot be read"):
            manifest.hashes(parsed(hashes=hashes), "scenario.json")


def test_a_part_must_be_what_was_written() -> None:
    manifest.check_hash(b"PAR1", manifest.hash_of(b"PAR1"), "a.parquet")
    with pytest.raises(CaptureError, match=r"^a\.parquet: damaged: "):
        manifest.check_hash(b"PAR2", manifest.hash_of(b"PAR1"), "a.parquet")


def test_it_is_read_without_pyarrow() -> None:
    program = "import sys, kcast.loadtest.capture.manifest; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
