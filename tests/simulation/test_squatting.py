"""Ten times as much is asked of a server as it has room for, by people who hold on to all that they get.

Half of the table has stood for long when they come. Then newcomers come, too, who want little. They must get
it within 30 s and keep it, also in the very networks of those who want all; and nobody who stood loses
anything. PROTOCOL §7.9, §7.10.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import pytest

from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import LEASES_KEPT_FREE, Limits
from kcast.pubsub.server import Server
from tests.simulation.admission import PricesTrue
from tests.simulation.crowd import Greedy, Witness, addresses, scattered_addresses
from tests.simulation.hosts import ClientHost
from tests.simulation.options import Options
from tests.simulation.test_limits import POLICIES, held, wanted
from tests.simulation.world import ServerMaker, World
from tests.support.forms import few_of
from tests.support.server_core import SteadyServer

pytestmark = pytest.mark.long

CAPACITY = 400
TTL_S = 30
SETTLE_S = 20.0  # so that each lease is renewed once
JOIN_S = 30.0
NETWORKS = 12
ADDRESSES_EACH = 6
TOPICS_EACH = 63


# With prices, attackers who pay nothing are soon refused. Without them they are as those who pay anything.
@pytest.mark.parametrize("server_kind", few_of([Server, SteadyServer]))
@pytest.mark.parametrize("table", few_of(["ttl", "fifo"]))
def test_newcomers_join_within_thirty_seconds_at_ten_times_capacity(
    table: str, server_kind: ServerMaker
) -> None:
    limits = Limits(leases=CAPACITY, leases_per_prefix=CAPACITY // 5, topics=CAPACITY // 2)
    options = Options(
        servers=1,
        clients=0,
        topics=60,
        policy=POLICIES["S"],
        limits=limits,
        uneven=False,
        table=table,
        ttl_s=TTL_S,
    )
    world = World(options, make_server=server_kind)
    is_priced = server_kind is Server
    if not is_priced:
        world.checkers.remove(world.checker(PricesTrue))
    witness, apart = Witness(world), scattered_addresses()
    standing = subscribed(world, islice(apart, CAPACITY // 8), world.topics[:40], 4)
    world.run_for(SETTLE_S)
    assert held(standing) == wanted(standing) == CAPACITY // 2

    # 63 topics at each of 72 addresses, which ask for them every second: more than ten times what there is.
    attackers = [
        Greedy(world, places_in(f"203.0.{net}.", is_one_ip=net < 4), TOPICS_EACH, 1.0, has_own_topics=True)
        for net in range(NETWORKS)
    ]
    world.run_for(SETTLE_S)
    server = world.servers[0].core
    assert server.leases.is_nearly_full if is_priced else server.leases.load > 0.98
    # Of topics that have no lease yet.
    newcomers = subscribed(world, islice(apart, 5), world.topics[40:50], 2)
    beside = subscribed(world, [(f"203.0.{net}.99", 1) for net in range(4)], world.topics[50:], 1)
    joined_s = run_until_joined(world, [*newcomers, *beside])
    refused = sum((each.refused for each in attackers), start=Counter[str]())
    story = (
        f"{len(server.leases)} leases on {server.leases.topic_count} topics; attackers hold "
        f"{sum(each.leases for each in attackers)}, and were refused {dict(refused)}; newcomers hold "
        f"{held(newcomers)} of {wanted(newcomers)}, those beside the attackers {held(beside)} of "
        f"{wanted(beside)} after {joined_s:.1f} s; fewer: {witness.fewer_of(standing)[:3]}"
    )
    print(story)
    assert joined_s <= JOIN_S, story
    before = len(witness.fewer)
    world.run_for(2 * TTL_S)
    assert held(newcomers) == wanted(newcomers) and held(beside) == wanted(beside), story
    assert witness.fewer[before:] == [], story
    assert witness.fewer_of(standing) == [] and held(standing) == wanted(standing), story
    world.finish()


def subscribed(
    world: World, at: Iterable[Address], topics: Sequence[bytes], topics_each: int
) -> list[ClientHost]:
    """A client more at each of these addresses, subscribed to some of these topics."""
    clients = [world.add_client(address) for address in at]
    for client in clients:
        for topic in world.rng.sample(topics, topics_each):
            client.subscribe(topic)
    return clients


def places_in(prefix: str, *, is_one_ip: bool) -> list[Address]:
    """Addresses in one network, at one IP or each at another."""
    if is_one_ip:
        return [(prefix + "1", port) for port in range(ADDRESSES_EACH)]
    return list(islice(addresses(prefix), ADDRESSES_EACH))


def run_until_joined(world: World, clients: list[ClientHost]) -> float:
    """Lets time pass until all have what they want; returns how long that took, at most a minute."""
    began = world.clock.time
    while held(clients) < wanted(clients) and world.clock.time < began + 60:
        world.run_for(0.5)
    return world.clock.time - began


@pytest.mark.rest
@pytest.mark.usefixtures("coarse_stamps")
def test_client_with_many_topics_keeps_them_on_servers_that_are_full() -> None:
    """They are honest; a renewal costs 12 to 14 bits, and 18 those of a datagram."""
    servers, topics, seconds = 3, 40, 700.0
    limits = Limits(leases=CAPACITY, leases_per_prefix=CAPACITY, topics=10 * CAPACITY)
    options = Options(
        servers=servers,
        clients=0,
        topics=3 * topics,
        policy=Policy(servers, servers, servers),
        limits=limits,
        uneven=False,
        ttl_s=60,
        tries_per_ms=1000,
        try_s=4e-7,
    )
    world = World(options)
    apart = scattered_addresses()
    short = sorted(world.topics, key=len)[:topics]
    clients = subscribed(world, islice(apart, 1), short, topics)
    world.run_for(SETTLE_S)
    assert held(clients) == wanted(clients) == servers * topics
    witness = Witness(world)
    others = CAPACITY - topics
    subscribed(world, islice(apart, others // LEASES_KEPT_FREE), short, LEASES_KEPT_FREE)
    world.run_for(seconds)
    story = f"{held(clients)} of {wanted(clients)}; fewer: {witness.fewer_of(clients)[:3]}"
    assert all(server.core.leases.is_nearly_full for server in world.servers), story
    assert witness.fewer_of(clients) == [] and held(clients) == wanted(clients), story
    world.finish()
