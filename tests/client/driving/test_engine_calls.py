"""What is not used costs a message no Python call: an engine's turns, counted with sys.setprofile."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from statistics import median

import pytest

from kcast.client.cluster import Cluster, format_cluster
from kcast.client.driving.engine import Engine
from kcast.client.driving.inbox import DeliveryInbox
from kcast.client.receiving.native import TAKE
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.client.driving.test_engine import box
from tests.client.test_calls import calls_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

ONE = Policy(1, 1, 1)
MESSAGES = 60  # the median of so many turns has no renewals and no looks in it

# Of a turn in which nothing happens, of a publish, and of a message received, in commit 79fe9d1, which knew
# nothing of signed and sealed messages. With Python 3.11 and native code; later ones call less.
PLAIN_CALLS = (36, 118, 63)


class Counted:
    """An engine that sends messages to itself; counts the calls of each, without what the caller does."""

    def __init__(self, cluster: Cluster | str) -> None:
        self.engine = Engine(cluster, usage="with it:")
        self.engine.open()
        self.inbox: DeliveryInbox = box()
        self.engine.subscribe([b"t"], self.inbox)
        self.turn_until(lambda: self.inbox.leases == (1, 1))
        for _ in range(30):  # until the publisher, too, has a lease
            self.publish()
            self.receive()

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        def turned() -> bool:
            self.engine.turn()
            return is_so()

        wait_until(turned)

    def publish(self) -> None:
        self.engine.publish(Future(), b"t", b"payload", {"confirm": False})
        self.engine.turn()

    def receive(self) -> int:
        """Returns the calls of the turn that received a message."""
        counts: list[int] = []

        def turned() -> bool:
            counts.append(calls_of(self.engine.turn).total())
            return bool(self.inbox.items)

        wait_until(turned)
        self.inbox.items.clear()
        return counts[-1]

    def figures(self) -> tuple[float, float, float]:
        """Returns the calls of a turn in which nothing happens, of a publish, and of a message received."""
        rows: list[tuple[int, int, int]] = []
        for _ in range(MESSAGES):
            idle = calls_of(self.engine.turn).total()
            published = calls_of(self.publish).total()
            rows.append((idle, published, self.receive()))
        idle_calls, published_calls, received_calls = (median(column) for column in zip(*rows, strict=True))
        return idle_calls, published_calls, received_calls


@pytest.mark.skipif(TAKE is None, reason="without native code more is called")
def test_a_plain_message_takes_no_more_calls_than_before_messages_could_be_signed() -> None:
    with ProcessCluster(1, ttl_s=60) as servers:
        counted = Counted(servers.cluster(ONE))
        try:
            found = counted.figures()
        finally:
            counted.engine.close()
    assert all(calls <= bound for calls, bound in zip(found, PLAIN_CALLS, strict=True)), found


def test_a_signed_list_costs_no_call_on_a_messages_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nacl")
    from tests.support.published import AT_NAME, KnownList

    # Where a cluster may change, a socket takes both IP versions, for which addresses are turned.
    monkeypatch.setattr("kcast.client.driving.engine.present_families", lambda: (4,))
    with ProcessCluster(1, ttl_s=60) as servers:
        cluster = servers.cluster(ONE)
        unsigned = tmp_path / "lab.cluster"
        unsigned.write_text(format_cluster(cluster))
        known = KnownList(tmp_path, ONE)
        for name, value in known.environment.items():
            monkeypatch.setenv(name, value)
        known.publish(cluster.servers, fresh_s=3600, valid_s=7200)
        found = []
        for given in (cluster, str(unsigned), AT_NAME):  # the first cannot change, so nothing looks at it
            counted = Counted(given)
            try:
                found.append(counted.figures())
            finally:
                counted.engine.close()
    assert found[1:] == [found[0]] * 2
