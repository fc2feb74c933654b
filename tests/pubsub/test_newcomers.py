"""Who comes late gets leases, whatever others hold: also in an attacker's own network. PROTOCOL §7.10."""

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.fifo_table import TABLES
from kcast.pubsub.limits import Limits
from kcast.pubsub.table import LeaseTable, Limit
from tests.support.server_core import START

TTL_S = 60.0
RENEWAL_S = 20.0
NEWCOMER: Address = ("203.0.113.99", 5000)


def squat(table: LeaseTable, address: Address, topics: list[bytes], now: float) -> list[Limit | None]:
    """Renews what an address holds of these, and asks for the others."""
    limits: list[Limit | None] = []
    for topic in topics:
        if table.is_live(topic, address, now):
            table.renew(topic, address, now)
        else:
            limits.append(table.open(topic, address, now))
    return limits


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("holds", ["leases", "topics"])
@pytest.mark.parametrize("has_renewed", [False, True])
def test_newcomer_beside_one_who_holds_all_that_their_network_may(
    kind: str, holds: str, has_renewed: bool
) -> None:
    """The table has room, so nothing there has a price. The newcomer was refused for ever."""
    limits = Limits(leases=10_000, leases_per_prefix=1000, topics=10_000, topics_per_prefix=500)
    table = TABLES[kind](TTL_S, limits)
    ports: list[Address] = [("203.0.113.7", 1000 + port) for port in range(5)]
    several = 200 if holds == "leases" else 100
    wanted = {
        address: [b"x%d-%d" % (address[1] * (holds == "topics"), each) for each in range(several)]
        for address in ports
    }
    for rounds in range(1 + 2 * has_renewed):
        for address, topics in wanted.items():
            squat(table, address, topics, START + rounds * RENEWAL_S)
    now = START + (1 + 2 * has_renewed) * RENEWAL_S
    table.expire(now)
    assert table.load < 0.2
    mine = [b"mine%d" % number for number in range(20)]
    assert squat(table, NEWCOMER, mine, now) == [None] * 20
    for address, topics in wanted.items():
        squat(table, address, topics, now + 1)
    assert all(table.is_live(topic, NEWCOMER, now + 1) for topic in mine), "and he keeps what he has"
    most = limits.leases_per_prefix if holds == "leases" else limits.topics_per_prefix
    assert (len(table) if holds == "leases" else table.topic_count) == most
    if has_renewed:
        lost = [lease for lease in table.evicted if lease.address in ports]
        assert len(table) - len(lost) > 0.7 * most, "three quarters were established, and stay"


@pytest.mark.parametrize("kind", TABLES)
def test_topics_with_many_leases_leave_newcomers_theirs(kind: str) -> None:
    """A topic is established by its seventeenth lease. In this way all of them once were."""
    limits = Limits(leases=20_000, topics=1000)
    table = TABLES[kind](TTL_S, limits)
    for network in range(5):
        for topic in range(200):
            for port in range(17):
                table.open(b"s%d-%d" % (network, topic), (f"203.0.{network}.7", 1000 + port), START)
    assert table.topic_count == limits.topics
    newcomers: list[Address] = [(f"198.51.{network}.1", 1) for network in range(5)]
    joined = {
        newcomer
        for second in range(30)
        for newcomer in newcomers
        if table.is_live(b"new", newcomer, START + second)
        or table.open(b"new-%b" % newcomer[0].encode(), newcomer, START + second) is None
    }
    assert joined == set(newcomers)
