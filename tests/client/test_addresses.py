"""client/core.py: servers with several addresses, of which some are silent, late or refuse. PROTOCOL §8.1.

A server has one lease of a client, whichever of its addresses answers: so nothing but requests for a cookie
goes to more than one of them.
"""

import heapq
from itertools import count, product
from random import Random
from typing import Any

import pytest

from kcast.client.cluster import Cluster, ServerEntry
from kcast.client.core import ClientCore
from kcast.client.events import AllServersLost, Drop, LeasesChanged, Outcome, Published, PublishedMany
from kcast.client.session import whereabouts
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from tests.client.test_core_servers import World, reply_line, v4, v6
from tests.support.fake_server import Asked, taken_apart

RTT_S = 0.02
ONE, FIVE = Policy(1, 1, 1), Policy(5, 3, 5)
WAYS = {"silent": None, "late": 0.3, "a little late": 0.24, "closed": None, "refused": None, "good": 0.0}
NEVER = 10_000.0


def third(number: int) -> Address:
    return f"2001:db8:3::{number}", 7400


class Ways(World):
    """One client, and servers with these addresses, whose `ways` are of the kinds of `WAYS`."""

    def __init__(self, policy: Policy = ONE, hosts: Any = (v6, v4), **options: Any) -> None:
        self.hosts = hosts
        self.asked: list[Asked] = []
        self.heard: list[tuple[float, Address]] = []  # answers that came
        self.ways: dict[Address, str] = {}
        self._coming: list[tuple[float, int, Address, bytes]] = []
        self._count = count()
        self._issued: dict[tuple[str, bytes], Address] = {}  # at which each cookie is good
        servers = tuple(
            ServerEntry(tuple(host(number) for host in hosts), f"h{number}")
            for number in range(1, 1 + policy.k)
        )
        super().__init__(policy, Cluster(servers, policy), **options)

    def go(self, *ways: str) -> None:
        """Makes the ways to the addresses of each server of these kinds."""
        for address in self.at:
            index = next(i for i, host in enumerate(self.hosts) if host(int(address[0][-1])) == address)
            self.ways[address] = ways[index]

    def _carry(self, transmit: Transmit) -> None:
        (address,) = transmit.destinations
        way = self.ways.get(address, "good")
        for data in datagrams(transmit.data, transmit.segment_bytes):
            asked = taken_apart(data, address, self.now)
            self.asked.append(asked)
            name = self.at[address]
            assert self._issued.get((name, asked.cookie), address) == address, "good at one address only"
            if way == "refused":
                self.core.handle_unreachable(address, self.now, is_closed=False)
            elif way == "closed":
                self._come(RTT_S, address, b"")
            elif (late_s := WAYS[way]) is not None:
                for reply in self.servers[name].answer(asked, self.now):
                    if isinstance(reply, wire.Challenge | wire.Receipt):
                        self._issued[name, reply.cookie] = address
                    self._come(RTT_S + late_s, address, reply_line(reply))

    def _come(self, delay_s: float, address: Address, data: bytes) -> None:
        heapq.heappush(self._coming, (self.now + delay_s, next(self._count), address, data))

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        self.turn()
        while True:
            at = min(self.core.next_timeout() or NEVER, self._coming[0][0] if self._coming else NEVER)
            if at > end:
                break
            self.now = max(self.now, at)
            while self._coming and self._coming[0][0] <= self.now:
                _, _, address, data = heapq.heappop(self._coming)
                if data:
                    self.heard.append((self.now, address))
                    self.hear(address, data)
                else:
                    self.core.handle_unreachable(address, self.now)
            self.turn()
        self.now = end

    def until(self, kind: type, for_s: float = 5.0) -> tuple[float, Any]:
        """The time until something is told, and what; NEVER and None where that takes longer."""
        began = self.now
        while self.now < began + for_s:
            self.run(0.01)
            if told := self.take_events(kind):
                return self.now - began, told[-1]
        return NEVER, None

    def check_one_address(self) -> None:
        """A server is asked at one address only for more than a cookie, and at no other one for anything
        after the first answer."""
        for name in self.names:
            of_server = [asked for asked in self.asked if self.at[asked.address] == name]
            used = {asked.address for asked in of_server if asked.verb != "?"}
            assert len(used) <= 1, f"{name} is used at {used}"
            first = min([at for at, address in self.heard if self.at[address] == name], default=NEVER)
            assert {asked.address for asked in of_server if asked.at > first} <= used


def dealing(world: Ways, deal: str) -> float:
    """How long it takes until a message has its receipts, or a topic its leases."""
    policy = world.cluster.policy
    if deal == "subscribe":
        world.core.subscribe(b"t", world.now)
        took_s, leases = world.until(LeasesChanged)
        world.run(0.1)
        assert world.core.lease_counts(b"t") == (policy.subscribe, policy.subscribe), leases
    elif deal == "many":
        world.core.publish_many(b"t", [b"x", b"y"], world.now)
        took_s, told = world.until(PublishedMany)
        assert told.receipts == 2, told
    else:
        confirm, repeat = deal == "confirm", 3 if deal == "repeat" else 1
        world.core.publish(b"t", b"x", world.now, confirm=confirm, repeat=repeat, repeat_interval_s=0.01)
        took_s, told = world.until(Published)
        assert told.receipts + told.sent >= policy.publish, told
    return took_s


def test_a_silent_address_costs_a_quarter_of_a_second_and_no_server_is_used_at_two() -> None:
    deals, policies = ("confirm", "sent", "repeat", "many", "subscribe"), (ONE, FIVE)
    bounds_s = {"silent": 0.25, "late": 0.25, "a little late": 0.48, "closed": RTT_S, "refused": 0, "good": 0}
    for policy, way, deal in product(policies, bounds_s, deals):
        for hosts, ways in (
            ((v6, v4), (way, "good")),
            ((v4, v6), (way, "good")),
            ((v4, v6), ("good", way)),
            ((v6, v4, third), (way, "good", "silent")),
        ):
            world = Ways(policy, hosts)
            world.go(*ways)
            bound_s = bounds_s[ways[0]] + 3 * RTT_S + (0.02 if deal == "repeat" else 0) + 0.021
            assert dealing(world, deal) <= bound_s, (policy, hosts, ways, deal)
            world.run(60)
            world.check_one_address()
            assert set(world.core.server_states().values()) == {"alive"}, "no silence is held against it"
    world = Ways(ONE, (v6, v4, third))
    world.go("silent", "silent", "good")
    assert dealing(world, "confirm") <= 0.5 + 3 * RTT_S
    world.check_one_address()


def test_a_second_address_is_asked_while_the_first_is_silent_only() -> None:
    for way, expected in (("silent", {v6(1): 1, v4(1): 2}), ("a little late", {v6(1): 2, v4(1): 1})):
        world = Ways()
        world.go(way, "good")
        world.published()
        assert {at: sum(asked.address == at for asked in world.asked) for at in world.at} == expected
        late = {"silent": 0, "a little late": 1}[way]
        assert world.core.drops[Drop.UNKNOWN_SOURCE] == late, "the answer of the second one came second"


@pytest.mark.parametrize("policy", [ONE, FIVE])
def test_a_publisher_whose_server_falls_silent_at_one_address_goes_on_at_the_other(policy: Policy) -> None:
    """Within a message's own time: half a second of silence, and a quarter for the address in use."""
    for confirm, way in product((True, False), ("silent", "closed", "refused")):
        world = Ways(policy)
        world.published(confirm=confirm)
        world.published(repeat=5)
        world.go(way, "good")
        world.core.publish(b"t", b"x", world.now)
        took_s, told = world.until(Published)
        assert told.receipts == policy.publish and took_s < 0.85, (way, told, took_s)
        assert world.published().receipts == policy.publish
        world.run(60)
        assert set(world.core.server_states().values()) == {"alive"}


def test_a_message_goes_on_at_the_other_address_once_only_and_then_to_another_server() -> None:
    world = Ways(Policy(5, 1, 5))
    for _ in range(20):
        world.published(0.5)
    world.sent.clear()
    dead = {host(1) for host in world.hosts}
    world.ways.update(dict.fromkeys(dead, "silent"))
    for _ in range(20):
        world.core.publish(b"t", b"x", world.now)
        took_s, told = world.until(Published)
        assert told.receipts == 1 and took_s < 1.5
    world.run(5)
    assert world.core.server_states()[world.names[0]] == "lost"


def test_a_lease_that_may_stand_keeps_a_client_at_its_address_until_the_server_is_lost() -> None:
    """Else the server would hold two leases of it; its own publishes wait for that, too."""
    for losing_s in (RTT_S, 1.5 * RTT_S, 5.0):
        world = Ways()
        world.core.subscribe(b"t", world.now)
        world.run(losing_s)
        world.go("silent", "good")
        world.core.publish(b"t", b"x", world.now)
        world.run(0.9)
        assert v4(1) not in {asked.address for asked in world.asked}, losing_s
        world.run(30)
        assert world.core.lease_counts(b"t") == (1, 1)
        assert world.published().receipts == 1


def test_a_server_that_refuses_at_all_its_addresses_is_lost_as_soon_as_one_with_a_single_address() -> None:
    took_s = []
    for hosts in ((v4,), (v6, v4)):
        world = Ways(ONE, hosts)
        world.go(*["closed"] * len(hosts))
        world.core.publish(b"t", b"x", world.now)
        took_s.append(world.until(AllServersLost)[0])
    assert took_s[1] < took_s[0] + 0.2 < 2


def test_who_answers_from_elsewhere_needs_the_nonce_and_an_address_that_was_asked() -> None:
    def forged(nonce: bytes) -> bytes:
        return reply_line(wire.Challenge(nonce, b"f" * 32, 0))

    world = Ways()
    world.go("silent", "silent")
    world.core.publish(b"t", b"x", world.now)
    world.run(0.1)
    nonce = world.asked[0].nonce
    session = world.core.sessions.at[v6(1)]
    world.hear(v4(1), forged(nonce))
    assert session.address == v6(1), "nothing was asked there yet"
    world.run(0.2)
    receipt = reply_line(wire.Receipt(nonce, 60, b"f" * 32, 0))
    for data in (forged(b"x" + nonce[1:]), receipt, b"t copy\n", b"\n", b"%= \n" + forged(nonce)):
        world.hear(v4(1), data)
        assert session.address == v6(1)
    world.hear(v4(9), forged(nonce))
    assert world.core.drops[Drop.UNKNOWN_SOURCE] == 7 and session.address == v6(1)
    world.hear(v4(1), forged(nonce))
    assert session.address == v4(1)
    world.hear(v6(1), forged(nonce))
    assert session.address == v4(1), "the first answer counts"


def test_a_name_that_leads_to_both_families_is_asked_at_both() -> None:
    for addresses, deal in product(((v6(1), v4(1)), (v4(1), v6(1))), ("confirm", "subscribe")):
        world = Ways()
        named = ("localhost", 7400)
        cluster = Cluster((ServerEntry((), "a", named),), ONE, has_names=True)
        world.core = ClientCore(cluster, Random(1))
        world.ways = {addresses[0]: "silent"}
        if deal == "subscribe":
            world.core.subscribe(b"t", world.now)
        else:
            world.core.publish(b"t", b"x", world.now)
        assert world.core.take_lookups(world.now) == [named]
        world.core.located(named, addresses, world.now)
        took_s, told = world.until(LeasesChanged if deal == "subscribe" else Published)
        assert took_s <= whereabouts.NEXT_AFTER_S + 3 * RTT_S + 0.01, told
        world.core.located(named, addresses[::-1], world.now)
        world.run(60)
        world.check_one_address()


def test_answers_later_than_any_timeout_are_still_of_use() -> None:
    """The way back takes longer than is waited for: at both addresses, and at the only one that answers."""
    for ways in (("silent", "slow"), ("slow", "slow"), ("slow", "silent")):
        world = Ways()
        world.go(*ways)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(WAYS, "slow", 1.4)
            world.core.subscribe(b"t", world.now)
            world.run(30)
            assert world.core.lease_counts(b"t") == (1, 1)
            assert world.published(20, repeat=3).servers == {world.names[0]: Outcome.RECEIPT}
        world.check_one_address()
