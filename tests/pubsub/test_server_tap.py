"""pubsub/server.py: what a tap is told: what was admitted, and what became of leases; no more, no less."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, LeaseChange, datagrams
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.support.random_bursts import random_burst
from tests.support.server_core import (
    CLIENT,
    OTHER,
    OWN,
    START,
    THIRD,
    answer,
    ask,
    handshake,
    lease,
    new_server,
    publish_lease,
    send,
    vouched,
)


class Seen(NamedTuple):
    now: float
    source: Address
    topic: bytes
    lines: list[bytes]


class Recorder:
    """Keeps what it is told; satisfies `Tap`."""

    def __init__(self) -> None:
        self.bursts: list[Seen] = []
        self.leases: list[tuple[float, LeaseChange, bytes, Address]] = []

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> None:
        self.bursts.append(Seen(now, source, topic, list(lines)))

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        self.leases.append((now, change, topic, address))


def tapped(**options: Any) -> tuple[Server, Recorder]:
    tap = Recorder()
    return new_server(tap=tap, **options), tap


# --- Bursts -------------------------------------------------------------------------------------------


def test_lines_of_a_datagram_are_told_by_topic_and_before_they_are_routed() -> None:
    server, tap = tapped()
    datagram = vouched(handshake(server), b"t 1", b"u 1", b"sub", b"t 2", b"%@p.1 x")
    server.receive(Burst(datagram, len(datagram), CLIENT), START)
    assert tap.bursts == [Seen(START, CLIENT, b"t", [b"t 1", b"t 2"]), Seen(START, CLIENT, b"u", [b"u 1"])]


def test_bare_lines_and_whole_bursts_are_told() -> None:
    server, tap = tapped()
    lease(server, OTHER, b"t")
    publish_lease(server)
    send(server, b"t 1\n\nt 2\n", now=START + 1)
    for data, segment_bytes in ((b"t 3\n\nt 44\nt 5\n", 5), (b"t 6\nu 7\n", 4)):
        server.receive(Burst(data, segment_bytes, CLIENT), START + 2)
    assert tap.bursts == [
        Seen(START + 1, CLIENT, b"t", [b"t 1", b"t 2"]),
        Seen(START + 2, CLIENT, b"t", [b"t 3", b"t 44", b"t 5"]),
        Seen(START + 2, CLIENT, b"t", [b"t 6"]),
        Seen(START + 2, CLIENT, b"u", [b"u 7"]),
    ]


def test_lines_that_nobody_wants_are_told() -> None:
    """A loss is attributed by them: they came, and there was no lease."""
    server, tap = tapped()
    send(server, vouched(handshake(server), b"nobody m"))
    publish_lease(server)
    server.receive(Burst(b"nobody 1\nnobody 2\n", 9, CLIENT), START)
    assert [seen.lines for seen in tap.bursts] == [[b"nobody m"], [b"nobody 1", b"nobody 2"]]
    assert server.flush(START) == []
    assert server.drops == {Drop.NO_SUBSCRIBER: 3}


def test_nothing_is_told_of_what_is_not_admitted() -> None:
    """Unvouched, forged, over the rate, too long, too many, not canonical, or the server's own."""
    server, tap = tapped(limits=Limits(publishes_per_s=1, lines_per_datagram=4))
    lease(server, OTHER, b"t")
    cookie = handshake(server)
    send(server, b"t m\n")
    send(server, b"t m\n", OWN)
    send(server, vouched(b"A" * 32, b"t m"))
    send(server, vouched(cookie, *[b"t m"] * 4))
    send(server, b"t " + b"m" * 1200 + b"\n")
    send(server, vouched(cookie, b"%41 m", b"%c3 m"))  # which spends the rate
    send(server, vouched(cookie, b"t m"))
    send(server, b"%41 m\n%c3 m\n")  # as does this for bare lines
    send(server, b"t m\n")
    server.receive(Burst(b"t 1\nt 2\n", 4, CLIENT), START)
    assert tap.bursts == []
    assert set(server.drops) == {
        *(Drop.UNVOUCHED_PUBLISH, Drop.OWN_ADDRESS, Drop.COOKIE_FOREIGN, Drop.TOO_MANY_LINES),
        *(Drop.OVERSIZE, Drop.TOPIC, Drop.PUBLISH_RATE),
    }


def test_nothing_is_told_of_copies_that_come_back() -> None:
    server, tap = tapped(open_to=lambda source: True)
    send(server, b"\nt m\n")
    assert tap.bursts == []
    send(server, b"t m\n")
    assert [seen.lines for seen in tap.bursts] == [[b"t m"]]


@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_told_is_what_is_counted(is_open: bool) -> None:
    """Of random bursts: every admitted line of a canonical topic, once, in order."""
    rng = random.Random(8)
    server, tap = tapped(open_to=(lambda source: True) if is_open else None)
    lease(server, OTHER, b"t")
    publish_lease(server)
    bad = 0
    for _ in range(500):
        data, segment_bytes = random_burst(rng)
        del tap.bursts[:]
        before = server.counts["messages_received"]
        server.receive(Burst(data, segment_bytes, CLIENT), START)
        server.flush(START)
        told = [line for seen in tap.bursts for line in seen.lines]
        bad += server.counts["messages_received"] - before - len(told)
        assert all(line.startswith(seen.topic + b" ") for seen in tap.bursts for line in seen.lines)
        arrived = [line for each in datagrams(data, segment_bytes) for line in each.split(b"\n")]
        for topic in {seen.topic for seen in tap.bursts}:
            mine = [line for line in told if line.startswith(topic + b" ")]
            rest = iter(arrived)
            assert all(line in rest for line in mine), "told in the order in which they came"
    # At an open server bare subscribes are refused for their topics, too.
    assert 0 < bad <= server.drops[Drop.TOPIC] if is_open else bad == server.drops[Drop.TOPIC] > 0


# --- Leases -------------------------------------------------------------------------------------------


def test_lease_is_told_of_when_it_opens_and_when_it_ends_and_not_when_it_is_renewed() -> None:
    server, tap = tapped()
    lease(server, CLIENT, b"t", b"u")
    lease(server, CLIENT, b"t", now=START + 30)
    server.handle_timeout(START + 60)
    server.handle_timeout(START + 90)
    assert tap.leases == [
        (START, LeaseChange.OPENED, b"t", CLIENT),
        (START, LeaseChange.OPENED, b"u", CLIENT),
        (START + 60, LeaseChange.EXPIRED, b"u", CLIENT),
        (START + 90, LeaseChange.EXPIRED, b"t", CLIENT),
    ]


def test_end_is_told_before_the_lease_that_takes_its_place() -> None:
    server, tap = tapped(limits=Limits(leases=1))
    lease(server, CLIENT, b"t")
    lease(server, CLIENT, b"t", now=START + 60)
    assert [change for _, change, _, _ in tap.leases] == [
        LeaseChange.OPENED,
        LeaseChange.EXPIRED,
        LeaseChange.OPENED,
    ]


def test_lease_pushed_out_is_told_of_with_its_own_name() -> None:
    server, tap = tapped(table="fifo", limits=Limits(leases=1))
    lease(server, CLIENT, b"t")
    answer(server, vouched(handshake(server, OTHER, START + 40), b"u"), OTHER, START + 40)  # refused
    lease(server, CLIENT, b"t", now=START + 60)
    lease(server, THIRD, b"u", now=START + 100)
    assert tap.leases[-2:] == [
        (START + 100, LeaseChange.EVICTED, b"t", CLIENT),
        (START + 100, LeaseChange.OPENED, b"u", THIRD),
    ]
    assert server.counts["leases_evicted"] == 1


def test_leases_refused_are_not_told_of() -> None:
    server, tap = tapped(limits=Limits(leases=1))
    lease(server, CLIENT, b"t")
    del tap.leases[:]
    send(server, vouched(handshake(server), b"full", b"%41"))
    send(server, b"bare\n")
    server.start_drain(START)
    send(server, vouched(handshake(server), b"drain"))
    assert tap.leases == []


def test_publish_leases_are_none_of_a_taps_concern() -> None:
    server, tap = tapped()
    publish_lease(server)
    server.handle_timeout(START + 60)
    assert tap.leases == []


@pytest.mark.parametrize("table", ["ttl", "fifo"])
def test_changes_told_add_up_to_the_table(table: str) -> None:
    rng = random.Random(2)
    server, tap = tapped(table=table, ttl_s=20, limits=Limits(leases=6))
    standing: set[tuple[bytes, Address]] = set()
    now = START
    for _ in range(1500):
        now += rng.expovariate(1.0)
        address: Address = ("198.51.100.9", rng.randrange(10))
        cookie = handshake(server, address, now)
        send(server, vouched(cookie, *rng.sample((b"a", b"b", b"c"), rng.randint(1, 3))), address, now)
        if rng.random() < 0.3:
            server.handle_timeout(now)
        for at, change, topic, holder in tap.leases:
            assert at == now
            if change is LeaseChange.OPENED:
                assert (topic, holder) not in standing
                standing.add((topic, holder))
            else:
                standing.remove((topic, holder))
        del tap.leases[:]
        assert len(server.leases) == len(standing)
        for topic in (b"a", b"b", b"c"):
            for holder in server.leases.subscribers(topic, now):
                assert (topic, holder) in standing
    ended = server.counts["leases_expired"] + server.counts["leases_evicted"]
    assert server.counts["leases_opened"] == ended + len(standing)
    assert server.counts["leases_evicted"]


def test_no_tap_is_no_error() -> None:
    server = new_server()
    lease(server, CLIENT, b"t")
    send(server, vouched(handshake(server), b"t m"))
    send(server, ask())
