"""Servers that are not there, do not start, or end: each is named with its message, and has no figures."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.benchmarks.peers.bench import Bench, rotated
from tests.benchmarks.peers.kinds import Kind, compile_c, version
from tests.benchmarks.peers.machine import Cores, cpu_s, family_of
from tests.benchmarks.peers.processes import addresses_in, running
from tests.benchmarks.peers.server_rows import ServerRow
from tests.benchmarks.peers.session import Failed, Poller
from tests.benchmarks.peers.workloads import Workload
from tests.support.checkout import ROOT

CORES = tuple(sorted(os.sched_getaffinity(0)))
SERVING = "print('x: serving on 127.0.0.1:9', flush=True)"


def program(source: str) -> tuple[str, str, str]:
    return sys.executable, "-c", source


@pytest.fixture
def bench() -> Iterator[Bench]:
    poller = Poller()
    said: list[str] = []
    yield Bench(Cores(0, CORES), poller, said.append, 1, 0.05, 0.05, 0.0005, 1000)
    poller.close()


def row(*kinds: Kind, subscribers: int = 1) -> ServerRow:
    workload = Workload(1, subscribers, subscribers)
    return ServerRow("row", "A row", workload, lambda: kinds, {"1": 1.0}, ("one",))


def kind(name: str, command: Sequence[str], version: Sequence[str] = ()) -> Kind:
    return Kind(name, lambda *_: command, version)


def test_addresses_are_read_from_what_servers_say() -> None:
    assert addresses_in("kcast: serving on 127.0.0.1:7400 (ttl 60 s)\n") == (("127.0.0.1", 7400),)
    workers = "kcast-cluster 1\nlab\nserver 127.0.0.1:7400 key=a\nserver 127.0.0.1:7401 key=a\n"
    assert addresses_in(workers) == (("127.0.0.1", 7400), ("127.0.0.1", 7401))
    assert addresses_in("starting a server 127.0.0.1:7400") == ()


def test_another_server_comes_first_in_each_round() -> None:
    assert [rotated("abc", number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert rotated([], 3) == []


def test_the_version_of_what_is_not_installed_says_so() -> None:
    with pytest.raises(Failed, match=r"^no-such-server is not installed$"):
        version(kind("x", (), ("no-such-server", "--version")))


@pytest.mark.world
def test_a_version_is_found_in_what_a_server_says() -> None:
    assert version(kind("x", (), program("print('Redis server v=7.0.15 sha=0')"))) == "7.0.15"
    with pytest.raises(Failed, match="tells no version: libx is missing"):
        version(kind("x", (), program("import sys; sys.exit('libx is missing')")))


@pytest.mark.world
def test_a_server_that_ends_at_once_fails_with_its_last_words() -> None:
    with (
        pytest.raises(Failed, match="the port is taken"),
        running(program("import sys; sys.exit('the port is taken')"), os.environ, CORES),
    ):
        pass


@pytest.mark.world
def test_a_server_that_is_not_what_it_is_called_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.peers.processes.SAID_S", 0.1)
    code = f"import time; {SERVING}; print('routing in Python', flush=True); time.sleep(60)"
    with (
        pytest.raises(Failed, match=r"does not say 'routing in native code', but .*routing in Python"),
        running(program(code), os.environ, CORES, must_say="routing in native code"),
    ):
        pass
    with running(program(code), os.environ, CORES, must_say="routing in Python") as server:
        server.require_alive()


@pytest.mark.world
def test_a_server_runs_on_its_cores_and_is_ended() -> None:
    forever = f"import time; {SERVING}; time.sleep(60)"
    with running(program(forever), os.environ, CORES[-1:]) as server:
        assert server.addresses == (("127.0.0.1", 9),)
        assert os.sched_getaffinity(server.process.pid) == {CORES[-1]}
        assert family_of(server.process.pid) == [server.process.pid]
        assert cpu_s([server.process.pid]) > 0
        server.require_alive()
    assert server.process.returncode is not None


@pytest.mark.world
def test_a_server_that_does_not_want_to_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.peers.processes.DRAIN_S", 0.05)
    monkeypatch.setattr("tests.benchmarks.peers.processes.END_S", 0.3)
    stubborn = (
        f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVING}; time.sleep(60)"
    )
    with running(program(stubborn), os.environ, CORES) as server:
        pass
    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.world
def test_the_family_of_a_process_has_its_children() -> None:
    code = f"import subprocess; {SERVING}; subprocess.run(('sleep', '60'))"
    with running(program(code), os.environ, CORES) as server:
        deadline_s = time.monotonic() + 10
        while len(family := family_of(server.process.pid)) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        os.kill(family[1], signal.SIGKILL)
    assert len(family) == 2


def test_a_kind_that_is_not_installed_is_skipped_with_its_message(bench: Bench) -> None:
    missing = kind("one", (), ("no-such-server", "--version"))
    assert bench.present([missing]) == []
    assert bench.skipped == {"one": "no-such-server is not installed"}
    assert row(missing).measure(bench).subjects == {}


@pytest.mark.world
def test_a_peer_that_does_not_start_is_named_and_has_no_figures(bench: Bench) -> None:
    bad = kind("one", program("import sys; sys.exit('cannot read its configuration')"))
    found = row(bad).measure(bench)
    assert found.skipped == {"one": "cannot read its configuration"}
    assert found.subjects == {}
    assert found.unit_per_s is None


@pytest.mark.world
def test_a_server_that_ends_in_a_row_has_no_figures_there(bench: Bench) -> None:
    code = f"import sys, time; {SERVING}; time.sleep(0.3); sys.exit('out of luck')"
    found = row(kind("one", program(code))).measure(bench)
    assert found.skipped["one"].endswith("out of luck")
    assert found.subjects == {}


def test_a_row_that_needs_more_files_than_can_be_open_is_skipped(bench: Bench) -> None:
    found = row(kind("one", ("never-started",)), subscribers=5000).measure(bench)
    assert found.skipped == {"one": "it needs 5,500 open files, and this process may have 1,000"}


def test_without_a_compiler_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(Failed, match="no C compiler"):
        compile_c(tmp_path / "x.c", tmp_path / "x")


@pytest.mark.world
def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'no space left' >&2; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(Failed, match="fails: no space left"):
        compile_c(tmp_path / "x.c", tmp_path / "x")


@pytest.mark.world
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_server_behind(number: signal.Signals) -> None:
    command = (sys.executable, "-m", "tests.benchmarks.peers", "--only", "single", "--seconds", "5")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            deadline_s = time.monotonic() + 30
            while len(family := family_of(process.pid)) < 2 and time.monotonic() < deadline_s:
                time.sleep(0.02)
            assert len(family) > 1
            process.send_signal(number)
            assert process.wait(30) != 0
        finally:
            process.kill()
    deadline_s = time.monotonic() + 10
    while any(map(runs, family[1:])) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not any(map(runs, family[1:]))


def runs(process_id: int) -> bool:
    """Whether a process runs; one that has ended, and that nobody has asked for its exit code, does not."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
