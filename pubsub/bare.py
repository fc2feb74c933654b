"""What stands in a datagram that shows no cookie, found at little cost. PROTOCOL §5.2. Sans-IO.

A datagram has up to 64 lines, and the kernel hands over up to 64 datagrams at once. To read each of these
lines as a request would take milliseconds. So the first request is read, and the others are counted.
"""

import re
from collections import Counter
from collections.abc import Sequence

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop, drop_of_control

# Possessive, so that nothing is tried twice. What stands behind the last LF is dropped.
_CONTROLS_ALONE = re.compile(rb"\n*+(?:%(?![0-9A-Fa-f]{2})[^\n]*+\n++)++[^\n]*+")

# What is left of a datagram has a "." for each byte of a line; or spaces and ends of lines alone.
_MARKED = bytes([byte if byte == ord("\n") else ord(".") for byte in range(256)])
_NEITHER_SPACE_NOR_LF = bytes(sorted(set(range(256)) - set(b" \n")))


def split(datagram: bytes, drops: Counter[Drop]) -> list[bytes]:
    """Returns the lines of a datagram; counts where there is none, or a last one without LF."""
    lines, is_unterminated = wire.split_lines(datagram)
    if is_unterminated:
        drops[Drop.UNTERMINATED] += 1
    if not lines:
        drops[Drop.EMPTY] += 1
    return lines


def has_controls_alone(datagram: bytes) -> bool:
    """Whether all lines are control lines, none of which shows a cookie for the others."""
    return _CONTROLS_ALONE.fullmatch(datagram) is not None and not wire.is_vouched(datagram)


def first_request(controls: Sequence[bytes], drops: Counter[Drop]) -> wire.Request | None:
    """Reads the first of these control lines that begins as a `%?` or `%~`, and counts all others."""
    request, is_found = None, False
    for line in controls:
        if not line.startswith((b"%?", b"%~")):
            drops[Drop.MISPLACED if line.startswith(b"%!") else drop_of_control(line)] += 1
        elif is_found:
            drops[Drop.EXTRA_REQUEST] += 1
        else:
            is_found = True
            request = wire.parse_request(line)
            if request is None:
                drops[Drop.MALFORMED] += 1
    return request


def count_unvouched(datagram: bytes, start: int, lines_max: int, drops: Counter[Drop]) -> None:
    """Counts the lines of a stranger's datagram, but for its first request: see `wire.request_start`.

    Of control lines that ask for nothing, those behind the first line count as what they would be without
    their `%`. To read them, or to make lists of the lines, would take longer than to answer.
    """
    if wire.is_request_alone(datagram):
        return
    if datagram and not datagram.endswith(b"\n"):
        drops[Drop.UNTERMINATED] += 1
    lines = datagram.count(b"\n")
    if b"\n\n" in datagram or datagram.startswith(b"\n"):
        lines = datagram.translate(_MARKED).count(b".\n")
    if not lines:
        drops[Drop.EMPTY] += 1
        return
    if lines > lines_max:
        drops[Drop.TOO_MANY_LINES] += 1
        return
    with_space = datagram.translate(None, _NEITHER_SPACE_NOR_LF).count(b" \n")
    requests = wire.request_count(datagram, start)
    if requests > 1:
        drops[Drop.EXTRA_REQUEST] += requests - 1
    first = datagram.lstrip(b"\n").partition(b"\n")[0]
    if wire.is_control(first) and not first.startswith(wire.REQUEST_STARTS):
        drops[drop_of_control(first)] += 1
        lines -= 1
        with_space -= b" " in first
    if with_space > requests:
        drops[Drop.UNVOUCHED_PUBLISH] += with_space - requests
    if with_space < lines:
        drops[Drop.UNVOUCHED_SUBSCRIBE] += lines - with_space
