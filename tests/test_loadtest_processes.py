"""loadtest.processes: real servers as processes, and that none is left behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

import pytest

from client.cluster import format_cluster, parse
from hashring.policy import Policy
from loadtest.processes import ProcessCluster, ServerFailed
from pubsub.endpoint import Address
from pubsub.limits import REQUEST_BYTES_MIN

WAIT_S = 10.0


def answers(server: Address) -> bool:
    """Whether a server answers a ping."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(WAIT_S)
        peer.connect(server)
        try:
            peer.send(b"%~ there".ljust(REQUEST_BYTES_MIN, b"\n"))
            return peer.recv(2048).startswith(b"%: there ")
        except ConnectionRefusedError:
            return False


def wait_until_all_gone(servers: Iterable[Address]) -> None:
    """A port that can be bound has no process any more: zombies keep a pid, but no port."""
    deadline = time.monotonic() + WAIT_S
    for server in servers:
        while True:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                try:
                    sock.bind(server)
                except OSError:
                    assert time.monotonic() < deadline, f"{server} is still served"
                else:
                    break
            time.sleep(0.02)


def test_servers_start_die_and_come_back_where_they_were() -> None:
    with ProcessCluster(3, ttl_s=2) as servers:
        addresses = servers.addresses
        assert len(servers) == len(set(addresses)) == 3
        assert all(map(answers, addresses))
        servers.kill(0, 2)
        assert servers.running == (False, True, False)
        assert [answers(address) for address in addresses] == [False, True, False]
        servers.restart(0, 1, 2)
        assert servers.running == (True, True, True)
        assert servers.addresses == addresses
        assert all(map(answers, addresses))
    wait_until_all_gone(addresses)


def test_the_ttl_and_further_options_reach_the_servers() -> None:
    with ProcessCluster(1, ttl_s=7, options=("--open",)) as servers:
        (server,) = servers.addresses
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.settimeout(WAIT_S)
            peer.connect(server)
            peer.send(b"weather\n")
            peer.send(b"weather rain\n")
            assert peer.recv(2048) == b"\nweather rain\n"
            peer.send(b"%? nonce".ljust(REQUEST_BYTES_MIN, b"\n"))
            cookie = peer.recv(2048).split()[2]
            peer.send((b"%! nonce " + cookie + b" -\nweather\n").ljust(REQUEST_BYTES_MIN, b"\n"))
            assert peer.recv(2048).split()[:3] == [b"%+", b"nonce", b"7"]


def test_the_cluster_names_hosts_independently_of_ports() -> None:
    with ProcessCluster(2, ttl_s=2) as servers:
        cluster = servers.cluster(Policy(2, 1, 2))
        assert [server.key for server in cluster.servers] == list(servers.keys) == ["server-1", "server-2"]
        assert tuple(server.name for server in cluster.servers) == servers.names
        assert tuple(server.addresses[0] for server in cluster.servers) == servers.addresses
        assert parse(format_cluster(cluster)) == cluster
        assert cluster.policy == Policy(2, 1, 2)


def test_a_cluster_has_servers() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ProcessCluster(0, ttl_s=2)


def test_killing_and_stopping_twice_does_no_harm() -> None:
    with ProcessCluster(2, ttl_s=2) as servers:
        servers.kill(1)
        servers.kill(1)
        servers.stop()
        assert servers.running == (False, False)


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


def test_a_usage_error_is_shown() -> None:
    with (
        pytest.raises(ServerFailed, match="No such option"),
        ProcessCluster(2, ttl_s=2, options=("--nonsense",)),
    ):
        pass


def test_a_server_that_is_not_ready_in_time_is_named() -> None:
    with (
        pytest.raises(ServerFailed, match=r"server-\d did not start: it was not ready after 0 s"),
        ProcessCluster(2, ttl_s=2, start_timeout_s=0),
    ):
        pass


# What is left behind: nothing.


def test_an_exception_ends_all() -> None:
    addresses: tuple[Address, ...] = ()
    with pytest.raises(ZeroDivisionError), ProcessCluster(2, ttl_s=2) as servers:
        addresses = servers.addresses
        raise ZeroDivisionError
    assert addresses
    wait_until_all_gone(addresses)


OWNER = """\
import sys, time
from loadtest.processes import ProcessCluster
with ProcessCluster(3, ttl_s=2) as servers:
    servers.kill(1)
    servers.restart(1)
    print(*(port for _, port in servers.addresses), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_death_of_the_owner_ends_all(number: signal.Signals) -> None:
    with subprocess.Popen(
        (sys.executable, "-c", OWNER), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        try:
            assert owner.stdout is not None
            addresses = [("127.0.0.1", int(port)) for port in owner.stdout.readline().split()]
            assert len(addresses) == 3 and all(map(answers, addresses))
            os.kill(owner.pid, number)
            owner.wait(WAIT_S)
            wait_until_all_gone(addresses)
        finally:
            owner.kill()


def test_the_end_of_a_thread_ends_nothing() -> None:
    """It would, if servers asked the kernel for a signal at their parent's death."""
    with ProcessCluster(1, ttl_s=2) as servers:
        servers.kill(0)
        thread = threading.Thread(target=servers.restart, args=(0,))
        thread.start()
        thread.join(WAIT_S)
        time.sleep(0.1)
        assert answers(servers.addresses[0])
