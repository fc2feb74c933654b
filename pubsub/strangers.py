"""Strangers: which of them are answered, and what stands in their datagrams. PROTOCOL §5.2. Sans-IO.

A stranger is an address that has shown no good cookie and holds no publish lease. Its address may be forged,
so nothing is kept for it, and nothing it does may cost those who are proven. Strangers share a budget of
answers per second, and what they send is read at little cost. A datagram has up to 64 lines, and the kernel
hands over up to 64 datagrams at once. To read each of these lines as a request would take milliseconds. So
the first request is read, and the others are counted.
"""

import re
from collections import Counter
from collections.abc import Sequence

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop, drop_of_control
from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import is_loopback

# Possessive, so that nothing is tried twice. What stands behind the last LF is dropped.
_CONTROLS_ALONE = re.compile(rb"\n*+(?:%(?![0-9A-Fa-f]{2})[^\n]*+\n++)++[^\n]*+")

# What is left of a datagram has a "." for each byte of a line; or spaces and ends of lines alone.
_MARKED = bytes([byte if byte == ord("\n") else ord(".") for byte in range(256)])
_NEITHER_SPACE_NOR_LF = bytes(sorted(set(range(256)) - set(b" \n")))

NETWORKS_MAX = 4096
BUSY_BURSTS = 16  # in one turn: what comes after these is part of a flood, or of a rush
BUSY_ANSWERS_MAX = 2  # in the rest of such a turn
_OTHERS = ""


class StrangerBudget:
    """Admits strangers, `per_s` of them per second, to be answered; 0 is no limit. Loopback has none.

    Half of it is divided evenly among the networks that ask, so that a flood from some networks, or forged to
    come from them, leaves the others their part. Three eighths are for whoever comes first. The rest is for
    networks that did not ask in the second before (compare the response rate limiting of name servers). Of
    the networks of one second a bounded number are told apart; those that come later share one part.

    In a turn that brings much, the answers of the turn are few, because each takes ten times as long as a
    look.
    """

    def __init__(self, per_s: int, *, exempts_loopback: bool = True) -> None:
        self._per_s = per_s
        self._exempts_loopback = exempts_loopback
        self._second = -1
        self._admitted: dict[str, int] = {}  # in this second, by network
        self._network_count = 1  # in the second before, or in this one if there are more
        self._total = 0  # admitted in this second ...
        self._unshared = 0  # ... and those beyond the even parts
        self._bursts = 0
        self._answers = 0

    def begin_turn(self) -> None:
        """Takes note that what comes next belongs to another turn."""
        self._bursts = self._answers = 0

    def count_burst(self) -> None:
        """Takes note that a burst has arrived, whoever sent it."""
        self._bursts += 1

    def admits(self, stranger: Address, now: float) -> bool:
        """Whether this stranger is answered now."""
        if self._exempts_loopback and is_loopback(stranger[0]):
            return True
        if self._bursts > BUSY_BURSTS and self._answers >= BUSY_ANSWERS_MAX:
            return False
        if self._per_s and not self._has_budget(stranger[0], now):
            return False
        if self._bursts > BUSY_BURSTS:
            self._answers += 1
        return True

    def _has_budget(self, host: str, now: float) -> bool:
        if int(now) != self._second:
            self._second = int(now)
            self._network_count = max(1, len(self._admitted))
            self._admitted = {}
            self._total = self._unshared = 0
        if self._total >= self._per_s:
            return False
        network = _network_of(host)
        if network not in self._admitted and len(self._admitted) >= NETWORKS_MAX:
            network = _OTHERS
        admitted = self._admitted.setdefault(network, 0)
        part = self._per_s // 2 // max(self._network_count, len(self._admitted))
        if admitted >= max(1, part):
            if self._unshared >= self._per_s * 3 // 8:
                return False
            self._unshared += 1
        self._admitted[network] = admitted + 1
        self._total += 1
        return True


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


def _network_of(host: str) -> str:
    """Returns the leading part of an address: an IPv4 /24, or about an IPv6 /48. It is cheap to find."""
    if ":" not in host:
        return host[: host.rindex(".")]
    return ":".join(host.split(":", 3)[:3])
