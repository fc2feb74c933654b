"""What servers do when ten times as much is wanted of them as they have: who stands goes on standing.

Each test is one world in which honest clients do as they do, others want too much, and the checkers look on
at every turn. What was measured stands in the failure.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import pytest

from kcast.client.events import Outcome
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import Limits
from tests.simulation.crowd import Flood, Greedy, Witness, addresses, scattered_addresses
from tests.simulation.hosts import ClientHost
from tests.simulation.ledger import ClientTurn, lines_of
from tests.simulation.options import Options
from tests.simulation.world import World
from tests.support.forms import few_of

pytestmark = pytest.mark.long

SERVERS = 5
CAPACITY = 20  # leases at each server
TTL_S = 30
CROWD_S = 30.0
POLICIES = {
    "S": Policy.from_scheme("S"),
    "R": Policy.from_scheme("R", servers=SERVERS, publish=3, subscribe=3),
    "CH": Policy.from_scheme("CH", k=3),
    "RCH, few publish": Policy.from_scheme("RCH", k=5, k_prime=3, side="publish"),
    "RCH, few subscribe": Policy.from_scheme("RCH", k=5, k_prime=2, side="subscribe"),
}


def world_of(limits: Limits, policy: Policy, servers: int = SERVERS, **settings: Any) -> World:
    """A network that loses nothing, with no clients yet."""
    options = Options(
        servers=servers, clients=0, topics=40, policy=policy, limits=limits, uneven=False, **settings
    )
    return World(options)


def come(world: World, at: Iterator[Address], count: int, topics_each: int) -> list[ClientHost]:
    """So many clients more, each subscribed to topics of its own choice."""
    clients = [world.add_client(address) for address in islice(at, count)]
    for client in clients:
        for topic in world.rng.sample(world.topics, topics_each):
            client.subscribe(topic)
    return clients


def leave(world: World, clients: list[ClientHost]) -> None:
    """Without a word."""
    for client in clients:
        client.crash()
        world.clients.remove(client)


def wanted(clients: list[ClientHost]) -> int:
    return sum(client.core.lease_counts(topic)[1] for client in clients for topic in client.subscribed)


def held(clients: list[ClientHost]) -> int:
    return sum(client.core.lease_counts(topic)[0] for client in clients for topic in client.subscribed)


def publish_steadily(
    world: World,
    client: ClientHost,
    every_s: float,
    until: float,
    *,
    topics: int = 8,
    first: int = 0,
    **how: Any,
) -> None:
    """On one of so many topics each time, in turn."""

    def publish(number: int) -> None:
        if world.clock.time < until:
            topic = world.topics[first + number % topics]
            client.publish(topic, [b"%b %d" % (client.name.encode(), number)], **how)
            world.clock.after(every_s, partial(publish, number + 1))

    world.clock.after(world.rng.uniform(0, every_s), partial(publish, 0))


def not_delivered(world: World, publishers: list[ClientHost], audience: list[ClientHost]) -> list[str]:
    """What these published, and these, who have stood all the time, have not delivered."""
    return [
        f"{host.name}: {line!r}"
        for line, message in world.ledger.log
        if message.publisher in publishers
        for host in audience
        if message.topic in host.subscribed and not world.ledger.delivered[host.name][line]
    ]


# --- Ten times as many leases ------------------------------------------------------------------------


@pytest.mark.usefixtures("coarse_stamps")
@pytest.mark.parametrize(
    ("scheme", "table"),
    few_of(
        [
            ("S", "ttl"),
            ("CH", "fifo"),
            ("R", "fifo"),
            ("CH", "ttl"),
            ("RCH, few publish", "fifo"),
            ("RCH, few subscribe", "ttl"),
        ],
    ),
)
def test_no_established_lease_is_lost_where_ten_times_as_many_are_wanted(scheme: str, table: str) -> None:
    """Half of the room is taken; then come honest clients, and attackers from one prefix and from many, who
    together want ten times all the room. When they have gone, the honest ones who were refused get in."""
    policy = POLICIES[scheme]
    limits = Limits(leases=CAPACITY, leases_per_prefix=7, leases_per_address=5)
    world = world_of(limits, policy, table=table, ttl_s=TTL_S)
    witness, apart = Witness(world), scattered_addresses()
    room = SERVERS * CAPACITY
    per_client = 2 * policy.subscribe
    established = come(world, apart, room * 45 // 100 // per_client, 2)
    world.run_for(5.0)
    publishers = established[:3]
    for publisher in publishers:
        publish_steadily(world, publisher, 0.5, 5.0 + CROWD_S + TTL_S)
    established = [client for client in established if held([client]) == wanted([client])]
    assert held(established) >= 0.3 * room, "few were ever established"

    one_prefix = Greedy(world, list(islice(addresses("203.0.113."), 4)), 16, 1.0)
    many_prefixes = Greedy(world, list(islice(scattered_addresses(first=120), 4)), 16, 1.0)
    world.run_for(3.0)
    patient = come(world, apart, room * 35 // 100 // per_client, 2)
    crowd = come(world, apart, 3 * room // (10 * policy.subscribe), 10)
    all_wanted = wanted(world.clients) + SERVERS * 2 * 4 * 16
    assert all_wanted >= 10 * room
    world.run_for(CROWD_S)
    story = (
        f"{all_wanted} wanted, room for {room}; refused {dict(witness.refusals)}, attackers refused "
        f"{one_prefix.refused + many_prefixes.refused}, who hold {one_prefix.leases} from one prefix and "
        f"{many_prefixes.leases} from many; of the patient {held(patient)} of {wanted(patient)} are held; "
        f"fewer: {witness.fewer_of(established)[:3]}"
    )
    assert witness.fewer_of(established) == [], story
    assert held(established) == wanted(established), story
    assert one_prefix.leases <= SERVERS * limits.leases_per_prefix, story
    for client in patient:
        assert held([client]) == wanted([client]) or witness.refused[client.name], f"{client.name}: {story}"

    one_prefix.is_greedy = many_prefixes.is_greedy = False
    leave(world, crowd)
    world.run_for(TTL_S + world.options.renewal_interval_s + 2.0)
    full = {server.name for server in world.servers if len(server.core.leases) >= CAPACITY}
    story += f"; then {held(patient)}; full: {sorted(full)}"
    assert witness.fewer_of(established) == [], story
    for client in patient:
        for topic in client.subscribed:
            leased, due = client.core.lease_counts(topic)
            missing = world.servers_of(client, topic) - world.leased_at(client, topic)
            assert leased == due or missing & full, f"{client.name} is not at {missing}: {story}"
    # Where topics have one server each, some servers are wanted by too many for good.
    assert held(patient) >= (0.3 if scheme == "S" else 0.9) * wanted(patient), story
    assert not_delivered(world, publishers, established) == [], story
    world.finish()
    print(story)


# --- Ten times as many publishes ---------------------------------------------------------------------


def count_lines_sent(world: World) -> Counter[str]:
    """Keeps account of how many lines of messages each client sends, to all servers together."""
    sent: Counter[str] = Counter()

    def watch(turn: ClientTurn) -> None:
        for _, data in turn.sent:
            sent[turn.host.name] += sum(b" " in line for line in lines_of(data) if not wire.is_control(line))

    world.watchers.append(watch)
    return sent


@pytest.mark.parametrize("scheme", few_of(reversed(POLICIES)))
def test_who_publishes_at_ten_times_the_rate_costs_nobody_else_a_message(scheme: str) -> None:
    """One does so for receipts, one without; what is too much is refused, or dropped, and counted."""
    policy, rate, lasts_s = POLICIES[scheme], 5, 8.0
    world = world_of(Limits(publishes_per_s=rate), policy, ttl_s=6)
    witness, sent, apart = Witness(world), count_lines_sent(world), scattered_addresses()
    audience = come(world, apart, 3, 8)
    for client in audience:
        for topic in world.topics[:8]:
            client.subscribe(topic)
    world.run_for(3.0)
    modest, hasty, bare = come(world, apart, 2, 0), *come(world, apart, 2, 0)
    until = world.clock.time + lasts_s
    every_s = policy.publish / (10 * rate * policy.k)  # so that each server of the topic gets that much
    for client in modest:
        publish_steadily(world, client, 0.8, until)
    publish_steadily(world, hasty, every_s, until, topics=1)
    publish_steadily(world, bare, every_s, until, topics=1, confirm=False)
    world.run_for(lasts_s + 6.0)
    dropped = sum(server.core.drops[Drop.PUBLISH_RATE] for server in world.servers)
    forwarded = sum(server.core.counts["messages_received"] for server in world.servers)
    outcomes = {name: dict(counts) for name, counts in witness.outcomes.items()}
    story = (
        f"{lasts_s / every_s:.0f} messages of each that hurries; {dict(sent)} lines to servers; {forwarded} "
        f"forwarded, {dropped} dropped; outcomes {outcomes}"
    )
    assert sent.total() == forwarded + dropped, story
    for client in (hasty, bare):
        in_use = min(policy.k, SERVERS)
        assert sent[client.name] - witness.outcomes[client.name][Outcome.REFUSED] >= 0, story
        assert sent[client.name] > 5 * in_use * rate * lasts_s, f"{client.name} did not hurry: {story}"
        assert witness.outcomes[client.name][Outcome.REFUSED], f"{client.name} was not told: {story}"
    # Of each address and at each server: a second's worth, then the rate, and one datagram over that.
    assert witness.outcomes[hasty.name][Outcome.RECEIPT] <= policy.k * (rate * (lasts_s + 2) + 64), story
    for client in modest:
        assert witness.outcomes[client.name].keys() == {Outcome.RECEIPT}, story
    assert not_delivered(world, modest, audience) == [], story
    world.finish()
    print(story)


# --- Limits for addresses and prefixes ---------------------------------------------------------------


@pytest.mark.parametrize("table", few_of(["ttl", "fifo"]))
@pytest.mark.parametrize(
    ("prefix", "apart"), few_of([("2001:db8:bad::", "2001:db8:"), ("203.0.113.", "198.51.")])
)
def test_one_prefix_cannot_keep_others_out(prefix: str, apart: str, table: str) -> None:
    """An attacker with many addresses in its own network is there first, and wants everything."""
    limits = Limits(leases=100, leases_per_prefix=20, leases_per_address=8)
    world = world_of(limits, POLICIES["S"], servers=1, table=table, ttl_s=TTL_S, ipv6=":" in prefix)
    witness = Witness(world)
    greedy = Greedy(world, list(islice(addresses(prefix), 10)), 55, 1.0)
    world.run_for(10.0)
    end = "::" if ":" in apart else "."
    honest = come(world, (next(addresses(f"{apart}{number}{end}")) for number in count(1)), 40, 2)
    world.run_for(5.0)
    story = (
        f"{greedy.leases} for the attacker, refused {dict(greedy.refused)}; honest refused {witness.refusals}"
    )
    assert greedy.leases == limits.leases_per_prefix, story
    assert held(honest) == wanted(honest) == 80, story
    world.run_for(2 * TTL_S)
    assert witness.fewer == [] and not witness.refusals, story
    assert greedy.leases == limits.leases_per_prefix, story
    world.finish()


# --- A flood of strangers ----------------------------------------------------------------------------


@pytest.mark.rest
def test_a_flood_of_forged_requests_costs_those_who_stand_nothing() -> None:
    """A server answers only so many strangers a second; those who have shown a cookie are none."""
    world = world_of(Limits(challenges_per_s=20), POLICIES["CH"], servers=3, ttl_s=6)
    witness, apart = Witness(world), scattered_addresses()
    established = come(world, apart, 6, 2)
    world.run_for(3.0)
    lasts_s = 20.0
    publish_steadily(world, established[0], 0.5, world.clock.time + lasts_s)
    flood = Flood(world, 200, lasts_s)
    world.run_for(lasts_s / 2)
    late = come(world, apart, 4, 2)
    world.run_for(lasts_s / 2)
    core = world.servers[0].core
    story = (
        f"{flood.sent} forged requests; {core.counts['cookies_issued']} cookies, "
        f"{core.drops[Drop.CHALLENGE_RATE]} without answer; {core.counts['unproven_bytes_received']} bytes "
        f"from strangers, {core.counts['unproven_bytes_sent']} to them"
    )
    assert core.drops[Drop.CHALLENGE_RATE] > 100 * lasts_s, story
    assert core.counts["cookies_issued"] <= 20 * (lasts_s + 5), story
    assert witness.fewer == [] and held(established) == wanted(established), story
    assert witness.outcomes[established[0].name].keys() == {Outcome.RECEIPT}, story
    assert not_delivered(world, established, established) == [], story
    world.run_for(world.options.ttl_s + 2.0)
    assert held(late) == wanted(late), story
    world.finish()
    print(story)
