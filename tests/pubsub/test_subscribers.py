"""pubsub/subscribers.py: credit, in virtual time; and what is sent to each IP and network. PROTOCOL §7.7."""

import random
from collections import Counter

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, CREDIT_BYTES_MIN, Limits
from kcast.pubsub.networks import Networks
from kcast.pubsub.server import Server
from kcast.pubsub.subscribers import Subscribers
from kcast.pubsub.table import LeaseTable
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    answer,
    handshake,
    lease,
    new_server,
    publish_lease,
    send,
    vouched,
)

TTL_S = 60.0
LINE = b"t ".ljust(999, b"m") + b"\n"


class Bench:
    def __init__(self, *, is_open: bool = False, **limits: int) -> None:
        self.drops: Counter[Drop] = Counter()
        self.table = LeaseTable(TTL_S, Limits(**limits))
        self.subscribers = Subscribers(
            self.table.holders, Networks(), Limits(**limits), TTL_S, self.drops, is_open=is_open
        )

    def send(
        self, size_bytes: int, *addresses: Address, now: float = START, segment_bytes: int = 1000
    ) -> int:
        """Tries to send so much to each; how much leaves."""
        data = b"".join([b"m" * (segment_bytes - 1) + b"\n"] * -(-size_bytes // segment_bytes))[:size_bytes]
        granted = self.subscribers.granted(Transmit(data, segment_bytes, addresses), now)
        return sum(len(each.data) * len(each.destinations) for each in granted)

    def lease(self, address: Address, now: float, *, is_bare: bool = False) -> None:
        """An address asks for a lease, as all do here on the same topic."""
        self.expire(now)
        if self.table.is_live(b"t", address, now):
            self.table.renew(b"t", address, now)
        else:
            self.table.open(b"t", address, now)
        self.subscribers.leased(address, now, is_bare=is_bare)

    def expire(self, now: float) -> None:
        """What has ended is forgotten."""
        while self.table.expire(now):
            pass
        self.subscribers.expire(now)

    def renew(self, minted_at: float, now: float) -> float:
        """A renewal that shows a cookie minted then; when that of its receipt was minted."""
        self.lease(CLIENT, now)
        self.subscribers.showed(CLIENT, minted_at, now)
        self.subscribers.minted(CLIENT, now)
        return now

    def renew_of(self, address: Address, now: float) -> None:
        """Renewals that show all has been taken: credit is no matter."""
        self.lease(address, now)
        self.subscribers.minted(address, now)
        self.subscribers.showed(address, now + 1, now)

    def credit(self) -> int:
        credit_bytes = self.subscribers.credit_bytes(CLIENT)
        assert credit_bytes is not None
        return credit_bytes


def test_who_holds_no_lease_is_sent_nothing_that_counts() -> None:
    bench = Bench()
    assert bench.subscribers.credit_bytes(CLIENT) is None
    assert bench.send(10**6, CLIENT) == 10**6


def test_a_silent_subscriber_is_sent_64_kib_and_no_more() -> None:
    bench = Bench()
    bench.renew(START, START)
    got = sum(bench.send(1000, CLIENT, now=START + number) for number in range(100))
    assert CREDIT_BYTES_MIN - 1000 < got <= CREDIT_BYTES_MIN
    assert bench.drops == {Drop.CREDIT: 100 - got // 1000}
    assert bench.credit() == CREDIT_BYTES_MIN - got


def test_of_a_run_as_many_datagrams_are_sent_as_the_credit_allows() -> None:
    bench = Bench()
    bench.renew(START, START)
    assert bench.send(100_000, CLIENT) == 65_000
    assert bench.drops == {Drop.CREDIT: 35}
    assert bench.send(100_000, CLIENT, OTHER) == 100_000


def test_a_cookie_shows_that_what_was_sent_before_it_arrived() -> None:
    bench = Bench()
    first = bench.renew(START, START)
    bench.send(40_000, CLIENT, now=START + 1)
    second = bench.renew(first, START + 2)
    assert bench.credit() == CREDIT_BYTES_MIN - 40_000, "it was minted before anything was sent"
    bench.send(10_000, CLIENT, now=START + 3)
    bench.renew(second, START + 4)
    assert bench.credit() == CREDIT_BYTES_MIN - 10_000


def test_who_leaves_is_sent_64_kib_at_most_whatever_is_done_with_its_last_cookies() -> None:
    """Every strategy of an attacker who received all until some moment, and nothing afterwards."""
    rng = random.Random(7)
    for _ in range(200):
        bench = Bench()
        cookies = [bench.renew(START, START)]
        now, before = START, 0
        for _ in range(rng.randint(0, 8)):
            now += rng.random()
            before += bench.send(rng.choice((1000, 20_000, 60_000)), CLIENT, now=now)
            now += rng.random()
            cookies.append(bench.renew(rng.choice(cookies), now))
        allowed = max(CREDIT_BYTES_MIN, before)
        beyond = 0
        for _ in range(300):
            now += rng.random() / 3
            beyond += bench.send(rng.choice((1000, 20_000)), CLIENT, now=now)
            if now - cookies[-1] < COOKIE_LEASE_LIFE_S:
                bench.renew(rng.choice(cookies), now)
            bench.expire(now)
        assert beyond <= allowed


def test_who_takes_much_is_sent_as_much_without_a_sign_of_life() -> None:
    """And no more than it took within the last ttl."""
    bench = Bench()
    now = START
    cookie = bench.renew(now, now)
    for _ in range(400):
        bench.send(50_000, CLIENT, now=now + 0.01)
        now += 0.05
        cookie = bench.renew(cookie, now)
    assert bench.drops[Drop.CREDIT] < 100, "only in the first half second"
    at_most = bench.credit()
    assert 10_000_000 < at_most <= 400 * 50_000
    assert bench.send(at_most + 10**6, CLIENT, now=now) == at_most // 1000 * 1000
    assert bench.credit() == 0


@pytest.mark.parametrize("rtt_s", [0.0002, 0.05])
def test_ten_megabytes_a_second_need_no_more_than_a_second_to_begin(rtt_s: float) -> None:
    """The client renews at half of what it was told, and at once where that is little."""
    bench = Bench()
    step_s, per_s = min(rtt_s, 0.001), 10_000_000
    cookie = bench.renew(START, START)
    got, told, asked_at, lost_late = 0, CREDIT_BYTES_MIN, -1.0, 0
    count = int(3 / step_s)
    for number in range(count):
        now = START + number * step_s
        size_bytes = max(1000, int(per_s * step_s))
        lost = size_bytes - bench.send(size_bytes, CLIENT, now=now, segment_bytes=1000)
        got += size_bytes - lost
        lost_late += lost if now > START + 2 else 0
        if asked_at < 0 and (got >= told / 2 or told < 40_960):
            asked_at = now + rtt_s / 2
        if 0 <= asked_at <= now:
            cookie = bench.renew(cookie, now)
            told, got, asked_at = bench.credit(), 0, -1.0
    assert lost_late == 0


def test_an_address_is_forgotten_when_its_last_cookie_is_worth_nothing() -> None:
    bench = Bench()
    bench.renew(START, START)
    bench.send(1000, CLIENT)
    ends_at = START + TTL_S
    bench.expire(ends_at)
    bench.expire(ends_at + COOKIE_LEASE_LIFE_S - 0.1)
    assert len(bench.subscribers) == 1
    assert bench.credit() == CREDIT_BYTES_MIN - 1000
    bench.subscribers.minted(CLIENT, ends_at + 100)
    bench.expire(ends_at + 100 + COOKIE_LEASE_LIFE_S - 0.1)
    assert bench.subscribers.next_expiry() == ends_at + 100 + COOKIE_LEASE_LIFE_S
    bench.expire(ends_at + 100 + COOKIE_LEASE_LIFE_S)
    assert not (len(bench.subscribers) or bench.subscribers._credits or bench.subscribers._rates)


def test_nothing_is_kept_of_who_was_sent_nothing() -> None:
    """Each address of a full server may be one. And it is forgotten though cookies are made for it."""
    bench = Bench()
    for number in range(8):
        bench.renew(START + 20 * number, START + 20 * number)
    assert not (bench.subscribers._credits or bench.subscribers._rates)
    assert bench.credit() == CREDIT_BYTES_MIN
    ends_at = START + 140 + TTL_S
    bench.expire(ends_at)
    bench.subscribers.minted(CLIENT, ends_at + 100)
    bench.expire(ends_at + COOKIE_LEASE_LIFE_S)
    assert not bench.subscribers


def test_an_ip_is_sent_no_more_than_its_rate_whatever_its_ports() -> None:
    bench = Bench(egress_bytes_per_s=100_000)
    ports = [("198.51.100.1", port) for port in range(1000, 1100)]
    for port in ports:
        bench.lease(port, START)
    bench.lease(OTHER, START)
    assert 100_000 <= bench.send(20_000, *ports) <= 120_000
    assert bench.drops[Drop.EGRESS_RATE] > 1000
    assert bench.send(20_000, OTHER) == 20_000


def test_a_network_is_sent_no_more_than_eight_times_as_much() -> None:
    bench = Bench(egress_bytes_per_s=100_000)
    hosts = [(f"198.51.100.{number}", 1) for number in range(100)]
    sent_bytes = 0.0
    for second in range(10):
        for host in hosts:
            bench.renew_of(host, START + second)
        sent_bytes += bench.send(20_000, *hosts, now=START + second) * 1.066
    assert 800_000 * 10 <= sent_bytes <= 1.1 * 800_000 * 10


def test_who_is_sent_little_is_sent_it_all_beside_neighbours_who_are_sent_more_than_they_may() -> None:
    """IPs of a /24, and ports of an IP."""
    neighbours = [(f"198.51.100.{number}", 1) for number in range(1, 17)]
    ports = [("203.0.113.7", number) for number in range(1, 4)]
    for hogs, modest in ((neighbours, ("198.51.100.99", 1)), (ports, ("203.0.113.7", 99))):
        bench = Bench(egress_bytes_per_s=200_000)
        got, wanted = 0, 0
        for step in range(1000):
            now = START + step / 50
            for address in (*hogs, modest):
                bench.renew_of(address, now)
            bench.send(8000, *hogs, now=now)
            if step % 5 == 2:
                wanted += 100
                got += bench.send(100, modest, now=now, segment_bytes=100)
        assert bench.drops[Drop.EGRESS_RATE] > 1000
        assert got >= 0.99 * wanted


# --- Through the server -------------------------------------------------------------------------------


def told(server: Server, cookie: bytes, *lines: bytes, now: float = START) -> tuple[str | None, bytes]:
    receipt = answer(server, vouched(cookie, *lines), now=now)[0]
    assert isinstance(receipt, wire.Receipt)
    return receipt.attributes.get("credit"), receipt.cookie


def test_912_bytes_bring_64_kib_at_most() -> None:
    """A subscriber leaves, another has its address, and its last renewal is replayed."""
    server = new_server()
    _, cookie = told(server, handshake(server), b"t")
    publish_lease(server, OTHER)
    replay = vouched(cookie, b"t")
    total = 0
    for number in range(1880):
        now = START + number / 10
        if number % 20 == 0:
            answer(server, replay, now=now)
            lease(server, OTHER, b"other", now=now)
            publish_lease(server, OTHER, now=now)
        total += sum(len(data) for to, data in send(server, LINE, OTHER, now) if to == CLIENT)
        server.handle_timeout(now)
    assert CREDIT_BYTES_MIN - len(LINE) < total <= CREDIT_BYTES_MIN
    assert server.drops[Drop.CREDIT] > 1000


# --- Without a cookie, at an open server ----------------------------------------------------------------


def test_who_has_shown_no_cookie_has_rates_and_no_credit() -> None:
    bench = Bench(is_open=True, egress_bytes_per_s=200_000)
    bench.lease(CLIENT, START, is_bare=True)
    assert bench.subscribers.credit_bytes(CLIENT) is None
    got = sum(bench.send(10_000, CLIENT, now=START + number / 100) for number in range(1000))
    assert 9 * 200_000 < got < 12 * 200_000
    assert bench.drops.keys() == {Drop.EGRESS_RATE}


def test_who_then_shows_a_cookie_has_credit_from_then_on() -> None:
    bench = Bench(is_open=True)
    bench.lease(CLIENT, START, is_bare=True)
    bench.send(1_000_000, CLIENT)
    bench.renew(START, START + 1)
    assert bench.credit() == CREDIT_BYTES_MIN
    bench.lease(CLIENT, START + 2, is_bare=True)
    assert bench.credit() == CREDIT_BYTES_MIN, "a bare renewal may be forged, and proves nothing"


def test_bare_renewals_keep_what_is_known_of_an_address() -> None:
    """Its credit was forgotten 128 s after its last cookie, though its lease stood."""
    server = new_server(open_to=lambda source: True)
    lease(server, CLIENT, b"t")
    publish_lease(server, OTHER)
    got = 0
    for second in range(0, 400, 10):
        now = START + second
        server.handle_timeout(now)
        send(server, b"t\n", CLIENT, now)
        lease(server, OTHER, now=now)
        for _ in range(5):
            got += sum(len(data) for where, data in send(server, LINE, OTHER, now) if where == CLIENT)
    assert 0 < got <= CREDIT_BYTES_MIN
