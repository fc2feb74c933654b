"""The wire format: %-encoding, lines, and the control lines. PROTOCOL §2 to §5.

What arrives is parsed here, once, into a value. What does not parse becomes None, and the caller counts it.
What our own callers get wrong raises ValueError, with the sizes in the message.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import (
    DATAGRAM_BYTES_MAX,
    HEAD_CHARS_MAX,
    REQUEST_BYTES_MIN,
    REQUEST_LINE_BYTES_MAX,
    TOPIC_BYTES_MAX,
    VERSION_CHARS_MAX,
)

HEALTH_TOPIC = b"%00health"
"""The topic of health checks. A draining server does not wait for its leases to end (§3.4, §7.6)."""


class TopicError(KcastError, ValueError):
    """A topic cannot be put on the wire. The message says why."""


# --- %-encoding (§3) ---------------------------------------------------------------------------------

_TOPIC_ESCAPES = re.compile(rb"[^!-$&-~]")
_MESSAGE_ESCAPED = bytes([*range(0x20), ord("%"), 0x7F])
_MESSAGE_ESCAPES = re.compile(rb"[%b]" % _MESSAGE_ESCAPED)
# Possessive quantifiers take a run of plain characters in one step, and not one by one.
_TOPIC = re.compile(rb"(?:[!-$&-~]++|%(?:[01][0-9A-F]|20|25|7F|[89A-F][0-9A-F]))++")
_MESSAGE = re.compile(rb"(?:[ -$&-~\x80-\xff]++|%(?:[01][0-9A-F]|25|7F))*+")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_HEX_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_CONTROL_BYTE = re.compile(rb"[\x00-\x1f\x7f]")


def encode_topic(name: bytes) -> bytes:
    """Returns the one wire form of a topic (§3.1). Raises TopicError if it is empty or over 255 bytes.

    >>> encode_topic("Größe 5 %".encode())
    b'Gr%C3%B6%C3%9Fe%205%20%25'
    """
    if not name:
        raise TopicError("a topic must not be empty")
    topic = _TOPIC_ESCAPES.sub(_escape, name)
    if len(topic) > TOPIC_BYTES_MAX:
        grown = " (spaces, % and bytes outside printable ASCII take 3 each)" if len(topic) > len(name) else ""
        raise TopicError(f"topic too long: {len(topic)} bytes encoded, at most {TOPIC_BYTES_MAX}{grown}")
    return topic


def is_topic(topic: bytes) -> bool:
    """Whether these bytes are the one wire form of some topic (§3.1)."""
    return len(topic) <= TOPIC_BYTES_MAX and _TOPIC.fullmatch(topic) is not None


def decode_topic(topic: bytes) -> bytes | None:
    """Returns the name that a wire topic stands for; None if the bytes are not its one wire form."""
    return _unescape(topic) if is_topic(topic) else None


def encode_message(payload: bytes) -> bytes:
    """Returns the one wire form of a message (§3.2): `%`, control bytes and DEL escaped, all else as it is.

    >>> encode_message(b'{"load": "80 %"}')
    b'{"load": "80 %25"}'
    """
    return _MESSAGE_ESCAPES.sub(_escape, payload)


def message_bytes(payload: bytes) -> int:
    """Returns the length of a payload's one wire form: what is escaped takes three bytes (§3.2).

    >>> message_bytes(b"80 %")
    6
    """
    return 3 * len(payload) - 2 * len(payload.translate(None, _MESSAGE_ESCAPED))


def has_control_byte(line: bytes) -> bool:
    """Whether a line (without LF) has a raw control byte or DEL, which nothing canonical has (§3)."""
    return _CONTROL_BYTE.search(line) is not None


def decode_message(message: bytes) -> bytes | None:
    """Returns the payload that a wire message stands for; None if the bytes are not its one wire form."""
    return _unescape(message) if _MESSAGE.fullmatch(message) else None


def _escape(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _unescape(text: bytes) -> bytes:
    if b"%" not in text:
        return text
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text)


# --- Lines (§2) --------------------------------------------------------------------------------------


def split_lines(datagram: bytes) -> tuple[list[bytes], bool]:
    """Returns the non-blank lines without LF, and whether a last line without LF was dropped (§2.2)."""
    if datagram.find(b"\n") == len(datagram) - 1 > 0:  # one line: the usual publish
        return [datagram[:-1]], False
    parts = datagram.rstrip(b"\n").split(b"\n")  # the padding of a request has a hundred blank lines
    is_unterminated = datagram[-1:] not in b"\n"
    if is_unterminated:
        parts.pop()
    return list(filter(None, parts)), is_unterminated


def is_head(text: str) -> bool:
    """Whether the text can be the value of `head=` (§5.1)."""
    return len(text) <= HEAD_CHARS_MAX and all("!" <= char <= "~" for char in text)


def is_version(text: str) -> bool:
    """Whether the text can be the value of `version=` in an answer (§5.1)."""
    return len(text) <= VERSION_CHARS_MAX and _VERSION.fullmatch(text) is not None


def head_attribute(head: str) -> dict[str, str]:
    """Returns the attribute of answers that tells a head, none if it is empty. Raises ValueError."""
    if not is_head(head):
        raise ValueError(f"head is {head!r}: give at most {HEAD_CHARS_MAX} printable ASCII, no spaces")
    return {"head": head} if head else {}


def version_attribute(version: str) -> dict[str, str]:
    """Returns the attribute of receipts that tells a version, none if it is empty. Raises ValueError."""
    if version and not is_version(version):
        raise ValueError(f"version is {version!r}: give at most {VERSION_CHARS_MAX} of A-Za-z0-9.+!_-")
    return {"version": version} if version else {}


def is_control(line: bytes) -> bool:
    """Whether the line is a control line: `%` not followed by two hex digits (§4)."""
    return line[:1] == b"%" and _HEX_ESCAPE.match(line) is None


def is_vouched(datagram: bytes) -> bool:
    """Whether the first line that is not blank begins as a vouch (§5.4)."""
    return datagram.startswith(b"%!") or (
        datagram.startswith(b"\n") and datagram.lstrip(b"\n").startswith(b"%!")
    )


def request_start(datagram: bytes) -> int:
    """Returns where the first line begins that may be a `%?` or `%~`; -1 where there is none."""
    if datagram.startswith(REQUEST_STARTS):
        return 0
    starts = [at for at in (datagram.find(b"\n%? "), datagram.find(b"\n%~ ")) if at >= 0]
    return min(starts) + 1 if starts else -1


def request_count(datagram: bytes, start: int) -> int:
    """Returns how many lines may be a `%?` or `%~`, not counting a last one without LF. The first begins at
    `start`, as `request_start` says."""
    end = datagram.rfind(b"\n")
    if not 0 <= start < end:
        return 0
    return 1 + datagram.count(b"\n%? ", start, end) + datagram.count(b"\n%~ ", start, end)


def is_request_alone(datagram: bytes) -> bool:
    """Whether the first line may be a `%?` or `%~`, and only blank lines follow."""
    return datagram.startswith(REQUEST_STARTS) and datagram.find(b"\n") == len(datagram.rstrip(b"\n"))


def sorted_lines(lines: list[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Returns the subscribe lines, the publish lines, and the control lines of a datagram."""
    subscribes: list[bytes] = []
    publishes: list[bytes] = []
    controls: list[bytes] = []
    for line in lines:
        if is_control(line):
            controls.append(line)
        elif b" " in line:
            publishes.append(line)
        else:
            subscribes.append(line)
    return subscribes, publishes, controls


def by_topic(publishes: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Returns publishes (without LF) by their topics (wire form)."""
    found: dict[bytes, list[bytes]] = {}
    for line in publishes:
        found.setdefault(line.partition(b" ")[0], []).append(line)
    return found


def publish_line(topic: bytes, message: bytes) -> bytes:
    """Returns `topic SP message LF` from wire forms; a server forwards it as it came (§4.1)."""
    return b"%b %b\n" % (topic, message)


# --- Control lines (§5) ------------------------------------------------------------------------------


class Ask(NamedTuple):
    """`%? NONCE`: asks for a cookie (§5.3)."""

    nonce: bytes


class Vouch(NamedTuple):
    """`%! NONCE COOKIE STAMP|-`: vouches, as the first line, for every line of its datagram (§5.4).

    With `version=?` it asks for the server's version (§5.1).
    """

    nonce: bytes
    cookie: bytes
    stamp: bytes | None
    asks_version: bool = False


class Ping(NamedTuple):
    """`%~ NONCE`: asks how long the publish lease still lives (§5.5)."""

    nonce: bytes


class Challenge(NamedTuple):
    """`%= NONCE COOKIE BITS`: brings a cookie, and says that nothing else was done (§5.6)."""

    nonce: bytes
    cookie: bytes
    bits: int
    attributes: Mapping[str, str] = {}


class Receipt(NamedTuple):
    """`%+ NONCE TTL COOKIE BITS`: leases stand for `ttl_s`, publishes were forwarded (§5.7)."""

    nonce: bytes
    ttl_s: int
    cookie: bytes
    bits: int
    attributes: Mapping[str, str] = {}


class Refusal(NamedTuple):
    """`%- NONCE REASON HEXMAP`: bit i of `lines` is the i-th subscribe line, None all of them (§5.8)."""

    nonce: bytes
    reason: str
    lines: int | None
    attributes: Mapping[str, str] = {}


class Pong(NamedTuple):
    """`%: NONCE LEFT`: seconds left of the publish lease; 0 if there is none (§5.9)."""

    nonce: bytes
    left_s: int
    attributes: Mapping[str, str] = {}


Request = Ask | Vouch | Ping
Reply = Challenge | Receipt | Refusal | Pong

_NONCE, _COOKIE, _STAMP = rb" ([0-9A-Za-z_-]{1,22})", rb" ([0-9A-Za-z_-]{32})", rb" (-|[0-9A-Za-z_-]{1,22})"
_SECONDS, _BITS = rb" (0|[1-9][0-9]{0,6})", rb" (0|[1-9][0-9]?)"
_REASON, _HEXMAP = rb" ([a-z][a-z-]{0,15})", rb" (-|[0-9a-f]{1,16})"
_ATTRIBUTES = rb"((?: [a-z][0-9a-z-]*=[!-~]*)*)"


def _form(verb: bytes, *fields: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(verb) + b"".join(fields) + _ATTRIBUTES)


_ASK = _form(b"%?", _NONCE)
_VOUCH = _form(b"%!", _NONCE, _COOKIE, _STAMP)
_PING = _form(b"%~", _NONCE)
_CHALLENGE = _form(b"%=", _NONCE, _COOKIE, _BITS)
_RECEIPT = _form(b"%+", _NONCE, _SECONDS, _COOKIE, _BITS)
_REFUSAL = _form(b"%-", _NONCE, _REASON, _HEXMAP)
_PONG = _form(b"%:", _NONCE, _SECONDS)

_VERSION_ASKED = b"?"
_VERSION = re.compile(r"[0-9A-Za-z.+!_-]+")

REPLY_VERBS = (b"%=", b"%+", b"%-", b"%:")
REQUEST_STARTS = (b"%? ", b"%~ ")  # of a line that needs no cookie


def parse_request(line: bytes) -> Request | None:
    """Parses a client's control line; None if it is malformed or none. Ignores other attributes (§5.1)."""
    if len(line) >= REQUEST_LINE_BYTES_MAX:
        return None  # to look for hundreds of attributes would take ten times as long as all else
    verb = line[:2]
    if verb == b"%!" and (match := _VOUCH.fullmatch(line)):
        last = match[4].rpartition(b" version=")[2].partition(b" ")[0]
        return Vouch(match[1], match[2], None if match[3] == b"-" else match[3], last == _VERSION_ASKED)
    if verb == b"%?" and (match := _ASK.fullmatch(line)):
        return Ask(match[1])
    if verb == b"%~" and (match := _PING.fullmatch(line)):
        return Ping(match[1])
    return None


def parse_reply(line: bytes) -> Reply | None:
    """Parses a server's control line; None if it is malformed or no reply."""
    verb = line[:2]
    if verb == b"%+" and (match := _RECEIPT.fullmatch(line)):
        return Receipt(match[1], int(match[2]), match[3], int(match[4]), _attributes(match[5]))
    if verb == b"%=" and (match := _CHALLENGE.fullmatch(line)):
        return Challenge(match[1], match[2], int(match[3]), _attributes(match[4]))
    if verb == b"%-" and (match := _REFUSAL.fullmatch(line)):
        lines = None if match[3] == b"-" else int(match[3], 16)
        return Refusal(match[1], match[2].decode(), lines, _attributes(match[4]))
    if verb == b"%:" and (match := _PONG.fullmatch(line)):
        return Pong(match[1], int(match[2]), _attributes(match[3]))
    return None


def _attributes(text: bytes) -> dict[str, str]:
    return dict(field.split("=", 1) for field in text.decode("ascii").split(" ")[1:])


def format_line(control: Request | Reply) -> bytes:
    """Returns the control line with its LF."""
    match control:
        case Ask(nonce):
            return b"%%? %b\n" % nonce
        case Vouch(nonce, cookie, stamp, asks_version):
            asked = b" version=%b" % _VERSION_ASKED if asks_version else b""
            return b"%%! %b %b %b%b\n" % (nonce, cookie, stamp or b"-", asked)
        case Ping(nonce):
            return b"%%~ %b\n" % nonce
        case Challenge(nonce, cookie, bits, attributes):
            return b"%%= %b %b %d%b\n" % (nonce, cookie, bits, _format_attributes(attributes))
        case Receipt(nonce, ttl_s, cookie, bits, attributes):
            return b"%%+ %b %d %b %d%b\n" % (nonce, ttl_s, cookie, bits, _format_attributes(attributes))
        case Refusal(nonce, reason, lines, attributes):
            hexmap = b"-" if lines is None else b"%x" % lines
            return b"%%- %b %b %b%b\n" % (nonce, reason.encode(), hexmap, _format_attributes(attributes))
        case Pong(nonce, left_s, attributes):
            return b"%%: %b %d%b\n" % (nonce, left_s, _format_attributes(attributes))


def _format_attributes(attributes: Mapping[str, str]) -> bytes:
    return b"".join(b" %b=%b" % (name.encode(), value.encode()) for name, value in attributes.items())


def request_datagram(first: Request, lines: Iterable[bytes] = ()) -> bytes:
    """Returns a request and the lines it covers (each with its LF), padded to the least length (§5.2).

    Raises ValueError if the whole is longer than a datagram may be.
    """
    datagram = b"".join((format_line(first), *lines))
    if len(datagram) > DATAGRAM_BYTES_MAX:
        raise ValueError(f"datagram too long: {len(datagram)} bytes, at most {DATAGRAM_BYTES_MAX}")
    return pad(datagram, REQUEST_BYTES_MIN)


def pack_lines(
    lines: Sequence[bytes], lines_max: int = DATAGRAM_BYTES_MAX, *, mark: bytes = b""
) -> tuple[bytes, int]:
    """Packs lines (without LF, each shorter than a datagram) into few datagrams, in order (§4.3).

    Each datagram has at most `lines_max` lines and begins with `mark`. Returns the datagrams in one buffer,
    and their length in bytes: all but the last are padded with blank lines to the same length, so that the
    kernel can cut them (UDP_SEGMENT).
    """
    if len(lines) <= lines_max:
        data = mark + b"\n".join(lines) + b"\n"
        if len(data) <= DATAGRAM_BYTES_MAX:
            return data, len(data)
    filled: list[bytes] = []
    parts: list[bytes] = []
    size_bytes = len(mark)
    for line in lines:
        size_bytes += len(line) + 1
        if size_bytes > DATAGRAM_BYTES_MAX or len(parts) == lines_max:
            filled.append(mark + b"\n".join(parts) + b"\n")
            parts, size_bytes = [], len(mark) + len(line) + 1
        parts.append(line)
    last = mark + b"\n".join(parts) + b"\n"
    segment_bytes = max(len(last), *map(len, filled)) if filled else len(last)
    return b"".join([pad(datagram, segment_bytes) for datagram in filled]) + last, segment_bytes


def pad(datagram: bytes, size_bytes: int) -> bytes:
    """Pads the datagram to at least `size_bytes` with blank lines, which carry nothing (§2.3)."""
    return datagram.ljust(size_bytes, b"\n")
