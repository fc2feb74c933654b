"""The tests that every backend of kcast.loadtest.clusters must pass; its own test file inherits them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kcast.client.blocking import Client
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.servers import Servers
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import REQUEST_BYTES_MIN
from kcast.pubsub.tap import read_all
from kcast.pubsub.tap_format import End, FileHead, Record
from tests.support.waiting import wait_until

WAIT_S = 20.0
SILENCE_S = 0.3  # what has not come by then does not come: on one machine it takes a thousandth of it


class Peer:
    """A socket that pings a server. Use it with `with`."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ping(self, nonce: bytes) -> None:
        self._socket.sendto(b"".join((b"%~ ", nonce)).ljust(REQUEST_BYTES_MIN, b"\n"), self._server)

    def heard(self, nonce: bytes, timeout_s: float = WAIT_S) -> bool:
        """Returns whether the answer to this ping is the next thing that arrives."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(2048).startswith(b"%: " + nonce + b" ")
        except TimeoutError:
            return False


def answers(server: Address) -> bool:
    """Whether a server answers a ping."""
    with Peer(server) as peer:
        peer.ping(b"there")
        return peer.heard(b"there")


def silent(servers: Iterable[Address]) -> bool:
    """Whether none answers."""
    peers = [Peer(server) for server in servers]
    for peer in peers:
        peer.ping(b"there")
    time.sleep(SILENCE_S)
    heard = [peer.heard(b"there", timeout_s=1e-3) for peer in peers]
    for peer in peers:
        peer.__exit__()
    return not any(heard)


def can_bind(server: Address) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(server)
        except OSError:
            return False
        return True


def wait_until_all_gone(servers: Iterable[Address]) -> None:
    """Waits until all ports can be bound: then no process has them; a zombie keeps its pid, but no port."""
    for server in servers:
        wait_until(partial(can_bind, server), f"{server} is served no more")


def records(tap: Path) -> list[Record]:
    return list(read_all(tap))


def boots(tap: Path) -> set[bytes]:
    return {record.boot_id for record in records(tap) if isinstance(record, FileHead)}


class ClusterSuite:
    """The tests; a subclass says how its servers are opened."""

    backend: Callable[..., Servers]
    is_killed_tap_whole = False

    def open(self, count: int, *, ttl_s: int = 2, **options: Any) -> Servers:
        """Returns servers of this backend."""
        return type(self).backend(count, ttl_s=ttl_s, **options)

    def test_servers_start_die_and_come_back_where_they_were(self) -> None:
        with self.open(3) as servers:
            addresses = servers.addresses
            assert len(servers) == len(set(addresses)) == 3
            assert all(map(answers, addresses))
            servers.kill(0, 2)
            assert servers.running == (False, True, False)
            assert [pid is not None for pid in servers.pids] == [False, True, False]
            assert silent((addresses[0], addresses[2])) and answers(addresses[1])
            servers.restart(0, 1, 2)
            assert servers.running == (True, True, True)
            assert servers.addresses == addresses
            assert all(map(answers, addresses))
        assert servers.running == (False, False, False)
        assert servers.pids == (None, None, None)
        assert silent(addresses)

    def test_the_ttl_and_further_options_reach_the_servers(self) -> None:
        with self.open(1, ttl_s=7, options=("--open",)) as servers:
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

    def test_clients_meet(self) -> None:
        with self.open(2, ttl_s=60) as servers, Client(servers.cluster(Policy(2, 1, 2))) as client:
            subscription = client.subscribe("weather")
            assert subscription.ready(timeout_s=WAIT_S) == (2, 2)
            client.publish("weather", "rain")
            assert next(iter(subscription)).payload == b"rain"

    def test_what_reaches_a_stalled_server_waits(self) -> None:
        with self.open(2) as servers, Peer(servers.addresses[0]) as peer:
            servers.stall(0)
            assert servers.running == (True, True)
            peer.ping(b"early")
            assert not peer.heard(b"early", SILENCE_S)
            assert answers(servers.addresses[1])
            assert servers.stats()[0].queue_bytes > servers.stats()[1].queue_bytes == 0
            servers.resume(0)
            assert peer.heard(b"early")
            assert servers.stats()[0].queue_bytes == 0

    def test_what_is_sent_to_an_isolated_server_is_lost(self) -> None:
        with self.open(2) as servers, Peer(servers.addresses[1]) as peer:
            servers.isolate(1)
            assert servers.running == (True, True)
            peer.ping(b"lost")
            assert not peer.heard(b"lost", SILENCE_S)
            assert answers(servers.addresses[0])
            servers.rejoin(1)
            peer.ping(b"found")
            assert peer.heard(b"found")

    def test_isolation_outlasts_a_restart(self) -> None:
        with self.open(2) as servers:
            servers.isolate(0)
            servers.kill(0)
            servers.restart(0)
            assert servers.running == (True, True)
            assert silent(servers.addresses[:1])
            servers.kill(0)
            servers.rejoin(0)
            servers.restart(0)
            assert answers(servers.addresses[0])

    def test_what_is_as_wanted_stays_so(self) -> None:
        with self.open(3) as servers:
            servers.kill()
            servers.kill(1)
            servers.kill(1, 1, -2)
            assert servers.running == (True, False, True)
            for _ in range(2):
                servers.stall(0, 1)
            for _ in range(2):
                servers.resume(0, 1, 2)
            for _ in range(2):
                servers.isolate(0, 1)
            for _ in range(2):
                servers.rejoin(0, 1, 2)
            assert servers.running == (True, False, True)
            servers.stall(0, 2)
            servers.kill(0)
            servers.restart(0, 1)
            assert all(map(answers, servers.addresses[:2]))
            for _ in range(2):
                servers.stop()
            assert servers.running == (False, False, False)
            servers.restart(2)
            assert answers(servers.addresses[2])

    def test_each_life_has_a_tap_that_is_whole_after_stop(self, tmp_path: Path) -> None:
        with self.open(3, tap_dir=tmp_path, options=("--open",)) as servers:
            servers.kill(1)
            servers.restart(1)
            for address in servers.addresses:
                with Peer(address) as peer:
                    peer.ping(b"before")
                    assert peer.heard(b"before")
            servers.stall(2)
            servers.stop()
            taps = servers.taps
            assert [len(lives) for lives in taps] == [1, 2, 1]
            for lives in taps:
                assert isinstance(records(lives[-1])[-1], End)
            assert isinstance(records(taps[1][0])[-1], End) is self.is_killed_tap_whole
            everyone = [boots(life) for lives in taps for life in lives]
            assert all(len(boot) == 1 for boot in everyone) and len(set.union(*everyone)) == 4
        assert servers.taps == taps

    def test_the_system_counts_what_a_socket_could_not_hold(self) -> None:
        with self.open(2, options=("--receive-buffer", "4096")) as servers:
            before, other = servers.stats()
            assert before.kernel_drops == other.kernel_drops == 0
            assert min(before.rss_bytes, other.rss_bytes) > 2**20
            servers.stall(0)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
                for _ in range(100):
                    peer.sendto(b"weather rain\n" * 80, servers.addresses[0])
            wait_until(lambda: servers.stats()[0].kernel_drops > 50, "drops are counted")
            assert servers.stats()[1].kernel_drops == 0
            servers.kill(0)
            assert servers.stats()[0] == type(before)()

    def test_an_exception_ends_all(self) -> None:
        addresses: tuple[Address, ...] = ()
        with pytest.raises(ZeroDivisionError), self.open(2) as servers:
            addresses = servers.addresses
            servers.stall(0)
            raise ZeroDivisionError
        assert addresses and silent(addresses)


OWNER = """\
import sys, time
from kcast.loadtest.clusters.backends import open_servers
with open_servers(sys.argv[1], 3, ttl_s=2) as servers:
    servers.kill(1)
    servers.restart(1)
    servers.stall(0)
    servers.isolate(2)
    print(*(f"{host}:{port}" for host, port in servers.addresses), flush=True)
    time.sleep(60)
"""


class Owner:
    """A process with three servers, one of them stalled, one isolated. Use it with `with`."""

    def __init__(self, backend: str, program: str = OWNER) -> None:
        self.process = subprocess.Popen(
            (sys.executable, "-c", program, backend), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)

    def addresses(self) -> list[Address]:
        """Returns the addresses once the servers are in these states."""
        assert self.process.stdout is not None
        parts = [text.rpartition(":") for text in self.process.stdout.readline().decode().split()]
        assert len(parts) == 3
        return [(host, int(port)) for host, _, port in parts]

    def end(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)
        self.process.wait(WAIT_S)
