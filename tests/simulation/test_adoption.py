"""A cluster file that changes under traffic: clients adopt it one by one. PROTOCOL §10.3."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest

from kcast.client.cluster import ServerEntry
from kcast.client.clusters import views
from kcast.client.clusters.view import View
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from tests.simulation.hosts import ClientHost
from tests.simulation.options import Options
from tests.simulation.world import World
from tests.support.forms import Seeds, few_of

READ_WITHIN_S = 60.0
OVERLAP_S = min(views.OVERLAP_S, 2 * READ_WITHIN_S)  # longer than that, nothing more would happen
POLICIES = [
    Policy(5, 5, 1),
    Policy(1, 1, 1),
    Policy(5, 3, 5),
    Policy(3, 2, 3),
    Policy(3, 3, 2),
    Policy(5, 1, 5),
]


class ChangingWorld(World):
    """Begins with all servers but the last `added`; the changed file has all but the first `removed`."""

    def __init__(self, options: Options, *, added: int, removed: int) -> None:
        self._added = added
        super().__init__(options)
        self.leaving = self.servers[:removed]
        self.changed = super()._view(self._entries[removed:])

    def _view(self, entries: Iterable[ServerEntry]) -> View:
        every = list(entries)
        return super()._view(every[: len(every) - self._added])


def changing_world(
    seed: int, policy: Policy, *, added: int = 1, removed: int = 1, faults: int = 0
) -> ChangingWorld:
    """A world whose clients all subscribe to all topics."""
    options = Options(seed=seed, servers=7, clients=4, policy=policy, topics=5, ttl_s=10, faults=faults)
    world = ChangingWorld(options, added=added, removed=removed)
    for client in world.clients:
        for topic in world.topics:
            client.subscribe(topic)
    world.run_for(5)
    return world


def publish_for(world: World, duration_s: float) -> None:
    """Each message is from one of the clients, on one of the topics."""
    until = world.clock.time + duration_s
    while world.clock.time < until:
        client, topic = world.rng.choice(world.clients), world.rng.choice(world.topics)
        client.publish(topic, [b"at %.3f" % world.clock.time], confirm=world.rng.random() < 0.7)
        world.run_for(world.rng.expovariate(2.0))
    world.run_for(10)


def adopt_one_by_one(world: ChangingWorld) -> None:
    for client in world.clients:
        world.clock.after(world.rng.uniform(0, READ_WITHIN_S), partial(client.adopt, world.changed))


def lost_in(world: World, since: float = 0.0) -> list[tuple[str, bytes]]:
    """Messages, with a subscriber that did not get them."""
    return [
        (client.name, line)
        for line, message in world.ledger.log
        if message.at >= since
        for client in world.clients
        if not world.ledger.delivered[client.name][line]
    ]


def addresses_asked(client: ClientHost) -> set[Address | None]:
    return {session.address for session in client.core.sessions.all()}


@pytest.mark.parametrize("policy", few_of(POLICIES), ids=str)
def test_one_server_is_replaced_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, seeds: Seeds, policy: Policy
) -> None:
    """The one that leaves goes on serving until the overlap is over."""
    monkeypatch.setattr(views, "OVERLAP_S", OVERLAP_S)
    for seed in seeds(1, 2):
        world = changing_world(seed, policy)
        adopt_one_by_one(world)
        publish_for(world, READ_WITHIN_S + 20)
        world.run_for(views.OVERLAP_S)
        for server in world.leaving:
            server.crash()
        publish_for(world, 20)
        assert lost_in(world) == []
        world.finish()
        gone = {address for server in world.leaving for address in server.addresses}
        assert all(addresses_asked(client).isdisjoint(gone) for client in world.clients), "they are let go of"


def test_many_servers_are_replaced_at_once_and_nothing_is_lost(seeds: Seeds) -> None:
    """All that is asked for is that those who leave live on for the overlap."""
    for seed in seeds(1, 2):
        world = changing_world(seed, Policy(3, 3, 1), added=3, removed=3)
        adopt_one_by_one(world)
        publish_for(world, READ_WITHIN_S + 20)
        assert lost_in(world) == []


def test_dead_server_is_replaced_and_nothing_more_is_lost(seeds: Seeds) -> None:
    for seed in seeds(1, 2):
        world = changing_world(seed, Policy(3, 2, 3), faults=1)
        world.leaving[0].crash()
        world.run_for(30)
        changed_at = world.clock.time
        adopt_one_by_one(world)
        publish_for(world, READ_WITHIN_S + 20)
        assert lost_in(world, changed_at) == []


def test_policy_may_change_in_the_same_way(seeds: Seeds) -> None:
    for seed in seeds(1, 2):
        world = changing_world(seed, Policy(3, 3, 1))
        world.changed = View(replace(world.changed.cluster, policy=Policy(4, 1, 4)))
        adopt_one_by_one(world)
        publish_for(world, READ_WITHIN_S + 20)
        assert lost_in(world) == []


def test_without_an_overlap_messages_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would show nothing."""
    monkeypatch.setattr(views, "OVERLAP_S", 0.0)
    with pytest.raises(AssertionError, match="has not got"):
        for seed in range(5):
            world = changing_world(seed, Policy(5, 5, 1), added=2, removed=2)
            adopt_one_by_one(world)
            publish_for(world, READ_WITHIN_S)
