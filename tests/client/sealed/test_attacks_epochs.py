"""Changes of epoch: members who have left, clocks that differ, and leases in time. PROTOCOL §9.7.

Publishers and subscribers are real cores with real servers, in virtual time.
"""

from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Delivery, Drop, LeasesChanged
from kcast.client.sealed.guards import CLOCKS_S, SealedGuard, Times
from kcast.client.sealed.membership import LINGER_S, Group, GroupError
from kcast.client.sealed.sealing import Epoch
from kcast.client.sealed.topics import hidden
from kcast.client.sealed.writers import SealedWriter
from kcast.pubsub.limits import RENEWALS_PER_TTL
from tests.support.attack_stage import ALICE, NAME, UNIX_S, Process, Stage, epoch, group_of, sealed_stage
from tests.support.client_lab import PUB
from tests.support.forms import few_of

T = UNIX_S + 1000
OLD = epoch(1, next_from_unix_s=T)
NEW = epoch(2, T)
BOTH = group_of(OLD, NEW)
OLD_TOPIC, NEW_TOPIC = (hidden(each.topic_secret, NAME) for each in (OLD, NEW))


def until(stage: Stage, unix_s: float) -> None:
    """Waits until a time."""
    stage.wait(unix_s - stage.unix_s)


def writer_of(group: Group, seed: int = 1) -> SealedWriter:
    """What seals for a group."""
    rng = Random(seed)
    return SealedWriter(lambda: group, rng.randbytes, lambda: f"process-{seed}", ALICE)


@pytest.fixture(params=[False, True], ids=["hidden", "plain"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A subscriber who has both epochs."""
    return sealed_stage(BOTH, has_plain_topics=request.param)


def process_in(of: Epoch, stage: Stage) -> Process:
    """What seals for an epoch, on the topic that a stage's subscriber listens on."""
    is_plain = stage.subscriber._subscriptions.get(NAME) is not None
    return Process(of, wire_topic=NAME if is_plain else None)


# --- A member who has left ----------------------------------------------------------------------------


def test_who_left_reads_nothing_of_the_next_epoch() -> None:
    """It has the old epoch's secrets, and all lines."""
    line = Process(NEW).line(sent_s=T + 1)
    leaver = sealed_stage(group_of(OLD), unix_s=T + 1)
    assert leaver.verdict(line) is Drop.NOT_SUBSCRIBED, "it does not even know the topic"
    plain = sealed_stage(group_of(OLD), unix_s=T + 1, has_plain_topics=True)
    assert plain.verdict(Process(NEW, wire_topic=NAME).line(sent_s=T + 1)) is Drop.UNKNOWN_KEY
    assert plain.verdict(Process(NEW, wire_topic=OLD_TOPIC).line(sent_s=T + 1)) is Drop.NOT_SUBSCRIBED


def test_who_left_writes_nothing_in_the_next_epoch(stage: Stage) -> None:
    """It seals with what it has: the old epoch's keys, on whatever topic, with whatever time."""
    until(stage, T + 40)
    for wire_topic in (OLD_TOPIC, NEW_TOPIC, NAME):
        process = Process(OLD, wire_topic=wire_topic)
        for seq, sent_s in enumerate((T + 31, T + 40, T + 60), 1):
            assert stage.verdict(process.line(seq, sent_s)) in (
                Drop.TOO_OLD,  # for this epoch
                Drop.UNKNOWN_KEY,
                Drop.NOT_SUBSCRIBED,
            )
    assert isinstance(stage.verdict(process_in(NEW, stage).line(sent_s=stage.unix_s)), Delivery)


def test_as_a_writer_it_writes_in_the_old_epoch_until_that_is_over(stage: Stage) -> None:
    leaver = process_in(OLD, stage)
    until(stage, T - 1)
    assert isinstance(stage.verdict(leaver.line(1, stage.unix_s)), Delivery)
    until(stage, T + CLOCKS_S - 1)
    assert isinstance(stage.verdict(leaver.line(2, stage.unix_s)), Delivery), "its clock may be slow"
    until(stage, T + CLOCKS_S + 1)
    assert stage.verdict(leaver.line(3, stage.unix_s)) is Drop.TOO_OLD
    assert isinstance(stage.verdict(leaver.line(4, T)), Delivery), "a time before T may be claimed"
    until(stage, T + LINGER_S - 1)
    assert isinstance(stage.verdict(leaver.line(5, T + CLOCKS_S)), Delivery)
    until(stage, T + LINGER_S + 0.1)
    over = Drop.UNKNOWN_KEY if stage.subscriber._subscriptions.get(NAME) else Drop.NOT_SUBSCRIBED
    for seq, sent_s in enumerate((T - 100, T, T + 30, T + 150), 6):
        assert stage.verdict(leaver.line(seq, sent_s)) is over


def test_the_old_epoch_is_over_even_where_messages_may_be_a_day_old() -> None:
    stage = sealed_stage(BOTH, has_plain_topics=True, times=Times(86_400, 86_400))
    leaver = Process(OLD, wire_topic=NAME)
    until(stage, T + LINGER_S + 0.1)
    assert stage.verdict(leaver.line(1, T - 1)) is Drop.UNKNOWN_KEY
    assert stage.verdict(Process(NEW, wire_topic=NAME).line(1, T - CLOCKS_S - 1)) is Drop.FROM_FUTURE


def test_the_next_epoch_has_not_begun(stage: Stage) -> None:
    early = process_in(NEW, stage)
    until(stage, T - CLOCKS_S - 5)  # the topic is leased already
    assert stage.verdict(early.line(1, stage.unix_s)) is Drop.FROM_FUTURE
    assert stage.verdict(early.line(2, T)) is Drop.FROM_FUTURE
    until(stage, T - CLOCKS_S)
    assert isinstance(stage.verdict(early.line(3, T - CLOCKS_S + 0.001)), Delivery)


def test_who_left_cannot_publish_as_it_did() -> None:
    left = group_of(OLD)
    stage = Stage(unix_s=T)
    writer = writer_of(left)
    stage.subscriber.publish(NAME, b"rain", stage.lab.now, writer=writer)
    stage.wait(1)
    assert stage.lab.lines()
    with pytest.raises(GroupError, match="none of its epochs whose keys you have holds now"):
        stage.subscriber.publish(NAME, b"rain", stage.lab.now, writer=writer)
    assert not stage.lab.lines()


# --- Leases -------------------------------------------------------------------------------------------


def leased(stage: Stage) -> set[bytes]:
    """The topics that servers would forward to the subscriber now."""
    address = next(iter(stage.lab.clients))
    found = set()
    for topic in (OLD_TOPIC, NEW_TOPIC):
        at = [
            server
            for server in stage.lab.servers.values()
            if address in server.leases.subscribers(topic, stage.lab.now)
        ]
        if at:
            found.add(topic)
    return found


def test_the_next_epochs_topic_is_leased_a_renewal_before_it_begins_and_the_old_one_kept_for_150_s() -> None:
    stage = sealed_stage(BOTH)
    renewal_s = stage.subscriber.sessions.ttl_s_max / RENEWALS_PER_TTL
    begins = T - CLOCKS_S - renewal_s
    until(stage, begins - 1)
    assert leased(stage) == {OLD_TOPIC}
    until(stage, begins + 1)
    assert leased(stage) == {OLD_TOPIC, NEW_TOPIC}
    until(stage, T + LINGER_S - 1)
    assert leased(stage) == {OLD_TOPIC, NEW_TOPIC}
    assert set(stage.subscriber._subscriptions) == {OLD_TOPIC, NEW_TOPIC}
    until(stage, T + LINGER_S + 1)
    assert set(stage.subscriber._subscriptions) == {NEW_TOPIC}
    until(stage, T + LINGER_S + 1 + stage.subscriber.sessions.ttl_s_max * 1.1)
    assert leased(stage) == {NEW_TOPIC}


def test_of_leases_a_subscription_is_told_as_of_its_own_topic_and_without_a_gap() -> None:
    stage = sealed_stage(BOTH)
    stage.told_of(LeasesChanged)
    until(stage, T + 300)
    stage.take()
    changes = stage.told_of(LeasesChanged)
    assert all(event.topic == NAME for event in changes)
    assert all(event.leased == event.wanted == 5 for event in changes), changes


# --- Clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_plain_topics", few_of([False, True]))
@pytest.mark.parametrize(
    ("publisher_s", "subscriber_s"), few_of([(14.9, -14.9), (-14.9, 14.9), (0, 0), (0, 29.9), (29.9, 0)], 2)
)
def test_no_message_is_lost_over_a_change_of_epoch_with_clocks_30_s_apart(
    publisher_s: float, subscriber_s: float, has_plain_topics: bool
) -> None:
    """100 messages a minute, from three minutes before T until five after, both clocks as wrong as they may
    be."""
    stage = Stage(unix_s=T - 300)
    stage.subscriber.clock_offset_s += subscriber_s
    stage.subscribe(SealedGuard(BOTH, stage.unix_s + subscriber_s, has_plain_topics=has_plain_topics))
    publisher = stage.client(PUB, ahead_s=publisher_s)
    rng = Random(3)
    writer = SealedWriter(
        lambda: BOTH,
        rng.randbytes,
        lambda: f"process-{rng.randrange(10**9)}",
        ALICE,
        has_plain_topics=has_plain_topics,
    )
    until(stage, T - 180)
    sent, heard = [], []
    for number in range(800):
        payload = b"message %d" % number
        publisher.publish(NAME, payload, stage.lab.now, writer=writer, confirm=False)
        sent.append(payload)
        stage.wait(0.6)
        heard += [delivery.payload for delivery in stage.take()]
        publisher.events()
    assert stage.unix_s > T + 290
    assert heard == sent
    guards = [
        drop for drop in stage.subscriber.drops if drop.value not in ("not-subscribed", "unasked-reply")
    ]
    assert not guards


def test_an_epoch_has_its_own_name_and_numbers_for_each_publisher() -> None:
    """Nothing else links epochs."""
    stage = sealed_stage(BOTH)
    names = iter(["of-the-old", "of-the-new"])
    secrets = Random(5).randbytes
    writer = SealedWriter(lambda: BOTH, secrets, lambda: next(names), ALICE)
    until(stage, T - 1)
    publisher = stage.client(PUB)
    found: list[Delivery] = []
    for _ in range(4):
        publisher.publish(NAME, b"x", stage.lab.now, writer=writer, confirm=False)
        stage.wait(0.5)
        found += stage.take()
    told = [(each.publisher, each.seq, each.topic) for each in found]
    assert told == [(name, seq, NAME) for name in ("of-the-old", "of-the-new") for seq in (1, 2)]


def test_a_group_that_has_ended_is_left_150_s_later() -> None:
    ended = replace(group_of(epoch()), until_unix_s=T)
    stage = sealed_stage(ended)
    until(stage, T + LINGER_S - 1)
    assert isinstance(stage.verdict(Process().line(1, T + CLOCKS_S)), Delivery), "by a slow clock it has not"
    until(stage, T + LINGER_S + 1)
    assert not list(stage.subscriber._subscriptions)
    assert stage.verdict(Process().line(2, stage.unix_s)) is Drop.NOT_SUBSCRIBED


def test_an_epoch_that_comes_while_one_listens() -> None:
    stage = Stage()
    guard = SealedGuard(group_of(replace(OLD, next_from_unix_s=float("inf"))), stage.unix_s)
    stage.subscribe(guard)
    until(stage, T - 100)
    guard.adopt(BOTH)
    stage.subscriber.places.look(stage.lab.now, stage.unix_s - stage.lab.now)
    until(stage, T + 1)
    assert isinstance(stage.verdict(Process(NEW).line(1, T)), Delivery)
    assert isinstance(stage.verdict(Process(OLD, "of-the-old").line(1, T - 1)), Delivery)
