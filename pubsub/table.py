"""The tables of leases: who has subscribed to which topic, and until when. PROTOCOL §7.1, §7.5.

Every lease lives at most `ttl_s` from its last renewal, so leases expire in the order of renewal: the oldest
stands first, and no scan is needed.

There are two tables. They differ in what they promise, and in what they do when they are full. The `ttl`
table always promises `ttl_s`; when full, it refuses new leases. The `fifo` table is that of the 2004 note: it
has a fixed size, the oldest lease leaves first, and the promise is an estimate of how long that takes. Here
the promise is kept: a lease is pushed out only after it. The estimate decides how soon leases that are no
longer renewed make room.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from enum import StrEnum
from math import inf
from typing import Generic, NamedTuple, TypeVar

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import FIFO_PROMISE_S_MIN, RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL, Limits
from kcast.pubsub.networks import Network, networks_of

Key = TypeVar("Key", bound=Hashable)


CHUNK_ADDRESSES = 128  # of an audience: what is sent in one go at least


class Limit(StrEnum):
    """The limit that a new lease would exceed: the reason of a refusal (PROTOCOL §5.8)."""

    FULL = "full"
    ADDRESS = "address"
    PREFIX = "prefix"
    TOPICS = "topics"


class Lease(NamedTuple):
    """A lease: a topic in wire form, and the address that gets its copies."""

    topic: bytes
    address: Address


class ExpiringSet(Generic[Key]):
    """A set of at most `capacity` keys, each of which leaves `ttl_s` after its last renewal."""

    def __init__(self, ttl_s: float, capacity: int) -> None:
        self.ttl_s = ttl_s
        self.capacity = capacity
        self._expires_at: OrderedDict[Key, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._expires_at)

    def __contains__(self, key: Key) -> bool:
        return key in self._expires_at

    def renew(self, key: Key, now: float) -> bool:
        """Adds or renews the key. Returns False, and does nothing, if it is new and the set is full."""
        if key not in self._expires_at and len(self._expires_at) >= self.capacity:
            return False
        self._expires_at[key] = now + self.ttl_s
        self._expires_at.move_to_end(key)
        return True

    def left_s(self, key: Key, now: float) -> float:
        """Returns the seconds until the key leaves; 0 if it is not in the set."""
        return max(0.0, self._expires_at.get(key, now) - now)

    def latest(self) -> Iterator[Key]:
        """Yields the keys, the one that was renewed last first."""
        return reversed(self._expires_at)

    def oldest(self) -> Key | None:
        """Returns the key that was renewed longest ago; None if the set is empty."""
        return next(iter(self._expires_at), None)

    def remove(self, key: Key) -> None:
        """Removes a key. Raises KeyError if it is not in the set."""
        del self._expires_at[key]

    def pop_expired(self, now: float) -> list[Key]:
        """Removes and returns all keys that have expired."""
        expired = []
        while self._expires_at:
            key, expires_at = next(iter(self._expires_at.items()))
            if expires_at > now:
                break
            del self._expires_at[key]
            expired.append(key)
        return expired

    def next_expiry(self) -> float | None:
        """Returns when the first key leaves, on the clock of `now`; None if the set is empty."""
        return next(iter(self._expires_at.values()), None)


class _Audience:
    """The subscribers of one topic, and a cached tuple of the live ones."""

    __slots__ = ("expires_at", "live", "live_until")

    def __init__(self) -> None:
        self.expires_at: dict[Address, float] = {}
        self.live: tuple[Address, ...] = ()
        self.live_until = 0.0


class LeaseTable:
    """The `ttl` table: topic -> subscribers, each for `ttl_s` after its last renewal, within `limits`."""

    def __init__(self, ttl_s: float, limits: Limits, *, exempts_loopback: bool = True) -> None:
        self.ttl_s = ttl_s
        self.limits = limits
        self._exempts_loopback = exempts_loopback
        self._leases: ExpiringSet[Lease] = ExpiringSet(ttl_s, limits.leases)
        self._topics: dict[bytes, _Audience] = {}
        self._count_of_address: Counter[Address] = Counter()
        self._count_of_prefix: Counter[Network] = Counter()
        self.evicted: list[Lease] = []
        """Leases that were pushed out. Whoever reports them empties the list."""

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def topic_count(self) -> int:
        """Number of topics that have a lease."""
        return len(self._topics)

    def promise_s(self, now: float) -> float:
        """Returns the seconds that a lease granted now is sure to live."""
        return self.ttl_s

    def is_live(self, topic: bytes, address: Address, now: float) -> bool:
        """Whether this lease is live."""
        audience = self._topics.get(topic)
        return audience is not None and audience.expires_at.get(address, now) > now

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a live lease."""
        self._leases.renew(Lease(topic, address), now)
        self._topics[topic].expires_at[address] = now + self.ttl_s

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Opens a new lease, or returns the limit that forbids it. Call `expire` before."""
        limit = self._exceeded(topic, address)
        if limit is not None:
            return limit
        if not self._has_room(now):
            return Limit.FULL
        self._leases.renew(Lease(topic, address), now)
        audience = self._topics.get(topic)
        if audience is None:
            audience = self._topics[topic] = _Audience()
        audience.expires_at[address] = now + self.ttl_s
        audience.live_until = 0.0
        self._count_of_address[address] += 1
        for network in self._widest_network_of(address):
            self._count_of_prefix[network] += 1
        return None

    def _exceeded(self, topic: bytes, address: Address) -> Limit | None:
        limits = self.limits
        if self._count_of_address[address] >= limits.leases_per_address:
            return Limit.ADDRESS
        for network in self._widest_network_of(address):
            if self._count_of_prefix[network] >= limits.leases_per_prefix:
                return Limit.PREFIX
        if topic not in self._topics and len(self._topics) >= limits.topics:
            return Limit.TOPICS
        return None

    def _has_room(self, now: float) -> bool:
        return len(self._leases) < self.limits.leases

    def audience_count(self, topic: bytes) -> int:
        """Returns the number of leases on a topic; it may include some that have just expired."""
        audience = self._topics.get(topic)
        return 0 if audience is None else len(audience.expires_at)

    def subscribers(self, topic: bytes, now: float) -> Sequence[Address]:
        """Returns the addresses with a live lease on this topic, longest-standing first."""
        audience = self._topics.get(topic)
        if audience is None:
            return ()
        if now >= audience.live_until:
            # Renewals only move expiries back, so the tuple is right until the earliest expiry seen here.
            live = {address: at for address, at in audience.expires_at.items() if at > now}
            audience.live = tuple(live)
            audience.live_until = min(live.values(), default=now)
        return audience.live

    def live_count(self, topic: bytes, now: float) -> int:
        """Returns the number of live leases on a topic."""
        return len(self.subscribers(topic, now))

    def audience(self, topic: bytes, now: float) -> Sequence[Sequence[Address]]:
        """Returns the addresses with a live lease on this topic in chunks, longest-standing first."""
        subscribers = self.subscribers(topic, now)
        if len(subscribers) <= CHUNK_ADDRESSES:
            return (subscribers,) if subscribers else ()
        starts = range(0, len(subscribers), CHUNK_ADDRESSES)
        return [subscribers[start : start + CHUNK_ADDRESSES] for start in starts]

    def expire(self, now: float) -> list[Lease]:
        """Forgets the leases that have expired, and returns them."""
        expired = self._leases.pop_expired(now)
        for lease in expired:
            self._forget(lease)
        return expired

    def next_expiry(self) -> float | None:
        """Returns when the first lease expires, on the clock of `now`; None if there is none."""
        return self._leases.next_expiry()

    def _forget(self, lease: Lease) -> None:
        """Removes all that is kept about a lease, but for its place in the order of renewals."""
        topic, address = lease
        audience = self._topics[topic]
        del audience.expires_at[address]
        audience.live_until = 0.0
        if not audience.expires_at:
            # A topic without leases goes at once: else subscribing to many would fill the memory.
            del self._topics[topic]
        _count_down(self._count_of_address, address)
        for network in self._widest_network_of(address):
            _count_down(self._count_of_prefix, network)

    def _widest_network_of(self, address: Address) -> tuple[Network, ...]:
        return networks_of(address[0], exempts_loopback=self._exempts_loopback)[-1:]


class FifoTable(LeaseTable):
    """The `fifo` table: when full, it pushes out the oldest lease, if that lease's promise is over.

    When a lease is pushed out, or would have to be, its age tells how long the table keeps a lease that is
    not renewed. Between such moments the estimate grows by a second per second. Half of it is promised, at
    least 10 s and at most `ttl_s`; half, so that clients may come twice as fast before one is refused.

    If the oldest lease has missed no renewal yet, all leases in the table are in use, and its age tells
    nothing: else a client that asks now and then would make all others renew as often as possible.
    """

    def __init__(self, ttl_s: float, limits: Limits, *, exempts_loopback: bool = True) -> None:
        super().__init__(ttl_s, limits, exempts_loopback=exempts_loopback)
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

    def _has_room(self, now: float) -> bool:
        if super()._has_room(now):
            return True
        oldest, expires_at = self._leases.oldest(), self._leases.next_expiry()
        assert oldest is not None and expires_at is not None
        renewed_at = expires_at - self.ttl_s
        renewal_s = min(
            (self._promised_until[oldest] - renewed_at) / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX
        )
        if now - renewed_at > 1.5 * renewal_s:
            self._lifetime_s = now - renewed_at
            self._lifetime_seen_at = now
        if self._promised_until[oldest] > now:
            return False
        self._leases.remove(oldest)
        self._forget(oldest)
        self.evicted.append(oldest)
        return True

    def _estimate_s(self, now: float) -> float:
        return self._lifetime_s + (now - self._lifetime_seen_at)

    def _forget(self, lease: Lease) -> None:
        super()._forget(lease)
        del self._promised_until[lease]


TABLES: dict[str, type[LeaseTable]] = {"ttl": LeaseTable, "fifo": FifoTable}


def _count_down(counts: Counter[Key], key: Key) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
