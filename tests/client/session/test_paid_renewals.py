"""client/session/stamps.py: honest servers that are nearly full keep the leases that stand. PROTOCOL §7.9.

A datagram costs 12 bits at most here, and a try 25 us, so that it costs 0.1 s: as 18 bits do on a usual
machine. So prices of 6 and 8 bits stand for 12 and 14.
"""

from math import inf

import pytest

from kcast.client.session import stamps
from kcast.client.session.allowance import SHARE
from kcast.client.session.leases import Leases, Place
from kcast.client.session.stamps import sustained
from kcast.pubsub.limits import LEASES_KEPT_FREE
from tests.client.session.test_allowance import Several
from tests.support.fake_server import FakeServer, topics_of
from tests.support.forms import few_of

DATAGRAM_BITS = 12
TRY_S = 2.5e-5
SETTLE_S = 60.0


@pytest.fixture(autouse=True)
def _cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "WORK_DATAGRAM_BITS", DATAGRAM_BITS)


def full(servers: int, topics: int, price: int) -> Several:
    """Servers that are nearly full from the start."""
    made = [FakeServer(keep_bits=price, bits=price, keep_bits_max=DATAGRAM_BITS) for _ in range(servers)]
    return Several(*made, topics=topics, try_s=TRY_S)


def standing(several: Several) -> list[frozenset[bytes]]:
    return [
        frozenset(topic for topic in server.leases if server.is_leased(topic, several.now))
        for server in several.servers.values()
    ]


@pytest.mark.parametrize(
    ("servers", "topics", "price"),
    few_of([(1, 60, 6), (5, 20, 8), (1, 40, 8), (1, 70, 8), (5, 40, 8), (5, 60, 6)], 2),
)
def test_some_dozens_of_leases_are_kept(servers: int, topics: int, price: int) -> None:
    several = full(servers, topics, price)
    several.run(SETTLE_S)
    worked_s = 0.0
    for _ in range(40):
        worked_s += several.run(30)
        assert [len(each) for each in standing(several)] == [topics] * servers
    assert worked_s <= 40 * 30 * SHARE * servers


@pytest.mark.parametrize(("servers", "topics", "price"), few_of([(2, 150, 8), (1, 500, 6), (5, 150, 6)]))
def test_of_more_than_can_be_paid_for_the_same_are_kept(servers: int, topics: int, price: int) -> None:
    several = full(servers, topics, price)
    several.run(2 * SETTLE_S)
    before = standing(several)
    assert all(len(each) >= 63 for each in before)
    worked_s = 0.0
    for _ in range(40):
        worked_s += several.run(30)
        for kept, now in zip(before, standing(several), strict=True):
            assert len(kept - now) <= len(kept) / 5, "those of one stamp may be late"
    assert worked_s <= 40 * 30 * SHARE * servers


def test_when_the_server_has_room_again_all_are_leased() -> None:
    several = full(1, 150, 8)
    several.run(300)
    (server,) = several.servers.values()
    server.keep_bits = server.bits = 0
    several.run(100)
    assert len(standing(several)[0]) == 150


def test_leases_that_stand_are_kept_while_nothing_is_left_for_new_ones() -> None:
    several = full(1, 40, 6)
    (server,) = several.servers.values()
    several.run(SETTLE_S)
    assert len(standing(several)[0]) == 40
    server.bits = 18
    for number in range(40, 50):
        several.core.subscribe(b"t%d" % number, several.now)
    for _ in range(40):
        several.run(30)
        assert len(standing(several)[0] & {b"t%d" % number for number in range(40)}) == 40


# --- By itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "tries", "count"),
    [
        (8, 0, 0),
        (8, 255, 0),
        (8, 256, 1),
        (8, 1023, 2),
        (8, 4095, 8),
        (8, 4096, 63),
        (8, 4096 + 512, 65),
        (4, 2048, 63 + 63),
        (4, 1023, 32),
        (20, 4095, 0),
        (20, 2 * 4096, 2 * 63),
    ],
)
def test_sustained(bits: int, tries: float, count: int) -> None:
    assert sustained(bits, tries, 63) == count


def test_first_ones_are_kept_and_others_follow_when_there_is_room() -> None:
    leases = Leases()
    topics = topics_of(20)
    for topic in topics:
        leases.want(topic, 0.0)
        leases.grant(topic, 0.0, 60.0, 20.0)
    assert leases.keep_at_most(5) == topics[LEASES_KEPT_FREE + 5 :]
    assert leases.room == 5 + LEASES_KEPT_FREE - 20
    assert leases.take_due(inf, 99, 9999, (Place.MORE,)) == topics[8:13]
    leases.unwant(topics[0])
    leases.unwant(topics[9])
    assert leases.take_due(inf, 99, 9999, (Place.MORE,)) == topics[13:15]
    assert leases.keep_at_most(inf) == []
    assert leases.take_due(inf, 99, 9999, (Place.MORE,)) == topics[15:]
    assert leases.void(1.0) == [topic for topic in topics if topic not in (topics[0], topics[9])]
    assert not leases.is_live(topics[-1])
