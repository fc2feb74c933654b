"""What members, callers and workers say, as payloads; and the topics on which they say it. Sans-IO.

PROTOCOL §9.10, §9.11. A payload is parsed once, to one of these values; None where it is malformed. `bytes`
of a value is its payload. The unnamed method is `""` here and `.` on the wire.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kcast.client.messages.lines import names_senders, wire_topic_of
from kcast.hashring.hashing import hashed_bytes
from kcast.pubsub.wire import TopicError

HERE = b"here"
TOPIC_BYTES_MAX = 120  # encoded: leaves room for an answer's part where all is signed and sealed
SECONDS_MAX = 300
MS_MAX = 3_600_000
PARTS_MAX = 512
INFO_BYTES_MAX = 200
METHODS_BYTES_MAX = 500  # with the info

_METHOD = r"\.|[0-9A-Za-z][0-9A-Za-z._-]{0,63}"
_NAME = r"[0-9A-Za-z_-]{11}"
_START = rf"(?P<q>[0-9A-Za-z_-]{{8}}) (?P<member>{_NAME})"
_PART = r"0|[1-9][0-9]{0,2}"
_CODE = r"[a-z]{1,16}"


def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.encode(), re.DOTALL)


_QUESTION = _pattern(rf"\?(?: (?P<method>{_METHOD}))?")
_PRESENT = _pattern(
    rf"\+(?P<member>{_NAME}) (?P<seconds>[1-9][0-9]{{0,2}})"
    rf" (?P<methods>-|(?:{_METHOD})(?:,(?:{_METHOD}))*)(?: (?P<info>.{{1,{INFO_BYTES_MAX}}}))?"
)
_LEAVING = _pattern(rf"-(?P<member>{_NAME})")
_ASKED = _pattern(rf"\?{_START} (?P<ms>[1-9][0-9]{{0,6}}) (?P<method>{_METHOD}) (?P<payload>.*)")
_MORE = _pattern(rf">{_START} (?P<part>{_PART})")
_ANSWER = _pattern(rf"={_START} (?P<part>{_PART})/(?P<parts>[1-9][0-9]{{0,2}}) (?P<payload>.*)")
_WORKING = _pattern(rf"~{_START}")
_DECLINED = _pattern(rf"!{_START} (?P<code>{_CODE})(?: (?P<text>.*))?")
_IS_METHOD, _IS_NAME, _IS_CODE = re.compile(_METHOD), re.compile(_NAME), re.compile(_CODE)


class Question(NamedTuple):
    """Who is here? Those answer that have the method; all, where it is None."""

    method: str | None

    def __bytes__(self) -> bytes:
        return b"?" if self.method is None else b"? " + _on_wire(self.method)


class Present(NamedTuple):
    """A member is here, for some seconds, with these methods."""

    member: str
    seconds: int
    methods: Sequence[str] = ()
    info: str = ""

    def __bytes__(self) -> bytes:
        start = b"+%b %d %b" % (self.member.encode(), self.seconds, _joined(self.methods))
        return start + b" " + self.info.encode() if self.info else start


class Leaving(NamedTuple):
    """A member is gone."""

    member: str

    def __bytes__(self) -> bytes:
        return b"-" + self.member.encode()


class Asked(NamedTuple):
    """A request: `member` is where to answer, `ms` the time left."""

    q: str
    member: str
    ms: int
    method: str
    payload: bytes

    def __bytes__(self) -> bytes:
        return b"?%b %d %b %b" % (_start(self), self.ms, _on_wire(self.method), self.payload)


class More(NamedTuple):
    """A caller asks for the parts of an answer, from this one on."""

    q: str
    member: str
    part: int

    def __bytes__(self) -> bytes:
        return b">%b %d" % (_start(self), self.part)


class Answer(NamedTuple):
    """A part of an answer; `member` is the worker."""

    q: str
    member: str
    part: int
    parts: int
    payload: bytes

    def __bytes__(self) -> bytes:
        return b"=%b %d/%d %b" % (_start(self), self.part, self.parts, self.payload)


class Working(NamedTuple):
    """A worker works on a request."""

    q: str
    member: str

    def __bytes__(self) -> bytes:
        return b"~" + _start(self)


class Declined(NamedTuple):
    """A worker does not answer a request, and says why."""

    q: str
    member: str
    code: str
    text: str = ""

    def __bytes__(self) -> bytes:
        start = b"!%b %b" % (_start(self), self.code.encode())
        return start + b" " + self.text.encode("utf-8", "replace") if self.text else start


Presence = Question | Present | Leaving
Word = Asked | More | Answer | Working | Declined


def parse_presence(payload: bytes) -> Presence | None:
    """Returns what a payload on the topic `here` says."""
    if found := _QUESTION.fullmatch(payload):
        method = found["method"]
        return Question(None if method is None else _method(method))
    if found := _LEAVING.fullmatch(payload):
        return Leaving(found["member"].decode())
    found = _PRESENT.fullmatch(payload)
    if found is None or int(found["seconds"]) > SECONDS_MAX:
        return None
    said, info = found["methods"], found["info"] or b""
    if len(said) + len(info) > METHODS_BYTES_MAX:
        return None
    try:
        shown = info.decode()
    except UnicodeDecodeError:
        return None
    methods = () if said == b"-" else tuple(_method(each) for each in said.split(b","))
    return Present(found["member"].decode(), int(found["seconds"]), methods, shown)


def parse_word(payload: bytes) -> Word | None:
    """Returns what a payload in a mailbox says."""
    match payload[:1]:
        case b"?":
            if (found := _ASKED.fullmatch(payload)) and (ms := int(found["ms"])) <= MS_MAX:
                return Asked(*_named(found), ms, _method(found["method"]), found["payload"])
        case b"=":
            if found := _ANSWER.fullmatch(payload):
                part, parts = int(found["part"]), int(found["parts"])
                if part < parts <= PARTS_MAX:
                    return Answer(*_named(found), part, parts, found["payload"])
        case b"~":
            if found := _WORKING.fullmatch(payload):
                return Working(*_named(found))
        case b">":
            if (found := _MORE.fullmatch(payload)) and int(found["part"]) < PARTS_MAX:
                return More(*_named(found), int(found["part"]))
        case b"!":
            if found := _DECLINED.fullmatch(payload):
                text = (found["text"] or b"").decode("utf-8", "replace")
                return Declined(*_named(found), found["code"].decode(), text)
    return None


_LAYERS = "members, requests and history"


@lru_cache(maxsize=4096)  # the same few mailboxes are written to again and again
def layer_topic(topic: bytes, word: bytes) -> bytes:
    """Returns the name of a layer's topic beside a user's, which has the same servers. Raises TopicError."""
    size = len(wire_topic_of(topic, is_own=False))
    if names_senders(topic):
        raise TopicError(f"a topic that names its senders (~) has no {_LAYERS}: take another, and senders=")
    if size > TOPIC_BYTES_MAX:
        raise TopicError(f"the topic has {size} bytes encoded: for {_LAYERS} give {TOPIC_BYTES_MAX} at most")
    if hashed_bytes(topic) != topic:
        return b"%b//%b" % (topic, word)
    if b"}" in topic:
        raise TopicError(f"the topic has a }} without a tag {{...}}: for {_LAYERS} leave it out")
    return b"{%b}/%b" % (topic, word)


def is_method(text: str) -> bool:
    """Whether this can name a method; the unnamed one is `""`."""
    return not text or (text != "." and _IS_METHOD.fullmatch(text) is not None)


def is_member(text: str) -> bool:
    """Whether this can name a member."""
    return _IS_NAME.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """Whether this can say why a request is declined."""
    return _IS_CODE.fullmatch(text) is not None


def fits_presence(methods: Sequence[str], info: str) -> bool:
    """Whether methods and info fit into what a member says of itself."""
    size = len(info.encode())
    return size <= INFO_BYTES_MAX and len(_joined(methods)) + size <= METHODS_BYTES_MAX


def _start(word: Word) -> bytes:
    return f"{word.q} {word.member}".encode()


def _named(found: re.Match[bytes]) -> tuple[str, str]:
    return found["q"].decode(), found["member"].decode()


def _on_wire(method: str) -> bytes:
    return method.encode() or b"."


def _method(said: bytes) -> str:
    return "" if said == b"." else said.decode()


def _joined(methods: Sequence[str]) -> bytes:
    return b",".join(map(_on_wire, methods)) or b"-"
