"""pubsub/leasing.py: prices follow the load and fall again; what is quoted holds. PROTOCOL §5.11, §7.9."""

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.leasing import Price, bits_of
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, LEASES_KEPT_FREE, WORK_DATAGRAM_BITS, Limits
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import FREE, Quote
from kcast.pubsub.table import LeaseTable
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    answer,
    ask,
    exactly,
    minted,
    new_server,
    vouched,
)

TTL_S = 60.0
HOLDER: Address = ("203.0.113.1", 1)


def filled(count: int, leases: int = 100, *, now: float = 0.0) -> LeaseTable:
    """A table with leases of addresses each in a network of its own."""
    table = LeaseTable(TTL_S, Limits(leases=leases, leases_per_prefix=20))
    fill(table, count, now)
    return table


def fill(table: LeaseTable, count: int, now: float) -> None:
    for number in range(count):
        assert table.open(b"t", (f"100.{number // 256}.{number % 256}.1", 1), now) is None


# --- Quotes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "share", "bits"),
    [
        (0.75, 0.0, 8),
        (0.79, 0.0, 8),
        (0.8, 0.0, 9),
        (0.9, 0.0, 11),
        (0.999, 0.0, 13),
        (1.0, 0.0, 14),
        (0.75, 0.24, 8),
        (0.75, 0.25, 9),
        (1.0, 0.5, 16),
        (1.0, 1.0, 18),
        (0.7, 0.0, 8),  # it was fuller a moment ago
        (1.2, 3.0, 18),
    ],
)
def test_price_rises_with_load_and_share(load: float, share: float, bits: int) -> None:
    assert bits_of(load, share) == bits <= WORK_DATAGRAM_BITS


def test_leases_cost_what_the_operator_asks_while_there_is_room() -> None:
    table = filled(74)
    for least_bits in (0, 5, 24):
        assert Price(least_bits, table).quote(CLIENT, 0.0) == Quote(least_bits)


def test_price_falls_by_itself_and_not_to_and_fro() -> None:
    table = filled(80)
    price = Price(0, table)
    assert price.quote(CLIENT, 0.0).bits == 9
    for number in range(8):
        table.release(b"t", (f"100.0.{number}.1", 1), TTL_S)
    assert (table.load, price.quote(CLIENT, 0.0).bits) == (0.72, 8)
    table.expire(TTL_S)
    assert price.quote(CLIENT, 0.0) == FREE
    fill(table, 72, TTL_S)
    assert price.quote(CLIENT, 0.0) == FREE, "nearly full begins higher than it ends"


def test_who_has_much_of_its_networks_share_pays_more() -> None:
    table = filled(90)
    for number in range(10):
        table.open(b"t", ("203.0.113.7", number), 0.0)
    price = Price(0, table)
    assert price.quote(("203.0.113.8", 1), 0.0).bits == price.quote(CLIENT, 0.0).bits + 2


@pytest.mark.parametrize("count", [LEASES_KEPT_FREE, LEASES_KEPT_FREE + 1])
def test_keeping_has_a_price_for_those_alone_that_hold_many(count: int) -> None:
    table = filled(80)
    for number in range(count):
        table.open(b"t%d" % number, HOLDER, 0.0)
    quote = Price(0, table).quote(HOLDER, 0.0)
    assert quote.is_keeping_dear is (count > LEASES_KEPT_FREE)
    assert quote.attributes == ({"keep": str(quote.bits)} if count > LEASES_KEPT_FREE else {})
    assert not Price(0, table).quote(CLIENT, 0.0).is_keeping_dear


# --- At a server --------------------------------------------------------------------------------------


def crowded(count: int = 80, **limits: int) -> Server:
    """A server whose table of 100 has leases of as many addresses."""
    server = new_server(price_follows_load=True, ttl_s=TTL_S, limits=Limits(**{"leases": 100, **limits}))
    fill(server.leases, count, START)
    return server


def cookie_of(server: Server, address: Address, now: float = START) -> tuple[bytes, int, int]:
    """A fresh cookie, and the prices that are told with it: of a new lease, and of keeping one."""
    (challenge,) = answer(server, ask(), address, now)
    assert isinstance(challenge, wire.Challenge)
    return challenge.cookie, challenge.bits, int(challenge.attributes.get("keep", 0))


def test_a_quoted_price_holds_for_the_life_of_its_cookie() -> None:
    """§5.11: also when the table has filled up since; and when it has emptied."""
    server = crowded(78)
    cookie, bits, _ = cookie_of(server, CLIENT)
    assert bits == 8
    fill_more = [(f"100.1.{number}.1", 1) for number in range(20)]
    for address in fill_more:
        server.leases.open(b"t", address, START)
    assert cookie_of(server, CLIENT)[1] == 13
    now = START + COOKIE_LEASE_LIFE_S / 4
    receipt, *refusal = answer(server, vouched(cookie, b"t", stamp=minted(cookie, [b"t"], 8)), now=now)
    assert isinstance(receipt, wire.Receipt) and not refusal
    assert receipt.bits == 13, "the next one is quoted anew"
    (late,) = answer(server, vouched(cookie, b"u"), now=now)
    assert late == wire.Refusal(b"V", "work", 1, {"bits": "8"}), "what this cookie said"


def test_a_cookie_from_better_times_costs_what_it_said() -> None:
    server = crowded(10)
    cookie, bits, _ = cookie_of(server, CLIENT)
    assert bits == 0
    for number in range(80):
        server.leases.open(b"t", (f"100.1.{number}.1", 1), START)
    (receipt,) = answer(server, vouched(cookie, b"t"))
    assert isinstance(receipt, wire.Receipt) and receipt.bits == 11


TOPICS = [b"mine-%d" % number for number in range(20)]


def holding_many(server: Server) -> bytes:
    """Lets CLIENT have 20 leases; returns a cookie that was given before there was a price."""
    cookie, bits, keep_bits = cookie_of(server, CLIENT)
    assert (bits, keep_bits) == (0, 0)
    (receipt,) = answer(server, vouched(cookie, *TOPICS))
    assert isinstance(receipt, wire.Receipt)
    return receipt.cookie


def test_keeping_is_told_one_interval_ahead_and_then_costs() -> None:
    """§7.9: the first renewal after the table became nearly full is free, and tells what the next costs."""
    server = crowded(20)
    cookie = holding_many(server)
    for number in range(45):
        server.leases.open(b"t", (f"100.1.{number}.1", 1), START)
    now = START + 20
    (receipt,) = answer(server, vouched(cookie, *TOPICS), now=now)
    assert isinstance(receipt, wire.Receipt)
    assert (receipt.bits, receipt.attributes["keep"]) == (10, "10")
    cookie, now = receipt.cookie, now + 20
    for stamp in (None, exactly(cookie, TOPICS, 13)):  # 10 + ceil(log2(12)) are 14
        replies = answer(server, vouched(cookie, *TOPICS, stamp=stamp), now=now)
        assert isinstance(replies[0], wire.Receipt)
        assert replies[1] == wire.Refusal(b"V", "work", 0xFFF00, {"bits": "10"}), "all but the first 8"
    assert all(server.leases.is_live(topic, CLIENT, START + 79) for topic in TOPICS)
    (receipt,) = answer(server, vouched(cookie, *TOPICS, stamp=minted(cookie, TOPICS, 14)), now=now)
    assert isinstance(receipt, wire.Receipt)
    assert all(server.leases.is_live(topic, CLIENT, now + 59) for topic in TOPICS)
    assert server.drops == {Drop.WORK: 24}


def test_who_ignores_the_price_keeps_its_first_leases() -> None:
    server = crowded(20)
    cookie = holding_many(server)
    for number in range(20, 65):
        server.leases.open(b"t", (f"100.1.{number}.1", 1), START)
    for after_s in (20, 40, 60, 80, 100):
        now = START + after_s
        server.handle_timeout(now)
        for number in range(65):
            server.leases.renew(b"t", (f"100.{number // 20 and 1}.{number}.1", 1), now)
        reply = answer(server, vouched(cookie, *TOPICS), now=now)[0]
        assert isinstance(reply, wire.Receipt)
        cookie = reply.cookie
    # They were renewed at 20 s for the last time without a price, so they have ended at 80 s.
    assert [server.leases.is_live(topic, CLIENT, now) for topic in TOPICS] == [True] * 8 + [False] * 12


def test_a_cookie_asked_for_anew_tells_the_price_of_keeping_too() -> None:
    """Else whoever asked for one before each renewal would never pay."""
    server = crowded(60)
    holding_many(server)
    _, bits, keep_bits = cookie_of(server, CLIENT)
    assert (bits, keep_bits) == (9, 9)
    assert cookie_of(server, OTHER)[2] == 0
    assert cookie_of(server, THIRD)[2] == 0


def test_one_stamp_may_pay_for_new_leases_and_for_keeping_others() -> None:
    server = crowded(60)
    holding_many(server)
    cookie, bits, _ = cookie_of(server, CLIENT)
    lines = [*TOPICS, b"new"]
    due = bits + 4  # 12 beyond the first 8, and a new one
    replies = answer(server, vouched(cookie, *lines, stamp=exactly(cookie, lines, due - 1)))
    assert isinstance(replies[1], wire.Refusal) and replies[1].lines == 0x1FFF00
    (receipt,) = answer(server, vouched(cookie, *lines, stamp=minted(cookie, lines, due)))
    assert isinstance(receipt, wire.Receipt)
