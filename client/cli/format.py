"""Formats of `kcast sub --format`: `%t` and the like stand for parts of a message, `\\n` and the like for
characters that are hard to type. The letters are those of mosquitto_sub's -F."""

import re
from collections.abc import Callable
from datetime import datetime

from kcast.client.cli.text import escaped
from kcast.client.events import Delivery

_FIELDS: dict[str, Callable[[Delivery], bytes]] = {
    "%t": lambda delivery: escaped(delivery.topic).encode(),
    "%p": lambda delivery: escaped(delivery.payload).encode(),
    "%I": lambda delivery: _local_time(delivery).encode(),
    "%m": lambda delivery: b"" if delivery.seq is None else b"%d" % delivery.seq,
    "%s": lambda delivery: delivery.server.encode(),
    "%l": lambda delivery: b"%d" % len(delivery.payload),
    "%x": lambda delivery: delivery.payload.hex().encode(),
    "%%": lambda delivery: b"%",
}
_CHARACTERS = {r"\\": "\\", r"\0": "\0", r"\e": "\x1b", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_PART = re.compile(r"[%\\].?|@[A-Za-z]|.[^%\\@]*", re.DOTALL)

_Part = Callable[[Delivery], bytes]


class FormatError(ValueError):
    """A format cannot be understood; the message says what in it, and what to write."""


class Format:
    """A format string, understood once and applied to each delivery. Raises FormatError.

    What others sent is escaped, wherever it is printed; what the format itself says is not.
    """

    def __init__(self, text: str) -> None:
        self._parts = [_part(each) for each in _PART.findall(text)]

    def apply(self, delivery: Delivery) -> bytes:
        """Returns what to print for a delivery, without an end of line."""
        return b"".join(part(delivery) for part in self._parts)


def _part(text: str) -> _Part:
    if text in _FIELDS:
        return _FIELDS[text]
    if text[0] == "%":
        raise FormatError(f"{text} is none of {' '.join(_FIELDS)}; --json has all that is known")
    if text[0] == "\\" and text not in _CHARACTERS:
        raise FormatError(f"{text} is none of {' '.join(_CHARACTERS)}")
    if re.match("@[A-Za-z]", text):
        raise FormatError(f"parts of a time, such as {text}, were withdrawn: %I is the time")
    data = _CHARACTERS.get(text, text).encode("utf-8", "surrogateescape")
    return lambda delivery: data


def _local_time(delivery: Delivery) -> str:
    return datetime.fromtimestamp(delivery.received_at_s).astimezone().strftime("%Y-%m-%dT%H:%M:%S%z")
