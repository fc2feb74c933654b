"""client/sealed/frame.py: a message has one form, and what has another is none."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcast.client.sealed import frame
from kcast.client.sealed.frame import Frame, Opened
from tests.support import sealed_by_hand as by_hand

KEY, SIGNATURE = bytes(range(32)), bytes(range(64))
SEQ = 1000
TIMES_MS = st.integers(0, 2**64 - 1)
VALUES = st.text(
    "".join(map(chr, range(0x21, 0x7F))).translate({ord(char): None for char in "%;"}), max_size=9
)
ATTRIBUTES = st.dictionaries(st.from_regex("[A-Za-z][0-9A-Za-z-]{0,8}", fullmatch=True), VALUES, max_size=5)


def encoded(message: Frame, size: int = 0, signature: bytes = SIGNATURE) -> bytes:
    """The frame of a message, with a made-up signature."""
    flags = 1 | 2 * message.is_cover | (0 if message.count is None else 4)
    attributes = ";".join(f"{name}={value}" for name, value in message.attributes.items())
    body = by_hand.body(flags, message.content.decode("latin-1"), attributes, message.count, message.sent_ms)
    assert message.attributes or frame.body_of(message) == body
    return by_hand.padded(body + (message.sender or KEY) + signature, size)


@given(
    st.binary(max_size=600),
    TIMES_MS,
    ATTRIBUTES,
    st.integers(1, SEQ) | st.none(),
)
def test_what_is_written_is_read(
    content: bytes, sent_ms: int, attributes: Mapping[str, str], count: int | None
) -> None:
    message = Frame(content, sent_ms, attributes, count, sender=KEY)
    data = encoded(message)
    opened = frame.parse(data, SEQ)
    assert opened is not None and opened.frame == message
    assert data.startswith(opened.body) and opened.signature == SIGNATURE
    assert len(data) % 32 == 0 and len(data) - len(opened.body) < 32 + 96


def is_its_one_form(data: bytes, seq: int) -> bool:
    opened = frame.parse(data, seq)
    return opened is None or encoded(opened.frame, len(data), opened.signature) == data


@given(st.data())
def test_any_bytes_are_none_or_in_their_one_form(data: st.DataObject) -> None:
    size = 32 * data.draw(st.integers(0, 8)) + data.draw(st.sampled_from((0, 0, 0, 1)))
    start = bytes(
        [
            data.draw(st.integers(0, 9)),
            *data.draw(st.binary(min_size=8, max_size=8)),
            data.draw(st.integers(0, 9)),
            data.draw(st.integers(0, 1)),
            data.draw(st.integers(0, 255)),
        ]
    )
    rest = data.draw(st.binary(max_size=size) | st.text("ab=;A \0", max_size=size).map(str.encode))
    assert is_its_one_form((start + rest).ljust(size, b"\0")[:size], data.draw(st.integers(1, 2**60)))


def parsed(data: bytes, seq: int = SEQ) -> Opened | None:
    return frame.parse(data, seq)


PLAIN = encoded(Frame(b"x" * 10, 1))
COUNTED = encoded(Frame(b"x" * 10, 1, count=SEQ))


def test_zeros_are_zeros() -> None:
    for place in range(22 + 96, 128):
        assert parsed(PLAIN) is not None
        assert parsed(PLAIN[:place] + b"\1" + PLAIN[place + 1 :]) is None


def test_whole_blocks_of_zeros_need_a_count() -> None:
    assert parsed(PLAIN + bytes(32)) is None
    for blocks in range(1, 20):
        data = COUNTED + bytes(32 * blocks)
        assert parsed(data) == parsed(COUNTED)
        assert parsed(data[:-1] + b"\1") is None


@pytest.mark.parametrize("size", [0, 1, 11, 12, 31, 33, 63])
def test_other_sizes_are_none(size: int) -> None:
    assert parsed(bytes(size)) is None
    assert parsed(COUNTED[:size]) is None


def test_unknown_flags_what_is_not_signed_and_dummies_without_count_are_none() -> None:
    assert frame.is_signed(PLAIN) and not frame.is_signed(bytes(32))
    for flags in [flag for flag in range(256) if flag not in (1, 5, 7)]:
        assert parsed(bytes([flags]) + PLAIN[1:]) is None


def test_lengths_beyond_the_end_are_none() -> None:
    for place, value in ((9, 255), (10, 255), (11, 21), (0, 4)):
        data = bytearray(PLAIN)
        data[place] = value
        assert parsed(bytes(data)) is None, place


@pytest.mark.parametrize(
    ("count", "is_cover", "is_right"),
    [
        *((1, False, True), (SEQ, False, True), (0, False, False), (SEQ + 1, False, False)),
        *((0, True, True), (SEQ - 1, True, True), (SEQ, True, False), (2**64 - 1, True, False)),
    ],
)
def test_counts(count: int, is_cover: bool, is_right: bool) -> None:
    message = Frame(b"", 1, count=count, is_cover=is_cover, sender=KEY)
    opened = parsed(encoded(message))
    assert (opened is not None) == is_right == frame.is_countable(message, SEQ)
    assert opened is None or opened.frame == message


@pytest.mark.parametrize(
    "text",
    [b"a", b"a=b;", b";a=b", b"a=b;a=c", b"1=b", b"a =b", b"a=b c", b"a=%20", b"=b", b"a=\xe9", b"a=\n"],
)
def test_what_are_no_attributes(text: bytes) -> None:
    data = bytearray(encoded(Frame(b"x" * len(text), 1)))
    data[9], data[11] = len(text), 0
    data[12 : 12 + len(text)] = text
    assert parsed(bytes(data)) is None
