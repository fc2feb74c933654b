"""client/core.py with real server cores: draws, repeats, failover, deliveries, events. PROTOCOL §8.5, §9."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from math import sqrt
from random import Random

import pytest

from kcast.client.core import ClientCore
from kcast.client.errors import Backlog, MessageTooLarge
from kcast.client.events import (
    Delivery,
    Drop,
    Gap,
    GapFilled,
    LeaseRefused,
    LeasesChanged,
    MachineSuspended,
    Outcome,
    Published,
    ServerForgot,
    ServerLost,
    ServerReturned,
)
from kcast.client.publishing import publications
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.client.session.session import QUEUE_MAX
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, format_address
from kcast.pubsub.limits import Limits
from tests.support.client_lab import ALL, FEW_PUBLISH, PUB, START, SUB, Lab, of_kind
from tests.support.server_core import sent

ONE_OF_FIVE = Policy(5, 1, 5)


def assert_uniform(drawn: Counter[frozenset[str]], names: list[str], size: int) -> None:
    """Every subset of this size is equally likely: within 5 standard deviations."""
    subsets = [frozenset(subset) for subset in combinations(names, size)]
    assert set(drawn) <= set(subsets)
    count, share = drawn.total(), 1 / len(subsets)
    for subset in subsets:
        assert abs(drawn[subset] - count * share) < 5 * sqrt(count * share * (1 - share))


@pytest.fixture
def lab_() -> Lab:
    return Lab()


# --- Draws (§8.5) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("avoid_dead", [True, False])
def test_publishers_draw_anew_for_each_send_every_subset_as_likely(avoid_dead: bool, lab_: Lab) -> None:
    client = lab_.client(avoid_dead=avoid_dead)
    drawn: Counter[frozenset[str]] = Counter()
    for _ in range(2000):
        client.publish(b"t", b"x", lab_.now)
        lab_.turn()
        (event,) = client.events()
        assert isinstance(event, Published)
        drawn[frozenset(event.servers)] += 1
    assert_uniform(drawn, [server.name for server in lab_.cluster.servers], 3)


def subscribed() -> tuple[Lab, ClientCore]:
    lab_ = Lab()
    client = lab_.client(SUB)
    client.subscribe(b"t", lab_.now)
    return lab_, client


def test_subscribers_draw_every_subset_as_likely_and_keep_it() -> None:
    lab_ = Lab(Policy(5, 5, 2))
    client = lab_.client(SUB)
    topics = [b"topic-%d" % number for number in range(1000)]
    for topic in topics:
        client.subscribe(topic, lab_.now)
    lab_.run(1)

    def holders(topic: bytes) -> frozenset[str]:
        servers = lab_.servers.items()
        return frozenset(
            format_address(a) for a, server in servers if server.leases.subscribers(topic, lab_.now)
        )

    before = {topic: holders(topic) for topic in topics}
    assert_uniform(Counter(before.values()), [server.name for server in lab_.cluster.servers], 2)
    lab_.run(100)
    assert {topic: holders(topic) for topic in topics} == before


def test_only_the_topics_own_servers_are_used() -> None:
    lab_ = Lab(hosts=20)
    client = lab_.client()
    own = {server.name for server in client.view.servers(b"t")}
    used = set().union(*(lab_.published(client).servers for _ in range(50)))
    assert used == own


def test_servers_that_are_known_to_be_dead_are_avoided_within_the_k(lab_: Lab) -> None:
    client = lab_.client()
    lab_.down = {server.addresses[0] for server in lab_.cluster.servers[:2]}
    for _ in range(20):
        lab_.published(client)
    assert list(client.server_states().values()).count("lost") == 2
    lab_.sent.clear()
    for _ in range(50):
        assert lab_.published(client).receipts == 3
    assert not {to for to, _ in lab_.lines()} & lab_.down


def test_without_avoidance_every_publish_goes_to_its_random_draw(lab_: Lab) -> None:
    client = lab_.client(avoid_dead=False)
    dead = {server.name for server in lab_.cluster.servers[:2]}
    lab_.down = {server.addresses[0] for server in lab_.cluster.servers[:2]}
    drawn: Counter[frozenset[str]] = Counter()
    for _ in range(500):
        event = lab_.published(client)
        drawn[frozenset(event.servers)] += 1
        assert {name for name, outcome in event.servers.items() if outcome is Outcome.NO_ANSWER} == (
            dead & set(event.servers)
        )
    assert_uniform(drawn, [server.name for server in lab_.cluster.servers], 3)


def test_server_that_came_back_a_moment_ago_is_used_last_of_the_living(lab_: Lab) -> None:
    """Subscribers have the time of a renewal to lease there again."""
    client = lab_.client()
    back = lab_.cluster.servers[0].addresses[0]
    lab_.down = {back}
    for _ in range(10):
        lab_.published(client)
    lab_.down = set()
    client.events()
    while not of_kind(client.events(), ServerReturned):
        lab_.run(0.5)
    cold = client.sessions.at[back].warm_at
    assert lab_.now < cold
    for _ in range(30):
        client.publish(b"t", b"x", lab_.now)
        lab_.turn()
    assert back not in {to for to, _ in lab_.lines()}
    lab_.now = cold
    for _ in range(30):
        client.publish(b"t", b"x", lab_.now)
        lab_.turn()
    assert back in {to for to, _ in lab_.lines()}


# --- Sending again (§8.5, §9.2) -----------------------------------------------------------------------


def test_repeats_go_to_fresh_servers_first_then_to_the_least_recently_used() -> None:
    for seed in range(5):
        lab_ = Lab(ONE_OF_FIVE)
        client = lab_.client(seed=seed)
        event = lab_.published(client, repeat=12, repeat_interval_s=0.5)
        lines = lab_.lines()
        where = [to for to, _ in lines]
        assert len(set(where[:5])) == 5
        assert where == (where[:5] * 3)[:12]
        assert len({line for _, line in lines}) == 1, "sent again, a message is the same bytes"
        assert event.receipts == 5


def test_repeats_keep_their_interval_and_the_outcome_waits_for_the_last() -> None:
    lab_ = Lab(FEW_PUBLISH)
    client = lab_.client()
    client.publish(b"t", b"x", lab_.now, repeat=2, repeat_interval_s=0.5)
    lab_.turn()
    assert len({to for to, _ in lab_.lines()}) == 3
    assert client.events() == []
    lab_.run(0.499)
    assert (lab_.lines(), client.events()) == ([], [])
    lab_.run(0.001)
    assert len({to for to, _ in lab_.lines()}) == 3
    (event,) = client.events()
    assert isinstance(event, Published)
    assert event.receipts == 5, "the second draw brings in the two that were left"


def test_message_that_one_server_does_not_answer_goes_to_a_fresh_one() -> None:
    for seed in range(8):
        lab_ = Lab(FEW_PUBLISH)
        client = lab_.client(seed=seed)
        lab_.published(client)
        lab_.down = {lab_.cluster.servers[seed % 5].addresses[0]}
        event = lab_.published(client)
        dead = lab_.cluster.servers[seed % 5].name
        assert event.receipts == 3
        assert event.servers.get(dead, Outcome.NO_ANSWER) is Outcome.NO_ANSWER
        assert len(event.servers) == 3 + (dead in event.servers)


def test_receipt_stands_whatever_becomes_of_repeats() -> None:
    lab_ = Lab(ALL)
    client = lab_.client()
    client.publish(b"t", b"x", lab_.now, repeat=2)
    lab_.turn()
    lab_.down = set(lab_.servers)
    lab_.run(30)
    (event,) = of_kind(client.events(), Published)
    assert isinstance(event, Published)
    assert event.receipts == 5


def test_outcome_where_all_are_dead_names_each_server_once() -> None:
    lab_ = Lab(FEW_PUBLISH)
    client = lab_.client()
    lab_.down = set(lab_.servers)
    event = lab_.published(client)
    assert set(event.servers.values()) == {Outcome.NO_ANSWER}
    assert 3 <= len(event.servers) <= 5
    assert (event.receipts, event.sent) == (0, 0)


def test_audience_is_the_highest_that_a_server_told() -> None:
    """§5.7: each server knows of its own leases only."""
    lab_ = Lab(Policy(5, 5, 2))
    publisher = lab_.client()
    assert lab_.published(publisher, wait_s=1).audience == 0
    for number in range(2, 5):
        lab_.client(("198.51.100.9", number), number).subscribe(b"t", lab_.now)
    lab_.run(1)
    counts = {address: server.leases.audience_count(b"t") for address, server in lab_.servers.items()}
    assert sum(counts.values()) == 6
    assert len(set(counts.values())) > 1
    assert lab_.published(publisher, wait_s=1).audience == max(counts.values())
    fewest = min(counts, key=counts.__getitem__)
    lab_.down = set(lab_.servers) - {fewest}
    event = lab_.published(publisher)
    assert (event.receipts, event.audience) == (1, counts[fewest])


def test_full_queue_is_an_outcome() -> None:
    lab_ = Lab(ALL)
    client = lab_.client()
    handles = [client.publish(b"t", b"x", lab_.now) for _ in range(QUEUE_MAX + 1)]
    lab_.turn()
    events = {event.handle: event for event in client.events() if isinstance(event, Published)}
    assert set(events) == set(handles)
    assert set(events[handles[-1]].servers.values()) == {Outcome.QUEUE_FULL}
    assert {event.receipts for handle, event in events.items() if handle != handles[-1]} == {5}


# --- What callers get wrong ---------------------------------------------------------------------------


def test_message_that_does_not_fit_tells_what_does(lab_: Lab) -> None:
    client = lab_.client()
    head = len(b"t %@" + b"p" * 11 + b".1 \n")
    fits = LINE_BYTES_MAX - head
    binary = (fits - len(";B=1")) * 3 // 4
    room = f"The topic leaves room for {fits} bytes of text, .* or for any {binary}; send less"
    with pytest.raises(MessageTooLarge, match=f"^message too large: {fits + 1} bytes. {room}"):
        client.publish(b"t", b"x" * (fits + 1), lab_.now)
    with pytest.raises(MessageTooLarge, match=f"^message too large: {binary + 1} bytes. {room}"):
        client.publish(b"t", bytes(binary + 1), lab_.now)
    with pytest.raises(
        MessageTooLarge, match=f"^message too large: {LINE_BYTES_MAX - 2} bytes. The topic leaves "
    ):
        client.publish(b"t", b"x" * (LINE_BYTES_MAX - 2), lab_.now, raw=True)
    raw = client.publish(b"t", b"x" * (LINE_BYTES_MAX - 3), lab_.now, raw=True)
    enveloped = client.publish(b"t", b"x" * fits, lab_.now)
    lab_.turn()
    seqs = {event.handle: event.seq for event in client.events() if isinstance(event, Published)}
    assert seqs == {raw: None, enveloped: 1}, "what was refused took no number"


def test_bad_arguments() -> None:
    client = Lab().client()
    for topic in (b"", b"t" * 256):
        with pytest.raises(wire.TopicError):
            client.publish(topic, b"x", START)
        with pytest.raises(wire.TopicError):
            client.subscribe(topic, START)
    with pytest.raises(ValueError, match="repeat is 0: a message is sent at least once"):
        client.publish(b"t", b"x", START, repeat=0)


def test_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "UNSETTLED_MAX", 3)
    lab_ = Lab()
    client = lab_.client()
    for _ in range(3):
        client.publish(b"t", b"x", lab_.now)
    with pytest.raises(Backlog, match="3 publishes await their outcome"):
        client.publish(b"t", b"x", lab_.now)
    lab_.turn()
    assert client.publish(b"t", b"x", lab_.now)


# --- Deliveries (§9) ----------------------------------------------------------------------------------


def test_message_is_delivered_once_whatever_the_bytes() -> None:
    lab_ = Lab(ALL)
    publisher, subscriber = lab_.client(PUB, 1), lab_.client(SUB, 2)
    topic = b" \0%\xff"
    subscriber.subscribe(topic, lab_.now)
    lab_.turn()
    payloads = [b"", b"hello", bytes(range(256)), b"%@p.1 x", b"%41", " ø\n".encode(), bytes(800)]
    for payload in payloads:
        publisher.publish(topic, payload, lab_.now, repeat=3)
    lab_.run(5)
    deliveries = [event for event in subscriber.events() if isinstance(event, Delivery)]
    assert [(event.topic, event.payload) for event in deliveries] == [
        (topic, payload) for payload in payloads
    ]
    assert [event.seq for event in deliveries] == list(range(1, 8))
    assert {event.publisher for event in deliveries} == {publisher.publisher}
    assert (subscriber.counts["duplicates"], subscriber.drops) == (5 * 3 * 7 - 7, {})
    assert subscriber.counts["deliveries"] == 7
    assert all(event.attributes == {} for event in deliveries), "B=1 is no affair of the application"


def test_raw_messages_are_delivered_as_often_as_they_were_published() -> None:
    lab_ = Lab(ALL)
    publisher, subscriber = lab_.client(PUB, 1), lab_.client(SUB, 2)
    subscriber.subscribe(b"t", lab_.now)
    lab_.turn()
    for payload in (b"on", b"off", b"on"):
        publisher.publish(b"t", payload, lab_.now, raw=True)
        lab_.turn()
    deliveries = [event for event in subscriber.events() if isinstance(event, Delivery)]
    assert [event.payload for event in deliveries] == [b"on", b"off", b"on"]
    assert {(event.publisher, event.seq) for event in deliveries} == {(None, None)}


def test_repeats_of_a_raw_message_may_be_delivered_again() -> None:
    """Nothing tells what a server brings again from another message; one with a number is delivered once."""
    for raw, deliveries in ((False, 1), (True, 2)):
        lab_ = Lab(ALL)
        publisher, subscriber = lab_.client(PUB, 1), lab_.client(SUB, 2)
        subscriber.subscribe(b"t", lab_.now)
        lab_.turn()
        publisher.publish(b"t", b"on", lab_.now, repeat=2, raw=raw)
        lab_.run(5)
        assert len([event for event in subscriber.events() if isinstance(event, Delivery)]) == deliveries


def test_repeats_more_than_two_minutes_apart_are_delivered_again() -> None:
    lab_ = Lab(ALL)
    publisher, subscriber = lab_.client(PUB, 1), lab_.client(SUB, 2)
    subscriber.subscribe(b"t", lab_.now)
    lab_.turn()
    publisher.publish(b"t", b"x", lab_.now, repeat=2, repeat_interval_s=119.0)
    publisher.publish(b"t", b"y", lab_.now, repeat=2, repeat_interval_s=121.0)
    lab_.run(130)
    deliveries = [event.payload for event in subscriber.events() if isinstance(event, Delivery)]
    assert deliveries == [b"x", b"y", b"y"]


def test_seq_counts_for_each_topic_and_begins_again_with_a_new_publisher(lab_: Lab) -> None:
    """§9.1"""
    client = lab_.client(publisher="me")
    assert client.publisher == "me"
    for topic in (b"t", b"u", b"t"):
        client.publish(topic, b"x", lab_.now)
    client.renew_publisher()
    client.publish(b"t", b"x", lab_.now)
    lab_.turn()
    events = [event for event in client.events() if isinstance(event, Published)]
    assert sorted((event.handle, event.topic, event.seq) for event in events) == [
        (1, b"t", 1), (2, b"u", 1), (3, b"t", 2), (4, b"t", 1),
    ]  # fmt: skip
    assert client.publisher != "me"
    assert len(client.publisher) == 11


OWN, FOREIGN = ("192.0.2.1", 7400), ("203.0.113.1", 7400)
Provoke = Callable[[Lab, ClientCore], None]


def arriving(datagram: bytes, source: Address | None = None) -> Provoke:
    """From one of the topic's own servers, unless another is named."""

    def provoke(lab_: Lab, client: ClientCore) -> None:
        own = client.view.servers(b"t")[0].addresses[0]
        client.receive(Burst(datagram, len(datagram), source or own), lab_.now)

    return provoke


def arriving_from_another_topics_server(lab_: Lab, client: ClientCore) -> None:
    own = {server.addresses[0] for server in client.view.servers(b"t")}
    other = next(address for address in client.sessions.at if address not in own)
    client.receive(Burst(b"t forged\n", 9, other), lab_.now)


GUARDS_DROPS = {
    *(Drop.UNSIGNED, Drop.BAD_SIGNATURE, Drop.UNAUTHORISED, Drop.TOO_OLD, Drop.FROM_FUTURE, Drop.REPLAYED),
    *(Drop.NOT_SEALED, Drop.UNKNOWN_KEY, Drop.NOT_OPENED, Drop.COVER),
}
PROVOCATIONS: dict[Drop, list[Provoke]] = {
    Drop.UNKNOWN_SOURCE: [arriving(b"t x\n", FOREIGN), arriving(b"", FOREIGN)],
    Drop.OVERSIZE: [arriving(b"t " + b"x" * 1198 + b"\n")],
    Drop.EMPTY: [arriving(b""), arriving(b"\n" * 192)],
    Drop.UNTERMINATED: [arriving(b"t x"), arriving(b"\nt")],
    Drop.MALFORMED_CONTROL: [arriving(line) for line in (b"%\n", b"%+ x\n", b"%? N\n", b"%@p.1 x\n")],
    Drop.UNASKED_REPLY: [arriving(line) for line in (b"%: N 5\n", b"%- N full -\n", b"%: N 5 drain=1\n")],
    Drop.NOT_SUBSCRIBED: [arriving(b"u x\n"), arriving(b"u\n"), arriving_from_another_topics_server],
    Drop.MALFORMED_MESSAGE: [arriving(line) for line in (b"t\n", b"t %41\n", b"t \1\n", b"t %@p.0 x\n",
                                                         b"t %@p.2;B=1 Cg==\n")],
    Drop.NOT_UNDERSTOOD: [arriving(b"t %%@p.9;%b x\n" % extra) for extra in (b"T=x", b"t=1;Q=x", b"B=2")],
}  # fmt: skip


@pytest.mark.parametrize(("drop", "provoke"), [(d, way) for d, ways in PROVOCATIONS.items() for way in ways])
def test_each_reason_to_drop_is_counted_alone(drop: Drop, provoke: Provoke) -> None:
    lab_ = Lab(hosts=20)
    client = lab_.client(SUB)
    client.subscribe(b"t", lab_.now)
    for number in range(10):
        client.subscribe(b"other-%d" % number, lab_.now)
    lab_.turn()
    arriving(b"t %@p.1 known\n")(lab_, client)
    client.events()
    client.drops.clear()
    provoke(lab_, client)
    assert client.drops == {drop: 1}
    assert client.events() == []


def test_every_reason_to_drop_has_a_provocation() -> None:
    """Slow consumers and limits are the driver's to count; what guards drop is provoked in
    tests/client/sealed/, and what callers and logs do in tests/client/layers/ and tests/client/history/."""
    others = {Drop.SLOW_CONSUMER, Drop.LIMITED, Drop.UNAWAITED, Drop.BAD_BEACON}
    others |= {Drop.NOT_KEPT, Drop.WRONG_CLOCK}
    assert set(PROVOCATIONS) | others | GUARDS_DROPS == set(Drop)


def test_unknown_attributes_in_lower_case_are_delivered_along() -> None:
    """§9.2"""
    lab_, client = subscribed()
    arriving(b"t %@p.7;t=1;aB=c x\n")(lab_, client)
    (event,) = client.events()
    own = client.view.servers(b"t")[0].name
    assert event == Delivery(b"t", b"x", own, "p", 7, {"t": "1", "aB": "c"}, lab_.now)


@pytest.mark.parametrize("line", [b"t %@p.7 x\n", b"t x\n"])
def test_deliveries_tell_the_wall_clocks_time_at_which_they_came(line: bytes) -> None:
    lab_, client = subscribed()
    client.clock_offset_s = 1e9
    arriving(line)(lab_, client)
    client.clock_offset_s = 2e9
    (event,) = client.events()
    assert isinstance(event, Delivery)
    assert event.received_at_s == lab_.now + 1e9


def test_unsubscribed_topic_is_neither_renewed_nor_delivered() -> None:
    lab_, client = subscribed()
    client.subscribe(b"t", lab_.now)
    lab_.turn()
    assert client.lease_counts(b"t") == (5, 5)
    client.unsubscribe(b"t")
    client.unsubscribe(b"t")
    arriving(b"t x\n")(lab_, client)
    assert client.drops == {Drop.NOT_SUBSCRIBED: 1}
    lab_.run(61)
    assert not any(len(server.leases) for server in lab_.servers.values())


# --- Events -------------------------------------------------------------------------------------------


def test_events_of_leases(lab_: Lab) -> None:
    client = lab_.client(SUB)
    client.subscribe(b"t t", lab_.now)
    lab_.turn()
    assert client.events() == [LeasesChanged(b"t t", leased, 5) for leased in (1, 2, 3, 4, 5)]
    assert client.events() == []


def test_events_of_refusals() -> None:
    lab_ = Lab(limits=Limits(leases=1))
    client = lab_.client(SUB)
    client.subscribe(b"other", lab_.now)
    lab_.turn()
    client.events()
    client.subscribe(b"t t", lab_.now)
    lab_.turn()
    refusals = {LeaseRefused(b"t t", server.name, "full") for server in lab_.cluster.servers}
    assert set(client.events()) == refusals
    assert client.lease_counts(b"t t") == (0, 5)


def test_events_of_a_server_that_goes_and_comes_back() -> None:
    lab_, client = subscribed()
    lab_.turn()
    client.events()
    address = lab_.cluster.servers[2].addresses[0]
    name = format_address(address)
    lab_.down = {address}
    lab_.run(70)
    assert client.events() == [ServerLost(name), LeasesChanged(b"t", 4, 5)]
    assert client.server_states()[name] == "lost"
    lab_.down = set()
    lab_.restart(address)
    lab_.run(20)
    assert client.events() == [ServerReturned(name), ServerForgot(name), LeasesChanged(b"t", 5, 5)]
    lab_.restart(address)
    lab_.run(20)
    assert client.events() == [ServerForgot(name), LeasesChanged(b"t", 4, 5), LeasesChanged(b"t", 5, 5)]
    assert set(client.server_states().values()) == {"alive"}


def suspend(lab_: Lab, client: ClientCore, for_s: float) -> None:
    """What the caller does once the machine goes on."""
    lab_.now += for_s
    for server in lab_.servers.values():
        server.handle_timeout(lab_.now)
    client.resumed(for_s, lab_.now)


def test_after_a_suspension_all_is_leased_again_at_once() -> None:
    lab_, client = subscribed()
    lab_.turn()
    client.events()
    suspend(lab_, client, 3600.0)
    lab_.turn()
    first, *others = client.events()
    assert first == MachineSuspended(3600.0)
    assert others == [LeasesChanged(b"t", leased, 5) for leased in (4, 3, 2, 1, 0, 1, 2, 3, 4, 5)]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_network_that_is_up_later_finds_the_client_asking_often(is_told: bool) -> None:
    lab_, client = subscribed()
    lab_.turn()
    if is_told:
        suspend(lab_, client, 3600.0)
    else:
        lab_.now += 3600.0
    lab_.down = set(lab_.servers)
    lab_.run(10)
    assert set(client.server_states().values()) == {"lost"}
    lab_.sent.clear()
    lab_.run(40)
    assert (len(lab_.sent) > 5 * 40 / 4) is is_told
    lab_.down = set()
    lab_.run(4.0 if is_told else 5.5)
    assert client.lease_counts(b"t") == (5, 5)


def test_unreachable_server_is_suspected_and_another_one_gets_the_message() -> None:
    lab_ = Lab(FEW_PUBLISH)
    client = lab_.client()
    for _ in range(10):
        lab_.published(client)
    client.publish(b"t", b"x", lab_.now)
    dead = sent(client.flush(lab_.now))[0][0]
    client.handle_unreachable(dead, lab_.now)
    client.handle_unreachable(FOREIGN, lab_.now)
    assert client.server_states()[format_address(dead)] == "suspected"
    fresh = [to for to, data in sent(client.flush(lab_.now)) if b"t %@" in data]
    assert len(fresh) == 1
    assert fresh[0] != dead


def test_events_of_gaps() -> None:
    """§9.4"""
    lab_, client = subscribed()
    lab_.turn()
    client.events()
    for seq in (1, 4, 5, 6):
        arriving(b"t %%@p.%d x\n" % seq)(lab_, client)
    lab_.run(2.499)
    assert of_kind(client.events(), Gap) == []
    lab_.run(0.001)
    assert client.events() == [Gap(b"t", "p", 2, 3)]
    arriving(b"t %@p.3 x\n")(lab_, client)
    lab_.turn()
    assert of_kind(client.events(), GapFilled) == [GapFilled(b"t", "p", 3)]


@pytest.mark.parametrize("avoid_dead", [True, False])
def test_lost_server_of_few_is_replaced_by_another_of_the_k(avoid_dead: bool) -> None:
    """§8.5: subscribers that use fewer than k."""
    lab_ = Lab(Policy(5, 5, 2), hosts=12)
    client = lab_.client(SUB, avoid_dead=avoid_dead)
    client.subscribe(b"t", lab_.now)
    lab_.turn()

    def holders() -> set[Address]:
        return {a for a, server in lab_.servers.items() if server.leases.subscribers(b"t", lab_.now)}

    own = {server.addresses[0] for server in client.view.servers(b"t")}
    first = holders()
    assert len(first) == 2
    lab_.down = {min(first)}
    lab_.run(100)
    assert len(holders() - lab_.down) == (2 if avoid_dead else 1)
    assert holders() <= own
    assert client.lease_counts(b"t") == ((2, 2) if avoid_dead else (1, 2))
    lab_.down = set()
    lab_.run(100)
    assert len(holders()) == 2
    assert client.lease_counts(b"t") == (2, 2)


def test_raw_readings_that_repeat_are_delivered_under_the_default_policy() -> None:
    """A sensor says the same every 5 s; all servers up, no loss, default policy 5/3/5."""
    lab_ = Lab(FEW_PUBLISH)
    publisher, subscriber = lab_.client(PUB, 1), lab_.client(SUB, 2)
    subscriber.subscribe(b"t", lab_.now)
    lab_.turn()
    for _ in range(200):
        publisher.publish(b"t", b"21.5", lab_.now, raw=True)
        lab_.run(5.0)
    delivered = len(of_kind(subscriber.events(), Delivery))
    assert delivered == 200, f"{delivered} of 200 delivered"


def test_publishers_name_must_be_one() -> None:
    """§9.1: a name with a space makes every message malformed, silently, at every receiver."""
    lab_ = Lab(ALL)
    with pytest.raises(ValueError, match="publisher"):
        ClientCore(lab_.cluster, Random(1), publisher="my sensor")


def test_reserved_topics_are_refused() -> None:
    """§3.4: names that begin with NUL are kcast's own."""
    lab_ = Lab(ALL)
    client = lab_.client()
    with pytest.raises(wire.TopicError):
        client.publish(b"\x00control", b"x", lab_.now)


def test_lease_counts_never_say_more_than_stands() -> None:
    """A client that slept longer than a ttl reads a receipt from before."""
    lab_ = Lab(ALL, ttl_s=3)
    client = lab_.client(SUB)
    client.subscribe(b"t", lab_.now)
    client.handle_timeout(lab_.now)
    held = []
    for _ in range(2):  # the handshake up to the receipts, which wait in the socket
        for to, data in sent(client.flush(lab_.now)):
            lab_.servers[to].receive(Burst(data, len(data), SUB), lab_.now)
        held = [(a, d) for a, s in lab_.servers.items() for _, d in sent(s.flush(lab_.now))]
        if not held[0][1].startswith(b"%+"):
            for address, data in held:
                client.receive(Burst(data, len(data), address), lab_.now)
    assert all(data.startswith(b"%+") for _, data in held)
    lab_.now += 60.0
    for address, data in held:
        client.receive(Burst(data, len(data), address), lab_.now)
    claims = [event.leased for event in client.events() if isinstance(event, LeasesChanged)]
    assert not any(claims), f"LeasesChanged {claims}, and every lease ended 57 s ago"
