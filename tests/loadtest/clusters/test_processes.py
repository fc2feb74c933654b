"""loadtest/clusters/processes.py and its host: real servers as processes, and that none is left behind."""

import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.clusters.servers import ServerFailed
from tests.support.checkout import ROOT
from tests.support.cluster_suite import (
    WAIT_S,
    ClusterSuite,
    Owner,
    Peer,
    answers,
    wait_until_all_gone,
)
from tests.support.waiting import wait_until


class TestProcesses(ClusterSuite):
    """The tests of every backend."""

    backend = ProcessCluster


def host_of(servers: ProcessCluster) -> int:
    """The parent process of the servers."""
    pid = servers.pids[0]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def test_each_server_has_a_process() -> None:
    with ProcessCluster(3, ttl_s=2) as servers:
        before = servers.pids
        assert len(set(before)) == 3
        servers.kill(1)
        servers.restart(1)
        first, second, third = servers.pids
        assert (first, third) == (before[0], before[2]) and second not in before


def test_a_server_that_ends_by_itself_is_noticed_and_can_be_restarted() -> None:
    with ProcessCluster(2, ttl_s=2) as servers:
        pid = servers.pids[0]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not servers.running[0], "it is noticed")
        servers.restart(0, 1)
        assert all(map(answers, servers.addresses))


def test_many_restart_at_once() -> None:
    with ProcessCluster(40, ttl_s=2) as servers:
        servers.kill(*range(40))
        servers.restart(*range(40))
        assert all(map(answers, servers.addresses))


def test_no_client_can_get_the_port_of_a_dead_server() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with ProcessCluster(5, ttl_s=2) as servers:
        assert all(port < first_ephemeral for _, port in servers.addresses)


def test_what_a_server_says_is_kept_over_its_lives() -> None:
    with ProcessCluster(2, ttl_s=2) as servers:
        servers.isolate(0)
        with Peer(servers.addresses[0]) as peer:
            peer.ping(b"lost")
            assert not peer.heard(b"lost", 0.1)
        servers.stop()
        servers.restart(0)
        servers.stop()
    logs = servers.logs()
    assert list(logs) == ["server-1", "server-2"]
    assert logs["server-1"].count("messages: 0") == 2 and logs["server-2"].count("messages: 0") == 1
    assert logs["server-1"].count("cut off while isolated: 1 datagrams") == 1
    assert "isolated" not in logs["server-2"]


# What fails.


def test_a_server_that_cannot_start_says_why_and_the_others_end() -> None:
    with ProcessCluster(3, ttl_s=2) as servers:
        addresses = servers.addresses
        servers.kill(0, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
            squatter.bind(addresses[0])
            with pytest.raises(ServerFailed) as failed:
                servers.restart(0, 1)
        message = str(failed.value)
        assert message.startswith(
            f"server-1 (port {addresses[0][1]}) did not start: it ended with exit code 1"
        )
        assert "is in use" in message
        assert servers.running == (False, False, True)
        servers.restart(0, 1)
        assert all(map(answers, addresses))


def test_a_server_that_is_not_ready_in_time_is_named() -> None:
    with (
        pytest.raises(ServerFailed, match=r"server-\d did not start: it was not ready after 0 s"),
        ProcessCluster(2, ttl_s=2, start_timeout_s=0),
    ):
        pass


def test_options_that_are_not_for_one_server_are_refused() -> None:
    for options in [("--workers", "2"), ("--tap", "tap"), ("--port", "7777"), ("--help",)]:
        with (
            pytest.raises(ServerFailed, match="the servers' options: "),
            ProcessCluster(1, ttl_s=2, options=options),
        ):
            pass


def test_a_tap_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "server-1-1.tap").write_text("no tap")
    with pytest.raises(ServerFailed, match="is no tap file"), ProcessCluster(1, ttl_s=2, tap_dir=tmp_path):
        pass


def test_without_its_host_a_cluster_is_dead_and_says_so() -> None:
    with ProcessCluster(3, ttl_s=2) as servers:
        addresses = servers.addresses
        servers.stall(1)
        os.kill(host_of(servers), signal.SIGKILL)
        # Also the stalled one, which can notice nothing by itself.
        wait_until_all_gone(addresses)
        with pytest.raises(ServerFailed, match="the process that runs the servers ended with exit code -9"):
            servers.kill(0)
        assert servers.running == (False, False, False)
        servers.stop()
        assert servers.logs().keys() == {"server-1", "server-2", "server-3"}
        with pytest.raises(ServerFailed, match="cannot start"):
            servers.restart(0)


# What is left behind: nothing.


def test_the_death_of_the_owner_ends_all() -> None:
    for number in (signal.SIGKILL, signal.SIGINT):
        with Owner("processes") as owner:
            addresses = owner.addresses()
            assert answers(addresses[1])
            owner.end(number)
            wait_until_all_gone(addresses)


def test_the_death_of_owner_and_host_at_once_ends_all() -> None:
    with Owner("processes") as owner:
        addresses = owner.addresses()
        pid = owner.process.pid
        (host,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(host), signal.SIGSTOP)
        owner.end(signal.SIGKILL)
        os.kill(int(host), signal.SIGKILL)
        wait_until_all_gone(addresses)


def test_an_owner_that_dies_while_servers_start_leaves_none(tmp_path: Path) -> None:
    """A server that hangs does not watch its lifeline yet: so the host must notice."""
    program = f"""
import os
from pathlib import Path
from kcast.loadtest.clusters.processes import ProcessCluster
ProcessCluster.program = "tests.support.hanging_host"
os.environ["PYTHONPATH"] = {str(ROOT)!r} + os.pathsep + os.environ.get("PYTHONPATH", "")
with ProcessCluster(2, ttl_s=2, tap_dir=Path({str(tmp_path)!r})):
    pass
"""
    with Owner("processes", program) as owner:
        pids = tmp_path / "pids"
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "servers have begun")
        owner.end(signal.SIGKILL)
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()), "they end"
        )


def test_the_end_of_a_thread_ends_nothing() -> None:
    """It would if servers used PR_SET_PDEATHSIG, which fires when the thread that started them ends."""
    with ProcessCluster(1, ttl_s=2) as servers:
        servers.kill(0)
        thread = threading.Thread(target=servers.restart, args=(0,))
        thread.start()
        thread.join(WAIT_S)
        time.sleep(0.1)
        assert answers(servers.addresses[0])


def test_an_interruption_does_not_put_answers_out_of_order() -> None:
    """Ctrl-C while an answer is awaited: the next question gets its own."""
    with ProcessCluster(2, ttl_s=2) as servers:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        host = host_of(servers)
        old = signal.signal(signal.SIGALRM, interrupt)
        os.kill(host, signal.SIGSTOP)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                servers.kill(0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
            os.kill(host, signal.SIGCONT)
        assert re.match("server-1", next(iter(servers.logs())))
        assert servers.running == (False, True)


def test_an_interruption_of_the_end_leaves_a_cluster_that_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), ProcessCluster(1, ttl_s=2) as servers:
        addresses = servers.addresses
    assert servers.running == (False,)
    assert list(servers.logs()) == ["server-1"]
    wait_until_all_gone(addresses)
