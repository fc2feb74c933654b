"""Attacks on sealed messages, and the drop that each meets: lines changed, moved, and made up. PROTOCOL §9.7.

An outsider has lines. A writer has the public key and the topic secret of an epoch, a reader its private key,
too. Both may be wicked.
"""

from base64 import urlsafe_b64decode
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Delivery, Drop
from kcast.client.messages.base64url import encode_ascii
from kcast.client.sealed.guards import SealedGuard, senders_of
from kcast.client.sealed.replay import WINDOW
from kcast.client.sealed.sealing import Epoch
from kcast.client.sealed.topics import hidden
from tests.support import sealed_by_hand as by_hand
from tests.support.attack_stage import (
    ALICE,
    BOB,
    NAME,
    STRANGER,
    UNIX_S,
    Process,
    Stage,
    epoch,
    group_of,
    sealed_stage,
)

LINE = Process().line()
TOPIC = LINE.split(b" ")[0]


def with_tag(line: bytes, of: Epoch) -> bytes:
    """A line with the tag that whoever knows the topic secret can give it."""
    topic, envelope, payload = line.rstrip(b"\n").split(b" ")
    start, _, seal = envelope.partition(b";S=")
    enc = urlsafe_b64decode(seal + b"=")[6:]
    publisher = start[2:].split(b".")[0]
    by_writer = by_hand.Epoch(of.group, of.number, 1, 1)
    by_writer.topic_secret = of.topic_secret
    tag = by_writer.tag(topic.decode(), enc, publisher.decode())
    return b"%b %b;S=%b %b\n" % (topic, start, encode_ascii(tag + enc), payload)


def test_moved_to_another_epoch() -> None:
    now, then = epoch(1, next_from_unix_s=UNIX_S + 10), epoch(2, UNIX_S + 10)
    stage = sealed_stage(group_of(now, then))
    topic_then = hidden(then.topic_secret, NAME)
    moved = LINE.replace(TOPIC, topic_then)
    assert stage.verdict(moved) is Drop.UNKNOWN_KEY
    assert stage.verdict(with_tag(moved, then)) is Drop.NOT_OPENED
    assert stage.verdict(with_tag(LINE, then)) is Drop.NOT_OPENED, "with the tag of the other"
    assert isinstance(stage.verdict(LINE), Delivery)


# --- Senders ------------------------------------------------------------------------------------------


def test_both_the_groups_senders_and_those_of_the_subscription_are_asked_for() -> None:
    in_group = group_of(epoch(senders=frozenset([ALICE.key, BOB.key])))
    stage = sealed_stage(in_group, allows=senders_of(frozenset([BOB.key, STRANGER.key])))
    assert stage.verdict(Process(signer=ALICE).line(1)) is Drop.UNAUTHORISED
    assert stage.verdict(Process(signer=STRANGER).line(2)) is Drop.UNAUTHORISED
    assert isinstance(stage.verdict(Process(signer=BOB).line(3)), Delivery)


def test_a_reader_who_becomes_a_writer_reads_on_until_the_epoch_is_over() -> None:
    """And its client goes on: what it cannot open is a drop."""
    now = epoch(1, next_from_unix_s=UNIX_S + 60)
    then = replace(epoch(2, UNIX_S + 60), private=None)
    guard = SealedGuard(group_of(now), UNIX_S, has_plain_topics=True)
    stage = Stage()
    stage.subscribe(guard)
    guard.adopt(group_of(now, then))
    assert isinstance(stage.verdict(Process(now, wire_topic=NAME).line()), Delivery)
    guard.adopt(group_of(then))
    assert stage.verdict(Process(then, wire_topic=NAME).line(2)) is Drop.UNKNOWN_KEY


# --- Members who misbehave ----------------------------------------------------------------------------


def test_who_claims_anothers_name_and_enc_with_a_huge_number_harms_himself_alone() -> None:
    """Who has the private key knows what each `enc` gives, and can seal as that process does."""
    stage = sealed_stage()
    alice, bob, huge = Process(signer=ALICE), Process(signer=BOB), 10**18 - 1
    assert alice.sealer.enc == bob.sealer.enc
    assert isinstance(stage.verdict(alice.line(1)), Delivery)
    assert isinstance(stage.verdict(bob.line(huge)), Delivery), "it is Bob's, and told as Bob's"
    assert stage.verdict(bob.line(huge - 1, count=0, is_cover=True)) is Drop.COVER
    for seq in range(2, 20):
        found = stage.verdict(alice.line(seq))
        assert isinstance(found, Delivery) and found.sender == ALICE.key_text
    assert stage.verdict(bob.line(huge - WINDOW)) is Drop.REPLAYED
    stage.wait(30)
    assert not stage.gaps()


# --- Clones -------------------------------------------------------------------------------------------


def test_two_clones_of_a_machine_show_only_which_messages_are_equal() -> None:
    """Same publisher, same secret, same numbers: what seals must bear that a number is used twice."""
    one, other = Process(signer=ALICE), Process(signer=ALICE)
    assert one.line(1, payload=b"same") == other.line(1, payload=b"same")
    lines = [one.line(2, payload=b"rain, 4 degrees"), other.line(2, payload=b"rain, 5 degrees")]
    payloads = [urlsafe_b64decode(line.split()[-1] + b"==") for line in lines]
    assert len(lines[0]) == len(lines[1])
    blocks = [[payload[at : at + 16] for at in range(0, len(payload), 16)] for payload in payloads]
    assert not set(blocks[0][:-1]) & set(blocks[1][:-1]), "not even equal parts of them look equal"
    bits = sum((a ^ b).bit_count() for a, b in zip(*payloads, strict=True)) / (8 * len(payloads[0]))
    assert 0.4 < bits < 0.6


def test_readers_lose_one_of_two_clones_messages() -> None:
    stage = sealed_stage()
    one, other = Process(), Process()
    assert isinstance(stage.verdict(one.line(1, payload=b"of one")), Delivery)
    assert stage.verdict(other.line(1, payload=b"of the other")) is Drop.REPLAYED
    assert isinstance(stage.verdict(other.line(2, payload=b"of the other")), Delivery)
    assert stage.verdict(one.line(2, payload=b"of one")) is Drop.REPLAYED
