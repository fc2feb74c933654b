"""Formats of `kcast sub --format`, with the letters of mosquitto_sub's -F. docs/coming-from.md has them all.

`%t` and the like stand for parts of a message, `@H` and the like for parts of the time at which it came, as
strftime has them, and `\\n` and the like for characters that are hard to type.
"""

import json
import re
from collections.abc import Callable
from datetime import datetime
from time import localtime, strftime

from kcast.client.cli.text import escaped, escaped_at_most
from kcast.client.cli.times import utc
from kcast.client.events import Delivery

_FIELD = re.compile(r"%(-?)(0?)(\d*)(?:\.(\d+))?([!-/:-@\[-`{-~])?([%A-Za-z])")
_ESCAPES = {"\\": "\\", "0": "\0", "a": "\a", "e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_BACKSLASH = chr(92)
_TIMES = "aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyYzZ"  # what strftime knows on every system that we run on
_WIDTH_MAX = 1000

_Part = Callable[[Delivery], bytes]


class FormatError(ValueError):
    """A format cannot be understood; the message says what in it, and what to write."""


class Format:
    """A format string, understood once and applied to each delivery. Raises FormatError.

    What others sent is escaped, wherever it is printed; what the format itself says is not.
    """

    def __init__(self, text: str) -> None:
        self._parts = _parse(text)

    def apply(self, delivery: Delivery) -> bytes:
        """Returns what to print for a delivery, without an end of line."""
        return b"".join(part(delivery) for part in self._parts)


def utc_json(delivery: Delivery) -> str:
    """Returns what `%j` prints: a message as mosquitto_sub's JSON has it, in ASCII only."""
    return json.dumps(
        {
            "tst": utc(delivery.received_at_s),
            "topic": delivery.topic.decode(errors="backslashreplace"),
            "payload": delivery.payload.decode(errors="backslashreplace"),
        }
    ).replace("\x7f", "\\u007f")


# --- Parts of a message ------------------------------------------------------------------------------

_VALUES: dict[str, Callable[[Delivery], bytes]] = {
    "t": lambda delivery: escaped(delivery.topic).encode(),
    "p": lambda delivery: escaped(delivery.payload).encode(),
    "l": lambda delivery: b"%d" % len(delivery.payload),
    "m": lambda delivery: b"" if delivery.seq is None else b"%d" % delivery.seq,
    "i": lambda delivery: (delivery.publisher or "").encode(),
    "s": lambda delivery: delivery.server.encode(),
    "k": lambda delivery: (delivery.sender or "").encode(),
    "g": lambda delivery: (delivery.group or "").encode(),
    "I": lambda delivery: _strftime("%Y-%m-%dT%H:%M:%S%z", delivery).encode(),
    "U": lambda delivery: b"%.6f" % delivery.received_at_s,
    "j": lambda delivery: utc_json(delivery).encode(),
    "x": lambda delivery: delivery.payload.hex().encode(),
    "X": lambda delivery: delivery.payload.hex().upper().encode(),
}
_OF_OTHERS: dict[str, Callable[[Delivery], bytes]] = {
    "t": lambda delivery: delivery.topic,
    "p": lambda delivery: delivery.payload,
}
_ZERO_PADDED = "lmxX"
_ELSEWHERE = {
    **dict.fromkeys("ACDEFPRS", "a property of MQTT 5, which messages here do not have"),
    **dict.fromkeys("qr", "there is no QoS, and nothing is retained"),
    **dict.fromkeys("df", "payloads are not read as numbers"),
    "J": "%j quotes the payload, --json has all that is known",
}


def _parse(text: str) -> list[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(text):
        sign = text[at]
        if sign == "%":
            part, at = _field(text, at)
        elif sign == "@":
            part, at = _time(text, at)
        elif sign == "\\":
            part, at = _escape(text, at)
        else:
            end = next((i for i in range(at, len(text)) if text[i] in "%@\\"), len(text))
            part, at = _constant(text[at:end]), end
        parts.append(part)
    return parts


def _constant(text: str) -> _Part:
    data = text.encode("utf-8", "surrogateescape")
    return lambda delivery: data


def _field(text: str, at: int) -> tuple[_Part, int]:
    match = _FIELD.match(text, at)
    if match is None:
        raise FormatError(f"{text[at : at + 4]!r} ends too early: write %% for a percent sign")
    left, zero, width, places, separator, letter = match.groups()
    if letter == "%":
        return _constant("%"), match.end()
    value = _VALUES.get(letter)
    if value is None:
        why = _ELSEWHERE.get(letter)
        raise FormatError(f"%{letter}: {why}" if why else f"%{letter} is none of %{' %'.join(_VALUES)} %%")
    if len(width) > 3 or len(places or "") > 3:
        raise FormatError(f"{match[0]}: at most {_WIDTH_MAX - 1} characters")
    most = None if places is None else int(places)
    if letter in "xX" and most:
        value = _in_groups(value, most, (separator or " ").encode())
    elif separator:
        raise FormatError(f"{match[0]}: {separator} may stand only in %.2{separator}x: groups of digits")
    elif most is not None:
        value = _shortened(letter, most)
    return _padded(value, int(width or 0), bool(left), bool(zero) and letter in _ZERO_PADDED), match.end()


def _in_groups(value: _Part, digits: int, separator: bytes) -> _Part:
    def grouped(delivery: Delivery) -> bytes:
        data = value(delivery)
        return separator.join(data[i : i + digits] for i in range(0, len(data), digits))

    return grouped


def _shortened(letter: str, most: int) -> _Part:
    if letter in _OF_OTHERS:
        text = _OF_OTHERS[letter]
        return lambda delivery: escaped_at_most(text(delivery), most)
    value = _VALUES[letter]
    return lambda delivery: value(delivery)[:most]


def _padded(value: _Part, width: int, left: bool, zero: bool) -> _Part:
    if not width:
        return value
    if left:
        return lambda delivery: value(delivery).ljust(width)
    return lambda delivery: value(delivery).rjust(width, b"0" if zero else b" ")


# --- Times and characters ----------------------------------------------------------------------------


def _time(text: str, at: int) -> tuple[_Part, int]:
    letter = text[at + 1 : at + 2]
    if letter == "@":
        return _constant("@"), at + 2
    if letter == "N":
        return lambda delivery: b"%09d" % (int(delivery.received_at_s * 1e6) % 1_000_000 * 1000), at + 2
    if not letter or letter not in _TIMES:
        raise FormatError(f"@{letter} is no part of a time: write one of strftime's letters, or @@ for @")
    return lambda delivery: _strftime(f"%{letter}", delivery).encode(), at + 2


def _strftime(form: str, delivery: Delivery) -> str:
    if form.endswith("%z"):  # time.strftime has this machine's present offset for every time
        return datetime.fromtimestamp(delivery.received_at_s).astimezone().strftime(form)
    return strftime(form, localtime(delivery.received_at_s))


def _escape(text: str, at: int) -> tuple[_Part, int]:
    letter = text[at + 1 : at + 2]
    if letter not in _ESCAPES or not letter:
        known = " ".join(f"{_BACKSLASH}{each}" for each in _ESCAPES)
        raise FormatError(f"{_BACKSLASH}{letter} is none of {known}")
    return _constant(_ESCAPES[letter]), at + 2
