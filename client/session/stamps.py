"""Stamps for one server's leases: the one that is looked for, and those to be sent. Sans-IO.

PROTOCOL §5.11, §7.9. Looking for a stamp is too slow for a core's turn: the driver says when to compute, and
for how long. It is done for one datagram at a time. Where leases are dear a datagram has few topics, so that
leases come up one after the other. Each try is as likely to succeed as the first, so nothing is lost when a
search is dropped and begun anew with a younger cookie.

New leases have `Stamps`. `PaidRenewals` has those for renewals, where these have a price.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log2

from kcast.client.session.leases import RENEWALS, Leases, Place
from kcast.client.session.requests import LINE_BYTES_MAX, Cookie, Stamped
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, WORK_DATAGRAM_BITS
from kcast.pubsub.stamp import Mint, price_bits

# Of an interval: when the stamp of what falls due then is looked for.
LEAD = 0.5

SHORTEST = 0.9  # of an interval, the time after which leases may be renewed
TOLD_CHANGE = 1.25  # a plan is changed where the tries that are left have changed by such a factor

_FIRST = (Place.FIRST,)
_MORE = (Place.MORE,)


def topics_max(bits: int) -> int:
    """Returns the number of new leases at `bits` each that one stamp of max(bits, 18) bits pays for."""
    return 1 << max(0, WORK_DATAGRAM_BITS - bits)


class Stamps:
    """The stamps for one server: at most one is looked for at a time."""

    def __init__(self) -> None:
        self._mint: Mint | None = None
        self._wanted: Stamped | None = None  # what the stamp looked for will be, still without it
        self._wanted_at = -inf  # from when on it may be sent
        self._ready: list[tuple[float, Stamped]] = []  # with the time from which each may be sent

    @property
    def is_minting(self) -> bool:
        """Whether a stamp is looked for."""
        return self._mint is not None

    @property
    def bits(self) -> int | None:
        """The price for a new lease at which a stamp is looked for; None while none is."""
        return None if self._wanted is None else self._wanted.bits

    @property
    def newest(self) -> Stamped | None:
        """The one of those to be sent that was found last, or sent again last."""
        return self._ready[-1][1] if self._ready else None

    def next_ready(self) -> float | None:
        """Returns when the first stamp that was found may be sent, or None."""
        return min([at for at, _ in self._ready]) if self._ready else None

    def begin(
        self,
        cookie: Cookie,
        topics: Sequence[bytes],
        bits: int,
        *,
        bits_max: int | None = None,
        ready_at: float = -inf,
    ) -> None:
        """Looks for the stamp of a datagram with these leases, at `bits` each, from now on.

        It costs `bits_max` in all at most, and may be sent from `ready_at` on.
        """
        price = price_bits(bits, len(topics))
        self._mint = Mint(cookie.text, topics, price if bits_max is None else min(price, bits_max))
        self._wanted = Stamped(cookie, topics, bits, b"")
        self._wanted_at = ready_at

    def work(self, tries: int) -> int:
        """Tries at most `tries` stamps; returns how many were tried."""
        if self._mint is None or self._wanted is None:
            return 0
        before = self._mint.tries
        stamp = self._mint.work(tries)
        tried = self._mint.tries - before
        if stamp is not None:
            self._ready.append((self._wanted_at, replace(self._wanted, stamp=stamp)))
            self._mint = self._wanted = None
        return tried

    def take_ready(self, now: float) -> Stamped | None:
        """Returns the next stamp to be sent by now, or None."""
        for entry in self._ready:
            if entry[0] <= now:
                self._ready.remove(entry)
                return entry[1]
        return None

    def send_again(self, stamped: Stamped, at: float) -> None:
        """Sends the same stamp again, from a time on, since it has bought nothing yet.

        Once: a request that was given up, and sent again, may be answered late, and be refused then.
        """
        self._ready = [entry for entry in self._ready if entry[1] != stamped]
        self._ready.append((at, stamped))

    def drop(self) -> list[bytes]:
        """Drops all; returns the topics, which are then to be paid for anew."""
        topics = [topic for _, stamped in self._ready for topic in stamped.topics]
        self._ready.clear()
        return topics + self.stop()

    def stop(self) -> list[bytes]:
        """Looks no more; returns the topics that this was for."""
        topics = [] if self._wanted is None else list(self._wanted.topics)
        self._mint = self._wanted = None
        return topics

    def let_go(self, bits: int, era: int, now: float, is_wanted: Callable[[bytes], bool]) -> list[bytes]:
        """Drops what has become useless: of another era, with a cookie too old, or wanted no more; and what
        is looked for at more than `bits`, the price that came with the newest cookie.

        A stamp, its cookie and the price told with that cookie belong together. So what was found, or is
        looked for, stays good though the price has risen since. Returns the topics as in `drop`.
        """
        if self._wanted is None and not self._ready:
            return []

        def is_good(stamped: Stamped) -> bool:
            cookie = stamped.cookie
            is_young = cookie.era == era and cookie.serves(COOKIE_LEASE_LIFE_S, now)
            return is_young and any(map(is_wanted, stamped.topics))

        dropped = [stamped for _, stamped in self._ready if not is_good(stamped)]
        if dropped:
            self._ready = [entry for entry in self._ready if entry[1] not in dropped]
        if self._wanted is not None and (not is_good(self._wanted) or self._wanted.bits > bits):
            dropped.append(self._wanted)
            self._mint = self._wanted = None
        return [topic for stamped in dropped for topic in stamped.topics]


def sustained(bits: int, tries: float, lines: int) -> int:
    """Returns how many leases at `bits` each can be renewed with these tries, `lines` in a datagram."""
    full = 2 ** _price(bits, lines)
    count = int(tries // full)
    rest_bits = int(log2(rest)) if (rest := tries - count * full) >= 1 else -1
    return count * lines + (min(lines, 1 << rest_bits - bits) if rest_bits >= bits else 0)


def _price(bits: int, count: int) -> int:
    return min(WORK_DATAGRAM_BITS, price_bits(bits, count))


class PaidRenewals:
    """Looks for stamps to renew leases with, while `bits`, the price of a renewal, is not 0.

    A server whose table is nearly full says `keep=N`: from the next renewal on, all leases but the first few
    cost work again. The stamps are looked for half an interval ahead, with the cookie that is there, so that
    renewals are not late, and those that fall due soon after one another have one stamp together. If there is
    no stamp in time, nothing is asked for; such leases end with their ttl.

    A client plans how many leases it can keep with what it may spend (`client/session/allowance.py`): always
    the same ones, those that were granted first. The others run out, and no more are bought than can be kept.
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
