"""client/envelope.py: the golden vectors both ways, truncations, and the grammar of PROTOCOL §9."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.client.envelope import (
    Envelope,
    format_envelope,
    is_enveloped,
    needs_understanding,
    new_publisher,
    parse_envelope,
)
from kcast.pubsub import wire
from kcast.pubsub.limits import PUBLISHER_CHARS_MAX
from tests.support import wire_vectors
from tests.support.grammar import PROTOCOL, Grammar

DOCUMENT: dict[str, Any] = json.loads(wire_vectors.FILE.read_text(encoding="ascii"))
ENVELOPE = Grammar(PROTOCOL.read_text(encoding="utf-8")).pattern("envelope")
bounded = settings(derandomize=True, max_examples=300, deadline=None)


def vectors(section: str) -> pytest.MarkDecorator:
    found = DOCUMENT[section]
    assert found
    return pytest.mark.parametrize("vector", found, ids=lambda vector: str(vector["description"]))


@vectors("envelopes")
def test_envelope_both_ways(vector: dict[str, Any]) -> None:
    """§9.1, §9.2"""
    message = bytes.fromhex(vector["wire_hex"])
    payload = bytes.fromhex(vector["payload_hex"])
    envelope = Envelope(vector["publisher"], vector["seq"], payload, vector["attributes"])
    assert parse_envelope(message) == envelope
    assert format_envelope(envelope) == message
    assert needs_understanding(envelope) == vector["must_understand"]
    assert is_enveloped(message)
    assert ENVELOPE.fullmatch(message)


@vectors("envelopes")
def test_envelope_truncated_is_refused_or_another_envelope(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["wire_hex"])
    for end in range(len(message)):
        envelope = parse_envelope(message[:end])
        assert envelope is None or format_envelope(envelope) == message[:end]


@vectors("refused_envelopes")
def test_envelope_malformed_is_refused(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["wire_hex"])
    assert parse_envelope(message) is None
    assert wire.decode_message(message) is None, "and it is no raw message either (§3.3)"
    assert not ENVELOPE.fullmatch(message)


@vectors("messages")
def test_no_raw_message_is_an_envelope(vector: dict[str, Any]) -> None:
    """§3.3"""
    message = bytes.fromhex(vector["wire_hex"])
    assert not is_enveloped(message)
    assert parse_envelope(message) is None


BASE64URL = st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"]) | st.sampled_from("-_")
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,4}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="%;"), max_size=5)


@bounded
@given(
    st.text(BASE64URL, min_size=1, max_size=PUBLISHER_CHARS_MAX),
    st.integers(1, 10**18 - 1),
    st.binary(max_size=40),
    st.dictionaries(NAMES, VALUES, max_size=3),
)
def test_envelope_round_trip(publisher: str, seq: int, payload: bytes, attributes: dict[str, str]) -> None:
    envelope = Envelope(publisher, seq, payload, attributes)
    message = format_envelope(envelope)
    assert parse_envelope(message) == envelope
    assert ENVELOPE.fullmatch(message)
    assert b"\n" not in message


TOKENS = st.sampled_from(
    [b"%@", b"p", b".", b"1", b"0", b"9" * 18, b";", b"=", b"t", b"T", b" ", b"%25", b"%", b"\xff", b"x" * 43]
)  # fmt: skip


@bounded
@given(st.lists(st.one_of(TOKENS, st.binary(max_size=2)), max_size=12).map(b"".join))
def test_what_is_accepted_is_what_the_grammar_matches(text: bytes) -> None:
    """Any bytes: a value or None; and a value that no attribute hides twice has one wire form."""
    for message in (text, b"%@p.1" + text, b"%@p.1;t=" + text):
        envelope = parse_envelope(message)
        assert (envelope is not None) is (ENVELOPE.fullmatch(message) is not None)
        if envelope is not None and message.count(b";") == len(envelope.attributes):
            assert format_envelope(envelope) == message


def test_publishers_are_eleven_characters_and_differ() -> None:
    """§9.1"""
    rng = Random(1)
    publishers = {new_publisher(rng) for _ in range(2000)}
    assert len(publishers) == 2000
    assert {len(publisher) for publisher in publishers} == {11}
    assert all(parse_envelope(b"%@" + publisher.encode() + b".1 ") for publisher in publishers)
    assert len(set("".join(publishers))) == 64
