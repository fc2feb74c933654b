"""Stamps for one server's new leases: the one that is looked for, and those to be sent. Sans-IO.

PROTOCOL §5.11. Looking for a stamp is too slow for a core's turn: the driver says when to compute, and for
how long. It is done for one datagram at a time. Where leases are dear a datagram has few topics, so that
leases come up one after the other. Each try is as likely to succeed as the first, so nothing is lost when a
search is dropped and begun anew with a younger cookie.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from kcast.client.session.cookies import Cookie
from kcast.client.session.requests import Stamped
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, WORK_DATAGRAM_BITS
from kcast.pubsub.stamp import Mint, price_bits


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
