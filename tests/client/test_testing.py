"""Servers within the process of a test."""

import threading
from pathlib import Path

import pytest

from kcast.client.blocking import Client, NoReceipt
from kcast.testing import local_cluster

pytestmark = pytest.mark.world


def left() -> tuple[set[Path], list[threading.Thread]]:
    return set(Path("/proc/self/fd").iterdir()), threading.enumerate()


def test_servers_serve_while_they_run_and_leave_nothing() -> None:
    before = left()
    with local_cluster() as cluster, Client(cluster, avoid_dead=False) as client:
        assert client.subscribe("news").ready(timeout_s=5) == (3, 3)
        for index in (0, 1, 2, 2):
            cluster.kill(index)
        with pytest.raises(NoReceipt):
            client.publish("news", "nobody is there")
        for index in (0, 1, 2, 2):
            cluster.restart(index)
        assert client.publish("news", "they are back").receipts == 2
        with pytest.raises(IndexError):
            cluster.kill(3)
    assert left() == before
