"""A path between a client's socket and its core: on the simulated network, and on real sockets.

With every driver it is in `tests.support.driver_suite`; what the engine makes of it is in
`tests.client.driving.test_engine`.
"""

import threading
import time
from collections import Counter
from concurrent.futures import Future
from random import Random

import pytest

from kcast.client.blocking import Client, ClientClosed
from kcast.client.cluster import Cluster
from kcast.client.core import ClientCore
from kcast.client.events import Delivery, Drop, Published
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Burst, Endpoint
from tests.simulation.ledger import ClientTurn
from tests.simulation.options import Options, options_of_seed
from tests.simulation.scenario import run
from tests.simulation.world import World
from tests.support.client_paths import Rough, Through
from tests.support.driver_suite import mute_cluster
from tests.support.forms import few_of

pytestmark = pytest.mark.world

WAIT_S = 20.0
CH = Policy.from_scheme("CH", k=5)
ONE = Policy(1, 1, 1)
TOPIC = b"room/0"


# --- Simulated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", few_of([5, 1, 16, 23]))
def test_path_that_lets_everything_through_changes_nothing(seed: int) -> None:
    """Same seed, same datagrams to the byte, at the same times."""
    with_none, with_one = World(options_of_seed(seed)), World(options_of_seed(seed), make_path=Through)
    assert run(with_one).network.digest == run(with_none).network.digest
    assert with_one.network.fates["sent"] > 100


@pytest.mark.parametrize("seed", few_of(range(5)))
def test_path_that_delays_loses_and_doubles_is_as_a_network_that_does(seed: int) -> None:
    rng = Random(seed)
    paths: list[Rough] = []

    def rough(core: Endpoint) -> Rough:
        paths.append(Rough(core, rng, delay_s=0.05, jitters=True, loss=0.05, duplicate=0.1))
        return paths[-1]

    world = World(Options(seed=seed, servers=5, clients=2, policy=CH, topics=1), make_path=rough)
    # They compare what arrives at a machine with what its core makes of it at once.
    world.checkers.clear()
    publisher, subscriber = world.clients
    got: Counter[bytes] = Counter()

    def watch(turn: ClientTurn) -> None:
        if turn.host is subscriber:
            got.update(event.payload for event in turn.events if isinstance(event, Delivery))

    world.watchers.append(watch)
    subscriber.subscribe(TOPIC)
    world.run_for(15.0)
    assert world.is_fully_leased(subscriber, TOPIC), f"seed {seed}"
    for number in range(300):
        publisher.publish(TOPIC, [b"%d" % number])
        world.run_for(0.05)
    world.run_for(5.0)
    assert got == dict.fromkeys((b"%d" % number for number in range(300)), 1), f"seed {seed}"
    assert all(path.lost and path.doubled for path in paths)
    assert subscriber.core.counts["duplicates"] > 300 * 3
    assert publisher.core.drops[Drop.UNASKED_REPLY] > 0


# --- Real ---------------------------------------------------------------------------------------------


def test_what_a_path_holds_back_comes_when_it_is_due(cluster: Cluster) -> None:
    """Even where nothing else happens meanwhile: the engine is woken by the path."""
    paths: list[Rough] = []

    def late(core: Endpoint) -> Rough:
        paths.append(Rough(core, Random(1), delay_s=0.1))
        return paths[-1]

    with Client(cluster, path=late) as subscriber, Client(cluster) as publisher:
        subscription = subscriber.subscribe("t")
        assert subscription.ready(WAIT_S) == (1, 1)
        publisher.publish("t", "warm")
        assert subscription.get(WAIT_S)
        for _ in range(5):
            sent_at = time.monotonic()
            assert publisher.publish("t", "x").receipts == 1
            assert subscription.get(WAIT_S)
            assert 0.1 <= time.monotonic() - sent_at < 0.1 + 1.0


def test_client_closes_well_in_the_middle_of_a_storm_that_its_path_delays_and_doubles(
    cluster: Cluster,
) -> None:
    paths: list[Rough] = []

    def rough(core: Endpoint) -> Rough:
        paths.append(Rough(core, Random(1), delay_s=0.02, jitters=True, duplicate=0.5))
        return paths[-1]

    for _ in range(5):
        with Client(cluster, path=rough) as client:
            subscription = client.subscribe("t")
            assert subscription.ready(WAIT_S) == (1, 1)
            stopped = threading.Event()

            def storm(client: Client = client, stopped: threading.Event = stopped) -> None:
                try:
                    while not stopped.wait(0.001):
                        client.publish_nowait("t", "x", confirm=False)
                except ClientClosed:
                    pass

            storming = threading.Thread(target=storm)
            storming.start()
            assert subscription.get(WAIT_S)
        stopped.set()
        storming.join()
        assert client.counts["duplicates"] + client.drops[Drop.UNASKED_REPLY] > 0


@pytest.mark.parametrize("where", ["receive", "handle_timeout", "next_timeout", "flush"])
def test_path_that_fails_is_a_failure_of_the_client_that_all_are_told(cluster: Cluster, where: str) -> None:
    is_broken = False

    def make(core: Endpoint) -> Through:
        path = Through(core)
        method = getattr(path, where)

        def call(*arguments: object) -> object:
            if is_broken:
                raise RuntimeError("no way through")
            return method(*arguments)

        setattr(path, where, call)
        return path

    with Client(cluster, path=make) as client:
        subscription = client.subscribe("t")
        assert subscription.ready(WAIT_S) == (1, 1)
        is_broken = True
        with pytest.raises(ClientClosed, match="no way through"):
            while True:  # a receipt may come before what is broken is called
                client.publish("t", "x")
        with pytest.raises(ClientClosed, match="no way through"):
            while True:
                subscription.get(WAIT_S)


def test_path_is_called_with_the_client_locked_and_may_leave_work_to_it(cluster: Cluster) -> None:
    """A signal's handler may, too. What would wait for the client is refused; the rest is done later."""
    outcomes: list[Future[Published]] = []
    refused: list[RuntimeError] = []

    class Chatty(Through):
        def receive(self, burst: Burst, now: float) -> None:
            super().receive(burst, now)
            if not outcomes:
                try:
                    client.publish("t", "x")
                except RuntimeError as error:
                    refused.append(error)
                outcomes.append(client.publish_nowait("t", "from the path"))

    with Client(cluster, path=Chatty) as client:
        assert client.publish("t", "x").receipts == 1
        assert outcomes[0].result(WAIT_S).receipts == 1
        assert len(refused) == 1


def test_core_is_the_paths_before_anything_is_open() -> None:
    with mute_cluster() as mute:
        cores: list[Endpoint] = []

        def make(core: Endpoint) -> Endpoint:
            cores.append(core)
            return core

        client = Client(mute, path=make)
        assert isinstance(cores[0], ClientCore)
        assert client.local_port == 0
