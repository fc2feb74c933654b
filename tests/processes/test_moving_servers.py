"""Servers that are known by name, and one that comes back at another address, as a pod does in Kubernetes.

The servers are processes on addresses of loopback; what resolves their names is the test's.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from unittest import mock

import pytest

from kcast.client.blocking import Client, Events
from kcast.client.events import Event, Outcome, ServerLost, ServerReturned
from tests.support.serve_process import next_line, serving

pytestmark = pytest.mark.world

WAIT_S = 30.0
NAMES = ["kcast-0.kcast", "kcast-1.kcast", "kcast-2.kcast"]


@contextmanager
def resolving(hosts: dict[str, str]) -> Iterator[None]:
    """Names lead to these hosts, and any other name nowhere."""

    def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        if host not in hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (hosts[host], port))]

    with mock.patch.object(socket, "getaddrinfo", getaddrinfo):
        yield


def free_port(hosts: list[str]) -> int:
    """A port that is free on all of them."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
            first.bind((hosts[0], 0))
            port: int = first.getsockname()[1]
            try:
                for host in hosts[1:]:
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                        other.bind((host, port))
            except OSError:
                continue
            return port


def wait_for(events: Events, wanted: Event) -> None:
    while (event := events.get(WAIT_S)) != wanted:
        assert event is not None


def test_server_that_comes_back_at_another_address_is_found_and_nothing_is_lost(tmp_path: Path) -> None:
    hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]
    port = free_port(hosts)
    lines = [f"server {name}:{port} key={name.partition('.')[0]}\n" for name in NAMES]
    file = tmp_path / "kcast.cluster"
    file.write_text("kcast-cluster 1\npolicy k=3 publish=2 subscribe=3\nnames\n" + "".join(lines))
    leads_to = dict(zip(NAMES, hosts, strict=False))
    moved = f"{NAMES[1]}:{port}"
    with serving() as serve, resolving(leads_to):

        def start(host: str) -> Any:
            process = serve("--host", host, "--port", str(port), "--ttl", "2")
            next_line(process)
            return process

        pods = [start(host) for host in hosts[:3]]
        with Client(file) as client, Client(file) as publisher:
            subscription, events = client.subscribe("t"), publisher.events()
            assert subscription.ready(WAIT_S) == (3, 3)
            sent = [publisher.publish("t", str(number)).seq for number in range(20)]
            pods[1].kill()
            pods[1].wait()
            sent += [publisher.publish("t", str(number)).seq for number in range(20, 30)]
            leads_to.pop(NAMES[1])
            publisher.subscribe("other")  # so that the publisher, too, finds out that it is gone
            wait_for(events, ServerLost(moved))
            start(hosts[3])
            leads_to[NAMES[1]] = hosts[3]
            wait_for(events, ServerReturned(moved))
            assert subscription.ready(WAIT_S) == (3, 3)
            until = monotonic() + WAIT_S
            used = False
            while not used and monotonic() < until:  # it comes last until subscribers had time to lease again
                outcome = publisher.publish("t", "more")
                sent.append(outcome.seq)
                used = outcome.servers.get(moved) is Outcome.RECEIPT
            assert used
            got = [delivery.seq for _ in sent if (delivery := subscription.get(WAIT_S))]
            assert sorted(number or 0 for number in got) == sent == list(range(1, len(sent) + 1))
