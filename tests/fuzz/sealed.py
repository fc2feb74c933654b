"""Messages that claim to be signed or sealed. PROTOCOL §9.6, §9.7.

Guards raise nothing, whatever arrives, and let pass what is known to be right and nothing else: nobody finds
a signature. What a writer of the group seals may be anything, too.
"""

from functools import cache
from typing import Any

from kcast.client.events import Drop
from kcast.client.messages.guard_and_writer import Proven
from kcast.client.sealed import frame
from kcast.client.sealed.sealing import parse_seal
from kcast.client.sealed.signing import parse_signature
from tests.support.sealed_by_hand import OPS, Writer, padded
from tests.support.sealed_guards import VECTORS, guard_of, judged

LINES: list[dict[str, Any]] = VECTORS["lines"]
SEALED = 0xFF  # as the first byte: what follows is a frame
TOPIC = OPS.hidden("weather/oslo")
SEQ = 7
_EXPECTED = (
    *(Drop.MALFORMED_MESSAGE, Drop.NOT_UNDERSTOOD, Drop.UNSIGNED, Drop.UNAUTHORISED, Drop.BAD_SIGNATURE),
    *(Drop.TOO_OLD, Drop.FROM_FUTURE, Drop.NOT_SEALED, Drop.UNKNOWN_KEY, Drop.NOT_OPENED, Drop.COVER),
)


def check(data: bytes) -> None:
    """Takes a byte for the subscription, and bytes as a message on its topic; or as what is sealed in one."""
    found_in(data)
    text = data[1:].decode("latin-1")
    parse_signature(text)
    parse_seal(text)


def found_in(data: bytes) -> Proven | Drop:
    """Returns what a guard makes of it."""
    first, rest = data[:1] or b"\0", data[1:]
    return _of_frame(rest) if first[0] == SEALED else _of_message(first[0] % len(LINES), rest)


def _of_message(subscription: int, message: bytes) -> Proven | Drop:
    vector = LINES[subscription]
    name = vector["topic"].encode()
    line, guard = name + b" " + message, guard_of(vector)
    found = judged(guard, name, line)
    if isinstance(found, Proven):
        assert line in _known(subscription), f"{line!r} is taken"
    else:
        assert found in _EXPECTED, found
    is_window = isinstance(found, Proven) or found is Drop.COVER
    assert len(guard._replays) == is_window, "only what is proven begins a window"
    assert not is_window or judged(guard, name, line) is Drop.REPLAYED
    guard.take_events()
    return found


@cache
def _known(subscription: int) -> frozenset[bytes]:
    """The lines of the vectors that this subscription takes: some are others' mutants."""
    vector = LINES[subscription]
    name: bytes = vector["topic"].encode()
    texts = {each["line"] for line in LINES for each in (line, *line["mutants"])}
    texts |= {text for line in LINES for text in line.get("batch", ())}
    lines = (text.encode().removesuffix(b"\n") for text in texts)
    here = [line for line in lines if line.startswith(name + b" ")]
    return frozenset(line for line in here if isinstance(judged(guard_of(vector), name, line), Proven))


def _of_frame(data: bytes) -> Proven | Drop:
    """What comes of bytes, zeros added, as a frame that a writer has sealed."""
    whole = padded(data or b"\0")
    opened = frame.parse(whole, SEQ)
    (vector,) = [each for each in LINES if each["what"] == "sealed"]
    line = Writer(OPS, TOPIC).seal(SEQ, whole).removesuffix(b"\n")
    found = judged(guard_of(vector), TOPIC.encode(), line)
    assert isinstance(found, Drop), "nobody finds a signature"
    if opened is None:
        assert found in (Drop.NOT_OPENED, Drop.UNSIGNED)
        return found
    assert opened.frame.attributes or frame.body_of(opened.frame) == opened.body
    assert found not in (Drop.NOT_OPENED, Drop.UNSIGNED)
    return found
