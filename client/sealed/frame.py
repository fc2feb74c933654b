"""What a sealed message hides: content, time, attributes, and who signed it. Sans-IO. PROTOCOL §9.7.

    flags 1, time in ms 8, length of attributes 1, length of content 2, [count 8],
    attributes, content, key 32, signature 64, zeros to a multiple of 32

Numbers are big endian. Flags: 1, always, as key and signature follow; 2 a dummy of cover traffic, 4 the count
follows. The *count* is the number of real messages of this publisher on this topic, this one included; a
dummy counts none, and always tells it. Where it is absent, all have been real. Cover traffic has one size, so
where the count follows, there may be 32 zeros and more.
"""

import re
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

BLOCK_BYTES = 32
KEY_BYTES = 32
SIGNATURE_BYTES = 64

_SIGNED, _COVER, _COUNTED = 1, 2, 4
_FLAGS = _SIGNED | _COVER | _COUNTED
_START = Struct(">BQBH")
_COUNT = Struct(">Q")
_ATTRIBUTE = rb"[A-Za-z][0-9A-Za-z-]*+=[!-$&-:<-~]*+"
_ATTRIBUTES = re.compile(rb"%b(?:;%b)*+" % (_ATTRIBUTE, _ATTRIBUTE))


class Frame(NamedTuple):
    """A message as its publisher gave it. `sender` is the key that signed it, empty before that."""

    content: bytes
    sent_ms: int
    attributes: Mapping[str, str] = {}
    count: int | None = None  # type: ignore[assignment]  # tuple has a method of this name
    is_cover: bool = False
    sender: bytes = b""


class Opened(NamedTuple):
    """A frame whose signature nobody has verified yet: its `sender` is who it claims to be of. `body` is the
    part of it that is signed."""

    frame: Frame
    body: bytes
    signature: bytes


def empty_bytes(*, has_count: bool) -> int:
    """Returns how many bytes the frame has of a message without content and attributes, before its zeros."""
    return _START.size + (_COUNT.size if has_count else 0) + KEY_BYTES + SIGNATURE_BYTES


def padded_bytes(frame_bytes: int) -> int:
    """Returns the size of a frame with its zeros."""
    return (frame_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES


def is_countable(frame: Frame, seq: int) -> bool:
    """Returns whether a message of this number can have the count that it has."""
    if frame.count is None:
        return not frame.is_cover
    return 0 <= frame.count < seq if frame.is_cover else 0 < frame.count <= seq


def body_of(frame: Frame) -> bytes:
    """Returns the part of a frame that its signature covers: all before key and zeros. No attributes are
    written as yet."""
    count = frame.count
    flags = _SIGNED | (_COVER if frame.is_cover else 0) | (0 if count is None else _COUNTED)
    start = _START.pack(flags, frame.sent_ms, 0, len(frame.content))
    return start + (b"" if count is None else _COUNT.pack(count)) + frame.content


def is_signed(data: bytes) -> bool:
    """Returns whether what was sealed says that it is signed, as every frame does."""
    return data[0] & _SIGNED != 0


def parse(data: bytes, seq: int) -> Opened | None:
    """Returns the frame in what was sealed under a number; None where it is none, or not in its one form."""
    size = len(data)
    if size < BLOCK_BYTES or size % BLOCK_BYTES:
        return None
    flags, sent_ms, attributes_bytes, content_bytes = _START.unpack_from(data)
    if flags > _FLAGS or not flags & _SIGNED:
        return None
    at = _START.size
    count = None
    if flags & _COUNTED:
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
    content_at = at + attributes_bytes
    key_at = content_at + content_bytes
    signature_at = key_at + KEY_BYTES
    end = signature_at + SIGNATURE_BYTES
    zeros = size - end
    if zeros < 0 or data.count(0, end) != zeros or (zeros >= BLOCK_BYTES and count is None):
        return None
    attributes = _parse_attributes(data[at:content_at]) if attributes_bytes else {}
    if attributes is None:
        return None
    key, signature = data[key_at:signature_at], data[signature_at:end]
    frame = Frame(data[content_at:key_at], sent_ms, attributes, count, flags & _COVER != 0, key)
    return Opened(frame, data[:key_at], signature) if is_countable(frame, seq) else None


def _parse_attributes(text: bytes) -> dict[str, str] | None:
    if not _ATTRIBUTES.fullmatch(text):
        return None
    fields = [field.split("=", 1) for field in text.decode("ascii").split(";")]
    attributes = dict(fields)
    return attributes if len(attributes) == len(fields) else None
