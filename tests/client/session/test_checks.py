"""client/session/checks.py, outages.py: how soon a subscriber is back after a restart, what that costs, and
what is told. PROTOCOL §7.3."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from kcast.client.clusters.cluster import ServerEntry, lab
from kcast.client.events import MayHaveMissed
from kcast.client.session.liveness import Change, Notice
from kcast.client.session.outages import KEPT_S, SETTLING_S, Outages
from kcast.client.session.session import Session
from kcast.client.session.sessions import Sessions
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import format_address
from tests.client.test_core_servers import World, v4

POLICIES = [Policy(1, 1, 1), Policy(3, 2, 3), Policy(5, 5, 2), Policy(8, 3, 8)]


def subscribed(policy: Policy, seed: int = 1, **options: object) -> World:
    cluster = lab([v4(number) for number in range(1, policy.k + 1)], policy)
    world = World(policy, cluster, seed=seed, **options)
    world.core.subscribe(b"t", world.now)
    world.run(60 + 25 * Random(seed).random())
    world.take_events()
    return world


def leased(world: World) -> int:
    return sum(server.is_leased(b"t", world.now) for server in world.servers.values())


def seconds_until_back(world: World, policy: Policy) -> float:
    since = world.now
    while leased(world) < policy.subscribe and world.now < since + 60:
        world.run(0.25)
    return world.now - since


@pytest.mark.parametrize("down_s", [0.1, 5.0, 20.0])
def test_after_a_restart_of_all_servers_subscribers_are_back_within_seconds(down_s: float) -> None:
    for policy in POLICIES:
        took_s = []
        for seed in range(20):
            world = subscribed(policy, seed)
            world.down = set(world.at)
            for server in world.servers.values():
                server.restart()
            began = world.now
            world.run(down_s)
            world.down = set()
            took_s.append(seconds_until_back(world, policy))
            world.run(4 * SETTLING_S)
            told = [event for event in world.take_events(MayHaveMissed) if isinstance(event, MayHaveMissed)]
            assert told and told[0].since_s <= began and told[-1].until_s >= began + down_s
            assert all(event.until_s <= world.now for event in told)
        assert sorted(took_s)[17] <= 8.0, policy
        assert max(took_s) <= 12.0, policy


def test_a_subscriber_asks_somebody_each_five_seconds_and_each_server_about_once_an_interval() -> None:
    for policy in POLICIES:
        world = subscribed(policy)
        world.questions.clear()
        world.run(1000)
        times = [at for at, _ in world.questions]
        assert max(after - before for before, after in pairwise(times)) <= 5.0
        assert len(times) <= 1.05 * max(1000 / 5, policy.subscribe * 1000 / 19)


def test_an_outage_ends_when_the_server_is_replaced_or_nothing_is_wanted_there() -> None:
    world = subscribed(Policy(5, 3, 3))
    lost = next(iter(world.leased_at()))
    since = world.now
    world.down = {at for at, name in world.at.items() if name == lost}
    world.run(3600)
    world.down = set()
    world.run(60)
    told = [event for event in world.take_events(MayHaveMissed) if isinstance(event, MayHaveMissed)]
    assert len(told) == 1 and told[0].until_s < since + 40
    world = subscribed(Policy(1, 1, 1))
    world.down = set(world.at)
    world.run(60)
    world.core.unsubscribe(b"t")
    world.run(3600)
    world.down = set()
    world.core.subscribe(b"t", world.now)
    world.run(60)
    told = [event for event in world.take_events(MayHaveMissed) if isinstance(event, MayHaveMissed)]
    assert [event.until_s < world.now - 3600 for event in told] == [True]


def test_a_server_that_lies_has_the_others_asked_once_an_interval() -> None:
    world = subscribed(Policy(5, 3, 5))
    liar, others = world.servers[world.names[0]], world.names[1:]
    world.questions.clear()
    for _ in range(1000):
        liar.restart()
        world.run(1)
    counts = Counter(format_address(address) for _, address in world.questions)
    assert max(counts[name] for name in others) <= 3 * 1000 / 25


def test_when_our_address_has_changed_all_are_asked_at_once() -> None:
    world = subscribed(Policy(5, 3, 5))
    for server in world.servers.values():
        server.restart()
    world.core.checks.ask_all(world.now)
    world.turn()
    assert leased(world) == 5


def test_outages_count_where_as_many_servers_as_a_message_goes_to_have_them() -> None:
    for servers, outages, expected in (
        (1, [(0, 5)], (0, 5)),
        (2, [(0, 5)], None),
        (2, [(0, 5), (3, 9)], (3, 5)),
        (2, [(0, 5), (5, 9)], None),
        (2, [(0, 5), (1, 8), (3, 9)], (1, 8)),
        (3, [(0, 5), (1, 8), (3, 9)], (3, 5)),
        (4, [(0, 5), (1, 8), (3, 9)], None),
    ):
        missed = [] if expected is None else [MayHaveMissed(*expected)]
        assert Told(servers).of(*outages) == missed


def test_an_outage_that_turns_out_longer_is_told_from_where_it_was_told() -> None:
    told = Told(1)
    assert told.of((0, 5)) == [MayHaveMissed(0, 5)]
    assert told.of() == []
    assert told.of((1, 8)) == [MayHaveMissed(5, 8)]
    assert told.of((30, 31)) == [MayHaveMissed(30, 31)]
    told = Told(2)
    told.of((0, 5))
    assert told.of((1, 6 + KEPT_S)) == [], "those before are forgotten"


class Told:
    """Outages, of which a message meets all or none of so many servers."""

    def __init__(self, servers: int) -> None:
        self.outages = Outages(Sessions(Random(1), (4, 6), 3))
        self.policy = Policy(9, 9, servers)

    def of(self, *outages: tuple[float, float]) -> list[MayHaveMissed]:
        """What is told when so many servers have been away, each since and until a time."""
        until = 0.0
        for since, until in outages:
            session = Session(ServerEntry((v4(1),), "a"), Random(1))
            session.want(b"t", since)
            session.leases.grant(b"t", since, 1e9, 1e9)
            self.outages.take(Notice(Change.FORGOT), session, until)
            session.leases.grant(b"t", until, 1e9, 1e9)
            assert self.outages.next_at == until + SETTLING_S
        return self.outages.missed(self.policy, 0.0, until + SETTLING_S)
