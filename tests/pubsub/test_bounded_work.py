"""pubsub/server.py: what one thing makes a server do in one go is bounded. Counted in work, not in time."""

from collections.abc import Iterator
from random import Random

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.flood import STEP_S, FloodGuard
from kcast.pubsub.kernel_filter import Kind
from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX, REQUEST_LINE_BYTES_MAX, Limits
from kcast.pubsub.publishing import EXPIRED_MAX
from kcast.pubsub.server import Server
from kcast.pubsub.table import COUNTED_MAX, LeaseTable
from kcast.pubsub.table import EXPIRED_MAX as LEASES_EXPIRED_MAX
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    answer,
    ask,
    flushed,
    handshake,
    lease,
    new_server,
    open_server,
    publish_lease,
    sent,
    vouched,
)

MANY = 3 * EXPIRED_MAX
LATER = START + 61.0


def crowd(count: int) -> list[Address]:
    """Addresses, each of an IP of its own."""
    return [(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7) for number in range(count)]


# --- Publish leases -----------------------------------------------------------------------------------


def test_publish_leases_that_end_at_once_are_forgotten_in_slices() -> None:
    server = new_server()
    for address in crowd(MANY):
        assert server._publishing.open_lease(address, START)
    left = []
    while (due := server.next_timeout()) is not None and due <= LATER:
        server.handle_timeout(LATER)
        left.append(len(server.publish_leases))
    assert left == [2 * EXPIRED_MAX, EXPIRED_MAX, 0]
    assert not list(server.known_sources(Random(1))) and not server._publishing._leases_of


def test_who_opens_a_publish_lease_does_not_pay_for_all_that_have_ended() -> None:
    server = new_server()
    for address in crowd(MANY):
        server._publishing.open_lease(address, START)
    publish_lease(server, CLIENT, LATER)
    assert len(server.publish_leases) > MANY - EXPIRED_MAX


@pytest.mark.parametrize("count", [1, 50])
def test_publish_leases_that_have_ended_are_in_nobodys_way(count: int) -> None:
    server = new_server(limits=Limits(publishers=count))
    for address in crowd(count):
        server._publishing.open_lease(address, START)
    for port in range(count):
        publish_lease(server, ("198.51.100.9", port), LATER)
    assert len(server.publish_leases) == count
    lease(server, CLIENT, now=LATER)
    assert not server.publish_leases.left_s(CLIENT, LATER)


# --- Requests -----------------------------------------------------------------------------------------


PINGS = b"%~ a\n" * LINES_PER_DATAGRAM_MAX


@pytest.fixture(name="parsed")
def count_parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Lines that were read as requests."""
    lines: list[bytes] = []
    parse = wire.parse_request

    def counted(line: bytes) -> wire.Request | None:
        lines.append(line)
        return parse(line)

    monkeypatch.setattr(wire, "parse_request", counted)
    yield lines


def receive(server: Server, datagrams: list[bytes], source: Address) -> list[bytes]:
    """Lets datagrams of equal length arrive at once; returns the answers."""
    server.receive(Burst(b"".join(datagrams), len(datagrams[0]), source), START)
    return [answer for _, answer in sent(flushed(server))]


@pytest.mark.parametrize("kind", [b"%~ a\n", b"%? a\n", b"%~ a a= b=\n", b"%~ !\n", b"%?!\n"])
def test_of_the_requests_that_come_at_once_from_a_known_source_one_is_read(
    kind: bytes, parsed: list[bytes]
) -> None:
    server = new_server()
    publish_lease(server)
    datagram = kind * LINES_PER_DATAGRAM_MAX
    del parsed[:]
    before = server.drops.total()
    assert len(receive(server, [datagram] * 64, CLIENT)) == (wire.parse_request(kind[:-1]) is not None)
    assert len(parsed) == 2  # one of which is this test's own
    assert server.drops.total() - before in (64 * 64 - 1, 64 * 64)
    assert server.drops[Drop.EXTRA_REQUEST] == 64 * 64 - 1


def test_lines_beside_requests_are_all_taken() -> None:
    """§5.5: a ping may ride anywhere; who publishes much sends several datagrams at once."""
    server = new_server()
    lease(server, OTHER, b"t")
    publish_lease(server)
    datagrams = [b"t %d\n%%~ %d\n" % (number, number) for number in range(5)]
    out = receive(server, datagrams, CLIENT)
    assert sorted(out) == sorted(
        [b"%%: %d 60\n" % number for number in range(5)]
        + [b"".join(b"t %d\n" % number for number in range(5))]
    )
    assert not server.drops


def test_an_open_server_is_as_careful_of_strangers_as_another(parsed: list[bytes]) -> None:
    server = open_server()
    junk = b"%~ a a= b= c= d=\n" * LINES_PER_DATAGRAM_MAX
    assert len(receive(server, [junk] * 8, THIRD)) == 1
    assert len(parsed) == 1
    assert server.drops == {Drop.STRANGER: 7, Drop.EXTRA_REQUEST: LINES_PER_DATAGRAM_MAX - 1}


def test_of_those_to_whom_it_is_open_one_request_is_read(parsed: list[bytes]) -> None:
    server = open_server()
    assert len(receive(server, [PINGS] * 8, CLIENT)) == 1
    assert len(parsed) == 1


class _FullPort:
    waiting_share = 1.0

    def sift(self, program: bytes | None) -> bool:
        return True


@pytest.mark.parametrize("source", [CLIENT, THIRD])
def test_an_open_server_counts_its_strangers_so_that_the_filter_closes_for_what_floods(
    source: Address,
) -> None:
    server = open_server()
    guard, now = FloodGuard(server, [_FullPort()], Random(1)), START
    for _ in range(20):
        receive(server, [PINGS] * 20, source)
        now += 2 * STEP_S
        guard.look(now)
    shares = guard._filter.shares
    assert shares[Kind.REQUEST] < shares[Kind.VOUCH] == shares[Kind.LINES] == 1.0
    lease(server, CLIENT, b"t")
    before = dict(server.strangers)
    receive(server, [ask()], CLIENT)
    assert server.strangers == before, "it is known"


@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"%? N", wire.Ask), (b"%~ N", wire.Ping), (b"%! N " + b"A" * 32 + b" -", wire.Vouch)],
)
def test_a_request_is_short_whatever_attributes_it_has(start: bytes, kind: type) -> None:
    """§5.1"""
    longest = (start + b" a=" * 50).ljust(REQUEST_LINE_BYTES_MAX - len(b"\n"), b"x")
    assert isinstance(wire.parse_request(longest), kind)
    assert wire.parse_request(longest + b"x") is None


# --- Leases -------------------------------------------------------------------------------------------


def full_server(count: int) -> Server:
    """A server whose table is full of leases that were all opened at once."""
    server = new_server(price_follows_load=True, limits=Limits(leases=count, leases_per_prefix=count))
    for address in crowd(count):
        assert server.leases.open(b"t", address, START) is None
    return server


@pytest.mark.parametrize("request_", [ask(), vouched(b"A" * 32, b"t")])
def test_a_strangers_request_makes_a_server_forget_nothing(request_: bytes) -> None:
    count = 3 * LEASES_EXPIRED_MAX
    server = full_server(count)
    (challenge,) = answer(server, request_, now=LATER)
    assert isinstance(challenge, wire.Challenge) and challenge.bits == 0, "all that it is full of is over"
    assert len(server.leases) == count


@pytest.mark.parametrize("lines", [[b"new"], [b"t m"], []])
def test_who_shows_a_cookie_pays_for_a_slice_once(lines: list[bytes]) -> None:
    count = 3 * LEASES_EXPIRED_MAX
    server = full_server(count)
    answer(server, vouched(handshake(server, now=LATER), *lines), now=LATER)
    assert len(server.leases) == count - LEASES_EXPIRED_MAX + (lines == [b"new"])


@pytest.mark.parametrize("count", [COUNTED_MAX, COUNTED_MAX + 1])
def test_the_audience_of_a_receipt_is_counted_exactly_where_that_is_cheap(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§5.7: of large audiences it would take milliseconds."""
    server = new_server()
    for number, address in enumerate(crowd(count)):
        server.leases.open(b"t", address, START + number % 2)
    datagram = vouched(handshake(server, now=START + 1), b"t x")
    searched = []
    subscribers = LeaseTable.subscribers

    def counted(table: LeaseTable, topic: bytes, now: float) -> object:
        searched.append(topic)
        return subscribers(table, topic, now)

    monkeypatch.setattr(LeaseTable, "subscribers", counted)
    server.receive(Burst(datagram, len(datagram), CLIENT), START + 59)
    assert bool(searched) is (count <= COUNTED_MAX)
