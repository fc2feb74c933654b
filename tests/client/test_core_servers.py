"""client/core.py: which servers are used, when they drain, cost work, restart, or have several addresses.

PROTOCOL §5.11, §7.6, §8.1, §8.5.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from kcast.client.cluster import Cluster, ServerEntry, lab
from kcast.client.core import ClientCore
from kcast.client.events import (
    AllServersLost,
    Delivery,
    Drop,
    FamilyMissing,
    LeaseRefused,
    LeasesChanged,
    Outcome,
    Published,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
)
from kcast.client.messages.guard_and_writer import Told
from kcast.client.messages.sequence import TOPICS_MAX
from kcast.client.receiving.dedup import RAW_OPEN_S
from kcast.client.session.requests import TIMEOUT_S_FIRST
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams, format_address
from kcast.pubsub.limits import WORK_BITS_MAX
from tests.support.client_lab import SUB, Lab
from tests.support.fake_server import START, FakeServer, taken_apart

ALL = Policy(5, 5, 5)
FEW_PUBLISH = Policy(5, 3, 5)
ONE_OF_FIVE = Policy(5, 1, 5)
FEW_SUBSCRIBE = Policy(5, 5, 2)


def v4(number: int) -> Address:
    return f"192.0.2.{number}", 7400


def v6(number: int) -> Address:
    return f"2001:db8::{number}", 7400


class World:
    """One client, and fake servers that it reaches at once; `down` are addresses where nothing arrives."""

    def __init__(self, policy: Policy = FEW_PUBLISH, cluster: Cluster | None = None, **options: Any) -> None:
        self.now = START
        self.cluster = cluster or lab([v4(number) for number in range(1, 6)], policy)
        self.servers = {server.name: FakeServer() for server in self.cluster.servers}
        self.at = {address: server.name for server in self.cluster.servers for address in server.addresses}
        self.down: set[Address] = set()
        self.core = ClientCore(self.cluster, Random(options.pop("seed", 1)), **options)
        self.sent: list[tuple[Address, bytes]] = []  # lines that are published, with where they went
        self.events: list[Told] = []
        self.questions: list[tuple[float, Address]] = []  # when which server was asked anything

    @property
    def names(self) -> list[str]:
        return [server.name for server in self.cluster.servers]

    def turn(self) -> None:
        """What is due now, until all are quiet."""
        for _ in range(1000):
            self.core.handle_timeout(self.now)
            transmits = self.core.flush(self.now)
            self.events += self.core.events()
            if not transmits:
                return
            for transmit in transmits:
                self._carry(transmit)
        raise AssertionError("client and servers talk without end at one moment")

    def _carry(self, transmit: Transmit) -> None:
        (address,) = transmit.destinations
        for data in datagrams(transmit.data, transmit.segment_bytes):
            asked = taken_apart(data, address, self.now)
            self.questions.append((self.now, address))
            self.sent += [(address, line) for line in asked.messages]
            if address not in self.down:
                for reply in self.servers[self.at[address]].answer(asked, self.now):
                    self.hear(address, reply_line(reply))

    def hear(self, address: Address, data: bytes) -> None:
        self.core.receive(Burst(data, len(data), address), self.now)

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        self.turn()
        while (at := self.core.next_timeout()) is not None and at <= end:
            self.now = max(self.now, at)
            self.turn()
        self.now = end

    def work(self) -> None:
        self.turn()
        while self.core.work(1000, self.now):
            self.turn()
        self.turn()

    def take_events(self, *kinds: type) -> list[Told]:
        events, self.events = self.events, []
        return [event for event in events if not kinds or isinstance(event, kinds)]

    def published(self, wait_s: float = 5.0, **options: Any) -> Published:
        handle = self.core.publish(b"t", b"x", self.now, **options)
        self.run(wait_s)
        (event,) = [e for e in self.events if isinstance(e, Published) and e.handle == handle]
        self.events.remove(event)
        return event

    def used(self, count: int = 60) -> Counter[str]:
        """Publishes messages; returns the servers that they went to, by name."""
        self.sent.clear()
        for _ in range(count):
            self.core.publish(b"t", b"x", self.now)
            self.turn()
        return Counter(format_address(address) for address, _ in self.sent)

    def leased_at(self, topic: bytes = b"t") -> set[str]:
        return {name for name, server in self.servers.items() if server.is_leased(topic, self.now)}


def reply_line(reply: Any) -> bytes:
    from kcast.pubsub import wire

    return wire.format_line(reply)


def drain(server: FakeServer) -> None:
    server.attributes = {"drain": "1"}


def restart(server: FakeServer) -> None:
    server.restart()
    server.attributes, server.is_up = {}, True


def known(policy: Policy = FEW_PUBLISH, **options: Any) -> World:
    """A client that has had dealings with all servers."""
    world = World(policy, **options)
    world.core.subscribe(b"t", world.now)
    world.core.publish(b"t", b"first", world.now, repeat=5, repeat_interval_s=0.1)
    world.run(2)
    world.take_events()
    return world


# --- Draining -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("avoid_dead", "unused"), [(True, 1), (False, 0)])
def test_publishers_that_avoid_the_dead_prefer_servers_that_do_not_drain(
    avoid_dead: bool, unused: int
) -> None:
    world = known(avoid_dead=avoid_dead)
    drain(world.servers[world.names[0]])
    world.run(25)
    assert world.take_events() == [ServerDraining(world.names[0])]
    assert set(world.used(100)) == set(world.names[unused:])


def test_a_draining_server_is_better_than_one_that_just_came_back_and_that_than_a_dead_one() -> None:
    world = known(Policy(5, 2, 5))
    draining, cold, dead, *_ = world.names
    restart(world.servers[cold])
    world.down = {v4(3)}
    world.run(60)
    drain(world.servers[draining])
    world.run(25)
    restart(world.servers[cold])
    world.take_events()
    while not world.take_events(ServerForgot):
        world.run(1)
    assert world.core.server_states()[dead] == "lost"
    assert not world.core.sessions.at[v4(2)].is_warm(world.now)
    warm = set(world.names[3:])
    assert set(world.used()) == warm
    world.down |= {v4(4)}
    world.run(60)
    world.servers[cold].restart()
    world.run(25)
    assert set(world.used()) == {*warm, draining} - {world.names[3]}
    world.down |= {v4(5)}
    world.run(60)
    world.servers[cold].restart()
    world.run(25)
    assert set(world.used()) == {draining, cold}
    world.down |= {v4(1)}
    world.run(60)
    assert world.used(30)[cold] == 30
    assert len(world.used(30)) > 1, "fewer than two look alive: others have to do"


def test_few_subscribe_leaves_a_draining_server_before_it_stops() -> None:
    """No moment without a lease: the new one stands at once, and the old one goes on until it ends."""
    world = known(FEW_SUBSCRIBE)
    draining, other = sorted(world.leased_at())
    drain(world.servers[draining])
    world.run(20)
    moved_to = world.leased_at() - {draining, other}
    assert len(moved_to) == 1
    assert world.core.lease_counts(b"t") == (2, 2)
    assert draining in world.leased_at()
    world.hear(next(a for a, name in world.at.items() if name == draining), b"t late\n")
    world.turn()
    assert [event.payload for event in world.take_events(Delivery) if isinstance(event, Delivery)] == [
        b"late"
    ]
    world.run(100)
    assert world.leased_at() == {other, *moved_to}


def test_few_subscribe_stays_where_there_is_no_better_one() -> None:
    world = known(FEW_SUBSCRIBE)
    before = world.leased_at()
    for name in [*(set(world.names) - before), *before]:
        drain(world.servers[name])
        world.published()
    world.run(100)
    assert world.leased_at() == before
    assert len(world.take_events(ServerDraining)) == 5
    spare = next(name for name in world.names if name not in before)
    restart(world.servers[spare])
    world.run(25)
    assert spare in world.leased_at(), "one that drains no longer takes the place of one that does"


def test_who_subscribes_anew_draws_no_server_that_is_known_to_drain_or_to_be_dead() -> None:
    world = known(FEW_SUBSCRIBE)
    drain(world.servers[world.names[0]])
    world.down = {v4(2)}
    world.published()
    world.run(100)
    for number in range(50):
        world.core.subscribe(b"topic-%d" % number, world.now)
    world.run(5)
    for number in range(50):
        topic = b"topic-%d" % number
        assert world.core.lease_counts(topic) == (2, 2)
        assert not world.leased_at(topic) & set(world.names[:2])


def test_what_a_server_forwarded_that_had_just_come_back_another_forwards_too() -> None:
    """It has few leases yet, and the publisher hears of its restart only from its own message."""
    world = known(ONE_OF_FIVE)
    for name in world.names:
        restart(world.servers[name])
        world.core.publish(b"t", b"x", world.now, repeat=1)
        break
    for _ in range(30):
        world.run(60)
        for server in world.servers.values():
            server.published.clear()
        name = world.names[0]
        world.servers[name].restart()
        event = world.published(wait_s=1.0)
        assert set(event.servers.values()) == {Outcome.RECEIPT}
        assert len(event.servers) == 1 + (name in event.servers)
        for each in event.servers:
            assert len(world.servers[each].published) == 1


def test_where_all_have_just_come_back_nothing_is_sent_to_all_of_them() -> None:
    world = known(ONE_OF_FIVE)
    for server in world.servers.values():
        server.restart()
    world.run(10)
    assert not any(session.is_warm(world.now) for session in world.core.sessions.all())
    assert len(world.published(wait_s=1.0).servers) == 1


# --- Work ---------------------------------------------------------------------------------------------


def test_leases_come_up_as_work_is_done_the_cheapest_first() -> None:
    world = World(ALL)
    for server, bits in zip(world.servers.values(), (9, 3, 5, 13, 7), strict=True):
        server.bits = bits
    assert not world.core.is_minting
    assert not world.core.work(1000, world.now)
    world.core.subscribe(b"t", world.now)
    world.turn()
    assert world.core.is_minting
    assert world.core.lease_counts(b"t") == (0, 5)
    counts = []
    slices = 0
    while world.core.work(5, world.now):
        slices += 1
        world.turn()
        counts.append(world.core.lease_counts(b"t")[0])
    world.turn()
    assert world.core.lease_counts(b"t") == (5, 5)
    assert sorted(set(counts)) == [0, 1, 2, 3, 4]
    assert slices < 40 * 2**14 / 5
    assert not world.core.is_minting
    assert len(world.take_events(LeasesChanged)) == 5
    assert world.events == []


def test_work_does_at_most_what_it_may_on_all_sessions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ALL)
    for server in world.servers.values():
        server.bits = 3
    for number in range(50):
        world.core.subscribe(b"topic-%d" % number, world.now)
    world.turn()
    done: list[int] = []
    for session in world.core.sessions.all():
        real = session.work

        def count(tries: int, now: float, real: Any = real) -> int:
            done.append(real(tries, now))
            return done[-1]

        monkeypatch.setattr(session, "work", count)
    world.core.work(5000, world.now)
    assert sum(done) <= 5000
    assert len(done) >= 2, "what one did not need went to the next"
    world.work()
    assert all(world.core.lease_counts(b"topic-%d" % number) == (5, 5) for number in range(50))


def test_a_server_that_is_too_dear_is_avoided_as_a_dead_one() -> None:
    world = known()
    dear = world.names[0]
    world.servers[dear].bits = WORK_BITS_MAX + 1
    world.run(25)  # what was told with an older cookie stands
    world.core.subscribe(b"new", world.now)
    world.run(100)
    assert world.take_events(ServerLost, ServerReturned, LeaseRefused) == [ServerLost(dear, "price")]
    assert world.core.server_states()[dear] == "lost"
    assert set(world.used()) == set(world.names[1:])
    assert world.core.lease_counts(b"t") == (5, 5), "what stands goes on being renewed"
    assert world.core.lease_counts(b"new") == (4, 5)
    world.servers[dear].bits = 4
    world.run(25)
    world.work()
    assert ServerReturned(dear) in world.take_events()
    assert world.core.lease_counts(b"new") == (5, 5)


def test_few_subscribe_does_not_run_to_and_fro_between_dear_servers() -> None:
    world = World(FEW_SUBSCRIBE)
    for server in world.servers.values():
        server.bits = 99
    world.core.subscribe(b"t", world.now)
    world.run(300)
    events = world.take_events()
    assert len([event for event in events if isinstance(event, ServerLost)]) == len(
        {event.server for event in events if isinstance(event, ServerLost)}
    )
    assert not [event for event in events if isinstance(event, ServerReturned)]
    cheap = world.names[3]
    world.servers[cheap].bits = 2
    world.run(25)
    world.work()
    world.run(25)
    assert cheap in world.leased_at()


# --- Cookies ------------------------------------------------------------------------------------------


def test_what_waits_for_a_cookie_is_held_back() -> None:
    """The first message of a client, and none of a server that does not answer in time."""
    world = World(cluster=lab([v4(1)], Policy(1, 1, 1)))
    world.core.publish(b"t", b"only", world.now)
    asking = world.core.flush(world.now)
    assert asking and world.core.holds_back and not world.sent
    for transmit in asking:
        world._carry(transmit)
    world.turn()
    assert len(world.sent) == 1 and not world.core.holds_back

    world = World(cluster=lab([v4(1)], Policy(1, 1, 1)))
    world.down = {v4(1)}
    world.core.publish(b"t", b"only", world.now)
    world.turn()
    assert world.core.holds_back
    world.run(TIMEOUT_S_FIRST)
    assert not world.core.holds_back and world.core.server_states() == {world.names[0]: "suspected"}


# --- Addresses ----------------------------------------------------------------------------------------


def dual(*servers: tuple[Address, ...], policy: Policy = ALL) -> Cluster:
    return Cluster(tuple(ServerEntry(each, f"h{number}") for number, each in enumerate(servers)), policy)


def test_a_family_that_is_missing_is_told_once_and_no_server_is_skipped() -> None:
    cluster = dual((v4(1),), (v6(2),), (v6(3), v4(3)), policy=Policy(3, 3, 3))
    world = World(cluster=cluster, families=(4,))
    world.core.subscribe(b"t", world.now)
    world.core.subscribe(b"u", world.now)
    event = world.published()
    missing = "[2001:db8::2]:7400"
    assert world.take_events(FamilyMissing, ServerLost) == [FamilyMissing(missing, 6)]
    assert world.core.lease_counts(b"t") == (2, 3)
    assert world.core.server_states()[missing] == "lost"
    assert event.servers[missing] is Outcome.NO_ANSWER
    assert event.receipts == 2
    assert {address for address, _ in world.sent} == {v4(1), v4(3)}
    assert set(event.servers) == set(world.names), "a server is known by its first address"


def test_that_all_are_lost_is_told_once_whatever_is_asked_for_meanwhile() -> None:
    """Until one answers: also one that was not asked before, and is lost later."""
    world = World(Policy(1, 1, 1), lab([v4(number) for number in range(1, 9)], Policy(1, 1, 1)))
    topics = {world.core.view.servers(b"%d" % number)[0].addresses[0]: b"%d" % number for number in range(99)}
    first, second, third, fourth = sorted(topics)[:4]
    world.down = {first, second, fourth}
    world.core.subscribe(topics[first], world.now)
    world.run(20)
    assert world.take_events(AllServersLost) == [AllServersLost(1)]
    world.core.subscribe(topics[second], world.now)
    world.run(20)
    assert world.take_events(AllServersLost) == [], "it has been told"
    world.core.subscribe(topics[third], world.now)
    world.run(20)
    world.down |= {third}
    world.core.subscribe(topics[fourth], world.now)
    world.run(100)
    assert world.take_events(AllServersLost) == [AllServersLost(4)]
    world.down = set()
    world.run(100)
    world.down = {first, second, third, fourth}
    world.run(100)
    assert world.take_events(AllServersLost) == [AllServersLost(4)]


def test_publishers_and_few_subscribers_do_without_a_server_whose_family_is_missing() -> None:
    cluster = dual((v4(1),), (v6(2),), (v4(3),), policy=Policy(3, 2, 2))
    world = World(cluster=cluster, families=(4,))
    for number in range(20):
        world.core.subscribe(b"topic-%d" % number, world.now)
        world.core.publish(b"topic-%d" % number, b"x", world.now)
    world.run(5)
    events = world.take_events(Published)
    assert all(isinstance(event, Published) and event.receipts == 2 for event in events)
    assert all(world.core.lease_counts(b"topic-%d" % number) == (2, 2) for number in range(20))


def test_a_changed_cluster_may_bring_a_family_that_was_not_used_before() -> None:
    """Servers that are new can be asked there, and so can one that was there before."""
    policy = Policy(2, 2, 2)
    world = World(cluster=dual((v4(1),), (v6(2),), policy=policy), families=(4,))
    changed = dual((v6(2),), (v6(3),), policy=policy)
    world.servers |= {server.name: FakeServer() for server in changed.servers}
    world.at |= {address: server.name for server in changed.servers for address in server.addresses}
    world.core.subscribe(b"t", world.now)
    world.run(1)
    assert world.core.lease_counts(b"t") == (1, 2)
    assert world.take_events(FamilyMissing) == [FamilyMissing(world.names[1], 6)]
    world.core.sessions.add_families((6,))
    world.core.adopt(changed, world.now)
    world.run(1)
    assert world.core.lease_counts(b"t") == (2, 2)
    assert world.core.server_states() == dict.fromkeys([*world.names, "[2001:db8::3]:7400"], "alive")
    event = world.published()
    assert all(event.servers[server.name] is Outcome.RECEIPT for server in changed.servers)
    assert not world.take_events(FamilyMissing)


def test_a_server_is_one_whichever_address_it_is_asked_at() -> None:
    cluster = dual((v4(1), v6(1)), policy=Policy(1, 1, 1))
    world = World(cluster=cluster)
    name = world.names[0]
    world.core.subscribe(b"t", world.now)
    world.run(1)
    world.down = {v4(1)}
    world.run(30)
    assert world.take_events(ServerLost, ServerReturned) == [ServerLost(name), ServerReturned(name)]
    assert set(world.core.server_states()) == {name}
    assert world.core.lease_counts(b"t") == (1, 1)
    dropped = world.core.drops[Drop.UNKNOWN_SOURCE]
    world.hear(v4(1), b"t off\n")
    assert world.core.drops[Drop.UNKNOWN_SOURCE] == dropped + 1, "nothing is asked there at present"
    world.hear(v6(1), b"t off\n")
    world.turn()
    assert world.take_events() == [Delivery(b"t", b"off", name, received_at_s=world.now)]
    assert world.published().servers == {name: Outcome.RECEIPT}
    assert world.sent[-1][0] == v6(1)


def test_copies_of_a_raw_line_by_both_addresses_of_one_server_are_of_one_server() -> None:
    """It brings each delivery once: a second copy from it, by whatever way, is another message."""
    cluster = dual((v4(1), v6(1)), (v4(2),), policy=Policy(2, 2, 2))
    world = World(cluster=cluster)
    world.core.subscribe(b"t", world.now)
    world.run(1)
    world.hear(v4(1), b"t on\n")
    world.core.sessions.at[v4(1)]._move(world.now)
    world.hear(v6(1), b"t on\n")
    world.hear(v4(2), b"t on\n")
    world.now += RAW_OPEN_S / 2
    world.core.handle_timeout(world.now)
    assert len([event for event in world.core.events() if isinstance(event, Delivery)]) == 2
    assert world.core.counts["duplicates"] == 1


def test_unreachable_is_heard_of_the_address_in_use_only() -> None:
    world = World(cluster=dual((v4(1), v6(1)), policy=Policy(1, 1, 1)))
    world.core.subscribe(b"t", world.now)
    world.run(1)
    world.core.publish(b"t", b"x", world.now)
    world.core.flush(world.now)
    world.core.handle_unreachable(v6(1), world.now)
    assert set(world.core.server_states().values()) == {"alive"}
    world.core.handle_unreachable(v4(1), world.now)
    assert set(world.core.server_states().values()) == {"suspected"}


# --- Heads and numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("avoid_dead", [True, False])
def test_a_server_that_is_suspected_is_avoided_by_the_next_message(avoid_dead: bool) -> None:
    world = known(avoid_dead=avoid_dead)
    world.used(20)  # so that the topic's route is known
    world.down = {v4(2)}
    world.core.handle_unreachable(v4(2), world.now)
    assert world.core.sessions.at[v4(2)].is_alive, "nothing was under way"
    world.core.publish(b"t", b"x", world.now, repeat=5, repeat_interval_s=0.0)
    world.turn()
    world.core.handle_unreachable(v4(2), world.now)
    assert not world.core.sessions.at[v4(2)].is_alive
    assert (world.names[1] in world.used(100)) is not avoid_dead


def test_whether_the_dead_are_avoided_may_be_changed_at_any_time() -> None:
    world = known()
    world.down = {v4(2)}
    world.run(60)
    assert world.names[1] not in world.used(100)
    world.core.avoid_dead = False
    assert world.names[1] in world.used(100)
    world.core.avoid_dead = True
    assert world.names[1] not in world.used(100)


def test_heads_of_the_servers_that_told_one() -> None:
    world = World(ALL)
    for name in world.names[:3]:
        world.servers[name].attributes = {"head": f"v1-{name}"}
    world.core.subscribe(b"t", world.now)
    world.run(1)
    assert world.core.heads() == {name: f"v1-{name}" for name in world.names[:3]}


def test_numbers_are_kept_for_so_many_topics_and_a_forgotten_one_begins_not_at_1() -> None:
    world = World(Policy(1, 1, 1), cluster=lab([v4(1)], Policy(1, 1, 1)))
    core = world.core
    core.publish(b"t", b"x", world.now)
    for number in range(TOPICS_MAX):
        core.publications.publisher.line(b"%d" % number, b"", raw=False)
    assert len(core.publications.publisher._numbering) == TOPICS_MAX
    event = world.published()
    assert event.seq is not None and event.seq > 1000


def test_few_subscribe_leaves_a_lost_server_when_another_is_trusted_again() -> None:
    """One is lost while the other is only suspected; when that one answers again nobody tells the core."""
    lab_ = Lab(Policy(2, 2, 1), hosts=2)
    client = lab_.client(SUB, seed=1)
    client.subscribe(b"t", lab_.now)
    client.publish(b"t", b"x", lab_.now)  # so it has dealings with the other one too
    lab_.turn()
    (mine,) = [a for a, s in lab_.servers.items() if s.leases.subscribers(b"t", lab_.now)]
    (other,) = set(lab_.servers) - {mine}

    def state(address: Address) -> str:
        return client.server_states()[f"{address[0]}:{address[1]}"]

    lab_.down = {mine}
    while state(mine) != "lost":
        if (
            state(mine) == "suspected"
            and client.sessions.at[mine].control.misses == 2
            and other not in lab_.down
        ):
            lab_.down = {mine, other}
            client.publish(b"t", b"y", lab_.now)  # unanswered: so the other is suspected
        lab_.run(0.1)
    assert state(other) == "suspected"
    lab_.down = {mine}
    lab_.run(300.0)
    assert state(other) == "alive"
    assert client.lease_counts(b"t") == (1, 1), "five minutes without a lease, a live server at hand"
