"""`kcast pub --cover`, as a process on a cluster of real servers."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import ClusterOfProcesses, Command

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from kcast.client.sealed.keys import Identity


class Member:
    """A member of the group `ops`, which she owns."""

    def __init__(self, folder: Path, cluster: ClusterOfProcesses) -> None:
        variables = {
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "KCAST_CLUSTER": str(cluster.file),
        }
        self._words = [f"{name}={value}" for name, value in variables.items()]
        Identity.make(folder / "config" / "kcast" / "keys" / "key.pem")
        with self.kcast("group", "new", "ops", "--out", str(folder / "ops.group")) as command:
            code, _, errors = command.end()
        assert code == 0, errors

    def kcast(self, *words: str, stdin: int = subprocess.PIPE) -> Command:
        program = ("env", "-u", "KCAST_KEY", *self._words, sys.executable, "-m", "kcast.client.cli")
        return Command(*words, program=program, stdin=stdin)


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with ClusterOfProcesses(tmp_path_factory.mktemp("cluster"), 2, Policy(2, 2, 2)) as running:
        yield Member(tmp_path_factory.mktemp("ann"), running)


COVER = ("pub", "t", "--seal", "ops", "--size", "100")


def test_the_end_of_the_input_does_not_end_it_and_its_time_does(ann: Member) -> None:
    with ann.kcast("sub", "t", "--seal", "ops", "--json", "-C", "3") as reader:
        reader.await_error(b"leased on 2 of 2")
        began = time.monotonic()
        with ann.kcast(*COVER, "--cover", "20", "--for", "2.5", "--json") as writer:
            writer.feed(b"one\ntwo\nthree\n")
            code, output, errors = writer.end()
        assert time.monotonic() - began >= 2.5
        assert code == 0, errors
        assert b"published 3 messages: receipts from 2 servers each" in errors
        assert [json.loads(line)["line"] for line in output.splitlines()] == [1, 2, 3]
        code, output, errors = reader.end()
    read = [json.loads(line) for line in output.splitlines()]
    assert [(each["payload"], each["seq"], each["group"]) for each in read] == [
        ("one", 1, "ops"),
        ("two", 2, "ops"),
        ("three", 3, "ops"),
    ]
    assert b"cover" not in errors


def test_without_anything_to_say_it_goes_on_until_ctrl_c(ann: Member) -> None:
    with ann.kcast(*COVER, "--cover", "20") as writer:
        writer.feed(b"")
        time.sleep(2.5)
        assert writer.process.poll() is None
        os.kill(writer.process.pid, signal.SIGINT)
        code, _, errors = writer.end()
    assert (code, errors) == (130, b"kcast pub: published 0 messages\n")


def test_at_a_terminal_it_says_what_ends_what(ann: Member) -> None:
    master, slave = pty.openpty()
    with os.fdopen(master, "wb", 0) as terminal, ann.kcast(*COVER, "--cover", "20", stdin=slave) as writer:
        os.close(slave)
        writer.await_error(b"each line is a message; Ctrl-D ends what you type, Ctrl-C the cover traffic\n")
        terminal.write(b"one\n\x04")
        time.sleep(2.5)
        assert writer.process.poll() is None
        os.kill(writer.process.pid, signal.SIGINT)
        code, _, errors = writer.end()
    assert code == 130 and b"published 1 message: receipts from 2 servers each" in errors


def test_what_ctrl_c_keeps_from_its_tick_is_told_as_not_sent(ann: Member) -> None:
    with ann.kcast(*COVER, "--cover", "0.1") as writer:
        writer.feed(b"one\ntwo\nthree\n")
        time.sleep(2.5)
        os.kill(writer.process.pid, signal.SIGINT)
        code, _, errors = writer.end()
    assert code == 130 and b"had no receipt yet" not in errors
    assert b"messages had not had a tick at the end, and did not leave" in errors


def test_what_has_had_no_tick_is_told_and_too_large_lines_are(ann: Member) -> None:
    with ann.kcast(*COVER, "--cover", "0.1", "--for", "2") as writer:
        writer.feed(b"one\ntwo\n" + b"x" * 101 + b"\n" + b"x" * 70_000 + b"\n")
        code, _, errors = writer.end()
    assert code == 1
    assert (
        b"kcast pub: line 3: message too large: 101 bytes, and this cover traffic has room for 100" in errors
    )
    assert b"kcast pub: line 4: message too large: 70000 bytes, and this cover traffic" in errors
    assert b"had not had a tick at the end, and did not leave" in errors


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--cover 1 --seal ops", "--cover goes with --size"),
        ("--cover 1 --size 10", "--cover goes with --seal"),
        ("--size 10", "--size goes with --cover"),
        ("--for 10", "--for goes with --cover"),
        ("--cover 0 --size 10 --seal ops", "0.0 is not in the range"),
        ("--cover nan --size 10 --seal ops", "nan"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: str, text: str) -> None:
    result = CliRunner().invoke(main, ["pub", "t", "m", *words.split()])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_size_that_no_line_holds_is_refused_with_what_fits(ann: Member) -> None:
    with ann.kcast("pub", "t", "m", "--seal", "ops", "--cover", "1", "--size", "2000") as writer:
        code, output, errors = writer.end()
    assert (code, output) == (1, b"")
    assert errors.startswith(b"kcast pub: size is 2000: on this topic, at most 620 bytes fit into a line")
    assert errors.count(b"\n") == 1
