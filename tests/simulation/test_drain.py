"""Servers that are told to end, in simulation: clients hear of it in time, and nothing is lost."""

from functools import partial

import pytest

from kcast.client.events import Outcome, ServerDraining, ServerLost
from kcast.hashring.policy import Policy
from kcast.pubsub.drops import Drop
from tests.simulation.crowd import Witness
from tests.simulation.ledger import ClientTurn
from tests.simulation.options import Options
from tests.simulation.restarts import RestartLosesNothing
from tests.simulation.scenario import roll
from tests.simulation.world import World
from tests.support.forms import few_of

pytestmark = pytest.mark.long

SERVERS = 5
FEW_PUBLISH = Policy.from_scheme("RCH", k=5, k_prime=1, side="publish")
FEW_SUBSCRIBE = Policy.from_scheme("RCH", k=5, k_prime=1, side="subscribe")
POLICIES = {
    "R": Policy.from_scheme("R", servers=SERVERS, publish=3, subscribe=3),
    "CH": Policy.from_scheme("CH", k=3),
    "5/3/5": Policy(),
    "5/1/5": FEW_PUBLISH,
    "5/5/1": FEW_SUBSCRIBE,
}


def world_of(policy: Policy, clients: int = 4, **settings: float) -> World:
    """Clients that subscribe to all topics, and have all their leases."""
    options = Options(
        servers=SERVERS,
        clients=clients,
        topics=2,
        policy=policy,
        ttl_s=6,
        uneven=False,
        drains=1,
        delay_s=0.01,
    )
    world = World(Options(**{name: getattr(options, name) for name in Options.__slots__} | settings))
    for client in world.clients:
        for topic in world.topics:
            client.subscribe(topic)
    world.run_for(3.0)
    return world


def publish_steadily(world: World, number: int, every_s: float, until: float, confirm: bool) -> None:
    client = world.clients[number]

    def publish(count: int) -> None:
        if world.clock.time < until:
            client.publish(world.topics[count % 2], [b"%d-%d" % (number, count)], confirm=confirm)
            world.clock.after(every_s, partial(publish, count + 1))

    publish(0)


def missing(world: World) -> list[str]:
    """What was published and not delivered, by anyone."""
    return [
        f"{client.name} lacks {line!r}, published at {message.at:.2f} s"
        for line, message in world.ledger.log
        for client in world.clients
        if message.topic in client.subscribed and not world.ledger.delivered[client.name][line]
    ]


@pytest.mark.parametrize("policy", few_of(reversed(POLICIES.values())), ids=reversed(POLICIES))
def test_a_rolling_restart_loses_nothing(policy: Policy) -> None:
    """All servers, one after the other. Some publish a few times a second, with and without receipts, and
    one every few seconds. No message is lost, and no subscriber lacks a lease that it could have."""
    world = world_of(policy)
    until = world.clock.time + SERVERS * 12.0
    fewest = policy.subscribe

    def sample() -> None:
        nonlocal fewest
        counts = [len(world.leased_at(client, topic)) for client in world.clients for topic in world.topics]
        fewest = min(fewest, *counts)
        world.clock.after(0.02, sample)

    sample()
    publish_steadily(world, 0, 0.25, until, confirm=True)
    publish_steadily(world, 1, 0.25, until, confirm=False)
    publish_steadily(world, 2, 4.1, until, confirm=True)
    for server in world.servers:
        roll(world, server)
    world.run_until(max(until, world.clock.time) + 9.0)
    checker = world.checker(RestartLosesNothing)
    assert isinstance(checker, RestartLosesNothing)
    story = f"{checker.checked} deliveries were checked during restarts, of {len(world.ledger.log)} messages"
    assert missing(world) == [], story
    assert checker.checked > 500, story
    # Where there are others, theirs are taken before the one that drains has ended.
    assert fewest == (policy.subscribe if policy.subscribe < policy.k else policy.k - 1), f"{fewest}: {story}"
    for client in world.clients:
        for topic in world.topics:
            assert len(world.leased_at(client, topic)) == min(policy.subscribe, policy.k), story
    world.finish()


@pytest.mark.parametrize("phase_s", few_of([7.9, 0.0, 3.0, 7.2, 8.4]), ids=str)
def test_who_publishes_once_an_hour_loses_nothing_in_a_restart_either(phase_s: float) -> None:
    """It never heard of the draining. With a receipt to wait for, it goes to another server when there is no
    answer, and when the cookie it had is refused: then the server has restarted, and has few leases yet."""
    world = world_of(FEW_PUBLISH)
    publisher = world.add_client(world.new_client_address())
    for number in range(20):
        publisher.publish(world.topics[0], [b"to know all servers %d" % number])
        world.run_for(0.1)
    world.run_for(30.0)
    began = world.clock.time
    for server in world.servers:
        server.drain(1.0)
        world.run_until(began + phase_s)
        publisher.publish(world.topics[0], [b"%b" % server.name.encode()])
        world.run_until(began + 20.0)
        began = world.clock.time
    assert missing(world) == []
    world.finish()


def test_all_hear_of_a_draining_server_before_it_ends() -> None:
    """Subscribers and busy publishers; from then on nothing is published there alone, and nobody is surprised
    when it is gone: it is lost only later, when it does not answer."""
    told: dict[str, float] = {}
    lost: dict[str, float] = {}
    world = world_of(FEW_PUBLISH)

    def watch(turn: ClientTurn) -> None:
        for event in turn.events:
            if isinstance(event, ServerDraining):
                told[turn.host.name] = world.clock.time
            elif isinstance(event, ServerLost):
                lost[turn.host.name] = world.clock.time

    world.watchers.append(watch)
    server, began = world.servers[0], world.clock.time
    publish_steadily(world, 0, 0.2, began + 15.0, confirm=True)
    server.drain()
    world.run_for(world.options.renewal_interval_s + 0.5)
    assert told.keys() == {client.name for client in world.clients}
    received = server.core.counts["messages_received"]
    world.run_for(2.0)
    assert server.is_up and server.core.counts["messages_received"] == received
    world.run_for(12.0)
    assert not server.is_up
    assert all(began + world.options.renewal_interval_s + 5.0 < at for at in lost.values())
    assert missing(world) == []


def test_who_comes_while_a_server_drains_is_told_and_gets_in_when_it_is_back() -> None:
    world = world_of(POLICIES["CH"], clients=2)
    witness = Witness(world)
    topic = world.topics[0]
    server = world.server_at[min(world.server_addresses(world.clients[0], topic))]
    server.drain(0.5)
    late = world.add_client(world.new_client_address())
    late.subscribe(topic)
    world.run_for(1.0)
    assert late.core.lease_counts(topic) == (2, 3)
    assert witness.refused[late.name] == {"drain": 1} and server.core.drops[Drop.DRAIN] == 1
    world.run_for(world.options.renewal_interval_s + 5.5 + world.options.renewal_interval_s + 2.0)
    assert late.core.lease_counts(topic) == (3, 3)
    world.finish()


def test_a_server_that_nobody_has_a_lease_at_ends_at_once() -> None:
    world = world_of(POLICIES["CH"], clients=0)
    world.servers[0].drain()
    assert not world.servers[0].is_up


def test_a_receipt_of_a_draining_server_is_as_good_as_another() -> None:
    world = world_of(POLICIES["CH"])
    witness = Witness(world)
    for server in world.servers:
        server.drain()
    world.clients[0].publish(world.topics[0], [b"to those that are about to end"])
    world.run_for(1.0)
    assert witness.outcomes[world.clients[0].name] == {Outcome.RECEIPT: 3}
    assert missing(world) == []
