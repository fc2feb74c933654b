"""client/sealed/writers.py: numbers of sealed messages, which are nonces."""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.errors import MessageTooLarge
from kcast.client.sealed.topics import topic_start
from kcast.client.sealed.writers import SealedWriter, require_own_topic
from kcast.pubsub.wire import TopicError
from tests.support import attack_stage
from tests.support.attack_stage import UNIX_S, epoch, group_of
from tests.support.groups import ALICE, BOB

WIRE_TOPIC, SIGNER = b"weather", attack_stage.ALICE


def writer() -> SealedWriter:
    """What seals for a group of one epoch."""
    group = group_of(epoch(1))
    return SealedWriter(lambda: group, lambda size: b"\x77" * size, lambda: "AbCdEfGhIjK", SIGNER)


def test_many_of_which_one_is_too_large_use_no_number_up() -> None:
    """Subscribers would wait for the numbers between: under cover traffic they are told as missing."""
    sealed = writer()
    assert sealed.lines(WIRE_TOPIC, [b"first"], UNIX_S)[0] == 1
    with pytest.raises(MessageTooLarge, match=r"payload 2 \(from 0\), so none was published: "):
        sealed.lines(WIRE_TOPIC, [b"a", b"b", b"x" * 1000], UNIX_S)
    first, lines = sealed.lines(WIRE_TOPIC, [b"a", b"b"], UNIX_S)
    assert first == 2 and [line.split(b";")[0].rpartition(b".")[2] for line in lines] == [b"2", b"3"]
    assert sealed.lines(WIRE_TOPIC, [b"next"], UNIX_S)[0] == 4


def test_no_messages_use_no_number_up() -> None:
    sealed = writer()
    assert sealed.lines(WIRE_TOPIC, [], UNIX_S) == (1, [])
    assert sealed.lines(WIRE_TOPIC, [b"first"], UNIX_S)[0] == 1


def test_a_topic_may_name_others_besides_the_key_that_signs() -> None:
    alice, bob = ALICE.signer, BOB.signer
    topic = topic_start([alice.key, bob.key]).encode() + b"/oslo"
    for senders in ({bob.key}, {alice.key, bob.key}):
        require_own_topic(topic, alice, frozenset(senders))
    with pytest.raises(TopicError, match=r"are not the key .* alone"):
        require_own_topic(topic, alice, frozenset())
