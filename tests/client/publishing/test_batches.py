"""client/publishing/batches.py: many messages, one outcome, each with a draw of its own. PROTOCOL §8.5."""

from collections import Counter
from itertools import combinations
from math import sqrt
from typing import Any

import pytest

from kcast.client.cluster import lab
from kcast.client.driving.engine import CLOSE_S
from kcast.client.driving.engine_thread import CLOSE_TIMEOUT_S
from kcast.client.errors import Backlog, MessageTooLarge
from kcast.client.events import Outcome, PublishedMany
from kcast.client.publishing import publications
from kcast.client.publishing.batches import PARCELS_AHEAD, _runs
from kcast.client.session.outbox import PATIENCE_S, WAIT_S, WINDOW_BYTES
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import datagrams, format_address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.wire import TopicError
from tests.client.test_core_servers import FEW_PUBLISH, ONE_OF_FIVE, World, known, restart, v4


def one_server() -> World:
    """A client that has had dealings with its one server."""
    return known(cluster=lab([v4(1)], Policy(1, 1, 1)))


def numbered(count: int, size_bytes: int = 1) -> list[bytes]:
    return [(b"%d" % number).ljust(size_bytes, b".") for number in range(count)]


def published(world: World, payloads: list[bytes], wait_s: float = 8.0, **options: Any) -> PublishedMany:
    handle = world.core.publish_many(b"t", payloads, world.now, **options)
    world.sent.clear()
    world.run(wait_s)
    (event,) = [e for e in world.take_events(PublishedMany) if isinstance(e, PublishedMany)]
    assert event.handle == handle and event.topic == b"t"
    return event


def servers_of_each(world: World) -> list[list[str]]:
    """The servers that each message was sent to, by name, in the order of their numbers."""
    found: dict[int, list[str]] = {}
    for address, line in world.sent:
        seq = int(line.split(b" ")[1].partition(b".")[2])
        found.setdefault(seq, []).append(format_address(address))
    assert sorted(found) == list(range(min(found), max(found) + 1))
    return [found[seq] for seq in sorted(found)]


# --- Draws and packing --------------------------------------------------------------------------------


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1000])
def test_each_message_goes_to_as_many_servers_as_the_policy_says(count: int, confirm: bool) -> None:
    world = known(FEW_PUBLISH)
    outcome = published(world, numbered(count), confirm=confirm)
    each = servers_of_each(world)
    assert len(each) == outcome.messages == count
    assert all(len(set(names)) == len(names) == 3 for names in each)
    kind = Outcome.RECEIPT if confirm else Outcome.SENT
    assert outcome.outcomes[kind] == 3 * count == sum(outcome.outcomes.values())
    assert outcome.receipts == (count if confirm else 0)
    assert list(outcome.without_receipt) == ([] if confirm else list(range(count)))
    assert outcome.first_seq == 2, "the first number after that of what was published before"


@pytest.mark.parametrize("policy", [FEW_PUBLISH, ONE_OF_FIVE, Policy(5, 4, 5)])
def test_every_subset_is_as_likely(policy: Policy) -> None:
    """Within 5 standard deviations."""
    world = known(policy)
    published(world, numbered(4000), confirm=False)
    drawn = Counter(frozenset(names) for names in servers_of_each(world))
    subsets = list(combinations(world.names, policy.publish))
    share = 1 / len(subsets)
    for subset in subsets:
        assert abs(drawn[frozenset(subset)] - 4000 * share) < 5 * sqrt(4000 * share * (1 - share))


def test_what_goes_to_a_server_is_packed_together_and_in_order() -> None:
    world = one_server()
    world.core.publish_many(b"t", numbered(200, 20), world.now, confirm=False)
    sent = [
        each
        for transmit in world.core.flush(world.now)
        for each in datagrams(transmit.data, transmit.segment_bytes)
        if not each.startswith(b"%~")
    ]
    size_bytes = sum(map(len, sent))
    assert len(sent) <= size_bytes // (DATAGRAM_BYTES_MAX - 100) + 1
    numbers = [int(line.split()[-1].strip(b".")) for each in sent for line in each.splitlines() if line]
    assert numbers == list(range(200))


def test_runs_are_as_long_as_both_bounds_allow() -> None:
    lines = [b"x" * size for size in (3, 3, 3, 1, 1, 1, 1, 9)]
    assert list(_runs(lines, 9, 3)) == [(0, 3), (3, 6), (6, 7), (7, 8)]
    assert list(_runs(lines, 9, 100)) == [(0, 3), (3, 7), (7, 8)]
    assert list(_runs([], 9, 3)) == []


# --- Outcomes -----------------------------------------------------------------------------------------


def test_what_a_dead_server_does_not_answer_goes_to_another() -> None:
    world = known(FEW_PUBLISH)
    dead = world.names[0]
    world.down.add(world.cluster.servers[0].addresses[0])
    outcome = published(world, numbered(100), wait_s=30.0)
    assert outcome.receipts == 100 and not outcome.without_receipt
    silent = outcome.servers[dead][Outcome.NO_ANSWER]
    assert silent > 0
    assert sum(counts.get(Outcome.RECEIPT, 0) for counts in outcome.servers.values()) == 300
    assert all(len(set(names)) == len(names) for names in servers_of_each(world))


def test_the_indices_without_a_receipt_are_told() -> None:
    """One of the servers refuses all: what was drawn for that alone has none."""
    world = known(ONE_OF_FIVE)
    refusing = world.names[2]
    world.servers[refusing].refuses_publishes = True
    outcome = published(world, numbered(100), wait_s=PATIENCE_S + 5)
    sent_to = [[*dict.fromkeys(names)] for names in servers_of_each(world)]
    expected = [index for index, names in enumerate(sent_to) if names == [refusing]]
    assert list(outcome.without_receipt) == expected and 0 < len(expected) < 100
    assert outcome.servers[refusing] == {Outcome.REFUSED: len(expected)}
    assert outcome.reasons == {refusing: "rate"} and outcome.receipts == 100 - len(expected)


def test_what_a_server_refuses_for_its_rate_goes_again_and_the_same_lines() -> None:
    world = one_server()
    (server,) = world.servers.values()
    server.refuses_publishes = True
    world.core.publish_many(b"t", numbered(3000, 100), world.now)
    world.run(5.0)
    refused = len(world.sent)
    assert 0 < refused < 2000, "it does not insist"
    server.refuses_publishes = False
    world.sent.clear()
    world.run(5.0)
    (event,) = [e for e in world.take_events(PublishedMany) if isinstance(e, PublishedMany)]
    assert event.by_receipts == {1: 3000} and event.outcomes[Outcome.REFUSED] == 0
    assert len(servers_of_each(world)) == 3000


def test_where_nobody_answers_none_has_a_receipt() -> None:
    world = World(FEW_PUBLISH)
    world.down = set(world.at)
    outcome = published(world, numbered(10), wait_s=60.0)
    assert list(outcome.without_receipt) == list(range(10)) and outcome.receipts == 0
    assert set(outcome.outcomes) == set(Outcome)


def test_a_server_that_has_restarted_gets_them_again() -> None:
    world = one_server()
    restart(world.servers[world.names[0]])
    outcome = published(world, numbered(500))
    assert outcome.receipts == 500


def test_a_server_that_takes_few_lines_gets_few_in_a_datagram() -> None:
    world = one_server()
    world.servers[world.names[0]].lines_max = 5
    outcome = published(world, numbered(300))
    assert outcome.receipts == 300
    assert published(world, numbered(300), confirm=False).outcomes[Outcome.SENT] == 300


# --- What is wrong ------------------------------------------------------------------------------------


def test_if_one_does_not_fit_none_is_sent_and_no_number_is_used() -> None:
    world = one_server()
    with pytest.raises(
        MessageTooLarge, match=r"payload 2 \(from 0\), so none was published: message too large"
    ):
        world.core.publish_many(b"t", [b"a", b"b", b"c" * 2000], world.now)
    with pytest.raises(TopicError):
        world.core.publish_many(b"", [b"a"], world.now)
    assert published(world, [b"x", b"\0" * 30]).first_seq == 2


def test_the_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "UNSETTLED_MAX", 10)
    world = World(cluster=lab([v4(1)], Policy(1, 1, 1)))
    with pytest.raises(Backlog, match="11 messages are too many for one call: give 10 at most"):
        world.core.publish_many(b"t", numbered(11), world.now)
    world.core.publish_many(b"t", numbered(9), world.now)
    with pytest.raises(Backlog, match="9 publishes await their outcome"):
        world.core.publish_many(b"t", numbered(2), world.now)
    world.core.publish(b"t", b"x", world.now)
    with pytest.raises(Backlog):
        world.core.publish(b"t", b"x", world.now)


# --- Pacing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirm", [True, False])
def test_no_more_than_a_windows_worth_is_on_its_way_to_a_server(confirm: bool) -> None:
    world = one_server()
    world.core.publish_many(b"t", numbered(3000, 100), world.now, confirm=confirm)
    address, sent = world.cluster.servers[0].addresses[0], 0
    world.down.add(address)
    for transmit in world.core.flush(world.now):
        sent += len(transmit.data)
    assert WINDOW_BYTES / 2 < sent < WINDOW_BYTES * 1.15, "with what datagrams are padded by"
    assert world.core.flush(world.now) == [] and world.core.holds_back
    session = next(iter(world.core.sessions.all()))
    assert len(session.outbox) <= 2 * PARCELS_AHEAD


@pytest.mark.parametrize("confirm", [True, False])
def test_a_server_that_answers_at_once_holds_nothing_up(confirm: bool) -> None:
    world = one_server()
    world.core.publish_many(b"t", numbered(20_000, 100), world.now, confirm=confirm)
    world.turn()
    (event,) = [e for e in world.take_events(PublishedMany) if isinstance(e, PublishedMany)]
    assert sum(event.outcomes.values()) == 20_000 and not world.core.holds_back


def test_closing_a_client_gives_the_largest_backlog_time_to_leave() -> None:
    """A window opens every 10 ms, also where no server answers. And `close` waits for that: a program that
    ends then would take the thread, and what it has not sent, with it."""
    bytes_per_s = WINDOW_BYTES / WAIT_S
    assert publications.UNSETTLED_MAX * LINE_BYTES_MAX / bytes_per_s < CLOSE_S < CLOSE_TIMEOUT_S


def test_single_ones_are_held_back_likewise_and_none_is_lost() -> None:
    world = one_server()
    for payload in numbered(2000, 100):
        world.core.publish(b"t", payload, world.now, confirm=False)
    first = sum(len(transmit.data) for transmit in world.core.flush(world.now))
    assert first < WINDOW_BYTES * 1.15 and world.core.holds_back
    world.run(1.0)
    assert len(world.sent) > 1000 and not world.core.holds_back
    assert world.core.publications.oldest is None
