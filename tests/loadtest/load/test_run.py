"""loadtest/load: a run's course and its ends, with stand-ins for servers and for locust."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from kcast.client.cluster import Cluster, load
from kcast.hashring.policy import Policy
from kcast.loadtest.capture.folder import RunFolder, create_run, open_run
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.clusters.servers import EngineMissing, ServerStat, lab_cluster
from kcast.loadtest.load import locusts, run, session
from kcast.loadtest.results.summary import summarise
from kcast.loadtest.results.verdicts import EXIT_REFUSED
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import simulate

WAIT_S = 30.0

SCENARIOS = tuple(Scenario(name=name, servers=3, k=3, k_prime=2, duration_s=1.0) for name in "abc")

# In locust's place: it tells that the load began and ended, and what it was called with.
STAND_IN = """
import json, os, sys, time
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
def tell(**record):
    plain = dict(phase="running", t0_ns=0, t_s=0, users=2, ready=2, published=0, delivered=0, missed=0)
    plain |= dict(error="", latency_p50_ms=0, latency_p99_ms=0, lag_max_ms=0, overflows=0, rows_lost=0)
    os.write(int(value("--progress-fd")), json.dumps(plain | record).encode() + b"\\n")
scenario = json.load(open(value("--scenario")))
tell(phase="waiting")
"""
ENDS = "tell(t0_ns=time.monotonic_ns())\ntell(phase='done', t0_ns=time.monotonic_ns())\n"
WAITS = "tell(t0_ns=time.monotonic_ns())\ntime.sleep(1000)\n"


class FakeServers:
    """Servers that do nothing; what was done with them is kept."""

    made: list["FakeServers"]

    def __init__(self, backend: str, count: int, **options: Any) -> None:
        self.options = options
        self.has_stopped = self.is_closed = False
        self.keys = tuple(f"server-{number}" for number in range(1, count + 1))
        self.addresses = tuple(("127.0.0.1", 7000 + number) for number in range(count))
        self.names = tuple(f"127.0.0.1:{7000 + number}" for number in range(count))
        self.taps: tuple[tuple[Path, ...], ...] = ((),) * count
        self.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def cluster(self, policy: Policy | None = None) -> Cluster:
        return lab_cluster(self.addresses, self.keys, policy)

    def stats(self) -> list[ServerStat]:
        return [ServerStat() for _ in self.keys]

    def stop(self) -> None:
        self.has_stopped = True

    def logs(self) -> dict[str, str]:
        return dict.fromkeys(self.keys, "") | {"server-2": "said something\n"}


Call = Callable[..., int]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeServers]]:
    FakeServers.made = []
    monkeypatch.setattr(run, "open_servers", FakeServers)
    yield FakeServers.made
    assert all(each.is_closed for each in FakeServers.made)


@pytest.fixture
def call(servers: list[FakeServers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    def call(program: str = ENDS, scenarios: tuple[Scenario, ...] = SCENARIOS, **options: Any) -> int:
        monkeypatch.setattr(locusts, "LOCUST", (sys.executable, "-c", STAND_IN + program))
        plain: dict[str, Any] = {"out": tmp_path / "run", "is_resumed": False}
        plain |= {"is_strict": False, "as_json": False}
        return session.run(scenarios, {}, **plain | options)

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], RunFolder]:
    return lambda: open_run(tmp_path / "run")


def statuses(folder: RunFolder) -> dict[str, str]:
    return {place.scenario.name: place.status for place in folder.scenarios}


# --- A run that goes well ----------------------------------------------------------------------------


def test_every_scenario_is_run_and_what_came_of_it_kept(
    call: Call,
    servers: list[FakeServers],
    folder: Callable[[], RunFolder],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call() == EXIT_REFUSED  # nothing was published
    found = folder()
    assert found.status == "complete"
    assert statuses(found) == dict.fromkeys("abc", "complete")
    assert {place.info["results"]["status"] for place in found.scenarios} == {"complete"}
    assert len(servers) == 3 and all(each.has_stopped for each in servers)
    for place in found.scenarios:
        assert place.info["results"]["pairs"] == 0
        assert place.info["servers"] == list(servers[0].names)
        assert load(place.path / "_servers.cluster").policy == place.scenario.policy
        assert place.read("server_stat").num_rows >= 3
        assert not list(place.path.glob("_taps*"))
        assert (place.path / "_servers.log").read_text() == "== server-2\nsaid something\n"
    printed = capsys.readouterr()
    assert (
        "a (1 of 3)" in printed.out and "NOT VALID: delivery of a: nothing was to be delivered" in printed.out
    )
    assert printed.err == ""


def test_with_json_the_progress_goes_elsewhere(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    call(as_json=True)
    printed = capsys.readouterr()
    objects = [json.loads(line) for line in printed.out.splitlines()]
    assert [each["type"] for each in objects] == ["scenario"] * 3 + ["run"]
    assert "a (1 of 3)" in printed.err


def test_servers_are_started_as_the_scenario_has_it(call: Call, servers: list[FakeServers]) -> None:
    call(scenarios=(SCENARIOS[0].with_(ttl_s=7),))
    (made,) = servers
    assert made.options["ttl_s"] == 7
    assert made.options["tap_dir"].name.startswith("_taps-")
    assert made.options["image"] == "kcast"


# --- A run that does not -----------------------------------------------------------------------------

FAILS_AT_B = "tell(t0_ns=1)\nif scenario['name'] == 'b':\n    {}\ntell(phase='done', t0_ns=1)\n"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("sys.exit('out of luck')", "locust ended with exit code 1; its log"),
        ("tell(phase='failed', error='the disk is full')", "the disk is full"),
    ],
)
def test_what_fails_is_told_with_how_to_go_on_and_the_rest_kept(
    what: str,
    message: str,
    call: Call,
    folder: Callable[[], RunFolder],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert call(FAILS_AT_B.format(what)) == 1
    found = folder()
    assert found.status == "failed"
    assert statuses(found) == {"a": "complete", "b": "failed"}
    assert message in found.scenario("b").info["reason"]
    printed = capsys.readouterr()
    first, *_, last = printed.err.splitlines()
    assert first.startswith(f"kcast load: {message}")
    assert last == f"1 of 3 scenarios are complete; for the rest: kcast load --resume {tmp_path / 'run'}"
    assert "\na  " in printed.out and "\nb  " not in printed.out


def test_a_failed_run_is_resumed_where_it_failed(
    call: Call, folder: Callable[[], RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    call(FAILS_AT_B.format("sys.exit(1)"))
    run_id = folder().run_id
    capsys.readouterr()
    assert call(scenarios=SCENARIOS[1:], is_resumed=True) == EXIT_REFUSED
    found = folder()
    assert (found.run_id, found.status) == (run_id, "complete")
    assert statuses(found) == dict.fromkeys("abc", "complete")
    printed = capsys.readouterr().out
    assert "(1 of 2)" in printed and "a (" not in printed
    assert all(f"\n{name}  " in printed for name in "abc")  # in the table
    # What was there of b was not deleted.
    assert len(list((found.path / f"run={run_id}").glob(".partial-scenario=b-*"))) == 1


def test_a_complete_run_is_resumed_by_showing_it(
    call: Call, servers: list[FakeServers], capsys: pytest.CaptureFixture[str]
) -> None:
    call()
    capsys.readouterr()
    assert call(scenarios=(), is_resumed=True) == EXIT_REFUSED
    assert len(servers) == 3
    assert "\nc  " in capsys.readouterr().out


def test_users_that_end_before_the_load_began_are_an_error(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("tell(phase='done')\n") == 1
    assert "users ended before the load began" in capsys.readouterr().err


def test_servers_that_do_not_start_are_told_in_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EngineMissing("no Docker engine answers: start it, or use --backend processes")

    monkeypatch.setattr(run, "open_servers", refuse)
    assert call() == 1
    assert capsys.readouterr().err == (
        "kcast load: no Docker engine answers: start it, or use --backend processes\n"
    )


def test_a_folder_that_is_in_use_is_left_alone(
    call: Call, servers: list[FakeServers], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    assert call() == 1
    assert capsys.readouterr().err == f"kcast load: {tmp_path / 'run'}: not an empty folder; give another\n"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]
    assert servers == []


def test_a_disk_that_is_too_small_is_told_before_anything_is_started(
    call: Call,
    servers: list[FakeServers],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert call() == 1
    error = capsys.readouterr().err
    assert error.startswith(f"kcast load: {tmp_path / 'run'} needs about ")
    assert "1.0 kB are free there" in error and error.count("\n") == 1
    assert servers == [] and not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_meanwhile_is_told(
    call: Call,
    folder: Callable[[], RunFolder],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class FullWriter(CaptureWriter):
        @property
        def failure(self) -> str | None:
            return os.strerror(errno.ENOSPC)

    monkeypatch.setattr(run, "CaptureWriter", FullWriter)
    assert call() == 1
    assert capsys.readouterr().err == ("kcast load: the capture cannot be written: No space left on device\n")
    assert statuses(folder()) == {"a": "failed"}


def test_an_error_of_the_system_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run.json")

    monkeypatch.setattr(session, "create_run", full)
    assert call() == 1
    assert capsys.readouterr().err == "kcast load: run.json: No space left on device\n"


# --- Ctrl-C ------------------------------------------------------------------------------------------

INTERRUPTED = """
import sys
from pathlib import Path
from kcast.loadtest.load import locusts, run, session
from tests.loadtest.load.test_run import ENDS, SCENARIOS, STAND_IN, WAITS, FakeServers
FakeServers.made = []
run.open_servers = FakeServers
waits = "print(os.getpid(), flush=True)\\n" + WAITS
program = STAND_IN + "if scenario['name'] == 'a':\\n    " + ENDS.strip().replace("\\n", "\\n    ") + "\\n"
program += "else:\\n    " + waits.strip().replace("\\n", "\\n    ") + "\\n"
locusts.LOCUST = (sys.executable, "-c", program)
options = dict.fromkeys(("is_resumed", "is_strict", "as_json"), False)
sys.exit(session.run(SCENARIOS, {}, out=Path(sys.argv[1]), **options))
"""


def test_ctrl_c_ends_all_and_keeps_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with subprocess.Popen(
        (sys.executable, "-c", INTERRUPTED, str(out)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            while "b (2 of 3)" not in (line := process.stdout.readline()):
                assert line
            while "load begins" not in (line := process.stdout.readline()):
                assert line
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors == (
        f"kcast load: stopped\n1 of 3 scenarios are complete; for the rest: kcast load --resume {out}\n"
    )
    found = open_run(out)
    assert found.status == "partial"
    assert statuses(found) == {"a": "complete", "b": "partial"}
    (pid,) = found.scenario("b").path.joinpath("_locust.log").read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


# --- Two runs ----------------------------------------------------------------------------------------


def test_two_runs_are_compared(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        call(out=tmp_path / name)
    capsys.readouterr()
    assert session.compare(tmp_path / "one", tmp_path / "two", fails_on_loss=False, as_json=False) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:4]] == ["scenario", *"abc"]
    assert session.compare(tmp_path / "one", tmp_path / "two", fails_on_loss=False, as_json=True) == 0
    assert len(json.loads(capsys.readouterr().out)["scenarios"]) == 3


def test_what_locust_has_captured_by_itself_has_no_results(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call()
    captured = create_run(tmp_path / "locust", [Scenario(name="load", backend="file")], seed=1)
    captured.begin("load").finish("complete")
    captured.finish("complete")
    capsys.readouterr()
    assert session.compare(tmp_path / "run", tmp_path / "locust", fails_on_loss=False, as_json=False) == 1
    said = capsys.readouterr().err
    assert "scenario=load: has no results: locust captured it, not kcast load" in said
    assert said.count("\n") == 1


def test_a_loss_is_a_failure_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many, few = (
        summarise(
            simulate(tmp_path, Scenario(name="a", duration_s=4.0, rate=100.0, loss_out=loss, k_prime=1))
        )
        for loss in (0.1, 0.4)
    )
    other = replace(many, scenario=many.scenario.with_(name="b"))
    runs = {"many": [many], "few": [few], "other": [other]}
    monkeypatch.setattr(session, "_results", lambda path: runs[path.name])

    def code(first: str, second: str, *, fails_on_loss: bool = True) -> int:
        return session.compare(Path(first), Path(second), fails_on_loss=fails_on_loss, as_json=True)

    assert code("many", "few", fails_on_loss=False) == 0
    assert code("few", "many") == code("many", "many") == 0
    assert capsys.readouterr().err == ""
    assert code("many", "few") == EXIT_REFUSED
    assert capsys.readouterr().err == "kcast load: significantly less arrived in a\n"
    assert code("many", "other") == 1
    assert capsys.readouterr().err == "kcast load: --fail-on-loss: nothing could be compared\n"


def test_a_run_without_results_cannot_be_compared(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call()
    call("sys.exit(1)\n", out=tmp_path / "failed")
    capsys.readouterr()
    assert session.compare(tmp_path / "run", tmp_path / "failed", fails_on_loss=False, as_json=False) == 1
    assert capsys.readouterr().err == (
        f"kcast load: {tmp_path / 'failed'}: no scenario is complete, so there is nothing to compare\n"
    )
