"""client/views.py: what a client does between two cluster files. PROTOCOL §10.3."""

from dataclasses import replace

from kcast.client.cluster import lab
from kcast.client.events import ClusterChanged, Delivery, LeasesChanged
from kcast.client.views import OVERLAP_S
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from tests.client.test_core_servers import World, v4
from tests.support.fake_server import FakeServer


def changed(world: World, *hosts: int, policy: Policy | None = None) -> list[str]:
    """The client adopts a file with these hosts; returns the names of all servers that there ever were."""
    servers = lab([v4(number) for number in hosts]).servers
    for server in servers:
        world.servers.setdefault(server.name, FakeServer())
        world.at[server.addresses[0]] = server.name
    world.core.adopt(
        replace(world.cluster, servers=servers, policy=policy or world.cluster.policy), world.now
    )
    world.run(1)
    return list(world.servers)


def name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def test_change_is_told() -> None:
    world = World(Policy(5, 3, 5))
    changed(world, 2, 3, 4, 5, 6, 7)
    assert world.take_events(ClusterChanged) == [ClusterChanged((name(v4(6)), name(v4(7))), (name(v4(1)),))]
    assert world.core.view.cluster.servers[0].name == name(v4(2))


def test_leases_of_both_views_are_held_for_the_overlap() -> None:
    world = World(Policy(5, 1, 5))
    world.core.subscribe(b"t", world.now)
    world.run(1)
    world.take_events()
    every = set(changed(world, 2, 3, 4, 5, 6))
    assert world.leased_at() == every
    assert world.core.lease_counts(b"t") == (5, 5)
    told = [each.leased for each in world.take_events(LeasesChanged) if isinstance(each, LeasesChanged)]
    assert told == [4, 5], "only leases of the new view are counted"
    world.core.subscribe(b"later", world.now)
    world.run(OVERLAP_S - 5)
    assert world.leased_at() == world.leased_at(b"later") == set(world.servers)
    world.hear(v4(1), b"t from-the-one-that-left\n")
    world.run(0)
    assert world.take_events(Delivery)
    world.run(600)
    assert world.leased_at() == set(world.servers) - {name(v4(1))} == world.leased_at(b"later")
    assert name(v4(1)) not in world.core.server_states(), "it is asked no more"


def test_publishers_prefer_servers_of_both_views_and_send_to_those_that_leave() -> None:
    world = World(Policy(5, 3, 5))
    changed(world, 2, 3, 4, 5, 6)
    used = world.used()
    assert used[name(v4(1))] == 60, "whoever has not adopted the change may have leased there alone"
    assert used[name(v4(6))] == 0, "nobody may have leased there yet"
    assert used.total() == 4 * 60
    world.run(OVERLAP_S)
    used = world.used()
    assert used[name(v4(1))] == 0 < used[name(v4(6))]
    assert used.total() == 3 * 60


def test_server_that_leaves_and_is_dead_gets_nothing_more() -> None:
    world = World(Policy(5, 3, 5))
    world.down.add(v4(1))
    world.core.subscribe(b"t", world.now)
    world.run(30)
    changed(world, 2, 3, 4, 5, 6)
    assert world.used()[name(v4(1))] == 0


def test_greater_policy_holds_for_the_overlap() -> None:
    world = World(Policy(5, 4, 2))
    world.core.subscribe(b"t", world.now)
    changed(world, 1, 2, 3, 4, 5, policy=Policy(5, 2, 4))
    assert world.used().total() == 4 * 60
    world.run(OVERLAP_S)
    assert world.used().total() == 2 * 60
    assert len(world.leased_at()) >= world.core.lease_counts(b"t")[1] == 4


def test_change_that_is_taken_back_leaves_all_as_it_was() -> None:
    world = World(Policy(5, 3, 5))
    world.core.subscribe(b"t", world.now)
    world.run(1)
    changed(world, 2, 3, 4, 5, 6)
    changed(world, 1, 2, 3, 4, 5)
    world.run(OVERLAP_S + 600)
    assert world.leased_at() == {name(v4(number)) for number in range(1, 6)}
    assert world.used().keys() == world.leased_at()
