"""pubsub/workers.py: cluster files that clients can read, and children that are looked after."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kcast.client.cluster import Cluster, ClusterError, parse
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from kcast.pubsub.workers import cluster_file
from tests.support.logs import untimed
from tests.support.serve_process import (
    NEEDS_IPV6,
    PROGRAM,
    WAIT_S,
    Peer,
    Serve,
    next_complaint,
    next_line,
    stop,
)

pytestmark = pytest.mark.world


NEEDS_CHILDREN = pytest.mark.skipif(
    not Path("/proc/self/task").exists() or not Path(f"/proc/self/task/{os.getpid()}/children").exists(),
    reason="the children of a process are read from Linux's /proc",
)


# --- The cluster file --------------------------------------------------------------------------------


def on(host: str, *ports: int) -> list[list[Address]]:
    return [[(host, port)] for port in ports]


@pytest.mark.parametrize(
    ("count", "policy"),
    [
        (1, Policy(1, 1, 1)),
        (2, Policy(2, 2, 2)),
        (3, Policy(3, 2, 3)),
        (4, Policy(4, 3, 4)),
        (5, Policy(5, 3, 5)),
        (12, Policy(5, 3, 5)),
    ],
)
def test_a_lab_counts_each_server_as_a_host(count: int, policy: Policy) -> None:
    cluster = parse(cluster_file(on("127.0.0.1", *range(7400, 7400 + count)), is_lab=True))
    assert cluster.is_lab
    assert cluster.policy == policy
    assert [server.key for server in cluster.servers] == [f"127.0.0.1:{7400 + n}" for n in range(count)]
    assert len({server.addresses for server in cluster.servers}) == count


def test_workers_on_loopback_are_one_host_of_a_lab() -> None:
    cluster = parse(cluster_file(on("127.0.0.1", 7400, 7401), is_lab=False))
    assert cluster.is_lab
    assert cluster.policy == Policy(1, 1, 1)
    assert [(server.name, server.key) for server in cluster.servers] == [
        ("127.0.0.1:7400", "127.0.0.1"),
        ("127.0.0.1:7401", "127.0.0.1"),
    ]


def test_workers_on_a_real_address_are_one_host_by_their_address() -> None:
    cluster = parse(cluster_file(on("192.0.2.7", 7400, 7401), is_lab=False))
    assert not cluster.is_lab
    assert cluster.policy == Policy(1, 1, 1)
    assert {server.key for server in cluster.servers} == {"192.0.2.7"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_wildcard_gives_no_file_but_what_to_write(host: str) -> None:
    text = cluster_file(on(host, 7400, 7401), is_lab=False)
    assert all(line.startswith("#") for line in text.splitlines())
    assert "server ADDRESS:7401" in text
    with pytest.raises(ClusterError):
        parse(text)


# --- Real ones ---------------------------------------------------------------------------------------


def read_file(process: "subprocess.Popen[str]", servers: int) -> Cluster:
    """What is printed, up to the last server's line."""
    text = ""
    while text.count("\nserver ") < servers or not text.endswith("\n"):
        text += next_line(process)
    return parse(text)


def process_at(process: "subprocess.Popen[str]", port: int) -> int:
    """The process id of the child that serves this port."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    names = {Path(f"/proc/{child}/comm").read_text().strip(): int(child) for child in children}
    return names[f"kcast-{port}"]


def event(process: "subprocess.Popen[str]", name: str) -> dict[str, Any]:
    """The next event of this name on standard error."""
    while line := next_complaint(process):
        fields = json.loads(line)
        if fields["event"] == name:
            assert isinstance(fields, dict)
            return fields
    raise AssertionError(f"it ended without {name!r}")


def has_ended(process_id: int) -> bool:
    """Whether a process that is no child of this one is gone."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("option", ["--count", "--workers"])
def test_the_file_that_is_printed_works_and_is_all_of_the_output(serve: Serve, option: str) -> None:
    process = serve(option, "3")
    cluster = read_file(process, 3)
    assert len({server.key for server in cluster.servers}) == (3 if option == "--count" else 1)
    cookies = set()
    for server in cluster.servers:
        with Peer(server.addresses[0]) as peer:
            cookies.add(peer.ask().cookie)
    assert len(cookies) == 3
    complaints = stop(process)  # and it looks that there is no more output
    assert complaints.count(": messages: 0, copies sent: 0; drops: none\n") == 3
    assert sorted(re.findall(r"^kcast serve (\S+): messages", untimed(complaints), re.MULTILINE)) == sorted(
        server.name for server in cluster.servers
    )


def free_pair() -> int:
    """The first of two neighbouring ports that were free a moment ago."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as next_one,
        ):
            one.bind(("127.0.0.1", 0))
            first: int = one.getsockname()[1]
            with suppress(OSError, OverflowError):
                next_one.bind(("127.0.0.1", first + 1))
                return first


def test_ports_count_up_from_the_first(serve: Serve) -> None:
    first = free_pair()
    process = serve("--count", "2", "--port", str(first))
    assert [server.addresses[0][1] for server in read_file(process, 2).servers] == [first, first + 1]


@NEEDS_IPV6
def test_workers_on_both_families(serve: Serve) -> None:
    process = serve("--workers", "2", "--host", "127.0.0.1", "--host", "::1")
    for server in read_file(process, 2).servers:
        four, six = server.addresses
        with Peer(four) as old, Peer(six) as new:
            old.vouch(b"weather")
            new.vouch(b"weather rain")
            assert old.hear() == b"weather rain\n"
    stop(process, signal.SIGINT)


def test_metrics_and_taps_are_each_workers_own(serve: Serve, tmp_path: Path) -> None:
    process = serve("--workers", "2", "--metrics", "0", "--tap", str(tmp_path / "tap"), "--log", "json")
    cluster = read_file(process, 2)
    told = [event(process, "metrics") for _ in range(2)]
    assert {each["server"] for each in told} == {server.name for server in cluster.servers}
    assert len({each["url"] for each in told}) == 2
    ports = {server.addresses[0][1] for server in cluster.servers}
    assert {file.name for file in tmp_path.iterdir()} == {
        f"tap.{port}{series}" for port in ports for series in ("", ".bulk")
    }


@NEEDS_CHILDREN
def test_a_worker_that_dies_starts_again_on_its_port(serve: Serve) -> None:
    process = serve("--workers", "2", "--log", "json")
    first, second = (server.addresses[0] for server in read_file(process, 2).servers)
    with Peer(first) as peer, Peer(second) as other:
        cookie = peer.ask().cookie
        other.vouch(b"weather")
        victim = process_at(process, first[1])
        os.kill(victim, signal.SIGKILL)
        died = event(process, "worker-died")
        assert died == died | {"worker": f"127.0.0.1:{first[1]}", "process": victim, "delay_s": 1.0}
        assert died["level"] == "warning"
        assert "was killed by SIGKILL" in died["text"]
        # What is said meanwhile waits, and is answered by the new one, that knows nothing of the old one.
        vouch = b"%%! late %b -\nweather\n" % cookie
        peer.say(vouch.ljust(192, b"\n"))
        successor = event(process, "worker-started")["process"]
        assert peer.hear().startswith(b"%= late ")
        # The other one has lost nothing.
        other.vouch(b"weather rain")
        assert other.hear() == b"weather rain\n"
        # It dies again: the next time takes longer.
        assert successor == process_at(process, first[1]) != victim
        os.kill(successor, signal.SIGKILL)
        assert event(process, "worker-died")["delay_s"] == 2.0
        # And while it is dead, all can be ended.
        stop(process, signal.SIGINT)


# The nth fork, from 1 on, fails for each of these n.
FAILING_FORKS = """
import os
real, count, failing = os.fork, 0, {failing}

def fork():
    global count
    count += 1
    if count in failing:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return real()

os.fork = fork
from kcast.pubsub.serve import command
command()
"""


def failing_forks(monkeypatch: pytest.MonkeyPatch, *failing: int) -> None:
    program = (sys.executable, "-c", FAILING_FORKS.format(failing=set(failing)))
    monkeypatch.setattr("tests.support.serve_process.PROGRAM", program)


@NEEDS_CHILDREN
def test_a_worker_that_cannot_be_started_again_now_is_later(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_forks(monkeypatch, 3)
    process = serve("--workers", "2", "--log", "json")
    first, second = (server.addresses[0] for server in read_file(process, 2).servers)
    os.kill(process_at(process, first[1]), signal.SIGKILL)
    assert event(process, "worker-died")["delay_s"] == 1.0
    failed = event(process, "worker-not-started")
    assert failed == failed | {"level": "warning", "worker": f"127.0.0.1:{first[1]}", "delay_s": 2.0}
    assert failed["text"].endswith(" cannot start: Resource temporarily unavailable; next try in 2 s")
    with Peer(second) as other:
        other.ping()
    event(process, "worker-started")
    with Peer(first) as peer:
        peer.ping()
    os.kill(process_at(process, first[1]), signal.SIGKILL)
    assert event(process, "worker-died")["delay_s"] == 4.0
    stop(process, signal.SIGINT)


def test_a_fork_that_fails_at_the_start_ends_them_all(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_forks(monkeypatch, 2)
    rest, complaints = (process := serve("--workers", "3")).communicate(timeout=WAIT_S)
    assert (rest, process.returncode) == ("", 1)
    assert " did not start: Resource temporarily unavailable\n" in complaints
    assert "Traceback" not in complaints


@pytest.mark.parametrize(("number", "option"), [(signal.SIGTERM, "--workers"), (signal.SIGHUP, "--count")])
def test_a_signal_drains_all_workers(serve: Serve, number: int, option: str) -> None:
    process = serve(option, "2", "--log", "json", "--ttl", "2")
    first, second = (server.addresses[0] for server in read_file(process, 2).servers)
    with Peer(first) as peer, Peer(second):
        peer.vouch(b"weather")
        process.send_signal(number)
        # One has nothing to drain; the other takes its time, in which it forwards.
        assert event(process, "end")["server"] == f"127.0.0.1:{second[1]}"
        peer.vouch(b"weather rain")
        assert peer.hear() == b"weather rain\n"
        ended = event(process, "end")
        assert (ended["server"], ended["ending"], ended["copies"]) == (f"127.0.0.1:{first[1]}", "drained", 1)
        assert process.wait(WAIT_S) == 0


@NEEDS_CHILDREN
def test_ctrl_c_in_a_terminal_ends_each_worker_once(serve: Serve) -> None:
    """A terminal signals the whole group of processes; the parent passes it on besides."""
    process = serve("--workers", "2")
    children = [process_at(process, s.addresses[0][1]) for s in read_file(process, 2).servers]
    assert all(os.getpgid(child) != os.getpgid(process.pid) for child in children)
    complaints = stop(process, signal.SIGINT)
    assert "Traceback" not in complaints
    assert complaints.count("copies sent: 0") == 2


@NEEDS_CHILDREN
def test_no_worker_outlives_a_parent_that_is_killed(serve: Serve) -> None:
    process = serve("--workers", "2", "--log", "json")
    children = [process_at(process, s.addresses[0][1]) for s in read_file(process, 2).servers]
    process.kill()
    process.wait(WAIT_S)
    assert all(has_ended(child) for child in children)
    assert event(process, "orphan")["level"] == "error"


def test_where_the_file_cannot_be_printed_all_is_ended() -> None:
    run = subprocess.run(
        ("sh", "-c", 'exec "$@" >/dev/full', "sh", *PROGRAM, "--port", "0", "--count", "2"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert run.returncode == 1
    assert "kcast serve: standard output: No space left on device\n" in run.stderr
