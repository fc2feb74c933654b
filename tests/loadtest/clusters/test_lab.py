"""loadtest/clusters/backends.py and lab_host.py: many servers in one process."""

import os
import signal
import socket

import pytest

from kcast.loadtest.clusters.backends import LabCluster
from kcast.loadtest.clusters.servers import ServerFailed
from tests.support.cluster_suite import ClusterSuite, Owner, Peer, answers, wait_until_all_gone
from tests.support.logs import untimed


class TestLab(ClusterSuite):
    """The tests of every backend."""

    is_killed_tap_whole = True

    backend = LabCluster


@pytest.mark.rest
def test_a_thousand_servers() -> None:
    with LabCluster(1000, ttl_s=60) as servers:
        assert len(set(servers.addresses)) == 1000
        assert len(set(servers.pids)) == 1
        servers.kill(*range(0, 1000, 2))
        assert sum(servers.running) == 500
        servers.restart(*range(1000))
        assert all(map(answers, servers.addresses))
        assert len(servers.stats()) == 1000
        servers.stop()
        assert sum(servers.running) == 0


def test_a_life_knows_nothing_of_the_one_before() -> None:
    with LabCluster(1, ttl_s=60, options=("--open",)) as servers:
        (server,) = servers.addresses
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.settimeout(0.2)
            peer.connect(server)
            for is_known in (True, False):
                if is_known:
                    peer.send(b"weather\n")
                peer.send(b"weather rain\n")
                if is_known:
                    assert peer.recv(2048) == b"\nweather rain\n"
                    servers.kill(0)
                    servers.restart(0)
                else:
                    with pytest.raises(TimeoutError):
                        peer.recv(2048)


def test_what_servers_say_is_told_apart() -> None:
    with LabCluster(2, ttl_s=2) as servers:
        servers.isolate(1)
        with Peer(servers.addresses[1]) as peer:
            peer.ping(b"lost")
            assert not peer.heard(b"lost", 0.1)
        servers.stop()
    logs = servers.logs()
    assert logs["server-1"] == ""
    assert untimed(logs["server-2"]) == "kcast serve server-2: cut off while isolated: 1 datagrams\n"


def test_a_server_that_cannot_start_says_why_and_the_others_end() -> None:
    with LabCluster(3, ttl_s=2) as servers:
        addresses = servers.addresses
        servers.kill(0, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
            squatter.bind(addresses[1])
            port = addresses[1][1]
            with pytest.raises(
                ServerFailed, match=rf"server-2 \(port {port}\) did not start: its port is in use: another"
            ):
                servers.restart(0, 1)
        assert servers.running == (False, False, True)
        servers.restart(0, 1)
        assert all(map(answers, addresses))


def test_what_needs_processes_is_refused() -> None:
    for options in [("--metrics", "9400"), ("--log", "json")]:
        with pytest.raises(ServerFailed, match="a lab has neither"), LabCluster(1, ttl_s=2, options=options):
            pass


def test_the_end_of_its_process_is_told() -> None:
    with LabCluster(2, ttl_s=2) as servers:
        pid = servers.pids[0]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ServerFailed, match="ended with exit code -9"):
            servers.kill(0)
        assert servers.running == (False, False)


def test_the_death_of_the_owner_ends_all() -> None:
    with Owner("lab") as owner:
        addresses = owner.addresses()
        assert answers(addresses[1])
        owner.end(signal.SIGKILL)
        wait_until_all_gone(addresses)
