"""pubsub/wire.py: the golden vectors both ways, truncations, the grammar of PROTOCOL.md, round trips."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, REQUEST_BYTES_MIN, TOPIC_BYTES_MAX
from tests.support import wire_vectors
from tests.support.grammar import PROTOCOL, Grammar

DOCUMENT: dict[str, Any] = json.loads(wire_vectors.FILE.read_text(encoding="ascii"))
GRAMMAR = Grammar(PROTOCOL)
CONTROL_RULES = ("ask", "vouch", "ping", "challenge", "receipt", "refusal", "pong")

# Bytes that matter to the codec, so that random strings come near its edges.
EDGES = st.sampled_from([bytes([b]) for b in b"%%%0123789AFaf2 5!$&~\x00\x1f\x7f\x80\xff\n\r\tgx?"])
NEAR = st.lists(EDGES, max_size=12).map(b"".join)
ANY = st.binary(max_size=90)
bounded = settings(derandomize=True, max_examples=300, deadline=None)


def vectors(section: str) -> pytest.MarkDecorator:
    """A parametrisation by one list of the file."""
    found = DOCUMENT[section]
    assert found
    return pytest.mark.parametrize("vector", found, ids=lambda vector: str(vector["description"])[:60])


def as_line(kind: str, fields: Mapping[str, Any]) -> wire.Request | wire.Reply:
    """The code's value for a vector's fields."""
    nonce = fields["nonce"].encode()
    match kind:
        case "ask":
            return wire.Ask(nonce)
        case "vouch":
            stamp = fields["stamp"]
            asks_version = fields.get("asks_version", False)
            return wire.Vouch(
                nonce, fields["cookie"].encode(), stamp.encode() if stamp else None, asks_version
            )
        case "ping":
            return wire.Ping(nonce)
        case "challenge":
            return wire.Challenge(nonce, fields["cookie"].encode(), fields["bits"], fields["attributes"])
        case "receipt":
            cookie = fields["cookie"].encode()
            return wire.Receipt(nonce, fields["ttl"], cookie, fields["bits"], fields["attributes"])
        case "refusal":
            return wire.Refusal(nonce, fields["reason"], fields["lines"], fields["attributes"])
        case "pong":
            return wire.Pong(nonce, fields["left"], fields["attributes"])
    raise AssertionError(kind)


def parse_line(line: bytes) -> wire.Request | wire.Reply | None:
    """Whatever control line it is."""
    request, reply = wire.parse_request(line), wire.parse_reply(line)
    assert request is None or reply is None, "a line is a request or a reply, never both (§5.2)"
    return request or reply


# --- The file ----------------------------------------------------------------------------------------


def test_the_file_is_what_its_generator_writes() -> None:
    assert wire_vectors.FILE.read_text(encoding="ascii") == wire_vectors.text()


def test_what_stands_for_the_eye_is_what_stands_in_hex() -> None:
    for found in DOCUMENT.values():
        for vector in found if isinstance(found, list) else ():
            if isinstance(vector, dict) and "text" in vector:
                assert vector["text"].encode().hex() == vector["wire_hex"]


# --- Topics (§3.1) -----------------------------------------------------------------------------------


@vectors("topics")
def test_topic_both_ways(vector: dict[str, Any]) -> None:
    name, topic = bytes.fromhex(vector["name_hex"]), bytes.fromhex(vector["wire_hex"])
    assert wire.encode_topic(name) == topic
    assert wire.is_topic(topic)
    assert wire.decode_topic(topic) == name
    assert GRAMMAR.pattern("topic").fullmatch(topic)


@vectors("topics")
def test_topic_truncated_is_refused_or_another_topic(vector: dict[str, Any]) -> None:
    topic = bytes.fromhex(vector["wire_hex"])
    for end in range(len(topic)):
        name = wire.decode_topic(topic[:end])
        assert name is None or wire.encode_topic(name) == topic[:end]


@vectors("refused_topics")
def test_topic_not_canonical_is_refused(vector: dict[str, Any]) -> None:
    topic = bytes.fromhex(vector["wire_hex"])
    assert not wire.is_topic(topic)
    assert wire.decode_topic(topic) is None


def test_each_byte_alone_is_a_topic_by_its_rule() -> None:
    """§3.1: every byte outside 0x21..0x7E, and `%`, is `%XX`; no other byte is."""
    for byte in range(256):
        plain = 0x21 <= byte <= 0x7E and byte != 0x25
        topic = bytes([byte]) if plain else b"%%%02X" % byte
        assert wire.encode_topic(bytes([byte])) == topic
        assert wire.is_topic(bytes([byte])) is plain
        assert wire.is_topic(b"%%%02X" % byte) is not plain


def test_each_pair_after_a_percent_sign() -> None:
    """§3.1: of all 65536 pairs, exactly the 163 canonical escapes stand in a topic; 34 in a message."""
    pairs = [b"%" + bytes((first, second)) for first in range(256) for second in range(256)]
    escaped = [byte for byte in range(256) if not 0x21 <= byte <= 0x7E or byte == 0x25]
    assert {pair for pair in pairs if wire.is_topic(pair)} == {b"%%%02X" % byte for byte in escaped}
    escaped = [*range(0x20), 0x25, 0x7F]
    decoded = {pair for pair in pairs if wire.decode_message(pair) is not None}
    assert decoded == {b"%%%02X" % byte for byte in escaped}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (b"", "must not be empty"),
        (b"t" * 256, "topic too long: 256 bytes encoded, at most 255$"),
        (b"\0" * 86, r"258 bytes encoded, at most 255 \(spaces, % and bytes .* take 3 each\)$"),
        ("ø".encode() * 43, r"258 bytes encoded, at most 255 \(spaces, % and bytes .* take 3 each\)$"),
    ],
)
def test_topic_that_cannot_be_encoded_is_the_callers_fault(name: bytes, complaint: str) -> None:
    with pytest.raises(wire.TopicError, match=complaint):
        wire.encode_topic(name)


@bounded
@given(st.one_of(st.binary(min_size=1, max_size=85), NEAR.filter(bool)))
def test_topic_round_trip(name: bytes) -> None:
    topic = wire.encode_topic(name)
    assert wire.decode_topic(topic) == name
    assert GRAMMAR.pattern("topic").fullmatch(topic)


@bounded
@given(st.one_of(ANY, NEAR))
def test_topic_has_one_wire_form_only(text: bytes) -> None:
    """§3: whatever is accepted is what encoding gives; and it is accepted where the grammar matches."""
    name = wire.decode_topic(text)
    assert (name is not None) is wire.is_topic(text)
    assert name is None or wire.encode_topic(name) == text
    matches = GRAMMAR.pattern("topic").fullmatch(text) is not None and len(text) <= TOPIC_BYTES_MAX
    assert wire.is_topic(text) is matches


# --- Messages (§3.2) ---------------------------------------------------------------------------------


@vectors("messages")
def test_message_both_ways(vector: dict[str, Any]) -> None:
    payload, message = bytes.fromhex(vector["payload_hex"]), bytes.fromhex(vector["wire_hex"])
    assert wire.encode_message(payload) == message
    assert wire.decode_message(message) == payload
    assert GRAMMAR.pattern("message").fullmatch(message)


@vectors("messages")
def test_message_truncated_is_refused_or_another_message(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["wire_hex"])
    for end in range(len(message)):
        payload = wire.decode_message(message[:end])
        assert payload is None or wire.encode_message(payload) == message[:end]


@vectors("refused_messages")
def test_message_not_canonical_is_refused(vector: dict[str, Any]) -> None:
    assert wire.decode_message(bytes.fromhex(vector["wire_hex"])) is None


@bounded
@given(st.one_of(ANY, NEAR))
def test_message_round_trip_and_one_wire_form_only(text: bytes) -> None:
    assert wire.decode_message(wire.encode_message(text)) == text
    payload = wire.decode_message(text)
    assert payload is None or wire.encode_message(payload) == text
    matches = GRAMMAR.pattern("message").fullmatch(text) is not None and not text.startswith(b"%@")
    assert (payload is not None) is matches


@bounded
@given(st.one_of(ANY, NEAR))
def test_no_user_can_begin_a_line_of_control(text: bytes) -> None:
    """§3.3: neither a topic nor a message begins as control lines and envelopes do."""
    assert not wire.is_control(wire.encode_message(text))
    if text:
        assert not wire.is_control(wire.encode_topic(text[:85]))


# --- Lines (§2) --------------------------------------------------------------------------------------


@vectors("datagrams")
def test_datagram_is_split_into_lines(vector: dict[str, Any]) -> None:
    lines, unterminated = wire.split_lines(bytes.fromhex(vector["datagram_hex"]))
    assert [line.hex() for line in lines] == vector["lines_hex"]
    assert unterminated is vector["unterminated"]


@vectors("datagrams")
def test_datagram_truncated_keeps_its_whole_lines(vector: dict[str, Any]) -> None:
    """§2.2: what was cut is dropped; what was ended by LF is as it was."""
    datagram = bytes.fromhex(vector["datagram_hex"])
    whole = [bytes.fromhex(line) for line in vector["lines_hex"]]
    for end in range(len(datagram)):
        lines, unterminated = wire.split_lines(datagram[:end])
        assert lines == whole[: len(lines)]
        assert unterminated is (end > 0 and datagram[end - 1 : end] != b"\n")


@bounded
@given(st.lists(NEAR.map(lambda line: line.replace(b"\n", b"")), max_size=8), NEAR)
def test_lines_round_trip(lines: list[bytes], tail: bytes) -> None:
    tail = tail.replace(b"\n", b"")
    datagram = b"".join(line + b"\n" for line in lines) + tail
    assert wire.split_lines(datagram) == ([line for line in lines if line], bool(tail))


@pytest.mark.parametrize(
    ("line", "control"),
    [
        (b"%? N", True), (b"%", True), (b"%2", True), (b"%2g", True), (b"%@p.1 x", True), (b"%%", True),
        (b"%41", False), (b"%c3", False), (b"%C3%B8 x", False), (b"a", False), (b" %?", False), (b"", False),
    ],
)  # fmt: skip
def test_control_lines_are_told_from_others(line: bytes, control: bool) -> None:
    """§3.3: `%` and not two hex digits. Lower-case hex makes a bad topic, and no control line."""
    assert wire.is_control(line) is control


@pytest.mark.parametrize(
    ("head", "fits"),
    [
        ("", True), ("sha256:0a-Z_/+~!", True), ("!" * 32, True), ("~" * 32, True), ("=", True),
        ("!" * 33, False), ("a b", False), (" ", False), ("a\tb", False), ("a\n", False), ("\x7f", False),
        ("\x00", False), ("ø", False), ("\u2028", False),
    ],
)  # fmt: skip
def test_head_is_an_attributes_value_of_at_most_32_characters(head: str, fits: bool) -> None:
    """§5.1"""
    assert wire.is_head(head) is fits
    if fits and head:
        line = wire.format_line(wire.Challenge(b"N", b"A" * 32, 0, {"head": head}))
        assert wire.parse_reply(line[:-1]) == wire.Challenge(b"N", b"A" * 32, 0, {"head": head})


def test_publish_line() -> None:
    """§4.1"""
    assert wire.publish_line(b"t", b"m") == b"t m\n"
    assert wire.publish_line(b"t", b"") == b"t \n"


# --- Control lines (§5) ------------------------------------------------------------------------------


@vectors("control_lines")
def test_control_line_both_ways(vector: dict[str, Any]) -> None:
    line = bytes.fromhex(vector["wire_hex"])
    value = as_line(vector["kind"], vector["fields"])
    parse = wire.parse_request if vector["sender"] == "client" else wire.parse_reply
    assert parse(line) == value
    assert parse_line(line) == value
    assert wire.format_line(value) == bytes.fromhex(vector.get("formatted_hex", vector["wire_hex"])) + b"\n"
    assert wire.is_control(line)
    assert GRAMMAR.pattern(vector["kind"]).fullmatch(line)


@vectors("control_lines")
def test_control_line_truncated(vector: dict[str, Any]) -> None:
    """It parses to nothing, or to what is formatted as the same bytes, attributes of requests apart."""
    line = bytes.fromhex(vector["wire_hex"])
    for end in range(len(line)):
        value = parse_line(line[:end])
        if value is None:
            continue
        formatted = wire.format_line(value)[:-1]
        if vector["sender"] == "client":
            assert formatted == line[: len(formatted)]
            assert line[len(formatted) : end][:1] in (b"", b" ")
        elif "formatted_hex" in vector:
            assert parse_line(formatted) == value
        else:
            assert formatted == line[:end]


@vectors("control_lines")
def test_control_line_with_more_behind_it_is_refused(vector: dict[str, Any]) -> None:
    for tail in (b" ", b"\n", b"\r", b"\0", b" x", b"\xff"):
        assert parse_line(bytes.fromhex(vector["wire_hex"]) + tail) is None, tail


@vectors("refused_control_lines")
def test_control_line_malformed_is_refused(vector: dict[str, Any]) -> None:
    line = bytes.fromhex(vector["wire_hex"])
    assert parse_line(line) is None
    assert not any(GRAMMAR.pattern(rule).fullmatch(line) for rule in CONTROL_RULES)


def test_every_kind_of_control_line_has_vectors() -> None:
    assert {vector["kind"] for vector in DOCUMENT["control_lines"]} == set(CONTROL_RULES)


NONCES = st.text("AZaz09-_", min_size=1, max_size=22).map(str.encode)
COOKIES = st.text("AZaz09-_", min_size=32, max_size=32).map(str.encode)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True)
PRINTABLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
ATTRIBUTES = st.dictionaries(NAMES, st.text(PRINTABLE, max_size=6), max_size=3)
SECONDS = st.integers(0, 9_999_999)
BITS = st.integers(0, 99)
LINES: st.SearchStrategy[wire.Request | wire.Reply] = st.one_of(
    st.builds(wire.Ask, NONCES),
    st.builds(
        wire.Vouch, NONCES, COOKIES, st.none() | NONCES.filter(lambda stamp: stamp != b"-"), st.booleans()
    ),
    st.builds(wire.Ping, NONCES),
    st.builds(wire.Challenge, NONCES, COOKIES, BITS, ATTRIBUTES),
    st.builds(wire.Receipt, NONCES, SECONDS, COOKIES, BITS, ATTRIBUTES),
    st.builds(
        wire.Refusal,
        NONCES,
        st.from_regex(r"[a-z][a-z-]{0,15}", fullmatch=True),
        st.none() | st.integers(0, 2**64 - 1),
        ATTRIBUTES,
    ),
    st.builds(wire.Pong, NONCES, SECONDS, ATTRIBUTES),
)


@bounded
@given(LINES)
def test_control_line_round_trip(value: wire.Request | wire.Reply) -> None:
    line = wire.format_line(value)
    assert line.endswith(b"\n")
    assert parse_line(line[:-1]) == value
    assert GRAMMAR.pattern(type(value).__name__.lower()).fullmatch(line[:-1])


@bounded
@given(LINES, st.integers(0, 200), st.binary(max_size=2), st.integers(0, 2))
def test_control_line_changed_parses_where_the_grammar_matches(
    value: wire.Request | wire.Reply, at: int, inserted: bytes, removed: int
) -> None:
    line = wire.format_line(value)[:-1]
    line = line[:at] + inserted + line[at + removed :]
    matches = [rule for rule in CONTROL_RULES if GRAMMAR.pattern(rule).fullmatch(line)]
    found = parse_line(line)
    assert [type(found).__name__.lower()] == matches if found else not matches


@pytest.mark.parametrize("verb", wire.REPLY_VERBS)
def test_reply_verbs_are_no_request_verbs(verb: bytes) -> None:
    """§5.2: no forged packet can set two servers talking."""
    assert wire.parse_request(verb + b" N") is None


# --- Building datagrams ------------------------------------------------------------------------------


def test_requests_are_padded() -> None:
    """§5.2, §2.3: with blank lines, to 192 bytes."""
    datagram = wire.request_datagram(wire.Ask(b"N"))
    assert datagram == b"%? N\n".ljust(REQUEST_BYTES_MIN, b"\n")
    long = [b"t" * 200 + b"\n"]
    assert wire.request_datagram(wire.Ask(b"N"), long) == b"%? N\n" + long[0]


def test_request_that_does_not_fit_is_the_callers_fault() -> None:
    """§2.1"""
    fits = b"t" * (DATAGRAM_BYTES_MAX - len(b"%? N\n") - 1) + b"\n"
    assert len(wire.request_datagram(wire.Ask(b"N"), [fits])) == DATAGRAM_BYTES_MAX
    with pytest.raises(ValueError, match="datagram too long: 1201 bytes, at most 1200"):
        wire.request_datagram(wire.Ask(b"N"), [b"t" + fits])


@bounded
@given(
    st.lists(st.integers(1, 1196).map(lambda size: b"x" * size), min_size=1, max_size=30),
    st.integers(1, 64),
    st.sampled_from((b"", b"\n", b"\n\n\n")),
)
def test_lines_are_packed_in_order_and_no_datagram_is_too_long(
    lines: list[bytes], lines_max: int, mark: bytes
) -> None:
    """§4.3, §2.1, §4.4: equal datagrams but the last, each a run of whole lines behind the mark."""
    data, segment_bytes = wire.pack_lines(lines, lines_max, mark=mark)
    pieces = [data[start : start + segment_bytes] for start in range(0, len(data), segment_bytes)]
    packed = []
    for piece in pieces:
        in_piece, unterminated = wire.split_lines(piece)
        assert not unterminated
        assert piece.startswith(mark + in_piece[0])
        assert 1 <= len(in_piece) <= lines_max
        packed.append(in_piece)
    assert [line for in_piece in packed for line in in_piece] == lines
    assert segment_bytes <= DATAGRAM_BYTES_MAX
    # As few as they fit: the first line of a datagram did not fit in the one before it.
    for before, after in pairwise(packed):
        room = DATAGRAM_BYTES_MAX - len(mark) - sum(len(line) + 1 for line in before)
        assert len(before) == lines_max or len(after[0]) + 1 > room


def test_packing_fills_a_datagram_to_its_last_byte() -> None:
    data, segment_bytes = wire.pack_lines([b"a" * 599, b"b" * 599])
    assert (len(data), segment_bytes) == (1200, 1200)
    data, segment_bytes = wire.pack_lines([b"a" * 599, b"b" * 600])
    assert (len(data), segment_bytes) == (601 + 601, 601)
    assert data == b"a" * 599 + b"\n\n" + b"b" * 600 + b"\n"
    data, segment_bytes = wire.pack_lines([b"x" * 1199, b"a" * 599, b"b" * 600])
    assert segment_bytes == 1200
    assert len(data) == 1200 + 1200 + 601
