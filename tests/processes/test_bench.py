"""`kcast bench` as a user runs it: servers, publishers and subscribers are processes, and none is left."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import ClusterOfProcesses, Command
from tests.support.load_command import descendants_of, living
from tests.support.waiting import wait_until

SMALL = ("--servers", "3", "--count", "600", "--topics", "3", "--publishers", "2", "--subscribers", "2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Two servers that all tests of this module may use, and none may kill."""
    with ClusterOfProcesses(tmp_path_factory.mktemp("cluster"), 2, Policy(2, 2, 2)) as running:
        yield running


def bench(*arguments: str) -> tuple[int, str, str]:
    with Command("bench", *arguments) as command:
        code, output, errors = command.end()
    return code, output.decode(), errors.decode()


def test_on_its_own_servers_all_comes_once_and_figures_are_those_of_all() -> None:
    code, output, errors = bench("pubsub", *SMALL, "--json")
    assert code == 0, errors
    result: dict[str, Any] = json.loads(output)
    published, delivered = result["published"], result["delivered"]
    assert (result["policy"], result["servers"]) == ("3/2/3", 3)
    assert published["attempted"] == published["messages"] == published["with_receipt"] == 600
    assert delivered["messages"] == delivered["expected"] == delivered["latency"]["count"] == 1200
    assert (delivered["lost"], delivered["twice"], delivered["foreign"]) == (0, 0, 0)
    assert delivered["duplicates"] >= 1200  # each message goes to two servers, or more where one was slow
    assert 0 < delivered["latency"]["p50_ms"] <= delivered["latency"]["max_ms"] < 60_000
    assert delivered["copies"] >= 2400 and result["own_servers"]["cpu_ns"] > 0
    lines = errors.splitlines()
    assert lines[0] == "kcast bench: started 3 servers on 127.0.0.1, policy 3/2/3"
    assert lines[1] == (
        "kcast bench: 2 publishers, 2 subscribers, 3 topics (bench/0, ...): 600 messages of 100 bytes, "
        "as fast as receipts come"
    )
    assert "kcast bench: stopped the 3 servers" in lines


def test_publishers_and_subscribers_in_two_terminals(cluster: ClusterOfProcesses) -> None:
    given = "--cluster", str(cluster.file), "--count", "500", "--topics", "2"
    with Command("bench", "sub", *given, "--json") as sub:
        sub.await_error(b"kcast bench: waits for messages, at most 60 s for the first\n")
        code, output, errors = bench("pub", *given, "--json", "--publishers", "2")
        assert code == 0, errors
        assert errors.startswith(f"kcast bench: sends load to {cluster.file} (2 servers, policy 2/2/2), ")
        code, received, errors_of_sub = sub.end()
        assert code == 0, errors_of_sub
    result = json.loads(output)
    assert result["published"]["with_receipt"] == 500
    assert (result["own_servers"], result["delivered"]) == (None, None)
    delivered = json.loads(received)["delivered"]
    assert (delivered["messages"], delivered["lost"], delivered["expected"]) == (500, 0, None)


@pytest.mark.rest
def test_refusals_for_the_rate_are_told_with_what_to_do(tmp_path: Path) -> None:
    options = ("--publish-rate", "100")
    with ClusterOfProcesses(tmp_path, 1, Policy(1, 1, 1), options=options) as limited:
        code, output, errors = bench("pub", "--cluster", str(limited.file), "--count", "600")
    assert code == 0, errors
    assert re.search(r"; \d+ refused \(rate\)$", output, re.MULTILINE), output
    assert re.search(r"\d+ refusals for the reason 'rate': give a lower --rate, or raise", errors)


@pytest.mark.rest
def test_servers_that_do_not_answer_are_told(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 1, Policy(1, 1, 1)) as dead:
        dead.kill(dead.names[0])
        for verb, what in (("pub", "a receipt"), ("sub", "a lease")):
            code, output, errors = bench(verb, "--cluster", str(dead.file))
            assert (code, output) == (1, "")
            assert f"no server gives {what}: 'kcast doctor --cluster {dead.file}' says why" in errors


@pytest.mark.rest
def test_servers_that_end_meanwhile_end_it(tmp_path: Path) -> None:
    with ClusterOfProcesses(tmp_path, 1, Policy(1, 1, 1)) as dying:
        given = "--cluster", str(dying.file), "--rate", "50", "--duration", "600", "--subscribers", "1"
        with Command("bench", "pubsub", *given) as command:
            command.await_error(b"kcast bench: begins\n")
            dying.kill(dying.names[0])
            code, output, errors = command.end()
    assert code == 1
    assert b"kcast bench: no server answers any more: it ended after " in errors
    assert output.startswith(b"           messages ")


def cpu_s(pids: set[int]) -> float:
    """Returns the CPU time of processes."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


@pytest.mark.rest
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_figures_and_leaves_no_process(number: int, exit_code: int) -> None:
    with Command("bench", "pubsub", "--servers", "2", "--duration", "600") as command:
        command.await_error(b"kcast bench: begins\n")
        started = descendants_of(command.process.pid)
        assert len(started) >= 5, started  # the servers' host, two servers, a publisher, a subscriber
        wait_until(lambda: cpu_s(started) > 5, "that they have worked for a while")
        command.process.send_signal(number)
        code, output, errors = command.end()
    assert code == exit_code
    assert b"kcast bench: stopped the 2 servers\n" in errors
    assert errors.endswith(b"kcast bench: interrupted: the figures are those until then\n")
    assert re.search(rb"^delivered +[\d,]{4,} ", output, re.MULTILINE), output
    wait_until(lambda: not living(started), "the end of all processes")


@pytest.mark.rest
def test_nothing_outlives_it_when_it_is_killed() -> None:
    with Command("bench", "pubsub", "--servers", "2", "--duration", "600") as command:
        command.await_error(b"kcast bench: begins\n")
        started = descendants_of(command.process.pid)
        os.kill(command.process.pid, signal.SIGKILL)
        command.end()
    wait_until(lambda: not living(started), "the end of all processes")
