"""The programs of docs/examples do their job as real processes, while a server is killed."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcast.client.blocking import Client
from kcast.hashring.policy import Policy
from tests.support.checkout import ROOT
from tests.support.cluster_of_processes import ClusterOfProcesses, Command
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

EXAMPLES = ROOT / "docs/examples"
TTL_S = 6  # the shorter, the sooner clients notice that a server is dead


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path, 3, Policy(3, 2, 3), ttl_s=TTL_S) as servers:
        yield servers


def running(name: str, *arguments: str, **options: int) -> Command:
    return Command(*arguments, program=(sys.executable, str(EXAMPLES / name)), **options)


def test_readings_come_in_order_while_a_server_dies(cluster: ClusterOfProcesses) -> None:
    given = ("--cluster", str(cluster.file), "--sensors", "5")
    with (
        running("telemetry.py", "watch", *given, "--hold", "3") as watcher,
        running("telemetry.py", "send", *given, "--interval", "0.1") as sender,
    ):
        watcher.await_error(b"15 of 15 leases")
        watcher.await_lines(watcher.output.count(b"\n") + 50)
        cluster.kill(cluster.names[0])
        sender.await_error(f"{cluster.names[0]} is lost".encode())
        watcher.await_lines(watcher.output.count(b"\n") + 50)
        cluster.restart(cluster.names[0])
        sender.await_error(f"{cluster.names[0]} is back".encode())
        sender.process.send_signal(signal.SIGTERM)
        code, told, _ = sender.end()
        assert code == 0 and told.splitlines()[-1].startswith(b"sent ")
        watcher.process.send_signal(signal.SIGTERM)
        code, readings, _ = watcher.end()
    assert code == 0
    numbers: dict[str, list[int]] = {}
    for reading in readings.decode().splitlines():
        time, topic, number, celsius = reading.split()
        assert len(time) == 8 and topic.startswith("sensor/") and 10 < float(celsius.strip("'")) < 30
        numbers.setdefault(topic, []).append(int(number))
    assert len(numbers) == 5 and all(each == sorted(each) for each in numbers.values())


@pytest.mark.rest
def test_who_comes_goes_falls_silent_or_starts_again_is_told(cluster: ClusterOfProcesses) -> None:
    given = ("--cluster", str(cluster.file), "--heartbeat", "0.5")
    with running("presence.py", "anna", *given) as anna:
        with running("presence.py", "bert", *given) as bert:
            anna.await_output(b"+ bert is here")
            bert.await_output(b"+ anna is here")
            cluster.kill(cluster.names[0])
            bert.process.send_signal(signal.SIGINT)
            anna.await_output(b"- bert has left")
        with running("presence.py", "carl", *given) as carl:
            carl.await_output(b"+ anna is here")
            anna.await_output(b"+ carl is here")
            carl.process.kill()
            anna.await_output(b"- carl is silent")
        with running("presence.py", "dora", *given) as dora:
            anna.await_output(b"+ dora is here")
            for name in cluster.names[1:]:
                cluster.kill(name)
            anna.await_output(b"? no server answers")
            for name in cluster.names:
                cluster.restart(name)
            anna.await_output(b"? servers answer again")
            assert b"dora is silent" not in anna.output
            dora.process.send_signal(signal.SIGTERM)
            anna.await_output(b"- dora ")  # has left, or is silent where no server took her last word yet


def test_strangers_cannot_fill_the_table_or_the_terminal(cluster: ClusterOfProcesses) -> None:
    with (
        running("presence.py", "anna", "--cluster", str(cluster.file), "--heartbeat", "30") as anna,
        Client(cluster.file) as stranger,
    ):
        with running("presence.py", "bert", "--cluster", str(cluster.file)) as bert:
            bert.await_output(b"+ anna is here")
        for payload in STRANGE:
            stranger.publish("presence/hall", payload)
        flood = [stranger.publish_nowait("presence/hall", said(f"m{n}", "here")) for n in range(1100)]
        assert all(outcome.result().receipts for outcome in flood)
        stranger.publish("presence/hall", said("bert", "leaving"))  # of another life
        anna.await_lines(1000)
        anna.process.send_signal(signal.SIGINT)
        code, output, _ = anna.end()
    lines = output.splitlines()
    assert code == 0 and sum(line.endswith(b" is here") for line in lines) == 1000
    assert b"- bert has left" not in lines and b"\x1b" not in output


STRANGE = (
    *(b"\xff", b"7", b"[1, 2, 3]", b'["x"]', b"[" * 1000),
    *(b'["\\u001b[2J", "a", "here"]', b'["", "a", "here"]', b'["x", "", "here"]', b'["x", "a", "bogus"]'),
    b'["' + b"x" * 700 + b'", "a", "here"]',
)


def said(name: str, what: str) -> str:
    return json.dumps((name, f"the life of {name}", what))


def test_caches_are_told_of_changes_and_not_used_where_they_could_not_be(
    cluster: ClusterOfProcesses, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with (
        running("cache.py", str(store), "--cluster", str(cluster.file), stdin=-1) as here,
        running("cache.py", str(store), "--cluster", str(cluster.file), stdin=-1) as there,
    ):
        ask(there, "set colour red", "colour is set")
        await_cached(here, "colour", "red")
        ask(there, "set colour light blue", "colour is set")
        await_cached(here, "colour", "light blue")
        cluster.kill(cluster.names[0])  # with two leases of three, each message still comes
        ask(there, "set colour green", "colour is set")
        await_cached(here, "colour", "green")
        for name in cluster.names[1:]:
            cluster.kill(name)
        ask(there, "set colour grey", "colour is set, but others may see the old value")
        await_answer(here, "colour = grey (read)")
        ask(here, "get colour", "colour = grey (read)")  # and not kept
        ask(here, "blue", "type: get KEY, or set KEY VALUE")
        for name in cluster.names:
            cluster.restart(name)
        await_cached(here, "colour", "grey")
        assert here.process.stdin is not None
        here.process.stdin.close()
        assert here.end()[0] == 0


def ask(program: Command, request: str, answer: str) -> None:
    """Returns when a request has been answered so."""
    assert (told := answer_of(program, request)).startswith(answer), told


def await_cached(program: Command, key: str, value: str) -> None:
    """Returns when a value comes from the cache."""
    await_answer(program, f"{key} = {value} (cached)")


def await_answer(program: Command, answer: str) -> None:
    """Asks for the colour until this is the answer."""
    wait_until(lambda: answer_of(program, "get colour") == answer, answer)


def answer_of(program: Command, request: str) -> str:
    program.output = b""
    program.feed(f"{request}\n".encode(), close=False)
    program.await_lines(1)
    return program.output.decode().strip()


@pytest.mark.parametrize("name", ["telemetry.py", "presence.py", "cache.py"])
def test_a_cluster_that_is_not_there_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    words = {"telemetry.py": "watch", "presence.py": "anna", "cache.py": str(tmp_path)}
    with running(name, words[name], "--cluster", "nowhere.txt") as program:
        code, output, errors = program.end()
    assert (code, output) == (1, b"") and errors == b"nowhere.txt: No such file or directory\n"
