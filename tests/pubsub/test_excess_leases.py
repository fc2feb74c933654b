"""pubsub/audience.py: what one party's many leases on a topic cost, and whom."""

from collections import Counter
from random import Random

from kcast.pubsub.audience import LARGE, PAID_OF_IP, PAID_OF_NETWORK, ExcessLeases
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.networks import Networks
from kcast.pubsub.server import Server
from tests.support.forms import Seeds
from tests.support.server_core import START, flushed, handshake, lease, new_server, sent, vouched

PUBLISHER: Address = ("192.0.2.99", 5000)
ATTACKER = "203.0.113.7"
HONEST: list[Address] = [(f"198.51.{number}.1", 7000) for number in range(10)]
STEP_S = 0.005


def of_ip(count: int, host: str = ATTACKER) -> list[Address]:
    return [(host, 1000 + number) for number in range(count)]


# --- Which leases are paid for ------------------------------------------------------------------------


def sizes(excess: ExcessLeases, live: list[Address]) -> tuple[int, dict[object, int]]:
    paid, beyond = excess.split(tuple(live))
    assert sorted([*paid, *(address for excess in beyond for address in excess.members)]) == sorted(live)
    return len(paid), {excess.party: len(excess.members) for excess in beyond}


def test_an_ip_and_a_network_have_so_many_and_what_is_beyond_is_theirs() -> None:
    one_ip = of_ip(100)
    assert sizes(ExcessLeases(Networks(), one_ip), one_ip) == (PAID_OF_IP, {ATTACKER: 100 - PAID_OF_IP})
    network = [(f"203.0.113.{number}", port) for number in range(250) for port in (1, 2)]
    assert sizes(ExcessLeases(Networks(), network), network) == (
        PAID_OF_NETWORK,
        {b"\xcb\x00\x71": 500 - PAID_OF_NETWORK},
    )


def test_an_ipv6_64_counts_as_an_ip_and_its_48_as_a_network() -> None:
    host = [(f"2001:db8:1::{number:x}", 1) for number in range(100)]
    assert sizes(ExcessLeases(Networks(), host), host)[0] == PAID_OF_IP
    site = [(f"2001:db8:1:{number:x}::1", 1) for number in range(1000)]
    assert sizes(ExcessLeases(Networks(), site), site)[0] == PAID_OF_NETWORK


def test_many_parties_and_loopback_are_no_crowd() -> None:
    everybody = [(f"10.{number >> 8}.{number & 255}.1", 1) for number in range(5000)]
    loopback = of_ip(5000, "127.0.0.1")
    for addresses in (everybody, loopback):
        assert sizes(ExcessLeases(Networks(), addresses), addresses) == (5000, {})
    assert sizes(ExcessLeases(Networks(exempts_loopback=False), loopback), loopback)[0] == PAID_OF_IP


def test_whoever_comes_and_goes_as_many_are_paid_for_as_may_be(seeds: Seeds) -> None:
    for seed in seeds(1, 5):
        rng = Random(seed)
        excess, held = ExcessLeases(Networks(), ()), set[Address]()
        for _ in range(4000):
            address = f"203.0.113.{rng.randrange(4)}", rng.randrange(100)
            if address in held and rng.random() < 0.6:
                held.remove(address)
                excess.remove(address)
            elif address not in held:
                held.add(address)
                excess.add(address)
            of_ips = Counter(host for host, _ in held)
            assert len(held) - len(excess) == sum(min(PAID_OF_IP, count) for count in of_ips.values())
        for address in held:
            excess.remove(address)
        assert not (len(excess) or excess._paid or excess._members)


# --- What it costs ------------------------------------------------------------------------------------


def delivered(server: Server, *, per_s: int, size_bytes: int, seconds: int) -> float:
    """Returns the share of a publisher's messages that honest subscribers get, who renew as clients do."""
    cookie = handshake(server, PUBLISHER, START)
    datagram = vouched(cookie, b"news ".ljust(size_bytes - 1, b"."))
    got = published = 0
    for step in range(round(seconds / STEP_S)):
        now = START + step * STEP_S
        server.handle_timeout(now)
        for _ in range(round((step + 1) * per_s * STEP_S) - round(step * per_s * STEP_S)):
            published += len(HONEST)
            server.receive(Burst(datagram, len(datagram), PUBLISHER), now)
        for where, data in sent(flushed(server, now)):
            got += data.count(b"news ") if where in HONEST else 0
        if step % 40 == 39:
            for subscriber in HONEST:
                lease(server, subscriber, b"news", now=now)
    return got / published


def crowded(server: Server, leases: int) -> None:
    for subscriber in HONEST:
        lease(server, subscriber, b"news")
    for number, address in enumerate(of_ip(leases)):
        lease(server, address, b"news", now=START - 40 + number / 500)


def test_who_only_subscribes_takes_nothing_from_a_publisher() -> None:
    """His leases, 20,000 of them, took the publisher's budget of bytes: a sixth of the messages arrived."""
    server = new_server(price_follows_load=True)
    crowded(server, 8_000)
    assert delivered(server, per_s=50, size_bytes=1000, seconds=2) == 1.0
    assert server.drops.keys() <= {Drop.CROWD, Drop.CREDIT, Drop.EGRESS_RATE}
    assert server.drops[Drop.CROWD] > 0 < server.drops[Drop.CREDIT]


def test_who_only_subscribes_takes_nothing_of_an_uplink() -> None:
    """His 4,000 leases filled what waits for an uplink of 100 Mbit/s: a fortieth of the messages arrived."""
    server = new_server(price_follows_load=True, limits=Limits(uplink_bytes_per_s=12_500_000))
    crowded(server, 4_000)
    assert delivered(server, per_s=60, size_bytes=1100, seconds=2) > 0.98  # but for the last one, under way
    assert server.drops.keys() <= {Drop.CROWD, Drop.CREDIT}


def test_a_crowd_gets_its_copies_where_there_is_room() -> None:
    """Many subscribers behind one NAT are no attack."""
    server = new_server()
    crowded(server, LARGE + 200)
    cookie = handshake(server, PUBLISHER)
    datagram = vouched(cookie, b"news now")
    server.receive(Burst(datagram, len(datagram), PUBLISHER), START)
    got = Counter(where for where, data in sent(flushed(server, START)) if data == b"news now\n")
    assert got == dict.fromkeys([*HONEST, *of_ip(LARGE + 200)], 1)
    assert not server.drops
