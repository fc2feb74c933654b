"""client/messages/lines.py: how much fits into a message, and what PROTOCOL §9.5 and documents say of it."""

from random import Random

import pytest

from kcast.client.errors import MessageTooLarge
from kcast.client.messages.envelope import new_publisher, parse_envelope
from kcast.client.messages.lines import SEQ_MAX, Room, publish_line, room
from kcast.client.session.requests import VOUCH_BYTES_MAX
from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, PUBLISHER_CHARS_MAX

PUBLISHER = new_publisher(Random(1))
TOPIC = b"t" * 12
TOPICS = [b"t", TOPIC, b"%00" * 85]
NUMBERS = [None, 1, 9, 10, 123_456, SEQ_MAX]
RANDOM = Random(2).randbytes(2000)


def payloads(size: int) -> list[bytes]:
    """Payloads of this size that are as hard to carry as any, and some others."""
    return [bytes(size), b"%" * size, b"\x7f" * size, b"x" * size, b"\xff" * size, RANDOM[:size],
            b"\n" * (size // 2) + b"x" * (size - size // 2)]  # fmt: skip


def does_fit(topic: bytes, payload: bytes, seq: int | None, publisher: str = PUBLISHER) -> bool:
    """Whether it is taken, and then read as it was given."""
    try:
        line = publish_line(topic, payload, publisher, seq)
    except MessageTooLarge:
        return False
    assert len(line) + VOUCH_BYTES_MAX <= DATAGRAM_BYTES_MAX
    message = line[len(topic) + 1 : -1]
    envelope = None if seq is None else parse_envelope(message)
    assert payload == (wire.decode_message(message) if envelope is None else envelope.payload)
    return True


def test_any_800_bytes_fit_on_a_topic_of_12() -> None:
    """Whatever the bytes and the number, where no other attribute stands; and not 801."""
    assert all(does_fit(TOPIC, payload, seq) for seq in (1, SEQ_MAX) for payload in payloads(800))
    random = Random(3)
    assert all(does_fit(TOPIC, random.randbytes(800), SEQ_MAX) for _ in range(200))
    assert not does_fit(TOPIC, bytes(801), SEQ_MAX)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("seq", NUMBERS)
@pytest.mark.parametrize("publisher", [PUBLISHER, "p", "p" * PUBLISHER_CHARS_MAX])
def test_room_is_what_fits_to_the_byte(topic: bytes, seq: int | None, publisher: str) -> None:
    text_bytes, any_bytes = room(topic, publisher, seq)
    assert all(does_fit(topic, payload, seq, publisher) for payload in payloads(any_bytes))
    assert not does_fit(topic, bytes(any_bytes + 1), seq, publisher)
    assert does_fit(topic, b"x" * text_bytes, seq, publisher)
    assert not does_fit(topic, b"x" * (text_bytes + 1), seq, publisher)
    tab = b"\t" + b"x" * (text_bytes - 3)
    assert does_fit(topic, tab, seq, publisher)
    assert not does_fit(topic, tab + b"x", seq, publisher)


def test_room_without_a_number_is_for_every_number() -> None:
    assert room(TOPIC) == room(TOPIC, PUBLISHER, SEQ_MAX) == Room(1071, 800)
    assert all(room(TOPIC, PUBLISHER, seq) >= room(TOPIC) for seq in NUMBERS if seq is not None)


@pytest.mark.parametrize("seq", NUMBERS)
def test_what_does_not_fit_is_told_what_would(seq: int | None) -> None:
    fits = room(TOPIC, PUBLISHER, seq)
    with pytest.raises(MessageTooLarge) as raised:
        publish_line(TOPIC, bytes(1500), PUBLISHER, seq)
    assert str(raised.value) == (
        f"message too large: 1500 bytes. The topic leaves room for {fits.text_bytes} bytes of text, of which "
        f"% and control bytes count three times, or for any {fits.any_bytes}; send less, or split it"
    )


# --- What is written of it ----------------------------------------------------------------------------
