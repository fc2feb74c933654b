"""`kcast request`, `reply`, `who` and `sub --limit`, as processes on real servers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import KCAST, ClusterOfProcesses, Command


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


def request(cluster: ClusterOfProcesses, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Asks; the exit code, and what was printed."""
    with start(cluster, "request", *arguments, stdin=subprocess.PIPE) as command:
        command.feed(stdin)
        return command.end()


def worker(stack: ExitStack, cluster: ClusterOfProcesses, *arguments: str) -> Command:
    command = stack.enter_context(start(cluster, "reply", *arguments))
    command.await_error(b" answers\n")
    return command


@pytest.mark.rest
def test_workers_of_one_topic_answer_and_one_is_killed(cluster: ClusterOfProcesses) -> None:
    with ExitStack() as stack:
        first = worker(stack, cluster, "calc", "-m", "add", "--command", "cat")
        worker(stack, cluster, "calc", "-m", "add", "-m", "mul", "--command", "cat")
        assert request(cluster, "calc", "1 2\n", "-m", "add") == (0, b"1 2\n", b"")
        code, output, errors = request(cluster, "calc", "-", "-m", "mul", "--json", stdin=b"\xff")
        assert code == 0, errors
        told = json.loads(output)
        assert (told["payload_base64"], told["sender"], told["attempts"]) == ("/w==", None, 1)
        code, output, errors = request(cluster, "calc", "x", "-m", "add", "--all")
        rows = [line.split(b"\t") for line in output.splitlines()]
        assert (code, {row[1] for row in rows}, len(rows)) == (0, {b"x"}, 2), errors
        with start(cluster, "who", "calc") as who:
            code, output, _ = who.end()
            listed = [line.split(b"\t") for line in output.splitlines()]
            assert code == 0 and {row[1] for row in listed} == {b"add", b"add,mul"}
            assert {row[0] for row in listed} == {row[0] for row in rows}
        first.process.kill()
        (left,) = [row[0] for row in listed if row[1] == b"add,mul"]
        for _ in range(2):
            code, output, errors = request(cluster, "calc", "x", "-m", "add", "--json")
            assert (code, json.loads(output)["worker"].encode()) == (0, left), errors


@pytest.mark.rest
def test_commands_are_told_what_was_asked_and_what_fails_is_told(cluster: ClusterOfProcesses) -> None:
    shown = (
        'sh -c \'echo "$KCAST_METHOD $KCAST_TOPIC [$KCAST_SENDER] $(cat)"; test "$KCAST_LEFT_MS" -gt 1000\''
    )
    with ExitStack() as stack:
        worker(stack, cluster, "env", "-m", "a.b", "--command", shown)
        assert request(cluster, "env", "in", "-m", "a.b")[:2] == (0, b"a.b env [] in\n")
        worker(stack, cluster, "bad", "--command", "false")
        assert request(cluster, "bad") == (4, b"", b"kcast request: failed: exit code 1\n")
        code, output, _ = request(cluster, "bad", "--json")
        assert (code, json.loads(output)) == (4, {"worker": None, "code": "failed", "text": "exit code 1"})
        worker(stack, cluster, "slow", "--command", "sleep 20")
        code, output, errors = request(cluster, "slow", "-W", "1.5")
        assert (code, output) == (1, b"") and b"a worker has begun" in errors
        code, _, errors = request(cluster, "env", "-W", "3")
        assert code == 1 and b"unnamed method" in errors and b"a.b" in errors, errors
        limited = worker(stack, cluster, "some", "text", "-C", "2", "--limit", "2/60")
        for _ in range(2):
            assert request(cluster, "some")[:2] == (0, b"text\n")
        assert limited.end()[0] == 0


@pytest.mark.rest
def test_commands_that_go_wrong(cluster: ClusterOfProcesses, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.write_text("#!/bin/sh\n")
    gone.chmod(0o755)
    too_large = b"kcast request: size: the answer has more than 262144 bytes\n"
    cases: tuple[tuple[str, int, bytes, bytes], ...] = (
        ("yes", 4, b"", too_large),  # it would go on for ever
        ("head -c 262144 /dev/zero", 0, bytes(262144) + b"\n", b""),
        ("sh -c 'exec <&-; echo ran'", 0, b"ran\n", b""),  # reads nothing
        ("sh -c 'kill -9 $$'", 4, b"", b"kcast request: failed: exit code -9\n"),
        ("sh -c 'sleep 60 &'", 1, b"", b"may have done it\n"),  # what it starts has its output
        (str(gone), 4, b"", b"kcast request: failed: No such file or directory\n"),
    )
    with ExitStack() as stack:
        workers = [
            stack.enter_context(start(cluster, "reply", f"wrong-{number}", "--command", words))
            for number, (words, *_) in enumerate(cases)
        ]
        for each in workers:
            each.await_error(b" answers\n")
        gone.unlink()
        asking = [
            stack.enter_context(start(cluster, "request", f"wrong-{number}", "in", "-W", "4"))
            for number in range(len(cases))
        ]
        for command, (words, *expected, part) in zip(asking, cases, strict=True):
            *ended, errors = command.end()
            assert ended == expected and errors.endswith(part), (words, errors)
        workers[-1].await_error(b"kcast reply: %s: No such file" % bytes(gone))


@pytest.mark.rest
def test_ctrl_c_and_sigterm(cluster: ClusterOfProcesses) -> None:
    """The second one, too: then what runs is ended with its caller still waiting."""
    for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143):
        with ExitStack() as stack:
            slow = worker(stack, cluster, "slow", "--command", "sh -c 'echo pid $$ ran >&2; exec sleep 60'")
            watching = stack.enter_context(start(cluster, "who", "slow", "--watch"))
            asking = stack.enter_context(start(cluster, "request", "slow", "-W", "60"))
            watching.await_lines(1)
            slow.await_error(b" ran\n")
            (child,) = (int(word) for word in slow.errors.split(b"pid ")[1].split()[:1])
            slow.process.send_signal(number)
            watching.await_output(b"\n- ")
            assert slow.process.poll() is None, "it waits for what runs"
            os.kill(child, 0)
            slow.process.send_signal(number)
            ended = slow.end()
            assert ended[0] == code and b"Traceback" not in ended[2], ended
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)
            for command in asking, watching:
                command.process.send_signal(number)
                told = command.end()
                assert (told[0], told[2]) == (code, b"")


@pytest.mark.rest
def test_streams_that_are_closed_or_full(cluster: ClusterOfProcesses) -> None:
    cases: tuple[tuple[str, tuple[str, ...], int, bytes, bytes], ...] = (
        ("<&-", ("request", "echo", "-"), 1, b"", b"standard input is closed"),
        ("</dev/zero", ("request", "echo", "-"), 1, b"", b"message too large"),
        (">&-", ("request", "echo", "x"), 1, b"", b"standard output is closed"),
        (">/dev/full", ("request", "echo", "x"), 1, b"", b"No space left"),
        (">/dev/full", ("who", "echo", "--watch"), 1, b"", b"No space left"),
        ("2>&-", ("request", "echo", "x"), 0, b"x\n", b""),
        ("2>&-", ("request", "nobody"), 1, b"", b""),
        ("2>&-", ("reply", "once", "text", "-C", "1"), 0, b"", b""),
    )
    with ExitStack() as stack:
        worker(stack, cluster, "echo", "--echo")
        commands = [
            stack.enter_context(
                Command(
                    *(verb, "--cluster", str(cluster.file), *words),
                    program=("sh", "-c", f'exec "$@" {redirected}', "sh", *KCAST),
                )
            )
            for redirected, (verb, *words), *_ in cases
        ]
        while commands[-1].process.poll() is None and request(cluster, "once")[0]:
            pass  # it does not say when it answers
        for command, (*case, code, output, part) in zip(commands, cases, strict=True):
            ended = command.end()
            assert ended[:2] == (code, output) and part in ended[2], (case, ended)
            assert b"Traceback" not in ended[2] and bool(part) == bool(ended[2])


@pytest.mark.rest
def test_who_watches_ends_when_nobody_reads_any_more(cluster: ClusterOfProcesses) -> None:
    """As `kcast who --watch | head -1`: at once, without waiting for somebody else to come."""
    reading, writing = os.pipe()
    with ExitStack() as stack, os.fdopen(reading, "rb", 0) as reader:
        worker(stack, cluster, "head", "text")
        who = stack.enter_context(start(cluster, "who", "head", "--watch", stdout=writing))
        os.close(writing)
        assert reader.read(2) == b"+ "
        reader.close()
        assert who.end() == (0, b"", b"")


@pytest.mark.rest
def test_a_thread_that_hangs_does_not_keep_the_program(cluster: ClusterOfProcesses) -> None:
    program = """
import sys, threading
from kcast.client.blocking import Client
began = threading.Event()
client = Client(sys.argv[1]).open()
client.service("hangs", lambda _: (began.set(), threading.Event().wait()))
client.request_nowait("hangs", "")
assert began.wait(30)
"""
    with Command(program, str(cluster.file), program=(sys.executable, "-c")) as hanging:
        assert hanging.end() == (0, b"", b"")


@pytest.mark.rest
def test_members_say_that_they_are_there(cluster: ClusterOfProcesses) -> None:
    with start(cluster, "who", "room", "--watch") as watching:
        with start(cluster, "who", "room", "--as", "ada \x1b") as ada:
            watching.await_lines(1)
            line = watching.output
            assert line.startswith(b"+ ") and line.endswith(b"\t-\tada \\x1b\n")
            ada.process.send_signal(signal.SIGINT)
            assert ada.end()[0] == 130
        watching.await_lines(2)
        assert watching.output == line + b"- " + line[2:]
    with start(cluster, "who", "rom") as who:
        code, output, errors = who.end()
        assert (code, output) == (0, b"") and b" rom" in errors


@pytest.mark.rest
def test_a_subscriber_limits_each_sender(cluster: ClusterOfProcesses) -> None:
    with start(cluster, "sub", "t", "--limit", "2/60", "-C", "4") as sub:
        sub.await_error(b"leased on 3 of 3")
        for sender in (b"a", b"b"):
            with start(cluster, "pub", "t", stdin=subprocess.PIPE) as pub:
                pub.feed(b"%b 1\n%b 2\n%b 3\n" % (sender, sender, sender))
                assert pub.end()[0] == 0
        code, output, errors = sub.end()
        # Any two of three: each line goes its own way, and the first to come count.
        assert (code, sorted(line[:1] for line in output.splitlines())) == (0, [b"a", b"a", b"b", b"b"]), (
            errors
        )


def test_wrong_usage(cluster: ClusterOfProcesses) -> None:
    for words, part in (
        (("request", "t", "--to", "short"), "11 characters"),
        (("request", "t", "--to", "A" * 11, "--all"), "one of them"),
        (("request", "t", "-m", "a b"), "1 to 64"),
        (("request", "t", "-W", "3601"), "3600"),
        (("request", "t", "--key", "k"), "--sign or --seal"),
        (("reply", "t"), "TEXT, --echo or --command"),
        (("reply", "t", "text", "--echo"), "one of them only"),
        (("reply", "t", "--command", "'"), "--command"),
        (("reply", "t", "--command", "no-such-program"), "no program no-such-program"),
        (("reply", "t", "x", "--limit", "3"), "COUNT/SECONDS"),
        (("sub", "t", "--limit", "0/1"), "COUNT/SECONDS"),
        (("who", "t", "--as", "i" * 201), "200 bytes"),
    ):
        ended = CliRunner().invoke(main, [words[0], "--cluster", str(cluster.file), *words[1:]])
        assert ended.exit_code == 2 and part in ended.stderr, (words, ended.stderr)
    for verb in ("request", "who"):
        ended = CliRunner().invoke(main, [verb, "--cluster", str(cluster.file), "a}"])
        assert ended.exit_code == 1 and "without a tag" in ended.stderr
        ended = CliRunner().invoke(main, [verb, "--cluster", str(cluster.file), "~" + "A" * 22])
        assert ended.exit_code == 1 and "--from KEY" in ended.stderr and "senders=" not in ended.stderr
