"""What a turn costs does not grow with what waits, nor with the number of topics.

Cost is counted in calls, comparisons among them, and not in seconds.
"""

import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from math import inf
from random import Random

import pytest

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.driving.inbox import DeliveryInbox
from kcast.client.driving.recipients import Recipients
from kcast.client.events import Delivery
from kcast.client.publishing.waiters import Waiters
from kcast.client.receiving import subscriptions
from kcast.client.receiving.order import Sequencer
from kcast.client.session import lease_requests, leases
from kcast.client.session.outbox import Outbox
from kcast.client.session.requests import Parcel, Requests
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from tests.client.driving.test_engine import Bell
from tests.support.fake_server import START, taken_apart

SERVERS = [("192.0.2.1", 7400 + number) for number in range(6)]


def work(act: Callable[[], object]) -> int:
    """How many functions are called."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


# --- What waits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "count"), [("publish", 4600), ("publish without receipts", 4600), ("publish_many", 1000)]
)
def test_a_publish_costs_no_more_where_thousands_wait_for_silent_servers(verb: str, count: int) -> None:
    core = ClientCore(lab(SERVERS[:5], Policy(5, 3, 5)), Random(1))

    def publish(number: int) -> None:
        now, topic = START + number / 10_000, b"t%d" % (number % 20)
        if verb == "publish_many":
            core.publish_many(topic, [b"x"], now)
        else:
            core.publish(topic, b"x", now, confirm=verb == "publish")
        core.handle_timeout(now)
        core.flush(now)
        core.next_timeout()

    for number in range(20):
        publish(number)
    at_first = sum(work(partial(publish, number)) for number in range(20, 120))
    for number in range(120, count):
        publish(number)
    waiting = min(len(session.outbox) for session in core.sessions.all())
    assert waiting > 2700 or core.publications.batches.messages == count
    assert sum(work(partial(publish, number)) for number in range(count, count + 100)) <= 1.3 * at_first


def test_nothing_is_looked_at_again_that_has_to_wait_on() -> None:
    """For a cookie, beside a publish lease; for a flush; for the time for which a subscription holds it."""
    outbox = Outbox(Requests(Random(1)), 4096)
    waiters = Waiters()
    recipients, parcel = Recipients(ClientCore(lab(SERVERS, Policy(5, 3, 5)), Random(1)).drops), b"t x\n"
    for number in range(1000):
        outbox.put(Parcel(parcel, number, confirm=True))
        waiters.put_flushing(number + 1, Future())
        inbox, topic = DeliveryInbox(Bell(), 10, hold_s=1.0), b"t%d" % number
        recipients.add(topic, inbox)
        recipients.begin(inbox)
        recipients.deliver([Delivery(topic, b"", "s", "p", 2)], START)

    def look() -> None:
        assert outbox.datagrams_to_send(START, None, 64, may_go_bare=True) == []
        waiters.look_for_flushed(1)
        assert recipients.release(START, has_read_all=True) == START + 1.0

    look()
    assert work(look) < 30
    outbox.put(Parcel(parcel, 1000, confirm=False))
    assert [len(data) for data, _ in outbox.datagrams_to_send(START, None, 64, may_go_bare=True)] != []
    assert len(outbox) == 1000
    waiters.look_for_flushed(501)
    assert len(waiters) == 500
    assert recipients.release(START + 1.0, has_read_all=True) == inf


class Number(int):
    """A number whose comparisons are calls."""

    def __lt__(self, other: int) -> bool:
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        return int(self) <= int(other)


def test_four_times_as_many_held_cost_at_most_five_times_as_much() -> None:
    costs = []
    for count in (250, 1000):
        sequencer = Sequencer(0.2)
        for number in range(count):
            sequencer.put(Delivery(b"t", b"", "s", "p", Number(2 + 2 * number)), START)
        costs.append(work(partial(sequencer.release, START + 1)))
    assert costs[1] <= 5 * costs[0]


# --- Many topics --------------------------------------------------------------------------------------


class Topics:
    """A client with so many topics, and servers that say yes to all. `longest` is its dearest turn."""

    def __init__(self, count: int) -> None:
        self.now, self.longest, self.answers = START, 0, 0
        self.up = set(SERVERS)
        self.core = ClientCore(lab(SERVERS, Policy(5, 3, 3)), Random(1))
        for number in range(count):
            self.core.subscribe(b"t%d" % number, START)

    def run(self, for_s: float) -> int:
        """Returns for how many turns, from one to the last, a topic has used a server that is lost, or none
        of those in force."""
        end, first, last, turns = self.now + for_s, 0, 0, 0
        while self.now <= end:
            self.longest = max(self.longest, work(lambda: self.core.handle_timeout(self.now)))
            turns += 1
            if self.is_any_misplaced():
                first, last = first or turns, turns
            for data, segment_bytes, (address,), *_ in self.core.flush(self.now):
                for datagram in datagrams(data, segment_bytes) if address in self.up else ():
                    self.answer(datagram, address)
            self.core.events()
            self.now = max(self.now, self.core.next_timeout() or inf)
        self.now = end
        return last - first

    def answer(self, datagram: bytes, address: Address) -> None:
        asked = taken_apart(datagram, address, self.now)
        self.answers += 1
        cookie = b"%032d" % self.answers
        reply: wire.Reply = wire.Receipt(asked.nonce, 60, cookie, 0, {})
        if asked.verb == "?":
            reply = wire.Challenge(asked.nonce, cookie, 0, {})
        line = wire.format_line(reply)
        self.core.receive(Burst(line, len(line), address), self.now)

    def is_any_misplaced(self) -> bool:
        found, view = self.core._subscriptions, self.core.view
        draws = [subscription.draws.get(view) for each in found if (subscription := found.get(each))]
        return any(draw is None or any(used.is_lost for used in draw.used) for draw in draws)


def test_no_turn_takes_longer_with_more_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a server is lost, returns, joins or leaves, and when all are lost. Where turns come only ten times
    a second, 8,000 topics have other servers within one."""
    look_max = getattr(subscriptions, "LOOK_MAX", inf)
    monkeypatch.setattr(subscriptions, "LOOK_MAX", 50, raising=False)
    # So that few topics fill a turn, too.
    monkeypatch.setattr(lease_requests, "REQUESTS_MAX", 1)
    monkeypatch.setattr(leases, "STALE_MAX", 4)
    others = [*SERVERS[1:], ("192.0.2.1", 7406)]
    longest: dict[str, list[int]] = {}
    turns: dict[str, int] = {}
    for count in (100, 400):
        world = Topics(count)
        world.run(5)
        for what, for_s, up, servers in (
            ("one lost", 30, others, SERVERS),
            ("it returns", 30, SERVERS, SERVERS),
            ("one replaces another", 5, [*SERVERS, *others], others),
            ("overlap over", 300, others, others),
            ("all lost", 30, [], others),
        ):
            world.longest, world.up = 0, set(up)
            if servers is others and what == "one replaces another":
                cluster = lab(others, Policy(5, 3, 3))
                world.longest = work(partial(world.core.adopt, cluster, world.now))
            turns[what] = world.run(for_s)
            longest.setdefault(what, []).append(world.longest)
    assert min(small for small, _ in longest.values()) > 50, longest
    assert [what for what, (small, large) in longest.items() if large > 1.5 * small] == [], longest
    assert turns["one lost"] <= 400 // 50 and 8000 / look_max <= 10, turns
    assert turns["one replaces another"] <= 400 // 50 * subscriptions.FOLLOW_COST, turns
