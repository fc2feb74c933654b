"""Messages as lines to publish, and how much fits into one. Sans-IO. PROTOCOL §9.1, §9.5."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kcast.client.errors import MessageTooLarge
from kcast.client.messages.envelope import PUBLISHER_CHARS, Envelope, format_envelope, is_publisher
from kcast.client.messages.sequence import Numbering
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.pubsub import wire

SEQ_MAX = 10**18 - 1  # §9.1
_NAMES_SENDERS = re.compile(rb"~[0-9A-Za-z_-]{22}(?:/.*)?", re.DOTALL)


class Room(NamedTuple):
    """How many bytes of payload fit into a line: of text, and of anything.

    In text, `%` and control bytes count three times.
    """

    text_bytes: int
    any_bytes: int

    def without(self, chars: int) -> "Room":
        """Returns what is left where attributes take some characters."""
        return Room(self.text_bytes - chars, self.any_bytes - -(-chars * 3 // 4))


def room(wire_topic: bytes, publisher: str = "p" * PUBLISHER_CHARS, seq: int | None = SEQ_MAX) -> Room:
    """Returns how much fits into a publisher's message of this number on a topic.

    By default that is what fits whatever the number is. With None for the number, the message is raw.
    """
    if seq is None:
        text_bytes = LINE_BYTES_MAX - len(wire.publish_line(wire_topic, b""))
        return Room(text_bytes, text_bytes // 3)
    line = wire.publish_line(wire_topic, format_envelope(Envelope(publisher, seq, b"")))
    text_bytes = LINE_BYTES_MAX - len(line)
    return Room(text_bytes, (text_bytes - len(";B=1")) * 3 // 4)


class Publisher:
    """A publisher's name, and the numbers of its messages on each topic.

    Raises TypeError and ValueError for a name that no publisher can have.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"publisher is of type {type(name).__name__}: give str")
        if not is_publisher(name):
            raise ValueError(f"publisher is {name!r}: give 1 to 43 of A-Z, a-z, 0-9, '-' and '_'")
        self.name = name
        self._numbering = Numbering()

    def line(self, wire_topic: bytes, payload: bytes, raw: bool) -> tuple[int | None, bytes]:
        """Returns the number of the topic's next message, None where it is raw, and its line.

        Raises MessageTooLarge.
        """
        if raw:
            return None, publish_line(wire_topic, payload, self.name, None)
        seq = self._numbering.next(wire_topic)
        line = publish_line(wire_topic, payload, self.name, seq)
        self._numbering.use(wire_topic, seq)
        return seq, line

    def lines_with(
        self, wire_topic: bytes, payloads: Sequence[bytes], attributes: Mapping[str, str], spare_bytes: int
    ) -> tuple[int, list[bytes]]:
        """Returns the number of the first of several messages in a row, and their lines with attributes, each
        of which leaves room for some bytes more.

        Raises MessageTooLarge, which tells the index of several; then none of the numbers is used.
        """
        first, lines = self._numbering.next(wire_topic), list[bytes]()
        for seq, payload in enumerate(payloads, first):
            message = format_envelope(Envelope(self.name, seq, payload, attributes))
            line = wire.publish_line(wire_topic, message)
            if len(line) > LINE_BYTES_MAX - spare_bytes:
                taken = spare_bytes + sum(len(name) + len(value) + 2 for name, value in attributes.items())
                fits = room(wire_topic, self.name, seq).without(taken)
                which = (
                    f"payload {seq - first} (from 0), so none was published: " if len(payloads) > 1 else ""
                )
                raise MessageTooLarge(which + too_large(len(payload), fits, has_more=spare_bytes > 0))
            lines.append(line)
        if lines:
            self._numbering.use(wire_topic, first + len(lines) - 1)
        return first, lines

    def lines(
        self, wire_topic: bytes, payloads: Sequence[bytes], raw: bool
    ) -> tuple[int | None, list[bytes]]:
        """Returns the number of the first of several messages in a row, None where they are raw, and their
        lines.

        Raises MessageTooLarge, which tells the index; then none of the numbers is used.
        """
        first = None if raw else self._numbering.next(wire_topic)
        joined = b"".join(payloads)
        if first is not None and wire.message_bytes(joined) == len(joined):  # nothing is escaped: the usual
            start = b"%b %%@%b." % (wire_topic, self.name.encode())
            lines = [b"%b%d %b\n" % (start, seq, payload) for seq, payload in enumerate(payloads, first)]
            if lines and len(max(lines, key=len)) <= LINE_BYTES_MAX:
                self._numbering.use(wire_topic, first + len(lines) - 1)
                return first, lines
        lines = []
        for index, payload in enumerate(payloads):
            try:
                seq = None if first is None else first + index
                lines.append(publish_line(wire_topic, payload, self.name, seq))
            except MessageTooLarge as error:
                which = f"payload {index} (from 0), so none was published: " if len(payloads) > 1 else ""
                raise MessageTooLarge(f"{which}{error}") from None
        if first is not None and lines:
            self._numbering.use(wire_topic, first + len(lines) - 1)
        return first, lines


def publish_line(wire_topic: bytes, payload: bytes, publisher: str, seq: int | None) -> bytes:
    """Returns a message's line, in an envelope unless `seq` is None. Raises MessageTooLarge."""
    if seq is None:
        line = wire.publish_line(wire_topic, wire.encode_message(payload))
    elif wire.message_bytes(payload) == len(payload):  # nothing in it is escaped: the usual message
        line = b"%b %%@%b.%d %b\n" % (wire_topic, publisher.encode(), seq, payload)
    else:
        line = wire.publish_line(wire_topic, format_envelope(Envelope(publisher, seq, payload)))
    if len(line) > LINE_BYTES_MAX:
        raise MessageTooLarge(too_large(len(payload), room(wire_topic, publisher, seq)))
    return line


def too_large(payload_bytes: int, fits: Room, *, has_more: bool = False) -> str:
    """Returns what to say of a payload that does not fit."""
    who = "The topic, and a signature, clock or parents, leave" if has_more else "The topic leaves"
    return (
        f"message too large: {payload_bytes} bytes. {who} room for {fits.text_bytes} bytes of "
        f"text, of which % and control bytes count three times, or for any {fits.any_bytes}; send less, "
        "or split it"
    )


def wire_topic_of(name: bytes, is_own: bool) -> bytes:
    """Returns the wire form of a topic; one of kcast's own (§3.4) is no user's. Raises wire.TopicError."""
    if name[:1] == b"\0" and not is_own:
        raise wire.TopicError("a topic must not begin with a NUL byte: such topics are kcast's own")
    return wire.encode_topic(name)


def names_senders(topic: bytes) -> bool:
    """Whether a topic names the keys of its senders, in either of its forms (§9.6)."""
    return _NAMES_SENDERS.fullmatch(topic) is not None
