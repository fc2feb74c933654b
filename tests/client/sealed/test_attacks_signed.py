"""Attacks on signed messages, and the drop that each meets: lines changed, moved, and made up. PROTOCOL §9.6.

Here servers lie, or anybody publishes; nobody but Alice has her key.
"""

from collections.abc import Callable

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Delivery, Drop
from kcast.client.sealed.guards import SignedGuard, is_certified
from kcast.client.sealed.replay import WINDOW
from kcast.client.sealed.topics import topic_start
from tests.support.attack_stage import ALICE, BOB, NAME, Stage, signed, signed_stage, unsigned

LINE = signed()


# --- Those who may publish ----------------------------------------------------------------------------


def test_an_allowed_sender_who_claims_anothers_name_with_a_huge_number_silences_nobody() -> None:
    stage = signed_stage(ALICE, BOB)
    huge = 10**18 - 1
    for seq in (1, 2):
        assert isinstance(stage.verdict(signed(seq)), Delivery)
    assert isinstance(stage.verdict(signed(huge, BOB)), Delivery), "it is Bob's, and told as Bob's"
    for seq in range(3, 20):
        found = stage.verdict(signed(seq))
        assert isinstance(found, Delivery)
        assert (found.sender, found.publisher, found.seq) == (ALICE.key_text, "AbCdEfGhIjK", seq)
    assert isinstance(stage.verdict(signed(huge - WINDOW + 1, BOB)), Delivery)
    assert stage.verdict(signed(huge - WINDOW, BOB)) is Drop.REPLAYED, "he harms himself alone"


def test_gaps_are_those_of_one_sender_and_made_by_no_other() -> None:
    stage = signed_stage(ALICE, BOB)
    stage.hear(*map(signed, range(1, 6)), signed(900, BOB))
    stage.hear(*(signed(seq, BOB) for seq in range(901, 905)))
    stage.wait(30)
    assert not stage.gaps()
    stage.hear(*map(signed, range(7, 12)))
    stage.wait(30)
    (gap,) = stage.gaps()
    assert (gap.topic, gap.publisher, gap.first_seq, gap.last_seq) == (NAME, "AbCdEfGhIjK", 6, 6)


def test_topics_that_name_their_sender_need_no_list() -> None:
    name = topic_start([ALICE.key]).encode() + b"/oslo"
    stage = Stage()
    stage.subscribe(SignedGuard(is_certified, stage.unix_s), name)
    assert isinstance(stage.verdict(signed(topic=name)), Delivery)
    assert stage.verdict(signed(topic=name, by=BOB)) is Drop.UNAUTHORISED
    assert stage.verdict(unsigned(topic=name)) is Drop.UNSIGNED


@pytest.mark.parametrize("spell", [bytes.lower, lambda name: name.replace(b"/", b"%2F")], ids=["case", "%"])
def test_another_spelling_of_a_topic_is_another_topic(spell: Callable[[bytes], bytes]) -> None:
    name = topic_start([ALICE.key]).encode() + b"/oslo"
    stage = Stage()
    stage.subscribe(SignedGuard(is_certified, stage.unix_s), name)
    assert spell(name) != name
    found = stage.verdict(signed(topic=name, by=BOB).replace(name, spell(name)))
    assert found in (Drop.NOT_SUBSCRIBED, Drop.MALFORMED_MESSAGE)
