"""Leases that cost work, in simulation: slow machines get theirs too, and nothing waits for a stamp."""

import pytest

from kcast.client.events import Delivery
from kcast.hashring.policy import Policy
from tests.simulation.crowd import Greedy, Witness, addresses
from tests.simulation.ledger import ClientTurn
from tests.simulation.options import Options
from tests.simulation.world import World

CH = Policy.from_scheme("CH", k=3)


def world_of(bits: int, tries_per_ms: int, clients: int, **settings: float) -> World:
    options = Options(
        servers=3,
        clients=clients,
        topics=8,
        policy=CH,
        ttl_s=6,
        work_bits=bits,
        tries_per_ms=tries_per_ms,
        faults=1,
        uneven=False,
        delay_s=0.01,
    )
    return World(Options(**{name: getattr(options, name) for name in Options.__slots__} | settings))


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_slow_machines_get_all_their_leases(loss: float) -> None:
    """12 leases at 1024 tries each, two tries a millisecond: some 6 s of work, and no more than that."""
    world = world_of(10, 2, clients=4, loss=loss)
    for client in world.clients:
        for topic in world.topics[:4]:
            client.subscribe(topic)
    counts: list[tuple[float, int]] = []
    while world.clock.time < 30.0 and (not counts or counts[-1][1] < 4 * 12):
        world.run_for(1.0)
        held = sum(
            len(world.leased_at(client, topic)) for client in world.clients for topic in client.subscribed
        )
        counts.append((world.clock.time, held))
    assert counts[-1][1] == 4 * 12, counts
    assert counts[-1][0] >= 3.0, f"that was too quick to have been paid for: {counts}"
    world.finish()


def test_minting_delays_no_renewal_and_no_delivery() -> None:
    """A client with some leases wants more, and computes for many times a ttl. What it holds it goes on
    holding; what comes is delivered when it comes."""
    world = world_of(12, 1, clients=2)
    witness = Witness(world)
    publisher, client = world.clients
    client.subscribe(world.topics[0])
    world.run_for(40.0)
    assert client.core.lease_counts(world.topics[0]) == (3, 3)
    delays_s: list[float] = []

    def watch(turn: ClientTurn) -> None:
        for event in turn.events:
            if isinstance(event, Delivery) and turn.host is client:
                delays_s.append(world.clock.time - float(event.payload))

    world.watchers.append(watch)
    for topic in world.topics[1:]:
        client.subscribe(topic)
    minting_s = 0.0
    for _ in range(200):
        publisher.publish(world.topics[0], [b"%r" % world.clock.time])
        minting_s += 0.1 * client.core.is_minting
        world.run_for(0.1)
    story = f"{minting_s:.1f} s of looking for stamps, ttl {world.options.ttl_s} s; {witness.fewer}"
    assert minting_s > 2 * world.options.ttl_s, story
    assert witness.fewer == [], story
    assert len(delays_s) in (199, 200), story
    worst_s = max(delays_s)
    assert worst_s < 2 * world.network.delay_s_max + 0.01, f"{worst_s:.3f} s until delivery; {story}"
    world.finish()


def test_who_does_not_pay_gets_nothing() -> None:
    """And who has paid goes on for nothing: renewals are free."""
    world = world_of(8, 400, clients=3)
    greedy = Greedy(world, [next(addresses("203.0.113."))], 30, 0.5)
    for client in world.clients:
        for topic in world.topics:
            client.subscribe(topic)
    world.run_for(3 * world.options.ttl_s)
    assert greedy.leases == 0 and greedy.refused["work"] > 10 and set(greedy.refused) == {"work"}
    for server in world.servers:
        assert len(server.core.leases) == server.core.counts["leases_opened"] == 3 * 8
    world.finish()
