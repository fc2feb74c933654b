"""`kcast load` on this machine, from servers to results: `make test-load`."""

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest

from kcast.loadtest.capture.folder import ScenarioFolder, open_run
from kcast.loadtest.capture.schema import CUT_OFF, LOST
from tests.support.load_command import Load, living, run_load
from tests.support.load_results import assert_as_expected, assert_sound
from tests.support.waiting import wait_until

pytestmark = pytest.mark.load

CAUSES = {
    "kill": {"down", "lease-restart", "down-out", "unvouched"},
    # Down: a bare line whose publish lease ended before the server, halted, came to take it.
    # Down-out: the server was halted between routing a copy and sending it.
    "stall": {"halted", "lease-expired", "down", "down-out"},
}
QUICK = ("--servers", "8", "--duration", "4", "--deadline", "1")
FAULTY = (*QUICK, "--outage", "0.1", "--loss", "0.02", "--epoch", "0.5")


def scenario(run: Path, name: str) -> ScenarioFolder:
    return open_run(run).scenario(name)


# --- Results -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """A small grid with outages and losses."""
    out = tmp_path_factory.mktemp("grid") / "run"
    code, results, errors = run_load(*FAULTY, "--k-prime", "1,3", "--rate", "50", "--out", out)
    assert code == 0, errors
    return out, results


def test_without_faults_all_arrives(tmp_path: Path) -> None:
    code, results, errors = run_load("--preset", "smoke", "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert result["pairs"] > 2000 and result["delivered"] == result["pairs"]
    assert 0 < result["latency"]["p50_ms"] < 100
    assert open_run(tmp_path / "run").status == "complete"


def test_a_grid_delivers_what_theory_says_and_explains_the_rest(
    grid: tuple[Path, dict[str, dict[str, Any]]],
) -> None:
    _, results = grid
    assert set(results) == {"5-1-5", "5-3-5"}
    for result in results.values():
        assert_sound(result)
        assert_as_expected(result)
    one, three = results["5-1-5"], results["5-3-5"]
    assert one["share"] < three["share"] - 0.05
    assert set(one["causes"]) - {"down-out"} == {"down", "loss-in", "loss-out"}  # down-out: seldom
    assert one["messages"] == three["messages"]  # the same schedule


def test_a_capture_is_read_as_one_data_set_with_its_partitions(
    grid: tuple[Path, dict[str, dict[str, Any]]],
) -> None:
    out, results = grid
    whole = ds.dataset(out, format="parquet", partitioning="hive", exclude_invalid_files=True)
    assert {"run", "scenario", "table"} <= set(whole.schema.names)
    for name, result in results.items():
        place = scenario(out, name)
        of_table = ds.field("scenario") == name, ds.field("table") == "publish"
        assert whole.count_rows(filter=of_table[0] & of_table[1]) == result["messages"]
        assert place.read("publish").num_rows == result["messages"]
        for table in ("server_stat", "process_stat", "client_stat", "server_life", "lease", "outage"):
            assert place.read(table).num_rows > 0, table


def test_two_workers_deliver_the_same(grid: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path) -> None:
    out, results = grid
    code, again, errors = run_load(
        "--replay", out / "run.json", "--only", "5-1-5", "--workers", "2", "--out", tmp_path / "run"
    )
    assert code == 0, errors
    one, two = results["5-1-5"], again["5-1-5"]
    assert_sound(two)
    assert_as_expected(two)
    assert two["messages"] == one["messages"]
    assert two["pairs"] == one["pairs"]
    assert one["low"] <= two["share"] <= one["high"]
    processes = scenario(tmp_path / "run", "5-1-5").read("member").column("process").unique()
    assert len(processes) == 2


def test_a_replay_has_the_same_messages_at_the_same_times(
    grid: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path
) -> None:
    out, _ = grid
    code, _, errors = run_load("--replay", out, "--only", "5-3-5", "--out", tmp_path / "run")
    assert code == 0, errors
    one, two = (schedule(scenario(run, "5-3-5")) for run in (out, tmp_path / "run"))
    assert np.array_equal(one, two)


def schedule(place: ScenarioFolder) -> np.ndarray[Any, Any]:
    """Number, topic and intended time of each message, in order; times from the beginning of the load."""
    table = place.read("publish").sort_by("msg_id")
    t0_ns = place.read("window").column("t_from_ns").to_numpy().min()
    columns = [table.column(name).to_numpy() for name in ("msg_id", "topic_id")]
    return np.stack([*columns, table.column("t_intended_ns").to_numpy() - t0_ns])


# --- Real faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["kill", "stall"])
def test_servers_that_really_fail_are_in_the_capture(by: str, tmp_path: Path) -> None:
    arguments = ("--down", "2", "--by", by, "--epoch", "1.5", "--ttl", "3", "--k-prime", "1")
    code, results, errors = run_load(*QUICK, "--duration", "6", *arguments, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert set() < set(result["causes"]) <= CAUSES[by]
    outages = scenario(tmp_path / "run", "5-1-5").read("outage")
    assert set(outages.column("kind").to_pylist()) == {by}
    assert 6 <= outages.num_rows <= 8  # two in each of four epochs; the last one may fall behind


def test_mute_servers_answer_and_only_what_was_sent_to_others_comes(tmp_path: Path) -> None:
    arguments = ("--k", "8", "--k-prime", "2", "--down", "4", "--by", "mute", "--burst", "2", "--delay", "20")
    code, results, errors = run_load(*QUICK, *arguments, "--confirm", "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert set(result["causes"]) == {"mute"}
    assert result["low"] <= 1 - 6 / 28 <= result["high"]  # C(4,2) / C(8,2)
    assert result["expected"] == pytest.approx(result["share"])


def test_a_spammer_is_named_and_takes_nothing_from_others(tmp_path: Path) -> None:
    arguments = ("--topics", "1", "--rate", "2", "--spam", "20", "--duration", "6")
    code, results, errors = run_load(*QUICK, *arguments, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert result["delivered"] == result["pairs"] == 20 * result["messages"]
    place = scenario(tmp_path / "run", "5-3-5")
    (spammer,) = [row["publisher"] for row in place.read("member").to_pylist() if row["client_id"] < 0]
    told = place.read("sighting").to_pylist()
    assert {(row["what"], row["name"]) for row in told} == {("limited", spammer)}
    assert {row["sub_id"] for row in told} == set(range(20))


def test_a_spammer_faster_than_the_machine_ends_with_the_load(tmp_path: Path) -> None:
    code, _, errors = run_load("--preset", "smoke", "--spam", "999999", "--out", tmp_path / "run")
    assert code in (0, 3), errors  # what so busy a machine measures may not be valid


def test_who_was_away_has_all_by_its_log_and_was_silent(tmp_path: Path) -> None:
    load = ("--subscribers", "10", "--topics", "1", "--rate", "1", "--offline", "0.3")
    times = ("--duration", "36", "--deadline", "15")
    code, results, errors = run_load(*QUICK, *load, *times, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert set(result["causes"]) == {"by-history"}
    missed = result["pairs"] - result["delivered"]
    assert missed == result["causes"]["by-history"]
    place = scenario(tmp_path / "run", "5-3-5")
    has = {(row["sub_id"], row["msg_id"]) for row in place.read("entry").to_pylist()}
    came = {
        (row["sub_id"], row["msg_id"])
        for row in place.read("deliver").to_pylist()
        if row["injected"] not in (LOST, CUT_OFF)
    }
    assert len(has) == result["pairs"] and {sub_id for sub_id, _ in has - came} == {0, 1, 2}
    names = {row["publisher"]: row["sub_id"] for row in place.read("member").to_pylist()}
    told = {
        (row["what"], names[row["name"]])
        for row in place.read("sighting").to_pylist()
        if row["sub_id"] >= 3  # who was there all the time
    }
    assert {sub_id for what, sub_id in told if what == "silent"} == {0, 1, 2}
    assert {sub_id for what, sub_id in told if what == "joined"} == set(range(10))
    assert any(what == "left" for what, _ in told)


def test_a_lab_has_hundreds_of_servers(tmp_path: Path) -> None:
    arguments = ("--backend", "lab", "--servers", "300", "--outage", "0.1", "--k-prime", "1")
    code, results, errors = run_load(*QUICK, *arguments, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert_as_expected(result, slack=3.0)


# --- Ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_readable_capture_and_no_process(
    number: int, exit_code: int, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with Load(
        "--preset", "smoke", "--duration", "3", "--seed", "1,2", "--workers", "2", "--out", out
    ) as load:
        load.await_line("(2 of 2)")
        load.await_line("the load begins")
        wait_until(
            lambda: any(out.rglob("scenario=*seed-2/table=publish/*.parquet")), "messages in the capture"
        )
        started = load.descendants()
        load.process.send_signal(number)
        code, _, errors = load.end()
    assert code == exit_code
    assert errors.startswith("kcast load: stopped\n")
    assert len(started) >= 3 + 4
    wait_until(lambda: not living(started), "the end of all processes")
    run = open_run(out)
    assert run.status == "partial"
    assert [place.status for place in run.scenarios] == ["complete", "partial"]
    published = run.scenarios[1].read("publish").num_rows
    assert published > 0
    code, results, errors = run_load("--resume", out)
    assert code == 0, errors
    assert len(results) == 2
    run = open_run(out)
    assert [place.status for place in run.scenarios] == ["complete", "complete"]
    assert len(list(out.glob("run=*/.partial-*"))) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_kill_9_leaves_no_process_and_a_run_that_is_known_to_be_partial(workers: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with Load("--preset", "smoke", "--duration", "60", "--workers", workers, "--out", out) as load:
        load.await_line("the load begins")
        started = load.descendants()
        load.process.send_signal(signal.SIGKILL)
        load.end()
    wait_until(lambda: not living(started), "the end of all processes")
    assert open_run(out).status == "partial"


def test_a_capture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """As when the disk is full; but a file in the way stops root, too."""
    out = tmp_path / "run"
    with Load("--preset", "smoke", "--duration", "60", "--out", out) as load:
        wait_until(lambda: any(out.glob("run=*/scenario=*")), "the scenario's folder")
        (place,) = out.glob("run=*/scenario=*")
        (place / "table=deliver").touch()
        code, _, errors = load.end()
    assert code == 1
    assert re.match(r"kcast load: .*table=deliver.*\n", errors), errors
    assert open_run(out).scenarios[0].status == "failed"
