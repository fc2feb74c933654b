import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from kcast.loadtest.capture import folder as folders
from kcast.loadtest.capture.folder import CaptureError, RunFolder, create_run, open_run, resume_run
from kcast.loadtest.capture.manifest import PART_SUFFIX
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.scenario import Scenario
from tests.support.capture_rows import rows

NAMES = "one", "RCH k=8 k'=3", "Zürich 100%"


def new_run(path: Path) -> RunFolder:
    return create_run(path / "run", [Scenario(name=name, seed=7) for name in NAMES], seed=7, command=["x"])


def write(place: Path, table: str, count: int, start: int = 0) -> None:
    writer = CaptureWriter(place, "worker-1")
    writer.append(table, rows(table, count, start))
    writer.close()
    assert writer.failure is None


def change(file: Path, **facts: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return new_run(tmp_path)


def test_a_run_tells_how_it_was_run(tmp_path: Path) -> None:
    run = create_run(
        tmp_path / "run", [Scenario()], seed=7, command=["kcast", "load"], facts={"servers": ["a", "b"]}
    )
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info == run.info
    assert (info["schema_version"], info["status"], info["seed"]) == (SCHEMA_VERSION, "running", 7)
    assert (info["command"], info["servers"]) == (["kcast", "load"], ["a", "b"])
    assert info["owner"]["pid"] == os.getpid()
    assert info["scenarios"] == [Scenario().as_json()]
    assert info["run_id"][0].isalpha(), "readers would guess another type"
    assert {"python", "kcast", "pyarrow", "numpy"} <= set(info["versions"])
    assert {"cpu", "cores", "memory_bytes", "kernel"} <= set(info["host"])
    assert info["host"]["cores"] > 0
    assert info["host"]["memory_bytes"] > 1e6
    assert {"clock_id", "resolution_ns", "monotonic_ns", "wall_ns"} == set(info["clock"])
    assert int(info["limits"]["net.core.rmem_max"]) > 0
    assert info["limits"]["nofile"] > 0


def test_what_is_written_is_read_by_its_scenario(tmp_path: Path, run: RunFolder) -> None:
    for number, name in enumerate(NAMES):
        write(run.begin(name).path, "clock", 3, start=10 * number)
    found = open_run(tmp_path / "run")
    assert [folder.scenario.name for folder in found.scenarios] == list(NAMES)
    for number, name in enumerate(NAMES):
        assert found.scenario(name).read("clock").to_pydict() == rows("clock", 3, 10 * number)
        assert found.scenario(name).scenario == Scenario(name=name, seed=7)
        assert found.scenario(name).read("deliver").num_rows == 0
        assert found.scenario(name).read("deliver", ["msg_id"]).column_names == ["msg_id"]


def test_readers_that_know_hive_partitions_read_it_as_it_is(tmp_path: Path, run: RunFolder) -> None:
    for name in NAMES:
        write(run.begin(name).path, "clock", 2)
    files = [str(path) for path in (tmp_path / "run").glob("run=*/scenario=*/table=clock/*.parquet")]
    table = pyarrow.dataset.dataset(files, partitioning="hive").to_table().to_pydict()
    assert table.keys() == rows("clock", 0).keys() | {"run", "scenario", "table"}
    assert sorted(set(table["scenario"])) == sorted(NAMES)
    assert (set(table["run"]), set(table["table"])) == ({run.run_id}, {"clock"})
    assert len(table["t_ns"]) == 2 * len(NAMES)


def test_a_run_is_found_by_its_folder_and_by_its_json(tmp_path: Path, run: RunFolder) -> None:
    assert open_run(tmp_path / "run").run_id == open_run(tmp_path / "run" / "run.json").run_id == run.run_id


def test_how_it_ended_is_told(tmp_path: Path, run: RunFolder) -> None:
    one = run.begin("one")
    assert (run.status, one.status) == ("running", "running")
    one.finish("complete", results={"share": 0.5})
    run.finish("partial")
    assert (one.status, one.info["results"], one.info["scenario"]["name"]) == (
        "complete",
        {"share": 0.5},
        "one",
    )
    assert run.status == "partial"
    assert run.info["ended"] >= run.info["started"]
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")] == []


def test_json_is_replaced_and_not_written_over(tmp_path: Path, run: RunFolder) -> None:
    with (tmp_path / "run" / "run.json").open() as file:
        run.finish("complete")
        assert json.load(file)["status"] == "running"
    assert run.status == "complete"


def test_what_runs_in_a_process_that_is_no_more_is_partial(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from kcast.loadtest.capture.folder import create_run;"
        "from kcast.loadtest.scenario import Scenario;"
        "create_run(Path(sys.argv[1]), [Scenario(name='one')], seed=1).begin('one');"
        "print('begun', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            assert open_run(tmp_path / "run").status == "running"
            with pytest.raises(CaptureError, match=f"process {child.pid} is still running it"):
                resume_run(tmp_path / "run")
        finally:
            child.send_signal(signal.SIGKILL)
    run = open_run(tmp_path / "run")
    assert (run.status, run.scenario("one").status) == ("partial", "partial")
    resumed = resume_run(tmp_path / "run")
    assert (resumed.status, len(resumed.info["resumed"])) == ("running", 1)
    assert resumed.begin("one").status == "running"


@pytest.mark.parametrize("owner", [{"process_start": "1"}, {"clock_id": "of another machine"}])
def test_another_process_of_that_number_does_not_count(
    tmp_path: Path, owner: dict[str, str], run: RunFolder
) -> None:
    change(tmp_path / "run" / "run.json", owner=run.info["owner"] | owner)
    assert open_run(tmp_path / "run").status == "partial"


def test_what_is_done_again_moves_aside_as_a_whole(tmp_path: Path, run: RunFolder) -> None:
    for attempt in range(3):
        place = run.begin("one")
        write(place.path, "clock", 2 + attempt)
        place.finish("partial")
    assert run.scenario("one").read("clock").num_rows == 4
    assert [folder.scenario.name for folder in open_run(tmp_path / "run").scenarios] == ["one"]
    aside = sorted(place.path.parent.glob(".partial-*"))
    assert [path.name for path in aside] == [".partial-scenario=one-1", ".partial-scenario=one-2"]
    assert [len(list(path.glob(f"table=clock/*{PART_SUFFIX}"))) for path in aside] == [1, 1]
    assert all((path / "scenario.json").exists() for path in aside)
    found = (tmp_path / "run").glob("run=*/scenario=*/table=clock/*.parquet")
    assert sum(pyarrow.dataset.dataset(str(path)).count_rows() for path in found) == 4


@pytest.mark.parametrize("status", ["complete", "running"])
def test_what_is_complete_or_under_way_is_not_begun_again(status: folders.Status, run: RunFolder) -> None:
    run.begin("one").finish(status)
    with pytest.raises(CaptureError, match=f"scenario one is already {status}"):
        run.begin("one")
    assert run.scenario("one").status == status


def test_a_folder_that_is_not_begun_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunFolder
) -> None:

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    with pytest.raises(OSError, match="No space left"):
        run.begin("one")
    with pytest.raises(OSError, match="No space left"):
        run.finish("complete")
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == before
    assert open_run(tmp_path / "run").scenarios == ()
    left = [path.name for path in (tmp_path / "run").rglob("*")]
    assert sorted(left) == sorted(["run.json", f"run={run.run_id}"])


@pytest.mark.parametrize(
    "name", ["", "1", "1.5", "nan", "Infinity", "true", "-x", ".x", "_x", "a\n", "x" * 201]
)
def test_names_that_readers_would_take_for_something_else_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CaptureError, match="begin it with a letter"):
        create_run(tmp_path / "run", [Scenario(name=name)], seed=1)
    assert not (tmp_path / "run").exists()


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="two scenarios have the name one"):
        create_run(tmp_path / "run", [Scenario(name="one"), Scenario(name="one", seed=2)], seed=1)


def test_what_is_there_is_never_written_into(tmp_path: Path) -> None:
    new_run(tmp_path)
    with pytest.raises(CaptureError, match="there is already a capture"):
        new_run(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(CaptureError, match="not an empty folder"):
        create_run(tmp_path / "other", [Scenario()], seed=1)
    with pytest.raises(CaptureError, match="not an empty folder"):
        create_run(tmp_path / "other" / "thesis.txt", [Scenario()], seed=1)
    (tmp_path / "empty").mkdir()
    create_run(tmp_path / "empty", [Scenario()], seed=1)


def spoil_version(run: RunFolder) -> None:
    change(run.path / "run.json", schema_version=99)


def spoil_json(run: RunFolder) -> None:
    (run.path / "run.json").write_text('{"schema_version": 1, "sta')


def spoil_kind(run: RunFolder) -> None:
    (run.path / "run.json").write_text("[1, 2]")


def spoil_status(run: RunFolder) -> None:
    change(run.path / "run.json", status="fine")


def spoil_scenarios(run: RunFolder) -> None:
    change(run.path / "run.json", scenarios=[{"name": "one", "colour": "red"}])


def mix_runs(run: RunFolder) -> None:
    (run.path / "run=load-another").mkdir()


def mix_scenarios(run: RunFolder) -> None:
    (run.path / f"run={run.run_id}" / "scenario=stranger").mkdir(parents=True)


def remove(run: RunFolder) -> None:
    (run.path / "run.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (spoil_version, f"schema version is 99, and this kcast reads {SCHEMA_VERSION}: use kcast [0-9.]+"),
        (spoil_json, r"run\.json: cannot be read"),
        (spoil_kind, r"run\.json: not a capture"),
        (spoil_status, r"run\.json: its status is 'fine'"),
        (spoil_scenarios, r"run\.json: its scenarios cannot be read: a scenario has no colour"),
        (mix_runs, "run=load-another: not part of run"),
        (mix_scenarios, "scenario=stranger: not part of run"),
        (remove, "not a capture: it has no run.json"),
    ],
)
def test_what_is_no_capture_of_ours_is_told_in_one_line(
    tmp_path: Path, spoil: Any, complaint: str, run: RunFolder
) -> None:
    spoil(run)
    for use in (open_run, resume_run):
        with pytest.raises(CaptureError, match=complaint) as raised:
            use(tmp_path / "run")
        assert "\n" not in str(raised.value)
        assert str(tmp_path) in str(raised.value)


def test_no_folder_is_no_capture(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "none" / "run.json", tmp_path):
        with pytest.raises(CaptureError, match="not a capture"):
            open_run(path)


def test_an_unknown_scenario_is_told(run: RunFolder) -> None:
    run.begin("one")
    with pytest.raises(CaptureError, match="no scenario two; it has one"):
        run.scenario("two")
    with pytest.raises(CaptureError, match="this run has no scenario two"):
        run.begin("two")


def test_a_damaged_part_is_named_and_an_unfinished_one_is_not_read(tmp_path: Path) -> None:
    place = new_run(tmp_path).begin("one")
    write(place.path, "clock", 3)
    part = place.parts("clock")[0]
    for name in (f".{part.name}.unfinished", f"._{part.name}", f"_{part.name}"):
        part.with_name(name).write_bytes(b"PAR1")
    assert place.read("clock").num_rows == 3
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(CaptureError, match=part.name):
        place.read("clock")


def test_how_much_was_written_is_told_once_it_is_complete(tmp_path: Path) -> None:
    place = new_run(tmp_path).begin("one")
    for count in (3, 4):
        write(place.path, "clock", count)
    write(place.path, "deliver", 5)
    place.finish("partial")
    assert "tables" not in place.info
    place.finish("complete")
    tables = place.info["tables"]
    assert tables.keys() == TABLES.keys()
    assert (tables["clock"], tables["deliver"]) == ({"files": 2, "rows": 7}, {"files": 1, "rows": 5})
    assert tables["lease"] == {"files": 0, "rows": 0}


def test_a_complete_scenario_is_read_only_as_it_was_written(tmp_path: Path) -> None:
    place = new_run(tmp_path).begin("one")
    write(place.path, "clock", 3)
    write(place.path, "clock", 4)
    place.finish("complete")
    assert place.read("clock").num_rows == 7
    first, second = place.parts("clock")
    assert place.info["hashes"]["clock"].keys() == {first.name, second.name}
    copy = second.with_name(f"x{second.name}")
    copy.write_bytes(second.read_bytes())
    with pytest.raises(CaptureError, match=f"table clock has lost, or was given, files: {copy.name}"):
        place.read("clock")
    copy.unlink()
    second.write_bytes(first.read_bytes())
    with pytest.raises(CaptureError, match=f"{second.name}: damaged: it is not what was written"):
        place.read("clock")


def test_what_is_damaged_is_not_told_to_be_complete(tmp_path: Path) -> None:
    place = new_run(tmp_path).begin("one")
    write(place.path, "clock", 3)
    part = place.parts("clock")[0]
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(CaptureError, match=part.name):
        place.finish("complete")
    assert place.status == "running"
