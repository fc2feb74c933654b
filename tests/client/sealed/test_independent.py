"""A second implementation, made from PROTOCOL alone (`tests/support/sealed_by_hand.py`), and this one read
each other, and each what a group file has for a member. PROTOCOL §9.6 to §9.9."""

from concurrent.futures import Future
from random import Random

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Delivery, Drop
from kcast.client.messages.lines import Publisher
from kcast.client.sealed.cover import Cover
from kcast.client.sealed.guards import SealedGuard, SignedGuard, is_certified
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import group_of
from kcast.client.sealed.writers import SealedWriter, SignedWriter
from tests.support import sealed_by_hand as by_hand
from tests.support.attack_stage import NAME, UNIX_S, Stage
from tests.support.groups import BOB, LIFE_S, made, recipient

ME = Identity.from_seed("me", by_hand.ALICE.seed)
FILE, DATA = made(1, 0, UNIX_S - 60, members=(recipient(ME), BOB), life_s=LIFE_S)
GROUP = group_of([FILE], ME)
EPOCH, SENDERS = by_hand.epoch_of_file(DATA, by_hand.ALICE)
TAGGED = "{oslo}weather"
CERTIFIED = by_hand.topic_start([by_hand.ALICE]) + "/oslo"


def writer(*, has_plain_topics: bool = False) -> SealedWriter:
    """What seals for the group here."""
    rng = Random(1)
    name = "AbCdEfGhIjL"
    return SealedWriter(
        lambda: GROUP, rng.randbytes, lambda: name, ME.signer, has_plain_topics=has_plain_topics
    )


def test_a_group_file_gives_both_the_same_secrets() -> None:
    (epoch,) = GROUP.epochs
    assert (EPOCH.group, EPOCH.number) == (epoch.group, epoch.number)
    assert (EPOCH.private, EPOCH.public, EPOCH.topic_secret) == (
        *(epoch.private, epoch.public),
        epoch.topic_secret,
    )
    assert SENDERS == sorted(epoch.senders) == sorted([ME.signer.key, BOB.signer.key])


def test_what_it_signs_is_taken_here_and_what_is_signed_here_it_verifies() -> None:
    for topic in (NAME.decode(), CERTIFIED):
        stage = Stage()
        guard = SignedGuard(lambda name, key: key == ME.signer.key, stage.unix_s)
        stage.subscribe(
            guard if topic == NAME.decode() else SignedGuard(is_certified, stage.unix_s), topic.encode()
        )
        found = stage.verdict(by_hand.signed(by_hand.unsigned(7, topic=topic)))
        assert isinstance(found, Delivery) and (found.sender, found.seq) == (by_hand.ALICE.text, 7)
        signed = SignedWriter(lambda: Publisher("me"), ME.signer)
        _, lines = signed.lines(signed.place(topic.encode(), UNIX_S), [b"a", b"b %", bytes(99)], UNIX_S)
        assert [by_hand.signer_of(line) for line in lines] == [ME.signer.key] * 3


@pytest.mark.parametrize("name", [NAME.decode(), TAGGED, CERTIFIED])
@pytest.mark.parametrize("is_plain", [False, True])
def test_what_it_seals_is_opened_here_and_what_is_sealed_here_it_opens(name: str, is_plain: bool) -> None:
    topic = name if is_plain else EPOCH.hidden(name)
    stage = Stage()
    stage.subscribe(SealedGuard(GROUP, stage.unix_s, has_plain_topics=is_plain), name.encode())
    theirs = by_hand.Writer(EPOCH, topic)
    found = stage.verdict(theirs.line(1, by_hand.body(1, "rain", "r=a")))
    assert isinstance(found, Delivery)
    assert (found.payload, found.sender, found.group) == (b"rain", by_hand.ALICE.text, "ops")
    assert found.attributes == {"r": "a"}
    assert stage.verdict(theirs.line(2, by_hand.body(7, "", count=1), size=256)) is Drop.COVER
    found = stage.verdict(theirs.line(3, by_hand.body(5, "sun", count=2), size=256))
    assert isinstance(found, Delivery) and (found.payload, found.seq) == (b"sun", 2)

    ours = writer(has_plain_topics=is_plain)
    assert ours.place(name.encode(), UNIX_S) == topic.encode()
    _, lines = ours.lines(topic.encode(), [b"", b"rain", bytes(500)], UNIX_S)
    for number, (line, content) in enumerate(zip(lines, (b"", b"rain", bytes(500)), strict=True), 1):
        read = by_hand.opened(EPOCH, line)
        assert read == (1, UNIX_S * 1000, "", content, number, ME.signer.key)


def test_it_opens_cover_traffic() -> None:
    made_by, sent = writer(), list[by_hand.Read]()

    def publish(topic: bytes, payload: bytes, now: float, *, writer: object) -> int:
        place = made_by.place(topic, UNIX_S)
        _, lines = writer.lines(place, (payload,), UNIX_S)  # type: ignore[attr-defined]
        sent.append(by_hand.opened(EPOCH, *lines))
        return len(sent)

    cover = Cover(NAME, made_by, publish, lambda handle, waiter: None, 0.0, UNIX_S, rate=1.0, size=100)
    for second in range(4):
        if second == 2:
            cover.put(b"rain", Future())
        cover.look(float(second))
    assert [(read.flags, read.content, read.number) for read in sent] == [
        *((7, b"", 0), (7, b"", 0)),
        *((5, b"rain", 1), (7, b"", 1)),
    ]
    assert {read.sender for read in sent} == {ME.signer.key}
