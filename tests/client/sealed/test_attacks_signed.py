"""Attacks on signed messages, and the drop that each meets: lines changed, moved, and made up. PROTOCOL §9.6.

Here servers lie, or anybody publishes; nobody but Alice has her key.
"""

from collections.abc import Callable

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Delivery, Drop
from kcast.client.messages.base64url import encode_ascii
from kcast.client.sealed.guard import SignedGuard, is_certified
from kcast.client.sealed.replay import WINDOW
from kcast.client.sealed.topics import topic_start
from tests.support import sealed_by_hand as by_hand
from tests.support.attack_stage import ALICE, BOB, NAME, STRANGER, Stage, signed, signed_stage, unsigned

SMALL_KEYS = [
    (number | sign << 255).to_bytes(32, "little")
    for sign in (0, 1)
    for number in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18)
]
ALONE = signed()
BATCH = by_hand.Batch([unsigned(seq) for seq in range(1, 17)])
IN_BATCH = BATCH.line(5)


ELSEWHERE = {Drop.NOT_SUBSCRIBED, Drop.MALFORMED_CONTROL, Drop.UNTERMINATED}
UNREADABLE = {Drop.MALFORMED_MESSAGE, Drop.NOT_UNDERSTOOD, Drop.UNSIGNED}


def met_by_change(line: bytes, at: int) -> set[Drop]:
    """Which drops a line may meet whose byte at an index was changed."""
    at_envelope, at_g = line.index(b" ") + 1, line.index(b";g=") + 3
    if at < at_envelope:
        return ELSEWHERE | UNREADABLE
    found = ELSEWHERE | UNREADABLE | {Drop.BAD_SIGNATURE}
    if line.index(b";t=") <= at < at_g:
        return found | {Drop.TOO_OLD, Drop.FROM_FUTURE, Drop.UNAUTHORISED}
    if at_g <= at <= at_g + 42:  # the last of these characters has bits of the key and of the signature
        found |= {Drop.UNAUTHORISED}
    return found - {Drop.BAD_SIGNATURE} if at_g <= at < at_g + 42 else found


@pytest.mark.parametrize("line", [ALONE, IN_BATCH], ids=["alone", "in a batch"])
def test_every_byte_changed(line: bytes) -> None:
    stage = signed_stage()
    met: set[Drop] = set()
    for at in range(len(line)):
        allowed = met_by_change(line, at)
        for change in range(1, 256):
            byte = line[at] ^ change
            if change & (change - 1) and byte not in by_hand.ALPHABET:  # each bit, and each likely character
                continue
            mutant = line[:at] + bytes([byte]) + line[at + 1 :]
            deliveries, drops, duplicates = stage.hear(mutant)
            assert not deliveries, mutant
            assert drops.total() + duplicates >= 1, mutant
            assert drops.keys() <= allowed, (mutant, drops)
            met |= drops.keys()
    assert met >= {Drop.BAD_SIGNATURE, Drop.UNAUTHORISED, Drop.MALFORMED_MESSAGE, Drop.NOT_SUBSCRIBED}
    assert isinstance(stage.verdict(line), Delivery), "nothing of that has harmed the sound line"


def test_a_line_cut_short() -> None:
    stage = signed_stage()
    for end in range(1, len(ALONE)):
        assert not stage.hear(ALONE[:end]).deliveries
        assert not stage.hear(ALONE[:end] + b"\n").deliveries or end == len(ALONE) - 1
    assert stage.hear(ALONE).duplicates == 1, "without its LF it came with one"


@pytest.mark.parametrize(
    "moved",
    [
        ALONE.replace(b"%@AbCdEfGhIjK.1;", b"%@AbCdEfGhIjK.2;"),
        ALONE.replace(b"%@AbCdEfGhIjK.1;", b"%@AbCdEfGhIjL.1;"),
        ALONE.replace(b";t=1790000000000;", b";t=1790000000001;"),
        ALONE.replace(b"rain, 4", b"rain, 5"),
        ALONE.replace(b";t=", b";x=1;t="),
        by_hand.signed(unsigned(), by_hand.ALICE, b"kcast-batch 1\n"),
        by_hand.signed(unsigned(), by_hand.ALICE, b""),
        IN_BATCH.replace(b".16.5 ", b".16.4 "),
        IN_BATCH.replace(b".6;", b".7;"),
    ],
    ids=["number", "process", "time", "payload", "attribute", "other words", "no words", "index", "leaf"],
)
def test_moved_within_its_topic(moved: bytes) -> None:
    assert moved not in (ALONE, IN_BATCH, unsigned())
    stage = signed_stage()
    assert stage.verdict(moved) is Drop.BAD_SIGNATURE
    assert isinstance(stage.verdict(ALONE), Delivery)


def test_moved_to_another_topic_that_is_subscribed_to_as_well() -> None:
    stage = signed_stage()
    stage.subscribe(SignedGuard(lambda _, key: key == ALICE.key, stage.unix_s), b"weather/rome")
    assert stage.verdict(ALONE.replace(NAME, b"weather/rome")) is Drop.BAD_SIGNATURE
    assert stage.verdict(ALONE.replace(NAME, b"weather/bern")) is Drop.NOT_SUBSCRIBED
    assert isinstance(stage.verdict(ALONE), Delivery)


def test_a_signature_taken_off() -> None:
    stage = signed_stage()
    assert stage.verdict(unsigned()) is Drop.UNSIGNED
    assert stage.verdict(b"%b rain, 4 degrees\n" % NAME) is Drop.UNSIGNED, "a raw one as well"
    assert stage.verdict(b"%b %%@AbCdEfGhIjK.1 rain\n" % NAME) is Drop.UNSIGNED
    assert isinstance(stage.verdict(ALONE), Delivery)


def test_two_signatures_and_one_that_is_not_the_last() -> None:
    stage = signed_stage()
    g = ALONE[ALONE.index(b";g=") : ALONE.index(b" rain")]
    assert stage.verdict(ALONE.replace(g, g + g)) is Drop.MALFORMED_MESSAGE
    assert stage.verdict(ALONE.replace(g, g + b";x=1")) is Drop.MALFORMED_MESSAGE
    assert stage.verdict(ALONE.replace(b";t=1790000000000", b"")) is Drop.BAD_SIGNATURE, "time is required"


def test_a_stranger_signs_and_so_does_another_one_who_is_allowed_elsewhere() -> None:
    stage = signed_stage()
    assert stage.verdict(signed(by=STRANGER)) is Drop.UNAUTHORISED
    as_alice = encode_ascii(ALICE.key + STRANGER.sign_bytes(b"kcast-sign 1\n" + unsigned()))
    assert stage.verdict(by_hand.with_g(unsigned(), as_alice)) is Drop.BAD_SIGNATURE
    assert stage.verdict(signed(by=BOB)) is Drop.UNAUTHORISED


@pytest.mark.parametrize("key", SMALL_KEYS, ids=bytes.hex)
def test_a_key_of_small_order_signs_nothing(key: bytes) -> None:
    """With one, a signature can be made that is one of any message, or of every eighth."""
    stage = Stage()
    stage.subscribe(SignedGuard(lambda *_: True, stage.unix_s))
    for first in (key, (1).to_bytes(32, "little")):
        for seq in range(1, 17):
            line = by_hand.with_g(unsigned(seq), encode_ascii(key + first + bytes(32)))
            assert stage.verdict(line) in (Drop.BAD_SIGNATURE, None)
    batch = BATCH.line(3, named=key + (1).to_bytes(32, "little") + bytes(32))
    assert stage.verdict(batch) is Drop.BAD_SIGNATURE


def test_a_signature_whose_scalar_has_the_groups_order_added() -> None:
    """It fits the same equation, so that a message would have two forms."""
    stage = signed_stage()
    signature = ALICE.sign_bytes(b"kcast-sign 1\n" + unsigned())
    point, scalar = signature[:32], int.from_bytes(signature[32:], "little")
    for times in range(1, 16):
        raised = (scalar + times * by_hand.ORDER).to_bytes(33, "little")
        if raised[32]:
            break
        line = by_hand.with_g(unsigned(), encode_ascii(ALICE.key + point + raised[:32]))
        assert stage.verdict(line) is Drop.BAD_SIGNATURE
    assert times > 8
    assert isinstance(stage.verdict(ALONE), Delivery)


# --- Batches ------------------------------------------------------------------------------------------

OTHER_BATCH = by_hand.Batch([unsigned(seq) for seq in range(101, 117)])


@pytest.mark.parametrize(
    "line",
    [
        OTHER_BATCH.line(5, unsigned_line=unsigned(6), named=BATCH.named),
        OTHER_BATCH.line(5, named=BATCH.named),
        BATCH.line(5, siblings=by_hand.path(OTHER_BATCH.lines, 5)),
        BATCH.line(5, place=".16.16"),
        BATCH.line(5, place=".16.21"),
        BATCH.line(5, place=".5.5"),
        BATCH.line(5, place=".0.0"),
        BATCH.line(5, place=".0.5"),
        BATCH.line(5, place=".1.0", siblings=()),
        BATCH.line(5, place=".17.5"),
        BATCH.line(5, place=".17.16"),
        BATCH.line(5, place=".99.5"),
        BATCH.line(5, place=".15.5"),
        BATCH.line(5, siblings=by_hand.path(BATCH.lines, 5)[:-1]),
        BATCH.line(5, siblings=[*by_hand.path(BATCH.lines, 5), bytes(16)]),
        by_hand.Batch([unsigned(seq) for seq in range(1, 18)]).line(5),
        by_hand.Batch([unsigned(seq) for seq in range(1, 18)]).line(16),
        by_hand.Batch([unsigned(1)]).line(0),
        by_hand.Batch([unsigned(1), unsigned(2)], count=0).line(0),
    ],
)
def test_a_path_of_another_batch_an_index_out_of_range_a_batch_that_there_cannot_be(line: bytes) -> None:
    stage = signed_stage()
    assert isinstance(stage.verdict(BATCH.line(0)), Delivery)
    assert stage.verdict(line) in (Drop.BAD_SIGNATURE, Drop.MALFORMED_MESSAGE)
    assert isinstance(stage.verdict(IN_BATCH), Delivery)


def test_a_batch_is_worth_nothing_to_another_key() -> None:
    stage = signed_stage(ALICE, BOB)
    assert isinstance(stage.verdict(BATCH.line(0)), Delivery)
    assert stage.verdict(BATCH.line(1, named=BOB.key + BATCH.named[32:])) is Drop.BAD_SIGNATURE


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
