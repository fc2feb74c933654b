"""Leases stand soon again: after restarts, after silence, and on paths that are slow."""

import pytest

from kcast.hashring.policy import Policy
from tests.simulation.hosts import ClientHost, ServerHost
from tests.simulation.options import Options
from tests.simulation.world import World

TOPIC = b"room/0"
ONE = Policy.from_scheme("S")


def world_of(policy: Policy = ONE, servers: int = 1, **settings: float) -> World:
    """One client on steady legs, where nothing happens that the test does not do."""
    options = Options(servers=servers, clients=1, topics=1, policy=policy, faults=1, uneven=False)
    return World(Options(**{name: getattr(options, name) for name in Options.__slots__} | settings))


def subscribed(world: World) -> ClientHost:
    """Its client, a while after it has subscribed."""
    (client,) = world.clients
    client.subscribe(TOPIC)
    world.run_for(3.0)
    return client


def is_leased(world: World, count: int = 1) -> bool:
    return len(world.leased_at(world.clients[0], TOPIC)) == count


def restart(server: ServerHost) -> None:
    server.crash()
    server.restart()


def test_leases_stand_soon_at_a_server_first_heard_of_late() -> None:
    """All are leased within ttl + one renewal of its return, also where its short ttl is not known yet."""
    world = world_of(ttl_s=6)
    world.servers[0].crash()
    world.clients[0].subscribe(TOPIC)
    for _ in range(6):
        world.run_for(9.7)
        world.servers[0].restart()
        world.run_for(6 + 2 + 0.5)
        assert is_leased(world)
        world.servers[0].crash()
        world.clients[0].core.sessions.keep((), world.clients[0].now)
        world.clients[0].core.unsubscribe(TOPIC)
        world.clients[0].core.subscribe(TOPIC, world.clients[0].now)
        world.clients[0].turn()


@pytest.mark.parametrize("delay_s", [0.4, 0.7])
def test_a_path_that_has_become_slow_is_no_dead_server(delay_s: float) -> None:
    """Answers that come late must teach how late they come, or they are thrown away for ever."""
    world = world_of(delay_s=0.01)
    world.clients[0].subscribe(TOPIC)
    world.run_for(5.0)
    assert is_leased(world)
    world.network._legs = {pair: (loss, delay_s) for pair, (loss, _) in world.network._legs.items()}
    world.run_for(40.0)
    assert is_leased(world) and world.clients[0].core.server_states() == {"192.0.2.1:7400": "alive"}


def test_a_second_restart_soon_after_the_first_is_noticed_too() -> None:
    """A young cookie is refused: the leases are gone, however lately they went before."""
    world = world_of(ttl_s=60)
    client = subscribed(world)
    for number in range(2):
        restart(world.servers[0])
        client.publish(TOPIC, [b"%d" % number])
        world.run_for(2.0)
        assert is_leased(world), f"restart {number + 1}"


def test_leases_stand_soon_at_a_server_that_was_silent_and_restarted() -> None:
    """Silence, then a cookie: it may have restarted, and holds nothing that it has not said again."""
    world = world_of(ttl_s=60)
    client = subscribed(world)
    world.servers[0].crash()
    client.publish(TOPIC, [b"lost"])
    world.run_for(1.2)
    world.servers[0].restart()
    world.run_for(4.0)
    assert client.core.server_states() == {"192.0.2.1:7400": "alive"}
    assert is_leased(world)


def test_answers_to_many_publishes_do_not_delay_the_leases() -> None:
    """Ten refusals of one stale cookie are one piece of news, not ten refusals of fresh ones."""
    world = world_of(ttl_s=60, delay_s=0.01)
    client = subscribed(world)
    restart(world.servers[0])
    for number in range(10):
        client.publish(TOPIC, [b"%d" % number])
    world.run_for(0.2)
    assert is_leased(world)


def test_few_subscribe_takes_a_server_that_returns_for_one_that_is_lost() -> None:
    """Where no other was alive when a server was lost, the next that comes back takes its place."""
    world = world_of(Policy.from_scheme("RCH", k=5, k_prime=2, side="subscribe"), servers=5, ttl_s=6)
    client = world.clients[0]
    client.subscribe(TOPIC)
    client.publish(TOPIC, [b"to all five"])
    world.run_for(3.0)
    held = world.leased_at(client, TOPIC)
    unused = [server for server in world.servers if server.name not in held]
    for server in unused:
        server.crash()
    client.publish(TOPIC, [b"who is there?"])
    world.run_for(10.0)
    next(server for server in world.servers if server.name in held).crash()
    world.run_for(10.0)
    assert is_leased(world, 1) and list(client.core.server_states().values()).count("lost") == 4
    unused[0].restart()
    world.run_for(8.0)
    assert is_leased(world, 2)
