"""A whole run of one seed: clients come, publish, suffer faults; then all heals and must be well again."""

from collections.abc import Callable
from functools import partial

from tests.simulation.hosts import ClientHost, ServerHost
from tests.simulation.network import family_of
from tests.simulation.options import Options
from tests.simulation.rogues import let_come
from tests.simulation.world import World

CALM_S = 4.0
SPEAKERS_MAX = 10  # at one moment: what more would say overflows the buffers of a topic's servers
BREATH_S = 0.15  # from one such moment to the next
HAPPENINGS = (
    *("crash", "crash", "reboot", "pause-server", "pause-client"),
    *("partition", "one-way", "rebind", "leave"),
)


def run(world: World) -> World:
    """The whole scenario; raises InvariantViolation where something does not hold."""
    options = world.options
    _subscribe_all(world)
    let_come(world)
    healed_at = options.fault_s
    for client in world.clients:
        _plan_publishing(world, client)
    for _ in range(options.faults):
        world.clock.at(world.rng.uniform(0, healed_at), partial(_befall, world, healed_at))
    for _ in range(options.attacks):
        world.clock.at(world.rng.uniform(0, healed_at + CALM_S), world.attacker.act)
    for _ in range(0 if options.calm else options.drains):
        world.clock.at(world.rng.uniform(0, healed_at), partial(_drain, world))
    world.run_until(healed_at)
    if options.calm:
        for server in world.rng.sample(world.servers, min(options.drains, len(world.servers))):
            roll(world, server)
    if not options.calm:
        world.heal()
        world.check_leased_again()
    world.run_for(CALM_S)
    spoken_s = _speak_after_all(world)
    world.run_for(spoken_s + CALM_S + 2 * world.network.delay_s_max)
    world.finish()
    return world


def _speak_after_all(world: World) -> float:
    """Every client says something, some on three topics and the rest on one each, so that all topics have
    their turn where clients are many. Returns for how long they speak."""
    for client in world.clients[:SPEAKERS_MAX]:
        for topic in world.topics[:3]:
            client.publish(topic, [b"after all"])
    wait_s = 0.0
    for number, client in enumerate(world.clients[SPEAKERS_MAX:]):
        wait_s = BREATH_S * (1 + number // SPEAKERS_MAX)
        topic = world.topics[number % len(world.topics)]
        world.clock.after(wait_s, partial(client.publish, topic, [b"after all"]))
    return wait_s


def _subscribe_all(world: World) -> None:
    for client in world.clients:
        count = min(world.options.subscriptions, len(world.topics))
        for topic in world.rng.sample(world.topics, count):
            world.clock.at(world.rng.uniform(0, 1), partial(client.subscribe, topic))


def _plan_publishing(world: World, client: ClientHost) -> None:
    delay_s = world.rng.expovariate(1 / world.options.publish_interval_s)
    world.clock.after(delay_s, partial(_publish, world, client))


def _publish(world: World, client: ClientHost) -> None:
    """One publish of some sort, and the next one planned."""
    rng = world.rng
    topic = rng.choice(world.topics)
    drawn = rng.getrandbits(40)
    payload = b"%b %d" % (client.name.encode(), drawn)
    if not drawn % 4:
        payload += bytes(9)  # so that it travels in base64url
    if world.options.together and rng.random() < world.options.together:
        payloads = [payload + b"-%d" % n for n in range(rng.choice((1, 5, 70)))]
        client.publish_many(topic, payloads, confirm=rng.random() < 0.7, raw=rng.random() < 0.2)
    elif rng.random() < world.options.burst:
        size = rng.choice((10, 90))
        client.publish(topic, [payload + b"%05d" % n * size for n in range(40)], confirm=False)
    else:
        raw = rng.random() < 0.2
        if raw and rng.random() < 0.3:
            payload = rng.choice((b"on", b"off"))
        client.publish(
            topic, [payload], repeat=rng.choice((1, 1, 1, 1, 2, 3)), confirm=rng.random() < 0.7, raw=raw
        )
    _plan_publishing(world, client)


def _befall(world: World, healed_at: float) -> None:
    """One fault, and its end, which is never after the healing."""
    rng = world.rng
    ends_at = min(healed_at, world.clock.time + rng.choice((0.05, 1.0, 5.0, 20.0, 90.0)))
    server, client = rng.choice(world.servers), rng.choice(world.clients)
    match rng.choice((*HAPPENINGS, *("family",) * 3) if world.options.dual else HAPPENINGS):
        case "crash":
            server.crash()
            world.clock.at(ends_at, server.restart)
        case "reboot":
            server.crash()
            world.clock.after(0.02, server.restart)
        case "pause-server":
            server.pause()
            world.clock.at(ends_at, server.resume)
        case "pause-client":
            client.pause()
            world.clock.at(ends_at, client.resume)
        case "partition":
            _block(world, ends_at, both_ways=True)
        case "one-way":
            _block(world, ends_at, both_ways=False)
        case "family":
            _block(world, ends_at, both_ways=rng.random() < 0.5, family=rng.choice((4, 6)))
        case "rebind":
            client.rebind(world.new_client_address(family_of(rng.choice(client.addresses))))
        case _:
            for topic in list(client.subscribed)[:1]:
                client.unsubscribe(topic)
                world.clock.at(ends_at, partial(client.subscribe, topic))


def _drain(world: World) -> None:
    """A server is told to end, and comes up again, perhaps only when all is healed."""
    world.rng.choice(world.servers).drain(world.rng.choice((0.02, 1.0, 20.0)))


def roll(world: World, server: ServerHost) -> None:
    """One step of a rolling restart: the next one begins when all clients are back at this server."""
    server.drain(world.rng.choice((0.02, 0.5, 3.0)))
    while server.is_draining or not server.is_up:
        world.run_for(0.5)
    world.run_for(world.options.renewal_interval_s + world.options.minting_s + 2.0)


def _block(world: World, ends_at: float, *, both_ways: bool, family: int | None = None) -> None:
    """Cuts some servers off from some clients, perhaps in one address family only."""
    rng = world.rng
    servers = rng.sample(world.servers, rng.randint(1, len(world.servers)))
    clients = rng.sample(world.clients, rng.randint(1, len(world.clients)))
    pairs = {(client.name, server.name) for client in clients for server in servers}
    back = {(server, client) for client, server in pairs}
    cut = pairs | back if both_ways else rng.choice((pairs, back))
    blocked = {pair if family is None else (*pair, family) for pair in cut}
    world.network.blocked |= blocked
    world.clock.at(ends_at, lambda: world.network.blocked.difference_update(blocked))


def check_determinism(make_world: Callable[[], World]) -> None:
    """Runs the same world twice: the traces must be the same to the byte."""
    first, second = run(make_world()), run(make_world())
    if first.network.digest != second.network.digest:
        fates = dict(first.network.fates), dict(second.network.fates)
        second.violate("determinism", f"two runs of one seed differ: {fates[0]} and {fates[1]}")


def run_seed(seed: int, options: Options) -> World:
    """A run, whose failure says how to see it again."""
    try:
        return run(World(options))
    except AssertionError as error:
        error.add_note(f"options: {options}")
        error.add_note(f"again: KCAST_SEED={seed} pytest tests/simulation/test_simulation.py -k test_seeds")
        raise
