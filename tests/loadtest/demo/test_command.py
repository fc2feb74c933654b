"""`kcast demo`: real runs, small ones, and all the ways in which it must not say that all is well."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kcast.client.aio import Client
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.demo.command import command
from kcast.loadtest.demo.plan import DemoResult
from kcast.loadtest.demo.run import DemoFailed
from kcast.loadtest.demo.tally import Tally
from kcast.pubsub.wire import encode_message
from tests.support.demo_runs import SMALL, demo, demo_in_time

LINES = [b"line %d \xc3\xa9 %%" % number for number in range(40)] + [b"x" * 1000, b"\0\x01\xff", b"", b"  "]
TEXTS = 40 + 4 + 1
DEAD_OF_TOPIC = [2, 2, 2, 2, 1, 2, 2, 1, 1, 1, 2, 2]  # with seed 3
KCAST_DEMO = (sys.executable, "-m", "kcast.client.cli", "demo", *SMALL)


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "some text.bin"
    path.write_bytes(b"\n".join(LINES))
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcast.loadtest.demo.run.DOWN_MESSAGES_MIN", 300)


def test_a_run_agrees_with_the_model(text_file: Path, tmp_path: Path, quick: None) -> None:
    out = tmp_path / "deep" / "out"
    result = demo_in_time("--seed", "3", "--out", out, text_file)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    lines = result.stdout.splitlines()
    assert lines[-3] == "measurement and model agree"
    assert lines[-2].split() == ["chart:", str(out / "delivery.svg")]
    assert lines[-1].split() == ["results:", str(out / "results.json")]
    assert "publishers do not avoid them" in result.stdout and "measured" in result.stdout

    report = json.loads((out / "results.json").read_text())
    assert report["agrees"] and report["failures"] == [] and report["payload_faults"] == {}
    assert report["parameters"]["seed"] == 3 and report["parameters"]["servers"] == 6
    assert report["sources"] == ["some text.bin"] and report["texts"] == TEXTS
    assert report["killed"] == ["server-2", "server-5"] and report["kernel_drops"] == 0
    assert list(report["dead_of_topic"].values()) == DEAD_OF_TOPIC
    phase_results = {(each["k_prime"], each["phase"]): each for each in report["phases"]}
    assert set(phase_results) == {
        (k, phase) for k in (1, 2, 3) for phase in ("up", "down", "recovering", "recovered")
    }
    for (k_prime, phase), each in phase_results.items():
        assert each["unexplained"] == 0 or phase == "recovering"
        if phase in ("up", "recovered"):
            assert each["messages"] == TEXTS and each["delivered"] == each["pairs"] == each["range_pairs"][0]
            assert each["duplicates"] == each["pairs"] * (k_prime - 1)
        elif phase == "down":
            low, high = each["range_pairs"]
            assert low <= each["delivered"] <= high and each["messages"] >= 300
            assert each["down"] == 2
    assert phase_results[1, "down"]["delivered"] < phase_results[1, "down"]["pairs"]
    assert ElementTree.parse(out / "delivery.svg").getroot().tag.endswith("svg")


@pytest.mark.rest
def test_a_run_that_is_spoilt_says_how(
    text_file: Path, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is wrong, a payload changes, and servers that were killed do not come back."""
    restart, enter, publish = ProcessCluster.restart, Tally.publish, Client.publish_nowait

    def spoilt(self: Any, *arguments: Any) -> Any:
        number, payload = enter(self, *arguments)
        return number, payload + b"!" if number == 7 else payload

    def without_avoidance(self: Any, *arguments: Any, **options: Any) -> Any:
        self.core.avoid_dead = False
        return publish(self, *arguments, **options)

    monkeypatch.setattr(
        "kcast.loadtest.demo.tally.delivery_given_down",
        lambda k, m, n, down: 1 - (down / k) ** (m + 1) if down else 1.0,
    )
    monkeypatch.setattr(
        ProcessCluster,
        "restart",
        lambda self, *indexes: restart(self, *indexes) if len(indexes) == 6 else None,
    )
    monkeypatch.setattr(Tally, "publish", spoilt)
    monkeypatch.setattr(Client, "publish_nowait", without_avoidance)
    result = demo_in_time("--json", "--out", tmp_path, text_file)
    assert result.exit_code == 1, result.output
    *phase_results, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert last["type"] == "result" and not last["agrees"]
    wrong = [(each["k_prime"], each["phase"]) for each in phase_results if each["verdict"] == "NOT"]
    assert (1, "down") in wrong and (1, "recovered") in wrong
    reasons = "\n".join(last["failures"])
    assert "K'=1, down: " in reasons and " corrupted: not what stands in the file" in reasons
    assert "not all leases stood again within a ttl" in reasons
    report = json.loads((tmp_path / "results.json").read_text())
    assert report["leases_after_s"] is None
    assert report["last_loss_s"] > 1  # of 2 s for which it was given time to recover


# Outputs that fail.


def test_what_cannot_be_written_is_shown(text_file: Path, tmp_path: Path, finished: None) -> None:
    for name, options in (("delivery.svg", ()), ("results.json", ("--json",))):
        out = tmp_path / name
        out.mkdir()
        (out / name).symlink_to("/dev/full")
        result = demo(*options, "--out", out, text_file)
        assert result.exit_code == 1
        told = f"kcast demo: {out / name}: No space left on device (the result stands above)\n"
        assert result.stderr == told
        if options:
            types = [json.loads(line)["type"] for line in result.stdout.splitlines()]
            assert types == [*3 * ["phase"], "result"]
        else:
            assert "measured" in result.stdout and "4 of 12 down" in result.stdout
            assert result.stdout.endswith("\nmeasurement and model agree\n")


class Full(io.StringIO):
    """Standard output on a disk that is full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_cannot_be_shown_is_written(
    text_file: Path,
    tmp_path: Path,
    finished: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit) as ended:
        command.main(["--out", str(tmp_path), str(text_file)])
    assert (ended.value.code, capsys.readouterr().err) == (1, "kcast demo: No space left on device\n")
    assert json.loads((tmp_path / "results.json").read_text())["agrees"]
    assert (tmp_path / "delivery.svg").exists()


def test_a_standard_output_of_no_use_is_one_line(text_file: Path, tmp_path: Path) -> None:
    for redirection, complaint in (
        (">/dev/full", "No space left on device"),
        (">&-", "standard output is closed"),
    ):
        run = subprocess.run(
            ("sh", "-c", f'exec "$@" {redirection}', "sh", *KCAST_DEMO, "--out", tmp_path, text_file),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert (run.returncode, run.stderr) == (1, f"kcast demo: {complaint}\n")


def leave(run: subprocess.Popen[bytes]) -> None:
    """As `kcast demo | head -1`, but not with 0, which says that measurement and model agree."""
    assert run.stdout is not None
    run.stdout.close()


def interrupt(run: subprocess.Popen[bytes]) -> None:
    run.send_signal(signal.SIGINT)


def terminate(run: subprocess.Popen[bytes]) -> None:
    run.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "told", "code"),
    [
        (leave, b"", 1),
        (interrupt, b"kcast demo: stopped, no verdict\n", 130),
        (terminate, b"kcast demo: stopped, no verdict\n", 143),
    ],
)
def test_who_ends_it_gets_no_verdict(
    end: Callable[[subprocess.Popen[bytes]], None], told: bytes, code: int, text_file: Path, tmp_path: Path
) -> None:
    with started(tmp_path, text_file) as run:
        assert run.stdout is not None and run.stderr is not None
        assert b" servers started " in run.stdout.readline()
        servers = servers_of(run)
        end(run)
        assert (run.stderr.read(), run.wait(60)) == (told, code)
    assert len(servers) == 6
    wait_until_gone(servers)


def test_what_ends_a_run_is_one_line(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for failed, stderr in (
        (DemoFailed("server 3 did not start"), "kcast demo: server 3 did not start\n"),
        (ExceptionGroup("", [DemoFailed("server 3 did not start")]), "kcast demo: server 3 did not start\n"),
        (ExceptionGroup("", [OSError(errno.EMFILE, "no file")]), "kcast demo: no file\n"),
    ):
        monkeypatch.setattr("kcast.loadtest.demo.command.run", fails_with(failed))
        result = demo("--out", tmp_path, text_file)
        assert (result.exit_code, result.stderr) == (1, stderr)


def test_a_bug_is_not_hidden_by_the_failure_that_came_with_it(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ExceptionGroup("", [DemoFailed("it ended"), ExceptionGroup("", [ZeroDivisionError()])])
    monkeypatch.setattr("kcast.loadtest.demo.command.run", fails_with(group))
    assert demo("--out", tmp_path, text_file).exception is group


def fails_with(error: Exception) -> Callable[..., Coroutine[Any, Any, DemoResult]]:
    async def run(*_: object) -> DemoResult:
        raise error

    return run


def started(out: Path, text_file: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (*KCAST_DEMO, "--out", out, text_file), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def servers_of(process: subprocess.Popen[bytes]) -> list[str]:
    (host,) = children(str(process.pid))
    return children(host)


def children(pid: str) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def wait_until_gone(pids: list[str]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Bad input: one line, and no server started.


def test_a_file_that_cannot_be_published_is_named(tmp_path: Path) -> None:
    blank = tmp_path / "blank.txt"
    blank.write_bytes(b"\n \n")
    for path, complaint in (
        (tmp_path / "absent.txt", "absent.txt: No such file or directory"),
        (tmp_path, ": Is a directory"),
        (tmp_path / "ab\x1bsent.txt", "ab\\x1bsent.txt: No such file or directory"),
        (blank, "all lines are blank, so there is nothing to publish"),
        (Path("/dev/null"), "/dev/null: not a regular file"),
    ):
        result = demo("--out", tmp_path / "out", path)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.startswith("kcast demo: ") and complaint in result.stderr


def test_no_more_is_read_than_can_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcast.loadtest.demo.command.TEXT_BYTES_MAX", 2 << 20)
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"\n" * ((1 << 20) + 1))
    result = demo("--out", tmp_path / "out", tmp_path / "one", tmp_path / "two")
    assert (result.exit_code, result.stderr) == (
        1,
        f"kcast demo: {tmp_path / 'two'}: with it, more than 2 MiB would be published\n",
    )


def test_a_place_that_takes_no_files_is_named(text_file: Path) -> None:
    result = demo("--out", text_file / "out", text_file)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "Not a directory" in result.stderr


def test_not_all_servers_can_be_killed() -> None:
    result = demo("--servers", "5", "--kill", "5")
    assert result.exit_code == 2
    assert "at most 4 can be killed" in result.stderr


def test_servers_that_do_not_start_are_one_clear_failure(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessCluster, "program", "kcast.loadtest.no_such_host")
    result = demo("--out", tmp_path, text_file)
    assert result.exit_code == 1
    assert result.stderr.startswith("kcast demo: the process that runs the servers ended with exit code 1\n")
    assert result.stderr.endswith("No module named kcast.loadtest.no_such_host\n")


def test_without_a_file_the_text_is_the_protocol() -> None:
    from kcast.loadtest.demo.command import _read

    texts, sources = _read(())
    assert sources == ["PROTOCOL.md"]
    assert texts[0] == b"# The kcast protocol, version 1"


def test_the_wire_form_of_a_piece_is_what_the_test_file_needs() -> None:
    assert any(len(encode_message(line)) != len(line) for line in LINES)
