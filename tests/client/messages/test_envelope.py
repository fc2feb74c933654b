"""client/messages/envelope.py: the golden vectors both ways, truncations, and the grammar of PROTOCOL §9."""

import json
from base64 import urlsafe_b64encode
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.client.events import Drop
from kcast.client.messages.envelope import (
    Envelope,
    format_envelope,
    is_enveloped,
    needs_understanding,
    new_publisher,
    parse_envelope,
    read,
)
from kcast.pubsub import wire
from kcast.pubsub.limits import PUBLISHER_CHARS_MAX
from tests.support import wire_vectors
from tests.support.grammar import PROTOCOL, Grammar

DOCUMENT: dict[str, Any] = json.loads(wire_vectors.FILE.read_text(encoding="ascii"))
GRAMMAR = Grammar(PROTOCOL)
ENVELOPE, BINARY = GRAMMAR.pattern("envelope"), GRAMMAR.pattern("binary")
SIGNATURE, SEAL = GRAMMAR.pattern("signature"), GRAMMAR.pattern("seal")
bounded = settings(derandomize=True, max_examples=300, deadline=None)


def vectors(section: str) -> pytest.MarkDecorator:
    found = DOCUMENT[section]
    assert found
    return pytest.mark.parametrize("vector", found, ids=lambda vector: str(vector["description"]))


def is_in_the_grammar(message: bytes) -> bool:
    """Whether the ABNF of §9.1 and §9.2 has it, and what is said there of `g` and `S`."""
    head, _, form = message.partition(b" ")
    fields = [field.partition(b"=") for field in head.split(b";")[1:]]
    values = {name: value for name, _, value in fields}
    names = [name for name, _, _ in fields]
    is_binary = values.get(b"B") == b"1"
    if names.count(b"g") + names.count(b"S") > 1 or b"g" in names[:-1] or (b"S" in names and b"B" in names):
        return False
    if b"g" in values and not SIGNATURE.fullmatch(values[b"g"]):
        return False
    if b"S" in values and not SEAL.fullmatch(values[b"S"]):
        return False
    is_binary = is_binary or b"S" in values
    return bool(ENVELOPE.fullmatch(message) and (not is_binary or BINARY.fullmatch(form)))


@vectors("envelopes")
def test_envelope_both_ways(vector: dict[str, Any]) -> None:
    """§9.1, §9.2"""
    message = bytes.fromhex(vector["wire_hex"])
    payload = bytes.fromhex(vector["payload_hex"])
    envelope = Envelope(vector["publisher"], vector["seq"], payload, vector["attributes"])
    assert parse_envelope(message) == envelope
    assert format_envelope(envelope) == bytes.fromhex(vector.get("formatted_hex", vector["wire_hex"]))
    assert needs_understanding(envelope) == vector["must_understand"]
    assert is_enveloped(message)
    assert is_in_the_grammar(message)


@vectors("envelopes")
def test_envelope_truncated_is_refused_or_another_envelope(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["wire_hex"])
    for end in range(len(message)):
        envelope = parse_envelope(message[:end])
        assert envelope is None or parse_envelope(format_envelope(envelope)) == envelope
        assert (envelope is not None) is is_in_the_grammar(message[:end])


@vectors("sealed_envelopes")
def test_sealed_envelopes_are_read_and_not_understood(vector: dict[str, Any]) -> None:
    """§9.2: by who opens nothing."""
    message = bytes.fromhex(vector["wire_hex"])
    payload = bytes.fromhex(vector["payload_hex"])
    assert parse_envelope(message) == (vector["publisher"], vector["seq"], payload, vector["attributes"])
    assert read(message) is Drop.NOT_UNDERSTOOD
    assert is_in_the_grammar(message)


@vectors("refused_envelopes")
def test_envelope_malformed_is_refused(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["wire_hex"])
    assert parse_envelope(message) is None
    assert wire.decode_message(message) is None, "and it is no raw message either (§3.3)"
    assert not is_in_the_grammar(message)


@vectors("messages")
def test_no_raw_message_is_an_envelope(vector: dict[str, Any]) -> None:
    """§3.3"""
    message = bytes.fromhex(vector["wire_hex"])
    assert not is_enveloped(message)
    assert parse_envelope(message) is None


BASE64URL = st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"]) | st.sampled_from("-_")
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,4}", fullmatch=True).filter(lambda name: name not in "BgS")
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
    assert is_in_the_grammar(message)
    assert b"\n" not in message


TOKENS = st.sampled_from(
    [b"%@", b"p", b".", b"1", b"0", b"9" * 18, b";", b"=", b"t", b"T", b" ", b"%25", b"%", b"\xff", b"x" * 43,
     b";B=1", b";B=2", b" Cg", b"CgoK", b"Ch", b"-_", b";g=", b"A" * 128, b"A" * 22, b"A" * 43, b"A" * 64,
     b".2.1", b".16.15", b";S=", b"A" * 51, b"E", b"Q", b"%@p.1;t=1;g=" + b"A" * 128, b"%@p.1;S=" + b"A" * 51]
)  # fmt: skip


@bounded
@given(st.lists(st.one_of(TOKENS, st.binary(max_size=2)), max_size=12).map(b"".join))
def test_what_is_accepted_is_what_the_grammar_matches(text: bytes) -> None:
    """Any bytes: a value or None; and of the lines that give one value, the shortest is what is sent."""
    starts = (b"", b"%@p.1", b"%@p.1;t=", b"%@p.1;B=1 ", b"%@p.1;g=", b"%@p.1;S=" + b"A" * 51 + b" ")
    for message in (start + text for start in starts):
        envelope = parse_envelope(message)
        assert (envelope is not None) is is_in_the_grammar(message)
        if envelope is not None and "S" not in envelope.attributes:
            sent = format_envelope(envelope)
            assert len(sent) <= len(message)
            assert parse_envelope(sent) == envelope


@bounded
@given(st.binary(max_size=300) | st.lists(st.sampled_from(b"\0%\x7fa\xff"), max_size=30).map(bytes))
def test_payload_travels_in_the_shorter_of_its_two_forms(payload: bytes) -> None:
    """§9.2: with the mark counted, and %-encoded where they are equal."""
    message = format_envelope(Envelope("p", 1, payload))
    plain = b"%@p.1 " + wire.encode_message(payload)
    binary = b"%@p.1;B=1 " + urlsafe_b64encode(payload).rstrip(b"=")
    assert message == (binary if len(binary) < len(plain) else plain)
    assert parse_envelope(plain) == parse_envelope(binary) == Envelope("p", 1, payload)


def test_publishers_are_eleven_characters_and_differ() -> None:
    """§9.1"""
    rng = Random(1)
    publishers = {new_publisher(rng) for _ in range(2000)}
    assert len(publishers) == 2000
    assert {len(publisher) for publisher in publishers} == {11}
    assert all(parse_envelope(b"%@" + publisher.encode() + b".1 ") for publisher in publishers)
    assert len(set("".join(publishers))) == 64
