"""The `fifo` table of leases, which is that of the 2004 note. PROTOCOL §7.5.

It has a fixed size, the oldest lease leaves first, and what it promises is an estimate of how long that
takes. Here the promise is kept but in a flood (§7.10): a lease is pushed out for its age only after it. The
estimate decides how soon leases that are no longer renewed make room.
"""

from math import inf

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import FIFO_PROMISE_S_MIN, RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL, Limits
from kcast.pubsub.networks import Networks
from kcast.pubsub.table import Lease, LeaseTable, Limit


class FifoTable(LeaseTable):
    """When full, it pushes out the oldest lease, if that lease's promise is over.

    When a lease is pushed out, or would have to be, its age tells how long the table keeps a lease that is
    not renewed. Between such moments the estimate grows by a second per second. Half of it is promised, at
    least 10 s and at most `ttl_s`; half, so that clients may come twice as fast before one is refused.

    If the oldest lease has missed no renewal yet, all leases in the table are in use, and its age tells
    nothing: else a client that asks now and then would make all others renew as often as possible.
    """

    def __init__(self, ttl_s: float, limits: Limits, networks: Networks | None = None) -> None:
        super().__init__(ttl_s, limits, networks)
        self._promised_until: dict[Lease, float] = {}
        self._lifetime_s = inf
        self._lifetime_seen_at = 0.0

    def promise_s(self, now: float) -> float:
        """Returns half of the estimated lifetime, within bounds; the same for all leases of a datagram."""
        return max(min(self._estimate_s(now) / 2, self.ttl_s), min(FIFO_PROMISE_S_MIN, self.ttl_s))

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a live lease, for as long as can be promised now."""
        super().renew(topic, address, now)
        lease = Lease(topic, address)
        self._promised_until[lease] = max(self._promised_until[lease], now + self.promise_s(now))

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Opens a new lease as in the `ttl` table, but a full table makes room if it can."""
        limit = super().open(topic, address, now)
        if limit is None:
            self._promised_until[Lease(topic, address)] = now + self.promise_s(now)
        return limit

    def _has_room(self, address: Address, now: float) -> bool:
        if len(self) < self.limits.leases:
            return True
        oldest, expires_at = self._oldest()
        renewed_at = expires_at - self.ttl_s
        renewal_s = min(
            (self._promised_until[oldest] - renewed_at) / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX
        )
        if now - renewed_at > 1.5 * renewal_s:
            self._lifetime_s = now - renewed_at
            self._lifetime_seen_at = now
        if self._promised_until[oldest] > now:
            return super()._has_room(address, now)
        self._evict(oldest)
        return True

    def _oldest(self) -> tuple[Lease, float]:
        """Returns the lease that was renewed longest ago, and when it expires; there must be one."""
        heads = []
        for leases in (self._established, self._new):
            lease, expires_at = leases.oldest(), leases.next_expiry()
            if lease is not None and expires_at is not None:
                heads.append((expires_at, lease))
        expires_at, lease = min(heads, key=lambda head: head[0])
        return lease, expires_at

    def _estimate_s(self, now: float) -> float:
        return self._lifetime_s + (now - self._lifetime_seen_at)

    def _forget(self, lease: Lease) -> None:
        super()._forget(lease)
        del self._promised_until[lease]


TABLES: dict[str, type[LeaseTable]] = {"ttl": LeaseTable, "fifo": FifoTable}
