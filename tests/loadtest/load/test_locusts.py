"""loadtest/load/locusts.py: processes that tell their progress, with a program in locust's place."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.load import locusts
from kcast.loadtest.load.locusts import LocustFailed, Locusts

WAIT_S = 20.0

# What every stand-in begins with: its options, and a way to tell.
BEGIN = """
import json, os, signal, sys, time
arguments = sys.argv[1:]
fd = int(arguments[arguments.index("--progress-fd") + 1])
def tell(**record):
    os.write(fd, json.dumps(record).encode() + b"\\n")
"""
TELLS_AND_ENDS = "tell(phase='load', arguments=arguments)\ntell(phase='end')\n"
NEVER_ENDS = "tell(phase='load', pid=os.getpid())\ntime.sleep(1000)\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"

Start = Callable[..., Locusts]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    def start(program: str, **options: Any) -> Locusts:
        monkeypatch.setattr(locusts, "LOCUST", (sys.executable, "-c", BEGIN + program))
        return Locusts(
            *(tmp_path / "s.json", tmp_path / "c", tmp_path / "out"), log=tmp_path / "log", **options
        )

    return start


def told(users: Locusts) -> list[Any]:
    return [record for record in users.records() if record is not None]


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def is_gone(pid: int) -> bool:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_what_it_tells_comes_until_it_ends(start: Start, tmp_path: Path) -> None:
    with start(TELLS_AND_ENDS) as users:
        first, last = told(users)
    assert last == {"phase": "end"}
    arguments = first["arguments"]
    for name, value in (("--scenario", "s.json"), ("--cluster", "c"), ("--capture", "out")):
        assert arguments[arguments.index(name) + 1] == str(tmp_path / value)
    assert "--headless" in arguments and "--master" not in arguments
    assert Path(arguments[arguments.index("-f") + 1]).name == "locustfile.py"


def test_of_a_master_and_its_workers_the_master_is_heard(start: Start) -> None:
    program = "tell(phase='--master' in arguments and 'leads' or 'works', arguments=arguments)\n"
    with start(program, workers=2) as users:
        assert len(users.pids) == 3
        (record,) = told(users)
    assert record["phase"] == "leads"
    arguments = record["arguments"]
    assert arguments[arguments.index("--expect-workers") + 1] == "2"
    assert int(arguments[arguments.index("--master-bind-port") + 1]) > 0


def test_ctrl_c_of_a_terminal_does_not_reach_it_and_no_descriptor_is_left(start: Start) -> None:
    before = descriptors()
    with start(NEVER_ENDS) as users:
        (pid,) = users.pids
        assert os.getsid(pid) != os.getsid(0)
    assert descriptors() == before


def test_what_is_set_for_the_users_own_locust_does_not_change_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCUST_RUN_TIME", "1s")
    monkeypatch.setenv("SOME_OTHER", "stays")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # where a locust.conf, or a pyproject.toml, may be
    with start("tell(set=dict(os.environ), folder=os.getcwd())\n") as users:
        (record,) = told(users)
    assert not [name for name in record["set"] if name.startswith("LOCUST_")]
    assert record["set"]["SOME_OTHER"] == "stays"
    assert record["folder"] == str(tmp_path)


def test_a_line_may_come_in_pieces(start: Start) -> None:
    program = "os.write(fd, b'{\"phase\":')\ntime.sleep(0.2)\nos.write(fd, b'\"end\"}\\n')\n"
    with start(program) as users:
        assert told(users) == [{"phase": "end"}]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "print('no such file', file=sys.stderr)\nsys.exit(3)\n",
            "locust ended with exit code 3; .*\n  no such file",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)\n", "locust was ended by SIGKILL"),
    ],
)
def test_an_end_that_is_none_is_told_with_what_was_said(start: Start, program: str, message: str) -> None:
    with start(program) as users, pytest.raises(LocustFailed, match=message):
        list(users.records())


def test_the_end_of_a_worker_ends_all(start: Start) -> None:
    program = "sys.exit('worn out') if '--worker' in arguments else time.sleep(1000)\n"
    users = start(program, workers=2)
    with users, pytest.raises(LocustFailed, match=r"locust's worker [12] ended with exit code 1"):
        pids = users.pids
        list(users.records())
    assert all(map(is_gone, pids))


def test_silence_is_an_error_in_the_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locusts, "SILENCE_S_MAX", 0.1)
    with start(NEVER_ENDS) as users, pytest.raises(LocustFailed, match=r"has reported nothing for 0\.1 s"):
        list(users.records())


def test_none_comes_when_nothing_is_told(start: Start) -> None:
    with start(NEVER_ENDS) as users:
        records = users.records()
        assert next(records) is not None
        assert next(records) is None


@pytest.mark.parametrize("program", [NEVER_ENDS, DEAF + NEVER_ENDS])
def test_leaving_ends_it_even_if_it_is_deaf(
    start: Start, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locusts, "STOP_TIMEOUT_S", 0.5)
    with start(program) as users:
        record: Any = next(users.records())
    assert is_gone(record["pid"])


def test_none_outlives_its_owner(tmp_path: Path) -> None:
    """SIGKILL: the pipe closes, which whoever writes to it notices."""
    stand_in = BEGIN + DEAF + "while True:\n    tell(pid=os.getpid())\n    time.sleep(0.05)\n"
    owner = f"""
import sys
from pathlib import Path
from kcast.loadtest.load import locusts
locusts.LOCUST = (sys.executable, "-c", {stand_in!r})
folder = Path({str(tmp_path)!r})
with locusts.Locusts(folder, folder, folder, log=folder / "log", workers=2) as users:
    print(*users.pids, flush=True)
    for record in users.records():
        pass
"""
    with subprocess.Popen((sys.executable, "-c", owner), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        process.send_signal(signal.SIGKILL)
    assert len(pids) == 3
    assert all(map(is_gone, pids))
