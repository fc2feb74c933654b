"""spark/capture: all rows of sound captures are read, and broken ones are refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from kcast.loadtest.capture.folder import RunFolder, create_run, open_run
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.captures import CaptureError, Captures, open_captures
from kcast.spark.capture.reading import CellFolder, damage_named, read_table
from kcast.spark.capture.schemas import table_schema
from kcast.spark.session import files as session_files
from kcast.spark.session.files import Files
from tests.support.capture_rows import rows

pytestmark = pytest.mark.spark

NAMES = "one", "RCH k=8 k'=3", "Zürich 100% {*?[x]}"


def written(path: Path, names: tuple[str, ...] = NAMES, status: Any = "complete") -> RunFolder:
    """A run with rows in every table of each scenario; each scenario has other rows."""
    run = create_run(path, [Scenario(name=name) for name in names], seed=1, command=["kcast", "load"])
    for number, name in enumerate(names):
        place = run.begin(name)
        for process in range(2):
            writer = CaptureWriter(place.path, f"worker-{process}")
            for table in TABLES:
                writer.append(table, rows(table, 3 + number, 100 * number + 10 * process))
            writer.close()
        place.finish("complete")
    run.finish(status)
    return run


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("a capture, 100% {sound} [x]*") / "run").path


@pytest.fixture
def broken(sound: Path, tmp_path: Path) -> Path:
    """A copy to be broken."""
    return Path(shutil.copytree(sound, tmp_path / "broken"))


def opened(spark: SparkSession, *paths: Path, **options: Any) -> Captures:
    return open_captures(spark, [str(path) for path in paths], **options)


def of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All rows, sorted."""
    return sorted(tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in frame.collect())


def expected(path: Path, table: str, numbers: dict[str, int]) -> list[tuple[Any, ...]]:
    """The same rows, as pyarrow reads them."""
    found = []
    for folder in open_run(path).scenarios:
        cell = numbers[folder.scenario.name]
        for row in folder.read(table).to_pylist():
            found.append((cell, *(tuple(v) if isinstance(v, list) else v for v in row.values())))
    return sorted(found)


def test_every_row_of_every_table_is_read_with_its_cell(spark: SparkSession, sound: Path) -> None:
    captures = opened(spark, sound)
    assert captures.problems == ()
    assert [(cell.number, cell.scenario.name) for cell in captures.cells] == list(enumerate(NAMES))
    assert list(captures.tables) == list(TABLES)
    numbers = {name: number for number, name in enumerate(NAMES)}
    for table in TABLES:
        frame = captures.tables[table]
        assert frame.schema == table_schema(table), table
        found = of(frame)
        assert found == expected(sound, table, numbers), table
        assert len(found) == 2 * (3 + 4 + 5)


def test_what_is_known_of_a_run_is_told(spark: SparkSession, sound: Path) -> None:
    captures = opened(spark, sound / "run.json")
    (about,) = captures.about
    info = json.loads((sound / "run.json").read_text())
    assert {name: about[name] for name in ("path", "run", "status", "started", "ended")} == {
        "path": str(sound),
        "run": info["run_id"],
        "status": "complete",
        "started": info["started"],
        "ended": info["ended"],
    }
    assert info["host"]["kernel"] in about["host"]
    for cell in captures.cells:
        folder = open_run(sound).scenario(cell.scenario.name)
        assert cell.t0_ns == min(folder.read("window").column("t_from_ns").to_pylist())
        assert (cell.run, cell.status, cell.scenario) == (info["run_id"], "complete", folder.scenario)


def test_several_runs_are_one(spark: SparkSession, sound: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other", ("one",)).path
    captures = opened(spark, other, sound)
    assert [cell.number for cell in captures.cells] == [0, 1, 2, 3]
    assert len({cell.run for cell in captures.cells}) == 2
    both = expected(other, "deliver", {"one": 0})
    both += expected(sound, "deliver", {name: 1 + number for number, name in enumerate(NAMES)})
    assert of(captures.table("deliver")) == sorted(both)


def test_only_some_scenarios_keep_their_numbers(spark: SparkSession, sound: Path) -> None:
    captures = opened(spark, sound, only=[NAMES[2], NAMES[1]])
    assert [(cell.number, cell.scenario.name) for cell in captures.cells] == [(1, NAMES[1]), (2, NAMES[2])]
    assert captures.problems == ()
    assert {row[0] for row in of(captures.table("lease"))} == {1, 2}
    assert len(opened(spark, sound, only=["*"]).cells) == len(NAMES)
    with pytest.raises(CaptureError, match="no scenario is named 'two': there are"):
        opened(spark, sound, only=["one", "two"])


def test_folders_of_any_place_are_read(spark: SparkSession, sound: Path) -> None:
    folders = open_run(sound).scenarios
    places = [CellFolder(7 + number, f"file:{folder.path}") for number, folder in enumerate(folders)]
    assert {row[0] for row in of(read_table(spark, places, "deliver"))} == {7, 8, 9}
    nothing = read_table(spark, [CellFolder(0, f"file:{sound}/nothing")], "deliver")
    assert (of(nothing), nothing.schema) == ([], table_schema("deliver"))


def test_what_is_no_part_is_passed_over(spark: SparkSession, broken: Path) -> None:
    before = of(opened(spark, broken).table("deliver"))
    for folder in open_run(broken).scenarios:
        part = folder.parts("deliver")[0]
        for name in (f"{part.name}.bak", f"{part.name}~"):  # their rows would count twice
            part.with_name(name).write_bytes(part.read_bytes())
        part.with_name("notes.txt").write_text("not Parquet")
        for name in (f".{part.name}.unfinished", f"_{part.name}", f".{part.name}"):
            part.with_name(name).write_bytes(b"PAR1")
    captures = opened(spark, broken)
    assert (captures.problems, of(captures.table("deliver"))) == ((), before)


def test_files_that_are_not_of_this_machine_are_read_alike(
    spark: SparkSession, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on hdfs or s3a: all is read through Hadoop's streams. The driver opens the JSON files alone."""
    monkeypatch.setattr(session_files, "_LOCAL", "none:")
    read = Files.read

    def watched(files: Files, path: str) -> bytes:
        assert path.endswith(".json")
        return read(files, path)

    monkeypatch.setattr(Files, "read", watched)
    captures = opened(spark, sound)
    assert (captures.problems, len(captures.cells)) == ((), 3)
    assert captures.cells[0].t0_ns == opened(spark, sound).cells[0].t0_ns


# --- What is broken ----------------------------------------------------------------------------------------


def part(run: Path, table: str, name: str = "one") -> Path:
    return open_run(run).scenario(name).parts(table)[0]


def change(file: Path, **facts: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


def scenario_json(run: Path, name: str = "one") -> Path:
    return open_run(run).scenario(name).path / "scenario.json"


def truncate(run: Path) -> None:
    path = part(run, "deliver")
    path.write_bytes(path.read_bytes()[:-20])


def empty_file(run: Path) -> None:
    part(run, "deliver").write_bytes(b"")


def lose_file(run: Path) -> None:
    part(run, "deliver").unlink()


def lose_table(run: Path) -> None:
    shutil.rmtree(part(run, "server_rx").parent)


def lose_table_of_an_older_run(run: Path) -> None:
    lose_table(run)
    change(scenario_json(run), tables=None)


def lose_stats_of_an_older_run(run: Path) -> None:
    shutil.rmtree(part(run, "process_stat").parent)
    change(scenario_json(run), tables=None)


def add_file(run: Path) -> None:
    path = part(run, "deliver")
    shutil.copy(path, path.with_name(f"x{path.name}"))


def swap_tables(run: Path) -> None:
    shutil.copy(part(run, "lease"), part(run, "deliver"))


def copy_over(run: Path) -> None:
    first, second = open_run(run).scenario("one").parts("publish")
    shutil.copy(first, second)


def rename(run: Path) -> None:
    path = part(run, "publish")
    path.rename(path.with_name(f"x{path.name}"))


def flip_a_bit(run: Path) -> None:
    path = part(run, "lease")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def other_version(run: Path) -> None:
    path = part(run, "deliver")
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata) | {b"kcast.schema_version": b"2"}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def other_columns(run: Path) -> None:
    path = part(run, "deliver")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["injected"]), path)


def other_types(run: Path) -> None:
    path = part(run, "deliver")
    table = pq.read_table(path)
    at = table.schema.get_field_index("sub_id")
    wide = table.column(at).cast("int64")
    pq.write_table(table.set_column(at, "sub_id", wide).replace_schema_metadata(table.schema.metadata), path)


def not_complete(run: Path) -> None:
    change(scenario_json(run), status="partial", reason="stopped by Ctrl-C")


def running(run: Path) -> None:
    change(scenario_json(run), status="running")  # by this process, which owns the run


def killed(run: Path) -> None:
    change(scenario_json(run), status="running", owner={"pid": 1})


def mixed_up(run: Path) -> None:
    change(scenario_json(run), run_id="load-of-another-day")


def changed(run: Path) -> None:
    change(scenario_json(run), scenario=Scenario(name="one", k=9).as_json())


def no_json(run: Path) -> None:
    scenario_json(run).unlink()


def never_begun(run: Path) -> None:
    shutil.rmtree(scenario_json(run).parent)


def nothing_published(run: Path) -> None:
    facts = json.loads(scenario_json(run).read_text())["tables"]
    for path in open_run(run).scenario("one").parts("publish"):
        path.unlink()
    change(scenario_json(run), tables=facts | {"publish": {"files": 0, "rows": 0}})


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (truncate, r"left out: .*table=deliver/worker-0-\w+-\d+\.parquet: not a whole Parquet file"),
        (empty_file, r"left out: .*table=deliver/worker-0-\w+-\d+\.parquet: not a whole Parquet file"),
        (lose_file, "left out: deliver has 3 rows in 1 file, but 6 rows in 2 files were written"),
        (lose_table, "left out: server_rx has 0 rows in 0 files, but 6 rows in 2 files were written"),
        (lose_table_of_an_older_run, "left out: server_rx is missing"),
        (lose_stats_of_an_older_run, "left out: process_stat is missing"),
        (add_file, "left out: deliver has 9 rows in 3 files, but 6 rows in 2 files were written"),
        (copy_over, r"left out: .*table=publish/.*\.parquet: damaged: it is not what was written under"),
        (rename, r"left out: .*/x.*\.parquet: the run wrote no file of this name"),
        (flip_a_bit, r"left out: .*table=lease/.*\.parquet: (damaged|not a whole)"),
        (swap_tables, "left out: .*not a part of table deliver"),
        (other_version, f"left out: .*its schema version is 2, and this kcast reads {SCHEMA_VERSION}"),
        (other_columns, "left out: .*not a part of table deliver"),
        (other_types, "left out: .*not a part of table deliver"),
        (not_complete, "left out: it is partial, stopped by Ctrl-C; run it again with kcast load --resume"),
        (running, "left out: it is still being run; wait for it"),
        (killed, "left out: it is partial; run it again"),
        (mixed_up, r"left out: .*scenario\.json: of another run; captures must not be mixed"),
        (changed, r"left out: .*scenario\.json: of another run; captures must not be mixed"),
        (no_json, r"left out: .*scenario\.json: there is no such file"),
        (never_begun, "scenario one was not run"),
        (nothing_published, "left out: nothing was published"),
    ],
)
def test_a_scenario_that_is_broken_is_left_out_and_named(
    spark: SparkSession, broken: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(broken)
    captures = opened(spark, broken)
    assert [cell.number for cell in captures.cells] == [1, 2]
    (problem,) = captures.problems
    assert problem.startswith(f"{broken}: scenario one ")
    check_line(problem, complaint)
    assert {row[0] for row in of(captures.table("deliver"))} == {1, 2}
    with pytest.raises(CaptureError, match=r"nothing to analyse: .*scenario one") as raised:
        opened(spark, broken, only=["one"])
    check_line(str(raised.value), complaint)


def check_line(line: str, complaint: str) -> None:
    assert re.search(complaint, line), line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda run: (run / "run.json").unlink(), "not a capture: it has no run.json"),
        (lambda run: shutil.rmtree(run), "no such folder; name a folder"),
        (lambda run: (run / "run.json").write_text("{"), r"run\.json: cannot be read"),
        (lambda run: change(run / "run.json", schema_version=99), "schema version is 99, and this kcast"),
        (lambda run: change(run / "run.json", status="fine"), r"run\.json: its status is 'fine'"),
        (lambda run: change(run / "run.json", run_id=None), r"run\.json: it has no run_id"),
        (lambda run: (run / "run=load-another").mkdir(), "run=load-another: not part of run"),
    ],
)
def test_a_run_that_is_broken_is_refused_whatever_else_there_is(
    spark: SparkSession, sound: Path, broken: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(broken)
    for paths in ([broken], [sound, broken]):
        with pytest.raises(CaptureError, match=complaint) as raised:
            opened(spark, *paths)
        assert "\n" not in str(raised.value)
        assert str(broken) in str(raised.value)


def test_the_same_run_twice_is_refused(spark: SparkSession, sound: Path, broken: Path) -> None:
    with pytest.raises(CaptureError, match=r"this is run .* is: give it once"):
        opened(spark, sound, broken)


def test_a_path_that_no_file_system_knows_is_told(spark: SparkSession) -> None:
    """`a:b` is a folder's name: only what has `://` names a file system."""
    for path, told in (("nowhere://x/y", "nowhere://x/y: cannot be read"), ("a:b", "a:b: no such folder")):
        with pytest.raises(CaptureError, match=told) as raised:
            open_captures(spark, [path])
        assert "\n" not in str(raised.value)


def test_nothing_at_all_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CaptureError, match=r"not a capture: it has no run\.json"):
        opened(spark, tmp_path / "empty")
    with pytest.raises(CaptureError, match="nothing to analyse"):
        open_captures(spark, [])
    create_run(tmp_path / "begun", [Scenario()], seed=1)
    with pytest.raises(CaptureError, match=r"nothing to analyse: .*scenario load was not run"):
        opened(spark, tmp_path / "begun")


def blank(data: bytearray, footer: int) -> None:
    data[4:-footer] = bytes(len(data) - footer - 4)


def flip(data: bytearray, footer: int) -> None:
    """A bit of the values of the last page: only its checksum tells."""
    data[-footer - 1] ^= 1


@pytest.mark.parametrize("spoil", [blank, flip])
def test_pages_that_are_damaged_are_told_when_they_are_read(
    spark: SparkSession, broken: Path, spoil: Callable[[bytearray, int], None]
) -> None:
    """In a capture of an older kcast, or one that is still written, no hashes tell it before."""
    change(scenario_json(broken), hashes=None)
    path = part(broken, "deliver")
    data = bytearray(path.read_bytes())
    spoil(data, int.from_bytes(data[-8:-4], "little") + 8)
    path.write_bytes(data)
    captures = opened(spark, broken)
    assert captures.problems == (), "its footer is in order"
    with pytest.raises(CaptureError, match=f"{path.name}: damaged") as raised, damage_named():
        captures.table("deliver").collect()
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_capture_of_a_kcast_that_knew_fewer_fields_is_read(spark: SparkSession, broken: Path) -> None:
    told = json.loads(scenario_json(broken).read_text())["scenario"]
    assert told.pop("known") == Scenario().known
    change(scenario_json(broken), scenario=told)
    assert opened(spark, broken).problems == ()


def test_a_file_that_vanishes_is_not_called_damaged(spark: SparkSession, broken: Path) -> None:
    captures = opened(spark, broken)
    table = captures.table("deliver")
    path = part(broken, "deliver")
    path.unlink()
    with pytest.raises(CaptureError, match=f"{path.name}: it was there and is gone"), damage_named():
        table.collect()
