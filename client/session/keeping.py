"""Renewals that have a price at one server, and the stamps for them. Sans-IO. PROTOCOL §7.9.

A server whose table is nearly full says `keep=N`: from the next renewal on, all leases but the first few cost
work again. The stamps are looked for half an interval ahead, with the cookie that is there, so that renewals
are not late, and those that fall due soon after one another have one stamp together. If there is no stamp in
time, nothing is asked for; such leases end with their ttl.

A client plans how many leases it can keep with what it may spend (`client/session/allowance.py`): always the
same ones, those that were granted first. The others run out, and no more are bought than can be kept.
"""

from math import inf, log2

from kcast.client.session.cookies import Cookie
from kcast.client.session.leases import RENEWALS, Leases, Place
from kcast.client.session.requests import LINE_BYTES_MAX, Stamped
from kcast.client.session.stamps import Stamps
from kcast.pubsub.limits import WORK_DATAGRAM_BITS
from kcast.pubsub.stamp import price_bits

# Of an interval: when the stamp of what falls due then is looked for.
LEAD = 0.5

SHORTEST = 0.9  # of an interval, the time after which leases may be renewed
TOLD_CHANGE = 1.25  # a plan is changed where the tries that are left have changed by such a factor

_FIRST = (Place.FIRST,)
_MORE = (Place.MORE,)


def sustained(bits: int, tries: float, lines: int) -> int:
    """Returns how many leases at `bits` each can be renewed with these tries, `lines` in a datagram."""
    full = 2 ** _price(bits, lines)
    count = int(tries // full)
    rest_bits = int(log2(rest)) if (rest := tries - count * full) >= 1 else -1
    return count * lines + (min(lines, 1 << rest_bits - bits) if rest_bits >= bits else 0)


def _price(bits: int, count: int) -> int:
    return min(WORK_DATAGRAM_BITS, price_bits(bits, count))


class Keeping:
    """Looks for stamps to renew leases with, while `bits`, the price of a renewal, is not 0.

    Leases of the places in `free` are renewed for nothing.
    """

    def __init__(self, leases: Leases) -> None:
        self.bits = 0
        self.free: tuple[Place, ...] = RENEWALS
        self._leases = leases
        self._stamps = Stamps()
        self._interval_s = 0.0
        self._not_before = -inf
        self._plan = 0, 0, 0.0  # bits, lines of a datagram, and tries

    @property
    def is_minting(self) -> bool:
        """Whether a stamp is looked for."""
        return self._stamps.is_minting

    def told(self, bits: int, interval_s: float, now: float) -> None:
        """Takes the price of a renewal from now on, and the time between renewals."""
        had_price, self.bits = self.bits > 0, bits
        self._interval_s = interval_s
        self.free = _FIRST if bits else RENEWALS
        if had_price and not bits:
            self._leases.ask_again(self._stamps.drop(), now)
            self._leases.keep_at_most(inf)
            self._plan = 0, 0, 0.0

    def plan(self, tries: float, lines_max: int) -> list[bytes]:
        """Decides which leases are kept with these tries an interval; returns those that no longer are.

        `lines_max` counts all lines of a datagram.
        """
        mean_bytes = max(1, self._leases.size_bytes // max(1, len(self._leases)))
        lines = max(1, min(lines_max - 1, LINE_BYTES_MAX // mean_bytes))
        bits, lines_before, tries_before = self._plan
        is_alike = tries_before / TOLD_CHANGE <= tries <= tries_before * TOLD_CHANGE
        if (bits, lines_before) == (self.bits, lines) and is_alike:
            return []
        self._plan = self.bits, lines, tries
        count = inf if tries == inf else sustained(self.bits, SHORTEST * tries, lines)
        return self._leases.keep_at_most(count)

    def next_due(self) -> float | None:
        """Returns when a stamp may be sent, or when to look for one; None for never."""
        ready_at = self._stamps.next_ready()
        due_at = None if self.is_minting else self._leases.next_due(_MORE)
        if due_at is None:
            return ready_at
        begin_at = max(due_at - LEAD * self._interval_s, self._not_before)
        return begin_at if ready_at is None else min(ready_at, begin_at)

    def begin(self, cookie: Cookie, lines_max: int, now: float) -> None:
        """Looks for the stamp of the renewals that are due within an interval, if any is due soon."""
        if self.is_minting or now < self._not_before:
            return
        due_at = self._leases.first_due(_MORE)
        if due_at is None or due_at - LEAD * self._interval_s > now:
            return
        topics = self._leases.take_due(now + self._interval_s, lines_max - 1, LINE_BYTES_MAX, _MORE)
        if topics:
            self._stamps.begin(cookie, topics, self.bits, bits_max=WORK_DATAGRAM_BITS, ready_at=due_at)

    def work(self, tries: int) -> int:
        """Tries at most `tries` stamps; returns how many were tried."""
        return self._stamps.work(tries)

    def take_ready(self, now: float) -> Stamped | None:
        """Returns the next stamp to be sent by now, or None."""
        return self._stamps.take_ready(now)

    def send_again(self, stamped: Stamped) -> None:
        """Sends a stamp again whose datagram got lost."""
        self._stamps.send_again(stamped, -inf)

    def let_go(self, era: int, now: float) -> None:
        """Drops stamps that the server would not take, or that are needed no more."""
        dropped = self._stamps.let_go(self._stamps.bits or 0, era, now, self._leases.is_wanted)
        self._leases.ask_again(dropped, now)

    def stop(self, until: float) -> None:
        """Looks for no stamp until then."""
        self._not_before = until
        self._leases.ask_again(self._stamps.stop(), until)
