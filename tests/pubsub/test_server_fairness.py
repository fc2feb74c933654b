"""pubsub/server.py: who has many addresses, or can forge one, does not take what is another's."""

from collections import Counter
from itertools import islice
from math import inf
from random import Random

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.kernel_filter import SOURCES_MAX
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, Limits
from kcast.pubsub.server import Server
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    answer,
    ask,
    flushed,
    handshake,
    lease,
    new_server,
    publish_lease,
    send,
    vouched,
)

CALLS_PER_S = 300_000  # of a fast server
TICK_S = 0.01
AUDIENCE = 1000
HONEST_PER_S = 20
HONEST: Address = ("198.51.100.7", 7)


def listeners(third: int) -> list[Address]:
    """On loopback, where there is no credit, so that all that is sent is told apart by publishers alone."""
    return [(f"127.{third}.{number >> 8}.{number & 255}", 7) for number in range(AUDIENCE)]


def late_or_lost(publishers: list[Address], per_tick: int) -> int:
    """How many of the messages of an honest publisher have not left whole after half a second, while others
    send as much as they can, of a server that can send so much and no more."""
    server = new_server(ttl_s=3600)
    for topic, third in ((b"evil", 20), (b"good", 10)):
        for address in listeners(third):
            lease(server, address, topic)
    for publisher in (HONEST, *publishers):
        publish_lease(server, publisher)
    evil = b"evil ".ljust(700, b"x") + b"\n"
    asked_at: list[float] = []
    whole_at: dict[int, float] = {}
    copies: Counter[int] = Counter()
    calls_left = 0.0
    for tick in range(200):
        now = START + tick * TICK_S
        if tick % round(1 / HONEST_PER_S / TICK_S) == 0:
            line = b"good %d " % len(asked_at) + b"m" * 90 + b"\n"
            server.receive(Burst(line, len(line), HONEST), now)
            asked_at.append(now)
        for number in range(per_tick):
            source = publishers[(tick * per_tick + number) % len(publishers)]
            server.receive(Burst(evil, len(evil), source), now)
        calls_left = min(0.0, calls_left) + CALLS_PER_S * TICK_S
        is_more = True
        while calls_left > 0 and is_more:
            for transmit in server.flush(now):
                calls_left -= len(transmit.destinations)
                for line in transmit.data.split(b"\n"):
                    if line.startswith(b"good"):
                        number = int(line.split()[1])
                        copies[number] += len(transmit.destinations)
                        if copies[number] == AUDIENCE:
                            whole_at[number] = now
            is_more = server.next_timeout() == now
    assert server.drops[Drop.BACKLOG] > 100, "the server had more than it could do"
    judged = range(len(asked_at) - HONEST_PER_S // 2)
    return sum(whole_at.get(number, inf) > asked_at[number] + 0.5 for number in judged)


def test_the_addresses_of_a_48_have_together_what_one_publisher_has() -> None:
    """Before, 200 of them left an honest publisher a quarter of its messages."""
    assert late_or_lost([(f"2001:db8:0:{number:x}::1", 7) for number in range(200)], per_tick=15) == 0


def overloaded_by_forgeries() -> Server:
    """A server at which much waits of bare lines, which somebody has sent in a publisher's name."""
    server = new_server(limits=Limits(uplink_bytes_per_s=100_000), ttl_s=3600)
    for address in listeners(20)[:100]:
        lease(server, address, b"t")
    publish_lease(server, CLIENT)
    publish_lease(server, OTHER)
    forged = b"t forged".ljust(1000, b"x") + b"\n"
    server.receive(Burst(forged, len(forged), OTHER), START)
    for _ in range(20):
        server.receive(Burst(forged, len(forged), CLIENT), START)
    assert server.drops[Drop.BACKLOG] > 0
    return server


def test_forged_bare_lines_do_not_shut_out_who_vouches() -> None:
    """§7.2: nor by what waits to be sent, which a publish lease alone is enough to fill."""
    server = overloaded_by_forgeries()
    (reply,) = answer(server, vouched(handshake(server), b"t real"))
    assert isinstance(reply, wire.Receipt)
    # But what vouched lines have waiting is bounded, too.
    replies = [answer(server, vouched(handshake(server), b"t ".ljust(900, b"r"))) for _ in range(20)]
    assert [reply.reason for (reply,) in replies if isinstance(reply, wire.Refusal)][-1] == "rate"


@pytest.mark.parametrize(
    "forged", [vouched(b"A" * 32, b"t"), ask(), b"t m\n".ljust(192, b"\n"), b"%! N".ljust(192, b"\n")]
)
def test_forged_datagrams_do_not_have_those_behind_them_dropped(forged: bytes) -> None:
    """The system hands over together what comes at once, of equal length, and in one subscriber's name."""
    server = new_server(ttl_s=10)
    lease(server, CLIENT, b"t")
    renewal = vouched(handshake(server), b"t")
    assert len(forged) == len(renewal)
    server.receive(Burst(3 * forged + renewal, len(renewal), CLIENT), START + 9)
    flushed(server, START + 9)
    server.handle_timeout(START + 15)
    assert len(server.leases) == 1
    assert not server.drops[Drop.STRANGER]


def test_an_ip_does_not_get_all_publish_leases_by_its_ports() -> None:
    """Beyond its part it vouches for each datagram, and others get theirs."""
    server = new_server(limits=Limits(publishers=400))
    for port in range(500):
        lease(server, (CLIENT[0], 1 + port))
    held = len(server.publish_leases)
    assert 0 < held < 200
    assert server.drops == {Drop.PUBLISHERS: 500 - held}
    publish_lease(server, ("203.0.113.9", 7))


def test_addresses_that_had_leases_once_are_not_remembered_without_end() -> None:
    """Whoever asks for a cookie from each address again and again keeps it in memory, if there is room."""
    limits = Limits(leases=50)
    server = new_server(limits=limits, ttl_s=10)
    mine: list[Address] = []
    now = START
    for round_number in range(40):
        new = [(f"203.0.{round_number}.{number}", 7) for number in range(50)]
        for address in new:
            lease(server, address, b"t", now=now)
        mine += new
        now += 11
        server.handle_timeout(now)
        for address in mine:
            assert handshake(server, address, now)
    assert len(server._subscribers) <= limits.leases * (2 + COOKIE_LEASE_LIFE_S / 11)
    assert len(mine) == 2000


def test_who_has_left_gets_no_more_than_before_while_there_is_room() -> None:
    """§7.7: an address is remembered as long as a cookie of its is good for leases."""
    server = new_server(ttl_s=10)
    lease(server, CLIENT, b"t")
    publish_lease(server, OTHER)
    assert send(server, b"t m\n", OTHER)
    for now in (START + 100, START + 200, START + 300):
        assert send(server, ask(), CLIENT, now)
        server.handle_timeout(now)
        assert len(server._subscribers) == 1
    server.handle_timeout(START + 300 + COOKIE_LEASE_LIFE_S)
    assert len(server._subscribers) == 0


def test_nobody_is_forgotten_in_a_flood_because_somebody_has_many_leases() -> None:
    """The filter of a flood has room for so many sources. One network could have all of it."""
    server = new_server(ttl_s=3600)
    mine: list[Address] = [(f"203.0.113.{number % 3}", 1 + number) for number in range(SOURCES_MAX + 100)]
    lease(server, HONEST, b"t")
    publish_lease(server, OTHER)
    for address in mine:
        publish_lease(server, address)
    known = list(islice(server.known_sources(Random(1)), SOURCES_MAX))
    assert HONEST in known and OTHER in known
    assert len(set(known)) > SOURCES_MAX - 10
    ended_at = START + 3601
    for now in (ended_at, ended_at + COOKIE_LEASE_LIFE_S):
        while (due := server.next_timeout()) is not None and due <= now:
            server.handle_timeout(now)
    assert list(server.known_sources(Random(1))) == []


# --- Ports of one IP ------------------------------------------------------------------------------------


def test_forty_ports_of_an_ip_that_vouch_and_publish_bare_get_the_rate_of_the_ip() -> None:
    server = new_server(limits=Limits(publishes_per_s=1000))
    ports = [("203.0.113.7", 1000 + number) for number in range(40)]
    cookies = {port: handshake(server, port) for port in ports}
    for port in ports:
        publish_lease(server, port)
    seconds, before = 10, server.counts["messages_received"]
    for tick in range(50 * seconds):
        now = START + tick / 50
        server.handle_timeout(now)
        for port in ports:
            bare, showing = b"t x\n" * 20, vouched(cookies[port], *[b"t x"] * 20)
            server.receive(Burst(bare, len(bare), port), now)
            server.receive(Burst(showing, len(showing), port), now)
        flushed(server, now)
    # A bucket is full in the beginning.
    taken = server.counts["messages_received"] - before
    assert 0.95 * 1000 * seconds < taken <= 1.1 * 1000 * (seconds + 1)


@pytest.mark.parametrize("rests_s", [0.0, 2.0])
def test_one_port_behind_a_nat_does_not_take_the_rate_of_the_others(rests_s: float) -> None:
    server = new_server(limits=Limits(publishes_per_s=1000))
    hog, other = ("203.0.113.7", 1000), ("203.0.113.7", 2000)
    hog_cookie, cookie = handshake(server, hog), handshake(server, other)
    wanted, next_at = 0, START + 0.3
    for tick in range(50 * 20):
        now = START + tick / 50
        server.handle_timeout(now)
        for _ in range(4):
            datagram = vouched(hog_cookie, *[b"t x"] * 62)
            server.receive(Burst(datagram, len(datagram), hog), now)
        if now >= next_at:
            next_at = now + rests_s + 0.1
            wanted += 1
            (receipt,) = answer(server, vouched(cookie, b"t y"), other, now)
            assert isinstance(receipt, wire.Receipt), receipt
    assert server.refusals["rate"] > 1000 and wanted >= 9
