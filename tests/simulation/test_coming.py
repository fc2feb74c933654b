"""A list that holds from a time on, under traffic: clients learn of it one by one, and clocks are wrong.

PROTOCOL §10.3. `lost_in` looks at each message for each subscriber.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from kcast.client.clusters import views
from kcast.client.clusters.view import View
from kcast.client.events import LeasesChanged
from kcast.client.trust.checks.meeting import hosts_changed
from kcast.hashring.policy import Policy
from tests.simulation.hosts import START_UNIX_S, ClientHost
from tests.simulation.options import Options
from tests.simulation.test_adoption import ChangingWorld, lost_in
from tests.simulation.world import World
from tests.support.forms import Seeds, few_of

MINUTES_S = 180.0  # by which clocks are wrong that somebody looks after
HOURS_S = 14 * 3600.0  # ... and one in a wrong time zone
KNOWN_FOR_S = 120.0  # clients learn of the list in this time
POLICIES = [Policy(5, 3, 5), Policy(3, 3, 1), Policy(1, 1, 1)]
TTL_S = 60


def world_of(seed: int, policy: Policy, *, added: int, removed: int, servers: int = 8) -> ChangingWorld:
    """All clients subscribe to all topics."""
    options = Options(seed=seed, servers=servers, clients=4, policy=policy, topics=5, ttl_s=TTL_S, faults=0)
    world = ChangingWorld(options, added=added, removed=removed)
    for client in world.clients:
        client.set_wall_clock(0.0)
        for topic in world.topics:
            client.subscribe(topic)
    world.run_for(5)
    return world


def with_salt(world: ChangingWorld, salt: bytes) -> View:
    return View(replace(world.changed.cluster, salt=salt))


def learn_one_by_one(world: World, view: View, from_unix_s: float) -> None:
    """Each client learns of the list at some moment, before anybody's clock says that it holds."""
    for client in world.clients:
        at_s = world.rng.uniform(0, KNOWN_FOR_S)
        world.clock.after(at_s, partial(client.adopt, view, from_unix_s))


def publish_sparsely(world: World, duration_s: float, by: Sequence[ClientHost] = ()) -> None:
    """Each message is from one of the clients, on one of the topics."""
    clients = by or world.clients
    until = world.clock.time + duration_s
    while world.clock.time < until:
        client, topic = world.rng.choice(clients), world.rng.choice(world.topics)
        client.publish(topic, [b"at %.3f" % world.clock.time], confirm=world.rng.random() < 0.7)
        world.run_for(world.rng.expovariate(0.5))
    world.run_for(10)


def change_is_told(
    seed: int, policy: Policy, *, is_checked: bool = True, fewer: list[LeasesChanged] | None = None
) -> ChangingWorld:
    """Three of eight servers, and the salt, are replaced from a time on; clocks are some minutes off.

    `fewer` takes what clients tell of leases in the view in force while some of them do not stand.
    """
    world = world_of(seed, policy, added=3, removed=3, servers=8)
    told = [] if fewer is None else fewer
    world.watchers.append(
        lambda turn: told.extend(
            event for event in turn.events if isinstance(event, LeasesChanged) and event.leased < event.wanted
        )
    )
    if not is_checked:
        world.checkers.clear()
    for client in world.clients:
        client.set_wall_clock(world.rng.uniform(-MINUTES_S, MINUTES_S))
    from_s = KNOWN_FOR_S + MINUTES_S + 20
    learn_one_by_one(world, with_salt(world, b"other"), START_UNIX_S + world.clock.time + from_s)
    publish_sparsely(world, from_s + MINUTES_S + 60)
    return world


@pytest.mark.parametrize("policy", few_of(POLICIES), ids=str)
def test_all_is_placed_anew_and_nothing_is_lost(seeds: Seeds, policy: Policy) -> None:
    for seed in seeds(1, 2):
        fewer: list[LeasesChanged] = []
        world = change_is_told(seed, policy, fewer=fewer)
        assert lost_in(world) == []
        assert fewer == [], "nor has any lease been lost"
        assert all(client.core.view.cluster.salt == b"other" for client in world.clients)
        world.run_for(views.LATE_S + 2 * TTL_S + MINUTES_S)
        for server in world.leaving:
            server.crash()
        since = world.clock.time
        publish_sparsely(world, 60)
        assert lost_in(world, since) == []
        for client in world.clients:
            asked = {session.address for session in client.core.sessions.all()}
            assert asked.isdisjoint(server.address for server in world.leaving), "they are let go of"
        world.finish()


def test_subscribers_clocks_may_be_slow_by_hours_and_publishers_fast_by_hours(seeds: Seeds) -> None:
    """A wrong time zone. Both go by their own clocks, and 24 h ahead cover it."""
    for seed in seeds(1, 2):
        world = world_of(seed, Policy(5, 3, 5), added=3, removed=3)
        slow, slower, fast, right = world.clients
        slow.set_wall_clock(-HOURS_S / 2)
        slower.set_wall_clock(-HOURS_S)
        fast.set_wall_clock(HOURS_S / 2)
        from_unix_s = START_UNIX_S + world.clock.time + KNOWN_FOR_S + 100
        view = with_salt(world, b"other")
        for client in (slow, slower, right):
            world.clock.after(world.rng.uniform(0, KNOWN_FOR_S), partial(client.adopt, view, from_unix_s))
        world.clock.after(KNOWN_FOR_S + 5, partial(fast.adopt, view, from_unix_s))
        publish_sparsely(world, KNOWN_FOR_S + 400, (fast, right))
        assert lost_in(world) == []
        salts = [client.core.view.cluster.salt for client in world.clients]
        assert salts == [b"sim", b"sim", b"other", b"other"]


def test_several_lists_are_coming_and_nothing_is_lost(seeds: Seeds) -> None:
    """A list, another that comes after it, and a third that replaces that one before it has come."""
    for seed in seeds(1, 2):
        world = world_of(seed, Policy(5, 3, 5), added=3, removed=3)
        for client in world.clients:
            client.set_wall_clock(world.rng.uniform(-60, 60))
        start = START_UNIX_S + world.clock.time
        first, second, third = (with_salt(world, salt) for salt in (b"first", b"second", b"third"))
        learn_one_by_one(world, first, start + 220)
        publish_sparsely(world, 130)
        learn_one_by_one(world, second, start + 900)
        publish_sparsely(world, 140)
        learn_one_by_one(world, third, start + 500)
        publish_sparsely(world, 340)
        assert lost_in(world) == []
        assert {client.core.view.cluster.salt for client in world.clients} == {b"third"}


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "value"),
    [("AHEAD_S", 0.0), ("LATE_S", -2.0 * TTL_S)],
    ids=["coming views are not held", "former views are not held"],
)
def test_without_holding_both_messages_would_be_lost(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    """Else the tests above would show nothing."""
    monkeypatch.setattr(views, name, value)
    worlds = [change_is_told(seed, Policy(5, 3, 5), is_checked=False) for seed in range(3)]
    assert sum(len(lost_in(world)) for world in worlds) > 10


# --- Lists that differ by little ----------------------------------------------------------------------


def two_lists_side_by_side(seed: int, policy: Policy, *, x: int, is_checked: bool = True) -> ChangingWorld:
    """One client after another adopts the change at once, without any overlap. The others go on as before for
    as long as it lasts: minutes or days are the same to them, since nothing is to come."""
    world = world_of(seed, policy, added=x, removed=x, servers=9)
    if not is_checked:
        world.checkers.clear()
    for client in world.clients:
        client.adopt(world.changed)
        publish_sparsely(world, 100)
    return world


@pytest.mark.parametrize(
    "policy", few_of([Policy(5, 5, 3), Policy(3, 2, 3), Policy(5, 1, 5), Policy(5, 3, 5)]), ids=str
)
def test_lists_within_the_margin_live_side_by_side(
    monkeypatch: pytest.MonkeyPatch, seeds: Seeds, policy: Policy
) -> None:
    for seed in seeds(1, 2):
        monkeypatch.setattr(views, "OVERLAP_S", 0.0)
        x = policy.margin - 1
        world = two_lists_side_by_side(seed, policy, x=x)
        lists = world.clients[0].view.cluster, world._view(world._entries).cluster
        assert hosts_changed(*lists).always_meet
        assert lost_in(world) == []


@pytest.mark.rest
def test_lists_beyond_the_margin_lose_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would show nothing: one host more, and some topics are missed."""
    monkeypatch.setattr(views, "OVERLAP_S", 0.0)
    policy = Policy(5, 3, 3)
    worlds = [two_lists_side_by_side(seed, policy, x=1, is_checked=False) for seed in range(3)]
    assert all(lost_in(world) for world in worlds)
