"""pubsub/router.py: what bursts cause, who gets which lines, and how they are packed. PROTOCOL §4.3."""

import random
from collections import Counter

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Burst, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.router import Many, Router, whole_topic
from kcast.pubsub.server import Server
from tests.support.forms import Seeds
from tests.support.naive_router import RouteTable, check_packer, check_survey
from tests.support.random_bursts import random_burst
from tests.support.routers import ROUTERS
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    flushed,
    lease,
    new_server,
    publish_lease,
    sent,
)
from tests.support.vector_lines import message_lines, sealed_lines


@pytest.mark.long
def test_burst_forwarded_whole_is_what_forwarding_line_by_line_delivers() -> None:
    """§4.3: the same lines to the same subscribers, and the same counted; blank datagrams apart."""
    rng = random.Random(4)
    whole = 0
    servers: list[Server] = []
    for number in range(1500):
        data, segment_bytes = random_burst(rng)
        if number % 20 == 0:  # so few that none of them meets a limit of rates
            servers = [new_server(), new_server()]
            for server in servers:
                lease(server, OTHER, b"t")
                lease(server, THIRD, b"t", b"u")
                publish_lease(server)
        for server in servers:
            server.drops.clear()
            server.counts.clear()
        servers[0].receive(Burst(data, segment_bytes, CLIENT), START)
        for datagram in datagrams(data, segment_bytes):
            servers[1].receive(Burst(datagram, len(datagram), CLIENT), START)
        delivered = []
        for server in servers:
            transmits = flushed(server)
            whole += server is servers[0] and any(transmit.data == data for transmit in transmits)
            lines = [(to, line) for to, text in sent(transmits) for line in wire.split_lines(text)[0]]
            delivered.append(Counter((to, line[:2] if line[:2] == b"%=" else line) for to, line in lines))
            del server.drops[Drop.EMPTY]
        assert delivered[0] == delivered[1], (data, segment_bytes)
        assert servers[0].drops == servers[1].drops, (data, segment_bytes)
        assert servers[0].counts == servers[1].counts, (data, segment_bytes)
    assert whole > 200


@pytest.mark.parametrize(
    ("data", "segment_bytes", "whole"),
    [
        (b"t 1\nt 2\n", 4, True), (b"t 1\n\nt 22\nt 3\n", 5, True), (b"t 1\n\n\n\n\n\n\nt 2\n", 5, True),
        (b"t 1\nu 2\n", 4, False), (b"t 1\nt\n\n\n", 4, False), (b"t 1\nt 2", 4, False),
        (b"t 12\nt 3\n", 4, False), (b"t 1\ntt 2\n", 4, False), (b"t 1\n%~ N\n", 4, False),
        (b"\nt 1\nt 2\n", 5, False), (b" t 1\n t 2\n", 5, False), (b"%74 1\n%74 2\n", 6, False),
        ((b"t \n" * 64).ljust(200, b"\n") * 2, 200, True),
        ((b"t \n" * 65).ljust(200, b"\n") * 2, 200, False),
        (b"t " + b"m" * 1197 + b"\nt 2\n", 1200, True),
        (b"t " + b"m" * 1198 + b"\nt 2\n", 1201, False),
    ],
)  # fmt: skip
def test_which_bursts_are_forwarded_as_they_came(data: bytes, segment_bytes: int, whole: bool) -> None:
    server = new_server()
    lease(server, OTHER, b"t")
    publish_lease(server)
    server.receive(Burst(data, segment_bytes, CLIENT), START)
    transmits = flushed(server)
    assert ((data, segment_bytes) in [transmit[:2] for transmit in transmits]) is whole


def test_lines_are_bounded_wherever_in_a_burst_they_are_many() -> None:
    rng = random.Random(6)
    refused_count = 0
    for _ in range(3000):
        segment_bytes = rng.choice((60, 300))
        parts = [b"t \n" * rng.randint(1, rng.choice((4, 12))) for _ in range(rng.choice((2, 5, 40)))]
        data = b"".join(part.ljust(segment_bytes, b"\n") for part in parts[:-1]) + parts[-1]
        line_counts = [part.count(b"\n") for part in parts]
        is_within = max(line_counts) <= 8
        found = whole_topic(data, segment_bytes, 8)
        assert found == ((b"t", sum(line_counts)) if is_within else None), (data, segment_bytes)
        refused_count += not is_within
    assert 400 < refused_count < 2800


ADDRESSES = [("192.0.2.1", port) for port in range(1, 9)]


def random_routes(rng: random.Random) -> RouteTable:
    routes = RouteTable()
    for topic in (b"t", b"u", b"%20", b"tt"):
        audience = tuple(rng.sample(ADDRESSES, rng.choice((0, 1, 2, 8))))
        routes[topic] = audience if rng.random() < 0.9 else Many(rng.randint(0, 9))
    return routes


@pytest.mark.parametrize("router", ROUTERS.values(), ids=ROUTERS)
def test_survey_of_a_burst_is_that_of_its_lines(router: Router) -> None:
    rng = random.Random(5)
    publishes_count = 0
    for _ in range(3000):
        data, segment_bytes = random_burst(rng)
        publishes_count += check_survey(router, data, segment_bytes, rng.choice((2, 64)), random_routes(rng))
    assert publishes_count > 400


@pytest.mark.parametrize("router", ROUTERS.values(), ids=ROUTERS)
def test_each_subscriber_gets_its_lines_in_as_few_datagrams_as_hold_them(router: Router) -> None:
    rng = random.Random(8)
    packed_count = long_count = 0
    for _ in range(1000):
        routes = random_routes(rng)
        texts = []
        for _ in range(rng.choice((1, 2, 9, 30))):
            topics = rng.choices((b"t", b"u", b"v", b"%20", b"tt"), k=rng.choice((1, 3, 30)))
            sizes = rng.choice(((0,), (90,), (3, 30, 300), (1100, 7)))
            texts.append(b"".join(topic + b" " + b"m" * rng.choice(sizes) + b"\n" for topic in topics))
        packed = check_packer(router.make_packer(), texts, routes, rng.choice((b"", b"\n")))
        packed_count += len(packed)
        long_count += sum(len(each.data) > each.segment_bytes for each in packed)
    assert packed_count > 1000
    assert long_count > 500


def vector_lines() -> list[bytes]:
    """Messages of all kinds, signed and sealed ones among them, that fit into a datagram."""
    lines = message_lines() + message_lines(b"u") + sealed_lines()
    return [
        line for line in lines if wire.is_topic(line.partition(b" ")[0]) and len(line) < DATAGRAM_BYTES_MAX
    ]


def test_signed_and_sealed_lines_are_lines_as_others(seeds: Seeds) -> None:
    """§9.6: servers see no difference, and the two routers none between them."""
    for seed in seeds(4, 20):
        rng, lines = random.Random(seed), vector_lines()
        chosen = rng.sample(lines, 100)
        routes = random_routes(rng)
        for line in chosen:
            routes[line.partition(b" ")[0]] = tuple(rng.sample(ADDRESSES, rng.choice((0, 1, 2, 8))))
        texts = [
            b"".join(line + b"\n" for line in chosen[at : at + rng.choice((1, 2, 5))]) for at in range(95)
        ]
        for text in texts:
            for router in ROUTERS.values():
                assert check_survey(router, text, len(text), 64, routes)
        packed = [check_packer(router.make_packer(), texts, routes, b"") for router in ROUTERS.values()]
        assert packed[0] == packed[-1]


def test_a_server_forwards_signed_and_sealed_lines_as_they_came() -> None:
    lines = list(dict.fromkeys(vector_lines()))
    for at in range(0, len(lines), 10):
        some = lines[at : at + 10]
        server = new_server()
        lease(server, OTHER, *{line.partition(b" ")[0] for line in some})
        publish_lease(server)
        for line in some:
            server.receive(Burst(line + b"\n", len(line) + 1, CLIENT), START)
        arrived = [line for _, text in sent(flushed(server)) for line in wire.split_lines(text)[0]]
        assert [line for line in arrived if not wire.is_control(line)] == some
