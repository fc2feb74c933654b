"""The `fifo` table of leases, which is that of the 2004 note. PROTOCOL §7.5.

It has a fixed size, the oldest lease leaves first, and what it promises is an estimate of how long that
takes. Here the promise is kept but in a flood (§7.10): a lease is pushed out for its age only after it. The
estimate decides how soon leases that are no longer renewed make room.
"""

from math import inf

from kcast.pubsub.audience import Entry
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import FIFO_PROMISE_S_MIN, RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL, Limits
from kcast.pubsub.networks import Networks
from kcast.pubsub.table import LeaseTable, Limit


class PromisedEntry(Entry):
    """What is kept about a lease that stands for as long as was promised."""

    __slots__ = ("promised_until",)

    promised_until: float


class FifoTable(LeaseTable):
    """When full, it pushes out the oldest lease, if that lease's promise is over.

    When a lease is pushed out, or would have to be, its age tells how long the table keeps a lease that is
    not renewed. Between such moments the estimate grows by a second per second. Half of it is promised, at
    least 10 s and at most `ttl_s`; half, so that clients may come twice as fast before one is refused.

    If the oldest lease has missed no renewal yet, all leases in the table are in use, and its age tells
    nothing: else a client that asks now and then would make all others renew as often as possible.
    """

    make_entry = PromisedEntry

    def __init__(self, ttl_s: float, limits: Limits, networks: Networks | None = None) -> None:
        super().__init__(ttl_s, limits, networks)
        self._promised_until = 0.0  # what was promised last
        self._lifetime_s = inf
        self._lifetime_seen_at = 0.0

    def promise_s(self, now: float) -> float:
        """Returns half of the estimated lifetime, within bounds; the same for all leases of a datagram."""
        return max(min(self._estimate_s(now) / 2, self.ttl_s), min(FIFO_PROMISE_S_MIN, self.ttl_s))

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a live lease, for as long as can be promised now."""
        super().renew(topic, address, now)
        entry = self._promised(topic, address)
        entry.promised_until = max(entry.promised_until, self._promise_until(now))

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Opens a new lease as in the `ttl` table, but a full table makes room if it can."""
        limit = super().open(topic, address, now)
        if limit is None:
            self._promised(topic, address).promised_until = self._promise_until(now)
        return limit

    def _has_room(self, address: Address, now: float) -> bool:
        if len(self) < self.limits.leases:
            return True
        oldest = self._oldest()
        assert isinstance(oldest, PromisedEntry)
        age_s = now - oldest.renewed_at
        promised_s = oldest.promised_until - oldest.renewed_at
        if age_s > 1.5 * min(promised_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX):
            self._lifetime_s = age_s
            self._lifetime_seen_at = now
        if oldest.promised_until > now:
            return super()._has_room(address, now)
        self._evict(oldest, now)
        return True

    def _promised(self, topic: bytes, address: Address) -> PromisedEntry:
        entry = self._find(topic, address)
        assert isinstance(entry, PromisedEntry)
        return entry

    def _promise_until(self, now: float) -> float:
        until = now + self.promise_s(now)
        if until != self._promised_until:
            self._promised_until = until
        return self._promised_until  # the same object for all leases of a datagram

    def _estimate_s(self, now: float) -> float:
        return self._lifetime_s + (now - self._lifetime_seen_at)


TABLES: dict[str, type[LeaseTable]] = {"ttl": LeaseTable, "fifo": FifoTable}
