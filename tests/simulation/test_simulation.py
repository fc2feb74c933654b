"""Both cores on a simulated network with virtual time: many seeds, and single stories worth their own test.

A failing seed names itself, its settings, and how to run it again: tests.support.forms.py.
"""

import dataclasses
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import pytest

from kcast.client.errors import Backlog
from kcast.client.events import Delivery, Outcome, Published, ServerLost
from kcast.client.session.session import QUEUE_MAX
from kcast.hashring.policy import Policy
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.simulation.checkers import CompleteDelivery
from tests.simulation.ledger import ClientTurn, line_of
from tests.simulation.options import Options, options_of_seed
from tests.simulation.restarts import RestartLosesNothing
from tests.simulation.rogues import ROGUES
from tests.simulation.scenario import run_seed
from tests.simulation.world import World
from tests.support.checkout import ROOT
from tests.support.forms import Seeds, few_of

CH = Policy.from_scheme("CH", k=5)
ONE = Policy.from_scheme("S")
TOPIC = b"room/0"


# --- Many seeds --------------------------------------------------------------------------------------


class Ran(NamedTuple):
    """What a run of a seed came to."""

    digest: str
    deliveries_checked: int
    restarts_checked: int


@cache
def ran(seed: int) -> Ran:
    """Runs a seed with the settings that it stands for, once: several tests ask what came of it."""
    world = run_seed(seed, options_of_seed(seed))
    delivery, restarts = world.checker(CompleteDelivery), world.checker(RestartLosesNothing)
    assert isinstance(delivery, CompleteDelivery) and isinstance(restarts, RestartLosesNothing)
    return Ran(world.network.digest, delivery.checked, restarts.checked)


@pytest.mark.parametrize("remainder", range(4))
def test_seeds(seeds: Seeds, remainder: int) -> None:
    """In four parts, which several processes can run."""
    for seed in seeds(8, 120):
        if seed % 4 == remainder:
            ran(seed)


def test_the_seeds_cover_what_they_should() -> None:
    """Else a change to how settings are drawn could quietly leave out a policy or a fault."""
    all_options = [options_of_seed(seed) for seed in range(200)]
    assert {options.policy.scheme for options in all_options} == {"S", "R", "CH", "RCH"}
    assert any(o.policy.subscribe < o.policy.k for o in all_options if o.policy.scheme == "RCH")
    assert any(o.policy.publish < o.policy.k for o in all_options if o.policy.scheme == "RCH")
    for name in (
        "calm",
        "is_roomy",
        "avoid_dead",
        "ipv6",
        "diverging",
        "loss",
        "duplicate",
        "reorder",
        "attacks",
        "is_ample",
        "limits_rates",
        "work_bits",
        "drains",
        "head",
        "hostile_servers",
    ):
        values = {bool(getattr(options, name)) for options in all_options}
        assert values == {False, True}, name
    assert {options.table for options in all_options} == {"ttl", "fifo"}
    for field in dataclasses.fields(Limits):
        values = {getattr(options.limits, field.name) == field.default for options in all_options}
        assert values == {False, True}, field.name
    assert any(o.calm and o.drains and o.work_bits for o in all_options)
    assert any(o.calm and o.hostile_servers for o in all_options)
    assert {name for options in all_options for name in options.rogues} == ROGUES.keys()
    assert any(o.calm and o.rogues and o.hostile_servers for o in all_options)
    assert any((o.servers, o.clients) == (16, 200) for o in all_options)


def test_the_seeds_restart_servers_in_calm_worlds() -> None:
    """Else what a rolling restart promises would be checked nowhere."""
    every = [options_of_seed(seed) for seed in range(0, 200, 5)]
    honest = [options for options in every if not options.hostile_servers]
    restarting = [options for options in honest if options.drains and options.avoid_dead]
    assert sum(ran(options.seed).restarts_checked for options in restarting[:2]) > 10


def test_delivery_is_checked_beside_servers_that_lie() -> None:
    every = [options_of_seed(seed) for seed in range(0, 200, 5)]
    hostile = [options for options in every if options.hostile_servers and options.is_ample]
    assert sum(ran(options.seed).deliveries_checked for options in hostile[:5]) > 100


REGRESSIONS = {
    "a burst met a credit that a renewal with an old cookie had not restored": replace(
        options_of_seed(930), rogues=()
    ),
    "a restarted server took the first datagram of a burst only, and the others were given up": (
        options_of_seed(180)
    ),
    "more came at once than credit allows, and a checker called that wrong": options_of_seed(517),
    "copies left in several slices, and a checker called that wrong": options_of_seed(564),
    "a lease lapsed and was opened again while its copies waited": options_of_seed(502),
    "a checker rounded the age of a cookie up": options_of_seed(662),
    "a liar used a nonce twice, and a checker mistook the one answer": options_of_seed(742),
    "a datagram forged in a publisher's name came in one burst with his": options_of_seed(8875),
    "two bursts within a round trip were more than credit, and a checker missed them": options_of_seed(5970),
    "a copy was over the rate of bytes, and a checker blamed credit": options_of_seed(2886),
    "bare lines came in one burst with the vouch that opened their lease": options_of_seed(8164),
    "a replay came from an IPv6 address to an IPv4 one, and brought a cookie": options_of_seed(8247),
    "a client of two families moved on and on, and waited long for a stamp after that": options_of_seed(5518),
    "a client's first lease was answered after its publish, and it took credit for boundless": (
        options_of_seed(450)
    ),
    "all asked a server that was back in the same seconds, and some were turned away for long": (
        options_of_seed(449)
    ),
    "a liar answered all but what was paid for, which was sent without a pause": options_of_seed(8799),
    "a raw line was forgotten within a turn, and a checker still knew from whom it had come": (
        options_of_seed(5508)
    ),
    "a liar wrote a message in a second way, and a checker took the two for one": options_of_seed(3457),
}
"""What seeds have found, with the settings that they stood for then."""


@pytest.mark.rest
@pytest.mark.parametrize("options", REGRESSIONS.values(), ids=REGRESSIONS)
def test_seeds_that_found_something(options: Options) -> None:
    run_seed(options.seed, options)


@pytest.mark.parametrize("seed", few_of([5, 16]))
def test_one_seed_makes_one_trace(seed: int) -> None:
    assert run_seed(seed, options_of_seed(seed)).network.digest == ran(seed).digest


def test_a_trace_does_not_hang_on_the_order_of_sets() -> None:
    """Another process hashes bytes to other numbers than this one."""
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    program = (
        "from tests.simulation.options import options_of_seed; "
        "from tests.simulation.scenario import run_seed; "
        "print(run_seed(7, options_of_seed(7)).network.digest)"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    )
    assert there.stdout.strip() == ran(7).digest


# --- Stories -----------------------------------------------------------------------------------------


def world_of(
    *, servers: int, clients: int, policy: Policy = CH, topics: int = 1, ttl_s: int = 10, **settings: Any
) -> World:
    """A world whose clients all subscribe to all topics, some seconds after that."""
    options = Options(
        servers=servers, clients=clients, policy=policy, topics=topics, ttl_s=ttl_s, faults=1, **settings
    )
    world = World(options)
    for client in world.clients:
        for topic in world.topics:
            client.subscribe(topic)
    world.run_for(5.0)
    return world


def publish_steadily(world: World, duration_s: float, every_s: float, **how: Any) -> list[bytes]:
    """The first client publishes on the first topic; the payloads, in order."""
    payloads = [b"n%d" % number for number in range(int(duration_s / every_s))]
    for number, payload in enumerate(payloads):
        act = partial(world.clients[0].publish, world.topics[0], [payload], **how)
        world.clock.after(number * every_s, act)
    return payloads


def payloads_of(world: World, name: str) -> set[bytes]:
    """What a client has delivered, without topics and envelopes."""
    return {line.rpartition(b" ")[2] for line in world.ledger.delivered[name]}


def missing(world: World, payloads: list[bytes]) -> dict[str, list[bytes]]:
    """What each client has not delivered of these."""
    return {
        client.name: lost
        for client in world.clients
        if (lost := [payload for payload in payloads if payload not in payloads_of(world, client.name)])
    }


def leases(world: World) -> dict[str, int]:
    """How many servers really hold each client's lease on the first topic."""
    return {client.name: len(world.leased_at(client, TOPIC)) for client in world.clients}


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize("avoid_dead", [True, False])
def test_nothing_is_lost_while_one_of_k_servers_lives(avoid_dead: bool, confirm: bool) -> None:
    world = world_of(servers=9, clients=4, avoid_dead=avoid_dead)
    payloads = publish_steadily(world, 12.0, 0.1, confirm=confirm)
    serving = sorted(world.servers_of(world.clients[0], TOPIC))
    for number, name in enumerate(serving[:4]):
        server = next(server for server in world.servers if server.name == name)
        world.clock.after(2.0 + 0.7 * number, server.crash)
    world.run_for(14.0)
    assert missing(world, payloads) == {}
    world.finish()


def test_nothing_is_lost_in_a_rolling_restart() -> None:
    """One server after the other, each with the time that subscribers need to come back to the last."""
    world = world_of(servers=5, clients=4, policy=Policy(), ttl_s=6)
    payloads = publish_steadily(world, 30.0, 0.1)
    for number, server in enumerate(world.servers):
        world.clock.after(1.0 + 6.0 * number, server.crash)
        world.clock.after(1.5 + 6.0 * number, server.restart)
    world.run_for(34.0)
    assert missing(world, payloads) == {}
    assert set(leases(world).values()) == {5}
    world.finish()


def test_a_client_that_was_stopped_for_longer_than_its_leases_comes_back() -> None:
    world = world_of(servers=5, clients=3, ttl_s=6)
    client = world.clients[1]
    publish_steadily(world, 30.0, 0.2)
    client.pause()
    world.run_for(20.0)
    assert leases(world)[client.name] == 0
    client.resume()
    world.run_for(2.0)
    assert leases(world)[client.name] == 5
    had = len(payloads_of(world, client.name))
    world.run_for(6.0)
    assert len(payloads_of(world, client.name)) >= had + 29
    world.finish()


@pytest.mark.long
def test_a_nat_that_rebinds_every_five_seconds() -> None:
    """By the end of each five seconds all leases stand at the new address."""
    world = world_of(servers=5, clients=3, ttl_s=10)
    payloads = publish_steadily(world, 60.0, 0.2)
    client = world.clients[1]
    for _ in range(12):
        client.rebind(world.new_client_address())
        world.run_for(5.0)
        assert leases(world)[client.name] == 5
    world.run_for(2.0)
    assert len(payloads_of(world, client.name)) > len(payloads) / 4
    assert missing(world, payloads).keys() == {client.name}
    world.finish()


def test_a_publisher_notices_that_its_lease_went_with_a_restarted_server() -> None:
    """It hears nothing of bare lines; its pings tell, about once a second."""
    world = world_of(servers=1, clients=2, policy=ONE, ttl_s=6)
    payloads = publish_steadily(world, 20.0, 0.05, confirm=False)
    server = world.servers[0]
    world.run_for(5.0)
    dropped = server.core.drops[Drop.UNVOUCHED_PUBLISH]
    assert dropped == 0 and missing(world, payloads[:80]) == {}
    server.crash()
    server.restart()
    world.run_for(3.5)
    assert server.core.drops[Drop.UNVOUCHED_PUBLISH] in range(1, 30)
    world.run_for(14.0)
    assert missing(world, payloads[170:]) == {}
    world.finish()


@pytest.mark.parametrize("unreachable", [0.0, 1.0])
def test_few_subscribe_draws_again_when_a_server_dies(unreachable: float) -> None:
    policy = Policy.from_scheme("RCH", k=5, k_prime=2, side="subscribe")
    world = world_of(servers=5, clients=4, policy=policy, ttl_s=6, unreachable=unreachable)
    assert set(leases(world).values()) == {2}
    dead = world.servers[0]
    dead.crash()
    world.run_for(8.0 + 4 * world.network.delay_s_max)
    assert set(leases(world).values()) == {2}
    assert all(client.core.lease_counts(TOPIC) == (2, 2) for client in world.clients)
    payloads = publish_steadily(world, 4.0, 0.2)
    world.run_for(6.0)
    assert missing(world, payloads) == {}
    world.finish()


def test_an_unreachable_server_is_noticed_at_once() -> None:
    told: dict[str, float] = {}

    def watch(turn: ClientTurn) -> None:
        told.update(
            (event.server, world.clock.time) for event in turn.events if isinstance(event, ServerLost)
        )

    world = world_of(servers=3, clients=1, policy=Policy.from_scheme("CH", k=3), ttl_s=6, unreachable=1.0)
    world.watchers.append(watch)
    world.servers[0].crash()
    crashed_at = world.clock.time
    publish_steadily(world, 3.0, 0.1)
    world.run_for(4.0)
    assert list(told) == ["192.0.2.1:7400"]
    assert told["192.0.2.1:7400"] - crashed_at < 1.5


@pytest.mark.long
def test_queues_are_bounded_and_say_so() -> None:
    """A server that never answered holds up so many lines and no more; the rest fail at once."""
    outcomes: list[Outcome] = []

    def watch(turn: ClientTurn) -> None:
        published = [event for event in turn.events if isinstance(event, Published)]
        outcomes.extend(outcome for event in published for outcome in event.servers.values())

    world = World(Options(servers=1, clients=1, policy=ONE, topics=1, faults=1))
    world.watchers.append(watch)
    world.servers[0].crash()
    client = world.clients[0]
    client.publish(TOPIC, [b"%d" % number for number in range(QUEUE_MAX + 10)])
    assert outcomes == [Outcome.QUEUE_FULL] * 10
    world.run_for(10.0)
    assert outcomes[10:] == [Outcome.NO_ANSWER] * QUEUE_MAX
    with pytest.raises(Backlog):
        for number in range(100_000):
            client.core.publish(TOPIC, b"%d" % number, client.now, repeat=2)


# --- Answers that arrive at servers ------------------------------------------------------------------


@pytest.mark.long
def test_a_server_is_deaf_to_what_servers_say() -> None:
    """Every answer of some runs, back into servers fresh and used, from all sorts of sources: silence."""
    answers: dict[bytes, None] = {}
    servers = [(Server(secret=bytes(32)), 1000.0)]
    sources: list[Address] = [("203.0.113.9", 53)]
    # A full table makes refusals, bursts of bare publishes make pings.
    every = [options_of_seed(seed) for seed in range(200)]
    full = [options for options in every if options.attacks and options.topics > 3 and not options.is_roomy]
    busy = [options for options in every if options.attacks and options.burst and options.is_roomy]
    for options in (*full[:2], *busy[:2]):
        world = run_seed(options.seed, options)
        answers.update(dict.fromkeys(world.ledger.answers))
        servers += [(host.core, host.now) for host in world.servers[:2]]
        sources += [world.servers[0].address, world.clients[0].address, world.attacker.addresses[0]]
    assert len(answers) > 500
    assert {answer[:2] for answer in answers} == {b"%=", b"%+", b"%-", b"%:"}
    for server, now in servers:
        server.handle_timeout(now)
        server.flush(now)
        for number, answer in enumerate(answers):
            source = sources[number % len(sources)]
            padded = answer.ljust(192 * (number % 2), b"\n")
            server.receive(Burst(answer, len(answer), source), now)
            server.receive(Burst(padded * 8, len(padded), source), now)
            assert server.flush(now) == [], answer


def test_the_ledger_reads_deliveries_back_as_the_lines_that_were_sent() -> None:
    """Checkers compare lines; this is the one place where they come from events."""
    lines: set[bytes] = set()

    def watch(turn: ClientTurn) -> None:
        lines.update(line_of(event) for event in turn.events if isinstance(event, Delivery))

    world = world_of(servers=1, clients=1, policy=ONE, topics=5)
    world.watchers.append(watch)
    for topic in world.topics:
        world.clients[0].publish(topic, [b"100 %\n\0\xff", b""])
        world.clients[0].publish(topic, [b"%41 raw\x7f"], raw=True)
    world.run_for(2.0)
    assert lines == world.ledger.messages.keys()
