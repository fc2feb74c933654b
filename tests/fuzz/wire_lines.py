"""Lines and datagrams: read as PROTOCOL's grammar says, and written as they are read. PROTOCOL §2 to §5."""

import re
from functools import cache

from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, REQUEST_BYTES_MIN, TOPIC_BYTES_MAX
from tests.support.grammar import PROTOCOL, Grammar

REQUESTS = ("ask", "vouch", "ping")
REPLIES = ("challenge", "receipt", "refusal", "pong")
LINES_MAX = 3  # in a datagram that is packed here
NAME_BYTES_MAX = 85  # a third of what a topic has at most: each byte may take three


def check(data: bytes) -> None:
    """Takes bytes as a datagram, as control lines, topics and messages in wire form, and as a payload."""
    lines, is_unterminated = wire.split_lines(data)
    whole, _, rest = data.rpartition(b"\n")
    assert lines == [line for line in whole.split(b"\n") if line] and is_unterminated == bool(rest)
    _check_kinds(data, lines)
    for line in lines[:4]:
        _check_control(line)
        topic, _, message = line.partition(b" ")
        _check_topic(topic)
        _check_message(message)
    _check_payload(data)
    _check_packing([line for line in lines if len(line) < DATAGRAM_BYTES_MAX])


@cache
def _patterns() -> dict[str, re.Pattern[bytes]]:
    grammar = Grammar(PROTOCOL)
    return {rule: grammar.pattern(rule) for rule in (*REQUESTS, *REPLIES, "topic", "message")}


def _is(rule: str, text: bytes) -> bool:
    return _patterns()[rule].fullmatch(text) is not None


def _check_kinds(data: bytes, lines: list[bytes]) -> None:
    subscribes, publishes, controls = wire.sorted_lines(lines)
    assert sorted([*subscribes, *controls, *publishes]) == sorted(lines)
    assert all(map(wire.is_control, controls)) and not any(map(wire.is_control, subscribes))
    assert all(b" " in line for line in publishes)
    assert wire.is_vouched(data) == data.lstrip(b"\n").startswith(b"%!")
    starts = [at for at in range(len(data)) if data[at : at + 3] in (b"%? ", b"%~ ")]
    starts = [at for at in starts if at == 0 or data[at - 1 : at] == b"\n"]
    assert wire.request_start(data) == (starts or [-1])[0]
    asks = sum(line.startswith(wire.REQUEST_STARTS) for line in lines)
    assert wire.request_count(data, wire.request_start(data)) == asks
    assert wire.is_request_alone(data) == (asks == len(lines) == 1 and starts == [0] and data.endswith(b"\n"))


def _check_control(line: bytes) -> None:
    request, reply = wire.parse_request(line), wire.parse_reply(line)
    found = [type(value).__name__.lower() for value in (request, reply) if value is not None]
    assert found == [rule for rule in (*REQUESTS, *REPLIES) if _is(rule, line)]
    if request is not None:
        assert line.startswith(wire.format_line(request)[:-1])  # which has no attributes
        whole = wire.request_datagram(request)
        assert len(whole) >= REQUEST_BYTES_MIN and wire.split_lines(whole) == ([whole.rstrip(b"\n")], False)
    if reply is not None:
        assert wire.parse_reply(wire.format_line(reply)[:-1]) == reply


def _check_topic(topic: bytes) -> None:
    is_topic = _is("topic", topic) and len(topic) <= TOPIC_BYTES_MAX
    name = wire.decode_topic(topic)
    assert wire.is_topic(topic) == is_topic == (name is not None)
    assert name is None or wire.encode_topic(name) == topic


def _check_message(message: bytes) -> None:
    payload = wire.decode_message(message)
    assert (payload is not None) == (_is("message", message) and not message.startswith(b"%@"))
    assert payload is None or wire.encode_message(payload) == message


def _check_payload(data: bytes) -> None:
    message = wire.encode_message(data)
    assert _is("message", message) and wire.decode_message(message) == data
    assert len(message) == wire.message_bytes(data) and not wire.has_control_byte(message)
    if data:
        topic = wire.encode_topic(data[:NAME_BYTES_MAX])
        assert _is("topic", topic) and not wire.is_control(topic)


def _check_packing(lines: list[bytes]) -> None:
    if lines:
        packed, segment_bytes = wire.pack_lines(lines, LINES_MAX)
        pieces = [packed[at : at + segment_bytes] for at in range(0, len(packed), segment_bytes)]
        cut = [wire.split_lines(piece) for piece in pieces]
        assert not any(is_unterminated for _, is_unterminated in cut)
        assert [line for piece, _ in cut for line in piece] == lines
        assert all(len(piece) <= LINES_MAX for piece, _ in cut) and segment_bytes <= DATAGRAM_BYTES_MAX
