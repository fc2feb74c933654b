"""client/clusters/views.py: what a client does between two cluster files. PROTOCOL §10.3."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kcast.client.cluster import Cluster, lab
from kcast.client.clusters import views
from kcast.client.clusters.view import View
from kcast.client.clusters.views import LATE_S, OVERLAP_S
from kcast.client.events import ClusterChanged, Delivery, LeasesChanged, ServerLost
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


# --- From a time on -----------------------------------------------------------------------------------

UNIX_S = 1_800_000_000.0
HOUR_S = 3600.0
TTL_S = 60.0  # of fake servers


def timed_world(policy: Policy | None = None, file: Cluster | None = None) -> World:
    """A client whose clock says 2027, with a subscription to "t"."""
    world = World(policy or Policy(5, 3, 5), file)
    know(world, range(1, 13))
    world.core.clock_offset_s = UNIX_S - world.now
    world.core.subscribe(b"t", world.now)
    world.run(1)
    world.take_events()
    return world


def know(world: World, hosts: Iterable[int]) -> None:
    """Servers that are there, whether the client knows of them or not."""
    for server in lab([v4(number) for number in hosts]).servers:
        world.servers.setdefault(server.name, FakeServer())
        world.at[server.addresses[0]] = server.name


def of_hosts(hosts: Iterable[int]) -> Cluster:
    return lab([v4(number) for number in hosts], Policy(5, 3, 5))


@pytest.mark.parametrize("topic", [b"t", b"\0t"], ids=["a topic", "one of kcast's own"])
def test_what_is_sent_again_after_the_change_goes_to_the_new_servers_too(topic: bytes) -> None:
    world = World(Policy(3, 2, 3))
    world.core.publish(topic, b"x", world.now, repeat=12, repeat_interval_s=60.0, is_own=topic != b"t")
    world.run(90)
    changed(world, 11, 12, 13)
    sent_at: list[set[str]] = []
    for _ in range(10):
        world.sent.clear()
        world.run(60)
        sent_at.append({name(address) for address, _ in world.sent})
    new = {name(v4(number)) for number in (11, 12, 13)}
    assert all(len(each & new) == 2 for each in sent_at), "in the overlap, and after it"
    assert sent_at[0] - new and not sent_at[-1] - new, "to those of the former list only in the overlap"


def names(*hosts: int) -> set[str]:
    return {name(v4(number)) for number in hosts}


def set_clock(world: World, unix_s: float) -> None:
    world.core.clock_offset_s = unix_s - world.now


def test_coming_list_is_leased_at_once_and_published_to_from_its_time_on() -> None:
    world = timed_world()
    world.core.adopt(of_hosts(range(6, 11)), world.now, UNIX_S + HOUR_S)
    world.run(1)
    assert world.leased_at() == names(*range(1, 11))
    assert world.core.lease_counts(b"t") == (5, 5)
    assert world.take_events() == [], "nothing has changed yet"
    assert world.used().keys() <= names(*range(1, 6))
    assert world.used().total() == 3 * 60, "it costs no datagram more"
    world.run(HOUR_S - 3)
    assert world.used().keys() <= names(*range(1, 6))
    world.take_events()
    world.run(2)
    assert world.take_events() == [
        ClusterChanged(tuple(sorted(names(*range(6, 11)))), tuple(sorted(names(*range(1, 6)))))
    ], "and no lease has been lost"
    assert world.core.lease_counts(b"t") == (5, 5)
    assert world.used().keys() <= names(*range(6, 11))
    assert world.used().total() == 3 * 60
    world.run(LATE_S + 2 * TTL_S - 10)
    assert world.leased_at() == names(*range(1, 11)), "slow publishers may go by the former list"
    world.run(2 * TTL_S)
    assert world.leased_at() == names(*range(6, 11))
    assert world.core.server_states().keys() == names(*range(6, 11))
    assert world.take_events(ServerLost, LeasesChanged, ClusterChanged) == []


def test_copies_of_servers_in_either_view_are_taken() -> None:
    world = timed_world()
    world.core.adopt(of_hosts(range(6, 11)), world.now, UNIX_S + HOUR_S)
    world.run(1)
    for number in (1, 6):
        world.hear(v4(number), b"t of-%d\n" % number)
    world.run(1)
    assert len(world.take_events(Delivery)) == 2


def test_same_servers_again_from_a_time_on_change_nothing() -> None:
    """A list that is only renewed: no view is made, and no lease moves."""
    world = timed_world(Policy(5, 5, 2))
    before, view = world.leased_at(), world.core.view
    renewed = replace(world.cluster, name="renewed")
    world.core.adopt(renewed, world.now, UNIX_S + 60)
    world.run(120)
    assert world.core.view is view
    assert world.core.view.cluster == renewed
    assert world.leased_at() == before
    assert world.take_events() == []


def test_each_view_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Cluster] = []

    class Counted(View):
        def __init__(self, cluster: Cluster) -> None:
            made.append(cluster)
            super().__init__(cluster)

    monkeypatch.setattr(views, "View", Counted)
    world = timed_world()
    assert len(made) == 1
    for hours in (2, 3, 48):
        know(world, range(hours, hours + 5))
        world.core.adopt(of_hosts(range(hours, hours + 5)), world.now, UNIX_S + hours * HOUR_S)
    assert len(made) == 3, "that of the day after tomorrow can wait"
    world.run(4 * HOUR_S)
    assert len(made) == 3
    for hour, count in ((23, 3), (24, 4), (48, 4)):  # renewals of days would show nothing
        set_clock(world, UNIX_S + (hour - 0.5) * HOUR_S)
        world.run(HOUR_S)
        assert len(made) == count, hour


# --- The wall clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_s", [60.0, HOUR_S, 20 * HOUR_S])
def test_clock_that_is_set_while_a_list_is_coming(ahead_s: float) -> None:
    world = timed_world()
    world.core.adopt(of_hosts(range(6, 11)), world.now, UNIX_S + HOUR_S + ahead_s)
    world.run(10)
    set_clock(world, UNIX_S + HOUR_S + ahead_s - 5)
    assert world.used().keys() <= names(*range(1, 6))
    world.run(4)
    assert world.used().keys() <= names(*range(1, 6))
    world.run(2)
    assert world.used().keys() <= names(*range(6, 11))


def test_publisher_that_wakes_after_the_time_goes_by_the_new_list_at_once() -> None:
    """`now` stood still while the machine slept; no turn has been since."""
    world = timed_world()
    world.core.adopt(of_hosts(range(6, 11)), world.now, UNIX_S + HOUR_S)
    world.run(10)
    set_clock(world, UNIX_S + 2 * HOUR_S)
    world.sent.clear()
    world.core.publish(b"t", b"x", world.now)
    world.turn()
    assert {name(address) for address, _ in world.sent} <= names(*range(6, 11))


def test_list_that_is_only_renewed_is_no_news() -> None:
    world = timed_world(Policy(5, 5, 2))
    before, view = world.leased_at(), world.core.view
    world.core.adopt(replace(world.cluster, name="renewed"), world.now)
    world.run(2 * OVERLAP_S)
    assert world.take_events() == []
    assert (world.core.view, world.leased_at()) == (view, before)
    assert world.core.view.cluster.name == "renewed"
    assert world.core._views.next_timeout() is None


@pytest.mark.parametrize("from_s", [None, -1.0, 60.0])
def test_server_that_says_a_ttl_of_months_is_left_soon_after_it_was_removed(from_s: float | None) -> None:
    world = World(Policy(2, 2, 2))
    world.core.clock_offset_s = 1e9
    for server in world.servers.values():
        server.ttl_s = 9_999_999
    world.core.subscribe(b"t", world.now)
    world.run(30)
    liar, other = world.core.server_states()
    servers = tuple(each for each in world.cluster.servers if each.name == other)
    at = None if from_s is None else world.now + 1e9 + from_s
    cluster = replace(world.cluster, servers=servers, policy=Policy(1, 1, 1))
    world.core.adopt(cluster, world.now, at)
    world.run(LATE_S + 2 * 600.0 + 120)
    assert liar not in world.core.server_states()
