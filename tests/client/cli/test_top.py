"""`kcast top` with real servers, on a terminal and elsewhere."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Self

import pytest

from kcast.client import cluster as clusters
from kcast.client.cli.probe import Probe
from kcast.client.cli.top import Loop, one_of_each
from kcast.client.clusters.cluster import Cluster, ServerEntry, format_cluster, lab
from kcast.client.driving.resolver import Resolver
from kcast.hashring.policy import Policy
from tests.support.serve_process import WAIT_S, Serve, next_complaint, served_address

TOP = (sys.executable, "-c", "from kcast.client.cli import main; main()", "top")
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def lab_of_two(serve: Serve, tmp_path: Path) -> tuple[str, str, "subprocess.Popen[str]"]:
    """A cluster file with a server, and one that is not there; the URL of metrics; the server's process."""
    process = serve("--metrics", "0", "--log", "json")
    address = served_address(process)
    while (told := json.loads(next_complaint(process)))["event"] != "metrics":
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = ("127.0.0.1", unused.getsockname()[1])
    file = tmp_path / "lab.txt"
    file.write_text(format_cluster(lab([address, nobody], Policy(1, 1, 1))))
    return str(file), told["url"], process


def top(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((*TOP, *arguments), capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_elsewhere_than_on_a_terminal_it_prints_tables_and_json(
    lab_of_two: tuple[str, str, "subprocess.Popen[str]"],
) -> None:
    file, url, process = lab_of_two
    shown = top("--cluster", file, "--metrics", url, "--interval", "0.2")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert re.fullmatch(r"lab  policy 1/1/1  1 of 2 up  \S+Z", lines[0])
    # The URL is that of one server, for both: so the other has metrics, though it is down.
    heads = ["server", "state", "version", "ms", "lost", "msgs/s", "copies/s", "drops/s", "leases"]
    rows = [line.split() for line in lines if line.startswith("127.0.0.1:")]
    assert lines[3].split() == heads
    assert rows[0][1:3] == ["up", version("kcast")] and rows[0][4:] == ["0", "%", *"0000"]
    assert rows[1][1:5] == ["down", "-", "-", "100"]
    assert "\x1b" not in shown.stdout
    told = top("--cluster", file, "--metrics", url, "--interval", "0.2", "--count", "3", "--json")
    first, second, third = map(json.loads, told.stdout.splitlines())
    assert first["time"] < second["time"] < third["time"]
    assert [(each["up"], each["total"], each["leases"]) for each in (first, third)] == [(1, 2, 0)] * 2
    assert [each["state"] for each in third["servers"]] == ["up", "down"]
    assert (third["servers"][0]["loss"], third["servers"][1]["rtt_ms"]) == (0.0, None)
    assert process.poll() is None
    unknown = top("--cluster", file, "--metrics", "http://127.0.0.1:1/", "--once", "--interval", "0.1")
    lines = unknown.stdout.splitlines()
    assert lines[1] == "- messages/s  - copies/s  - drops/s  - leases  (from 0 servers)"
    assert all(line.split()[-4:] == ["-"] * 4 for line in lines if line.startswith("127"))
    process.kill()
    process.wait()
    for more in (("--once",), ("--count", "2", "--json")):
        assert top("--cluster", file, "--interval", "0.2", *more).returncode == 1, "all are down"


class Terminal:
    """`kcast top` on a terminal of 80 columns."""

    def __init__(self, rows: int, *arguments: str) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(rows)
        self.before = termios.tcgetattr(self._slave)
        self.seen = b""
        self.process = subprocess.Popen(
            (*TOP, *arguments),
            stdin=self._slave,
            stdout=self._slave,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def await_page(self, *words: str) -> str:
        """What has been drawn from now on, once these words are in it."""
        deadline, known = time.monotonic() + WAIT_S, len(self.seen)
        while time.monotonic() < deadline:
            self._read(deadline)
            page = self.seen[known:].decode(errors="replace")
            if all(word in page for word in words):
                return page
        pytest.fail(f"no page with {words}: {self.seen[-2000:]!r}")

    def end(self) -> int:
        """The exit code, once all has been read."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(time.monotonic() + 0.05)
        self._read(time.monotonic() + 0.05)
        assert self.process.stderr is not None
        assert self.process.stderr.read() == b""
        return self.process.wait(timeout=WAIT_S)

    def is_restored(self) -> bool:
        return self.seen.rstrip().endswith(LEAVE) and termios.tcgetattr(self._slave) == self.before

    def _read(self, deadline: float) -> None:
        if select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            self.seen += os.read(self._master, 65536)


@contextmanager
def on_terminal(rows: int, file: str, *arguments: str) -> Iterator[Terminal]:
    with Terminal(rows, "--cluster", file, "--interval", "0.1", *arguments) as terminal:
        yield terminal


def test_a_terminal_shows_it_until_q_and_is_given_back(
    lab_of_two: tuple[str, str, "subprocess.Popen[str]"],
) -> None:
    file, url, process = lab_of_two
    with on_terminal(10, file, "--metrics", url) as terminal:
        terminal.await_page("1 of 2 up", "drops/s", "q quits")
        assert ENTER in terminal.seen
        terminal.process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        while LEAVE not in terminal.seen:
            terminal._read(time.monotonic() + WAIT_S)
        assert terminal.is_restored()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.await_page("1 of 2 up")
        terminal.resize(6)
        terminal.process.send_signal(signal.SIGWINCH)
        pages = (terminal.await_page("down", "q quits", "\x1b[H").split("\x1b[H")[-2] for _ in range(20))
        assert any("  up  " not in page for page in pages), "the worst has the room"
        process.kill()
        terminal.await_page("0 of 2 up")
        terminal.type(b"q")
        assert terminal.end() == 0
        assert terminal.is_restored()


def test_signals_and_a_count_end_it_and_the_terminal_is_given_back(
    lab_of_two: tuple[str, str, "subprocess.Popen[str]"],
) -> None:
    for number, exit_code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (None, 0)):
        with on_terminal(10, lab_of_two[0], *(("--count", "2") if number is None else ())) as terminal:
            terminal.await_page("1 of 2 up")
            if number is not None:
                terminal.process.send_signal(number)
            assert terminal.end() == exit_code
            assert terminal.is_restored()


def test_a_server_that_is_down_is_looked_up_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = served_address(serve())
    named = ("moving.example", port)
    monkeypatch.setattr("kcast.client.cli.top.Resolver", lambda: Resolver(lambda _: [(host, port)]))
    cluster = Cluster((ServerEntry((), "moving", named),), Policy(1, 1, 1), has_names=True)
    for before in (
        Probe("moving.example:7400", ("127.0.0.2", port), Random(1)),
        Probe("moving.example:7400", None, Random(1)),
    ):
        monkeypatch.setattr("kcast.client.cli.top.probes_of", lambda _, before=before: [before])
        Loop(cluster, None, 0.05, as_json=True).run(30)
        states = [json.loads(line)["servers"][0]["state"] for line in capsys.readouterr().out.splitlines()]
        assert (states[0], states[-1], before.address) == ("down", "up", (host, port))


def test_each_server_is_asked_at_an_address_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    v6, v4 = Probe("a", ("2001:db8::1", 1), Random(1)), Probe("a", ("127.0.0.1", 1), Random(1))
    only, unknown, other = (
        Probe("b", ("2001:db8::2", 1), Random(1)),
        Probe("c", None, Random(1)),
        Probe("d", ("127.0.0.2", 1), Random(1)),
    )
    probes = [v6, v4, only, unknown, other]
    monkeypatch.setattr("kcast.client.cli.top.usable_families", lambda _: (4,))
    assert one_of_each(probes) == [v4, only, unknown, other]
    monkeypatch.setattr("kcast.client.cli.top.usable_families", lambda _: (4, 6))
    assert one_of_each(probes) == [v6, only, unknown, other]


def test_a_changed_file_is_shown_and_one_that_is_not_sound_is_told(
    lab_of_two: tuple[str, str, "subprocess.Popen[str]"],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, *_ = lab_of_two
    monkeypatch.setattr("kcast.client.clusters.watch.LOOK_INTERVAL_S", 0.05)
    monkeypatch.setattr("kcast.client.clusters.watch.SETTLE_S", 0.05)
    before = clusters.load(Path(file))
    loop = Loop(before, None, 0.1, as_json=True)
    Path(file).write_text(format_cluster(replace(before, servers=before.servers[:1])))
    loop.run(20)
    totals = [json.loads(line)["total"] for line in capsys.readouterr().out.splitlines()]
    assert totals == sorted(totals, reverse=True) and set(totals) == {2, 1} and len(totals) == 20
    Path(file).write_text("kcast-cluster 1\nserver 127.0.0.1:74x1\n")
    loop.run(10)
    shown = capsys.readouterr()
    assert shown.err.startswith(f"kcast top: {file}:2: expected IP:PORT") and shown.err.count("\n") == 1
    assert shown.err.endswith("; going on with the cluster as it was\n")
    assert len(shown.out.splitlines()) == 10
