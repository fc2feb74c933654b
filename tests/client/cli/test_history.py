"""`kcast keep`, `history`, `pub --history` and `sub --since`, as processes on real servers."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import time
from typing import Any
from unittest.mock import AsyncMock, Mock

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli.logs import SPARE_S, Since, since
from kcast.client.cli.since import feed
from kcast.client.cluster import format_cluster, lab
from kcast.client.history.entries import Synced
from kcast.client.history.ids import to_text, varint
from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import KCAST, ClusterOfProcesses, Command

NAMES = ["time", "topic", "payload", "publisher", "seq", "id", "parents", "orphan", "sender", "group"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Three servers that no test kills."""
    with ClusterOfProcesses(tmp_path_factory.mktemp("cluster"), 3, Policy(3, 2, 3)) as running:
        yield running


def start(
    cluster: ClusterOfProcesses,
    verb: str,
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
) -> Command:
    return Command(verb, "--cluster", str(cluster.file), *arguments, stdin=stdin, stdout=stdout)


def run(cluster: ClusterOfProcesses, verb: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """Runs a command that is to succeed; what it printed."""
    with start(cluster, verb, *arguments, stdin=subprocess.PIPE) as command:
        command.feed(stdin)
        code, output, errors = command.end()
        assert code == 0, errors
        return output


def keeper(stack: ExitStack, cluster: ClusterOfProcesses, *arguments: str) -> Command:
    command = stack.enter_context(start(cluster, "keep", *arguments))
    for topic in arguments[: arguments.index("--store")]:
        command.await_error(f"{topic}: keeps ".encode())
    return command


@pytest.mark.rest
def test_who_comes_late_gets_what_is_kept_though_its_author_and_a_keeper_are_killed(
    cluster: ClusterOfProcesses, tmp_path: Path
) -> None:
    file = str(tmp_path / "c.db")
    with ExitStack() as stack:
        killed = keeper(stack, cluster, "chat", "other", "--store", file)
        run(cluster, "pub", "--keep", "1", "chat", "hi")
        run(cluster, "pub", "--keep", "1", "chat", "-W", "20", stdin=b"1\n2\n\n3")
        assert run(cluster, "sub", "--since", "10m", "-C", "1", "chat") == b"hi\n"
        killed.process.kill()
        killed.process.wait()
        lines = run(cluster, "history", "chat", "--store", file, "--json").splitlines()
        entries = [json.loads(line) for line in lines]
        assert [each["payload"] for each in entries] == ["hi", "1", "2", "", "3"]
        assert [*entries[0]] == NAMES and entries[2]["parents"] == [entries[1]["id"]]
        keeper(stack, cluster, "chat", "--store", file, "--age", "1d", "--count", "9")
        assert run(cluster, "history", "chat", "--since", "-2") == b"\n3\n"
        third = entries[2]["id"]
        with start(cluster, "sub", "--since", third, "chat", "-C", "4", "-F", "%t %p") as sub:
            sub.await_lines(3)
            run(cluster, "pub", "--history", "chat", "live")
            assert sub.end()[:2] == (0, b"chat 2\nchat \nchat 3\nchat live\n")
        status = json.loads(run(cluster, "history", "chat", "--status"))
        assert (status["entries"], status["holders"] >= 1) == (6, True)
        heads = run(cluster, "history", "chat", "--store", file, "--heads").decode().split()
        assert heads == status["heads"]
        of_file = json.loads(run(cluster, "history", "chat", "--store", file, "--status"))
        assert of_file["digest"] == status["digest"]


@pytest.mark.rest
def test_what_is_not_there_or_not_kept_is_told(cluster: ClusterOfProcesses, tmp_path: Path) -> None:
    cases: tuple[tuple[tuple[str, ...], bytes], ...] = (
        (("history", "gone", "-W", "2"), b"nobody who is there holds gone"),
        (
            ("pub", "nobody", "x", "--keep", "1", "-W", "0.5"),
            b"1 of 1 entry: not kept by 1 other within 0.5 s",
        ),
        (("pub", "nobody", "x" * 1200, "--history"), b"message too large"),
        (("sub", "empty", "--since", "all", "-C", "1", "-W", "1"), b"0 of 1 entry came within 1 s"),
        (("history", "t", "--store", str(tmp_path / "none.db")), b"none.db: there is no such file"),
        (("keep", "t", "--store", str(tmp_path)), b"kcast keep: "),
        (("keep", "t", "--store", str(tmp_path / "none" / "x.db")), b"none/x.db: No such file"),
    )
    with ExitStack() as stack:
        held = tmp_path / "held.db"
        keeper(stack, cluster, "t", "--store", str(held))
        cases += ((("keep", "t", "--store", str(held)), b"another process has it open"),)
        cases += ((("history", "u", "--store", str(held)), b"it has nothing of u"),)
        dead = tmp_path / "dead.cluster"
        dead.write_text(format_cluster(lab([("127.0.0.1", 9)], Policy(1, 1, 1))))
        waiting = "t", "--history", "-W", "0.5"
        unread = stack.enter_context(Command("pub", "--cluster", str(dead), *waiting, stdin=subprocess.PIPE))
        unread.feed(b"line\n" * 2000)
        commands = [stack.enter_context(start(cluster, *words)) for words, _ in cases]
        for command, (words, part) in zip(commands, cases, strict=True):
            code, output, errors = command.end()
            assert code in (1, 2) and output == b"" and part in errors, (words, code, errors)
            assert b"Traceback" not in errors
        code, _, errors = unread.end()
        assert code == 1 and b"no server answers" in errors and b"added" not in errors, errors


@pytest.mark.rest
def test_signals_and_streams_that_are_closed_or_full(cluster: ClusterOfProcesses, tmp_path: Path) -> None:
    file = str(tmp_path / "c.db")
    reading, writing = os.pipe()
    with ExitStack() as stack, os.fdopen(reading, "rb", 0) as reader:
        keeping = keeper(stack, cluster, "s", "--store", file)
        run(cluster, "pub", "--keep", "1", "s", "x", "-W", "30")
        cases: tuple[tuple[str, tuple[str, ...], int, bytes], ...] = (
            (">&-", ("history", "s", "-W", "30"), 1, b"standard output is closed"),
            (">/dev/full", ("history", "s", "-W", "30"), 1, b"No space left"),
            (">/dev/full", ("history", "s", "--store", file), 1, b"No space left"),
            (">/dev/full", ("sub", "--since", "all", "s"), 1, b"No space left"),
            (">/dev/full", ("pub", "--history", "--json", "s", "y"), 1, b"No space left"),
            ("<&-", ("pub", "--history", "s"), 1, b"standard input is closed"),
            ("2>&-", ("sub", "--since", "all", "s", "-C", "1"), 0, b""),
        )
        commands = list[Command]()
        for redirected, (verb, *others), *_ in cases:
            program = "sh", "-c", f'exec "$@" {redirected}', "sh", *KCAST
            command = Command(verb, "--cluster", str(cluster.file), *others, program=program)
            commands.append(stack.enter_context(command))
        for command, (_, words, code, part) in zip(commands, cases, strict=True):
            ended = command.end()
            assert ended[0] == code and part in ended[2] and b"Traceback" not in ended[2], (words, ended)
        head = stack.enter_context(start(cluster, "sub", "--since", "all", "s", stdout=writing))
        os.close(writing)
        assert reader.read(2) == b"x\n"
        reader.close()
        assert head.end()[0] == 0
        waiting = stack.enter_context(start(cluster, "sub", "--since", "all", "s"))
        waiting.await_lines(1)
        for command, number, code in (waiting, signal.SIGINT, 130), (keeping, signal.SIGTERM, 143):
            command.process.send_signal(number)
            ended = command.end()
            assert ended[0] == code and b"Traceback" not in ended[2]
        assert b"x\n" in run(cluster, "history", "s", "--store", file)


def test_wrong_usage(cluster: ClusterOfProcesses) -> None:
    for words, part in (
        (("keep", "t"), "--store"),
        (("keep", "t", "--store", "f", "--age", "1y"), "12h or 1d"),
        (("keep", "t", "--store", "f", "--age", "0"), "12h or 1d"),
        (("keep", "t", "--store", "f", "--size", "x"), "such as 64M"),
        (("history", "t", "--store", "f", "--seal", "g"), "leave one of them out"),
        (("history", "t", "--store", "f", "--sign"), "leave one of them out"),
        (("history", "t", "--heads", "--status"), "leave one of them out"),
        (("history", "t", "--since", "yesterday"), "10m"),
        (("sub", "t", "--since", "10m", "--hold", "1"), "leave one of them out"),
        (("pub", "t", "x", "--history", "--cover", "1"), "leave one of them out"),
        (("pub", "t", "x", "--history", "--raw"), "leave one of them out"),
        (("pub", "--keep", "1", "--lines", "topic-message"), "leave one of them out"),
        (("pub", "t", "x", "--keep", "0"), "0 is not in the range"),
    ):
        ended = CliRunner().invoke(main, [words[0], "--cluster", str(cluster.file), *words[1:]])
        assert ended.exit_code == 2 and part in ended.stderr, (words, ended.stderr)


def test_since_is_a_time_an_id_or_a_number() -> None:
    parameter = click.Option(["--since"])
    an_id = "zVOWOVX4hUtHl2t11bzhEMvZbClEjilp"
    for given, found in (
        (None, None),
        ("all", Since("all")),
        ("90", Since(90.0)),
        ("1.5h", Since(5400.0)),
        ("2d", Since(172_800.0)),
        ("-5", Since("all", 5)),
        (an_id, Since(an_id)),
    ):
        assert since(click.Context(main), parameter, given) == found
    hour_ago = to_text(varint(int((time() - 3600) * 1e6)) + bytes(16))
    for begun, ago_s in (Since(60.0), 60), (Since(hour_ago), 3600):
        assert abs(begun.age_s - SPARE_S - ago_s) < 60
    assert min(Since(last=5).age_s, Since().age_s) > 1e9


class Slow:
    """A log that has all entries but the last ones, until it has those, too."""

    def __init__(self) -> None:
        self.synced = AsyncMock(side_effect=[Synced(1, 9, False)] * 3 + [Synced(1, 9, True)])
        self.status = Mock(return_value=Mock(entries=9))

    async def entries(self, since: str, last: int | None) -> AsyncIterator[bool]:
        yield self.synced.await_count == 4


def test_the_last_ones_are_printed_once_all_is_there() -> None:
    for begun, is_all in (Since(last=5), True), (Since(), False):
        queue = asyncio.Queue[Any]()
        # Slow is a log only in what this uses of one.
        asyncio.run(feed(queue, begun, b"t", Slow()))  # type: ignore[arg-type]
        assert queue.get_nowait().entry is is_all
