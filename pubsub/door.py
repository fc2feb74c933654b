"""Which strangers are looked at, when there are more of them than can be. PROTOCOL §5.2. Sans-IO.

A stranger is an address that has shown no good cookie and holds no publish lease. Its address may be forged,
so nothing is kept for it, and nothing it does may cost those who are proven. Strangers share a budget of
answers per second. Half of it is divided evenly among the networks that ask, so that a flood from some
networks, or forged to come from them, leaves the others their part. Three eighths are for whoever comes
first. The rest is for networks that did not ask in the second before (compare the response rate limiting of
name servers). Of the networks of one second a bounded number are told apart; those that come later share
one part.

In a turn that brings much, the answers of the turn are few, because each takes ten times as long as a look.
"""

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import is_loopback

NETWORKS_MAX = 4096
BUSY_BURSTS = 16  # in one turn: what comes after these is part of a flood, or of a rush
BUSY_ANSWERS_MAX = 2  # in the rest of such a turn
_OTHERS = ""


class Door:
    """Admits strangers, `per_s` of them per second, to be answered; 0 is no limit. Loopback has none."""

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


def _network_of(host: str) -> str:
    """Returns the leading part of an address: an IPv4 /24, or about an IPv6 /48. It is cheap to find."""
    if ":" not in host:
        return host[: host.rindex(".")]
    return ":".join(host.split(":", 3)[:3])
