"""client/allowance.py: what the stamps of servers may cost. PROTOCOL §5.11.

A try takes a millisecond here, so 12 bits cost about 4 s.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from kcast.client.allowance import ALL_S, DOUBT_S, PROOF_S, Allowance, Spending
from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from tests.support.fake_server import FakeServer, taken_apart

TRY_S = 0.001


@dataclass
class Seller(FakeServer):
    """Sells leases, and keeps none for longer than `keeps_s`, counted from the first sale."""

    ttl_s: int = 1
    keeps_s: float = 0.0
    sold: list[float] = field(default_factory=list)
    _sold_at: dict[bytes, float] = field(default_factory=dict)

    def _lease(self, asked: object, now: float) -> list[wire.Reply]:
        for topic, at in list(self._sold_at.items()):
            if now > at + self.keeps_s:
                self.leases.pop(topic, None)
                del self._sold_at[topic]
        before = set(self.leases)
        replies = super()._lease(asked, now)  # type: ignore[arg-type]
        for topic in set(self.leases) - before:
            self.sold.append(now)
            self._sold_at[topic] = now
        return replies


class Several:
    """A client that works whenever it can, and servers of any kind, 20 ms apart."""

    def __init__(self, *servers: FakeServer, topics: int = 1, seed: int = 1) -> None:
        self.now = 1000.0
        addresses: list[Address] = [(f"192.0.2.{number}", 7400) for number in range(1, 1 + len(servers))]
        self.servers = dict(zip(addresses, servers, strict=True))
        count = len(servers)
        self.core = ClientCore(lab(addresses, Policy(count, count, count)), Random(seed))
        self.core.try_s = TRY_S
        self.worked_s = 0.0
        for number in range(topics):
            self.core.subscribe(b"t%d" % number, self.now)

    def run(self, for_s: float) -> float:
        """Returns the seconds that were worked."""
        end, before_s = self.now + for_s, self.worked_s
        while self.now < end:
            self._exchange()
            if self.core.is_minting:
                self.core.work(20, self.now)
                self.now += 20 * TRY_S
                self.worked_s += 20 * TRY_S
            else:
                due = self.core.next_timeout()
                self.now = min(end, max(self.now + 0.001, end if due is None else due))
        return self.worked_s - before_s

    def _exchange(self) -> None:
        for _ in range(1000):
            self.core.handle_timeout(self.now)
            transmits = self.core.flush(self.now)
            self.core.events()
            for transmit in transmits:
                for data in datagrams(transmit.data, transmit.segment_bytes):
                    self._answer(data, transmit.destinations[0])
            if not transmits:
                return
        raise AssertionError("client and servers talk without end at one moment")

    def _answer(self, data: bytes, address: Address) -> None:
        replies = self.servers[address].answer(taken_apart(data, address, self.now), self.now)
        answer = b"".join(map(wire.format_line, replies))
        if answer:
            self.core.receive(Burst(answer, len(answer), address), self.now)


def leased(several: Several) -> list[int]:
    topics = [b"t%d" % number for number in range(len(several.core._subscriptions._subscriptions))]
    return [several.core.lease_counts(topic)[0] for topic in topics]


# --- Servers that cheat -------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_s", [0.0, 0.4, 2.0, 20.0, 60.0])
@pytest.mark.parametrize("bits", [8, 12])
def test_seller_that_does_not_keep_gets_two_percent_of_a_core_at_most(bits: int, keeps_s: float) -> None:
    several = Several(Seller(bits=bits, keeps_s=keeps_s, ttl_s=1 if keeps_s < 10 else 15))
    assert several.run(600) <= 0.02 * 600
    for _ in range(3):
        assert several.run(600) <= 0.02 * 600


@pytest.mark.parametrize("count", [2, 5, 8])
def test_all_of_them_together_get_no_more(count: int) -> None:
    several = Several(*(Seller(bits=11 + number % 3) for number in range(count)))
    assert several.run(600) <= 0.02 * 600
    assert several.run(600) <= 0.02 * 600


def test_honest_server_is_joined_among_sellers_at_once_and_after_a_restart() -> None:
    """9 bits cost half a second here, as 20 do on a usual machine."""
    honest = FakeServer(bits=9)
    several = Several(*(Seller(bits=12) for _ in range(4)), honest)
    several.run(15)
    assert several.core.sessions.at["192.0.2.5", 7400].is_leased(b"t0")
    several.run(100)
    for _ in range(3):
        honest.restart()
        several.run(45)
        assert several.core.sessions.at["192.0.2.5", 7400].is_leased(b"t0")
        several.run(300)
    assert several.core.sessions.at["192.0.2.5", 7400].is_leased(b"t0")


def test_servers_that_keep_what_they_sell_are_paid_whatever_they_ask() -> None:
    several = Several(FakeServer(bits=11))
    worked_s = 0.0
    for number in range(1, 16):
        worked_s += several.run(60)
        assert leased(several) == [1] * number
        several.core.subscribe(b"t%d" % number, several.now)
    assert worked_s > 2 * ALL_S


def test_search_that_the_allowance_ends_goes_on_when_it_is_back() -> None:
    """Nobody is shut out for ever: a server that has mended its ways is joined."""
    seller = Seller(bits=12)
    several = Several(seller)
    several.run(600)
    assert not several.core.is_minting
    seller.keeps_s = 10**9
    several.run(800)
    assert leased(several) == [1]


def test_what_the_sessions_of_removed_servers_cost_comes_back_too() -> None:
    several = Several(*(Seller(bits=12) for _ in range(3)))
    several.run(100)
    assert several.core.sessions.spending.spent_s > ALL_S / 2
    several.core.unsubscribe(b"t0")
    several.core.sessions.spending.forget_before(several.now)
    assert several.core.sessions.spending.spent_s == pytest.approx(0)


# --- By itself ----------------------------------------------------------------------------------------


def allowances(count: int) -> tuple[Spending, list[Allowance]]:
    spending = Spending()
    spending.try_s = TRY_S
    return spending, [Allowance(spending) for _ in range(count)]


def exhaust(allowance: Allowance, now: float) -> float:
    """What is spent until nothing is left."""
    tries = 0
    while allowance.is_left(now):
        allowance.spend(1, now)
        tries += 1
    return tries * TRY_S


def test_each_gets_half_of_what_the_others_left() -> None:
    _, servers = allowances(5)
    assert [exhaust(server, 0.0) for server in servers] == pytest.approx(
        [5, 2.5, 1.25, 0.625, 0.3125], abs=0.01
    )


def test_all_comes_back_in_ten_minutes() -> None:
    spending, (server,) = allowances(1)
    exhaust(server, 0.0)
    assert not server.is_left(DOUBT_S - 0.1)
    assert server.is_left(DOUBT_S)
    assert spending.spent_s == pytest.approx(0)


@pytest.mark.parametrize(("after_s", "is_left"), [(PROOF_S - 0.1, False), (PROOF_S, True)])
def test_renewal_brings_back_what_was_spent_if_it_comes_late_enough(after_s: float, is_left: bool) -> None:
    _, (server,) = allowances(1)
    exhaust(server, 0.0)
    server.bought(b"t", 1.0)
    server.renewed(b"other", 1.0 + after_s)
    assert not server.is_left(1.0 + after_s)
    server.renewed(b"t", 1.0 + after_s)
    assert server.is_left(1.0 + after_s) is is_left


def test_renewal_does_not_bring_back_what_was_spent_after_the_purchase() -> None:
    _, (server,) = allowances(1)
    server.bought(b"t", 1.0)
    exhaust(server, 2.0)
    server.renewed(b"t", 100.0)
    assert not server.is_left(100.0)


def test_renewals_of_a_server_that_ended_a_lease_bring_nothing_back_for_ten_minutes() -> None:
    _, (server,) = allowances(1)
    server.bought(b"t", 0.0)
    server.bought(b"u", 0.0)
    server.ended([b"u", b"v"], 50.0)
    exhaust(server, 60.0)
    server.bought(b"w", 61.0)
    server.renewed(b"w", 50.0 + DOUBT_S - 1)
    assert not server.is_left(50.0 + DOUBT_S - 1)
    server.renewed(b"w", 50.0 + DOUBT_S)
    assert server.is_left(50.0 + DOUBT_S)


def test_what_is_lasting_comes_back_with_time_only() -> None:
    spending, (server,) = allowances(1)
    server.spend(4000, 0.0)
    server.spend(4000, 0.0, is_lasting=True)
    server.bought(b"t", 1.0)
    server.renewed(b"t", 100.0)
    assert spending.spent_s == pytest.approx(4)
    server.spend(100, 300.0, is_lasting=True)
    assert server.is_left(DOUBT_S)
    assert spending.spent_s == pytest.approx(0.1)


def test_leases_that_were_free_or_are_not_wanted_raise_no_doubt() -> None:
    _, (server,) = allowances(1)
    exhaust(server, 0.0)
    server.bought(b"t", 0.0)
    server.bought(b"u", 0.0)
    server.unwanted(b"u")
    server.ended([b"u", b"free"], 1.0)
    server.renewed(b"t", PROOF_S)
    assert server.is_left(PROOF_S)
