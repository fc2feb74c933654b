"""Who holds a lease on which topic, and for how much longer. PROTOCOL §7.1, §7.5.

Every lease lives at most `ttl_s` from its last renewal, so renewal order is expiry order: the oldest lease
stands first, and expiring costs the leases that expire and no scan.

Two tables differ in what they promise and in what they do when they are full. The `ttl` table always
promises `ttl_s`, and refuses what is new when it is full. The `fifo` table is that of the 2004 note: of
fixed size, the oldest leaves first, and the promise is an estimate of how long that takes. Here the promise
is kept: a lease is pushed out only after it. The estimate decides how soon those who went away make room.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from math import inf
from typing import Generic, NamedTuple, TypeVar

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import FIFO_PROMISE_S_MIN, RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL, Limits

Key = TypeVar("Key", bound=Hashable)


class Limit(StrEnum):
    """Which limit a new lease would exceed: the reason of a refusal (PROTOCOL §5.8)."""

    FULL = "full"
    ADDRESS = "address"
    PREFIX = "prefix"
    TOPICS = "topics"


class Lease(NamedTuple):
    """What a lease is known by: a topic in wire form, and who gets its copies."""

    topic: bytes
    address: Address


class ExpiringSet(Generic[Key]):
    """Keys that leave `ttl_s` after they were last renewed; never more than `capacity` of them."""

    def __init__(self, ttl_s: float, capacity: int) -> None:
        self.ttl_s = ttl_s
        self.capacity = capacity
        self._expires_at: OrderedDict[Key, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._expires_at)

    def renew(self, key: Key, now: float) -> bool:
        """Adds or renews the key; False, and nothing done, where it is new and the set is full."""
        if key not in self._expires_at and len(self._expires_at) >= self.capacity:
            return False
        self._expires_at[key] = now + self.ttl_s
        self._expires_at.move_to_end(key)
        return True

    def left_s(self, key: Key, now: float) -> float:
        """Seconds that the key still has; 0 where it is not in the set."""
        return max(0.0, self._expires_at.get(key, now) - now)

    def oldest(self) -> Key | None:
        """The key whose renewal lies back furthest."""
        return next(iter(self._expires_at), None)

    def remove(self, key: Key) -> None:
        """Removes a key that is in the set."""
        del self._expires_at[key]

    def pop_expired(self, now: float) -> list[Key]:
        """Removes and returns all keys whose time has come."""
        expired = []
        while self._expires_at:
            key, expires_at = next(iter(self._expires_at.items()))
            if expires_at > now:
                break
            del self._expires_at[key]
            expired.append(key)
        return expired

    def next_expiry(self) -> float | None:
        """When the first key leaves, on the clock of `now`; None while empty."""
        return next(iter(self._expires_at.values()), None)


class _Audience:
    """The subscribers of one topic, and a ready list of the live ones."""

    __slots__ = ("expires_at", "live", "live_until")

    def __init__(self) -> None:
        self.expires_at: dict[Address, float] = {}
        self.live: tuple[Address, ...] = ()
        self.live_until = 0.0


class LeaseTable:
    """The `ttl` table: topic -> subscribers, each for `ttl_s` seconds unless renewed, within `limits`."""

    def __init__(self, ttl_s: float, limits: Limits) -> None:
        self.ttl_s = ttl_s
        self.limits = limits
        self._leases: ExpiringSet[Lease] = ExpiringSet(ttl_s, limits.leases)
        self._topics: dict[bytes, _Audience] = {}
        self._count_of_address: Counter[Address] = Counter()
        self._count_of_prefix: Counter[str | bytes] = Counter()
        self.evicted: list[Lease] = []
        """Leases pushed out; whoever reports them empties it."""

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def topic_count(self) -> int:
        """How many topics have a lease on them."""
        return len(self._topics)

    def promise_s(self, now: float) -> float:
        """How long a lease asked for now is sure to live, in seconds."""
        return self.ttl_s

    def is_live(self, topic: bytes, address: Address, now: float) -> bool:
        """Whether this lease stands."""
        audience = self._topics.get(topic)
        return audience is not None and audience.expires_at.get(address, now) > now

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a lease that stands."""
        self._leases.renew(Lease(topic, address), now)
        self._topics[topic].expires_at[address] = now + self.ttl_s

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Opens a lease that does not stand, or tells the limit that forbids it. `expire` comes before."""
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
        prefix = prefix_of(address[0])
        if prefix is not None:
            self._count_of_prefix[prefix] += 1
        return None

    def _exceeded(self, topic: bytes, address: Address) -> Limit | None:
        limits = self.limits
        if self._count_of_address[address] >= limits.leases_per_address:
            return Limit.ADDRESS
        prefix = prefix_of(address[0])
        if prefix is not None and self._count_of_prefix[prefix] >= limits.leases_per_prefix:
            return Limit.PREFIX
        if topic not in self._topics and len(self._topics) >= limits.topics:
            return Limit.TOPICS
        return None

    def _has_room(self, now: float) -> bool:
        return len(self._leases) < self.limits.leases

    def audience_count(self, topic: bytes) -> int:
        """How many leases there are on a topic; perhaps some that have just lapsed with them."""
        audience = self._topics.get(topic)
        return 0 if audience is None else len(audience.expires_at)

    def subscribers(self, topic: bytes, now: float) -> Sequence[Address]:
        """The addresses with a live lease on this topic, longest-standing first."""
        audience = self._topics.get(topic)
        if audience is None:
            return ()
        if now >= audience.live_until:
            # Renewals only push expiries back, so the list is right until the earliest expiry seen here.
            live = {address: at for address, at in audience.expires_at.items() if at > now}
            audience.live = tuple(live)
            audience.live_until = min(live.values(), default=now)
        return audience.live

    def expire(self, now: float) -> list[Lease]:
        """Forgets the leases whose time has come, and returns them."""
        expired = self._leases.pop_expired(now)
        for lease in expired:
            self._forget(lease)
        return expired

    def next_expiry(self) -> float | None:
        """When the first lease ends, on the clock of `now`; None while there is none."""
        return self._leases.next_expiry()

    def _forget(self, lease: Lease) -> None:
        """Removes all that is kept of a lease but its place in the order."""
        topic, address = lease
        audience = self._topics[topic]
        del audience.expires_at[address]
        audience.live_until = 0.0
        if not audience.expires_at:
            # An empty topic goes at once, or naming topics would be a way to fill the memory.
            del self._topics[topic]
        _count_down(self._count_of_address, address)
        prefix = prefix_of(address[0])
        if prefix is not None:
            _count_down(self._count_of_prefix, prefix)


class FifoTable(LeaseTable):
    """The `fifo` table: full, it pushes out the oldest lease, if what that was promised is over.

    The last time that a lease was pushed out, or stood in the way, its age told how long the table keeps who
    does not renew. While nothing is pushed out, that grows by a second a second. Half of it is promised (so
    that the rate at which clients come may double before one is refused), at least 10 s, at most `ttl_s`.
    Where the oldest has missed no renewal yet, the table is full of the living, and its age tells nothing:
    else one who knocks now and then would make all others renew as often as can be.
    """

    def __init__(self, ttl_s: float, limits: Limits) -> None:
        super().__init__(ttl_s, limits)
        self._promised_until: dict[Lease, float] = {}
        self._lifetime_s = inf
        self._lifetime_seen_at = 0.0

    def promise_s(self, now: float) -> float:
        """Half of the estimated lifetime, within bounds; the same for all leases of one datagram."""
        return max(min(self._estimate_s(now) / 2, self.ttl_s), min(FIFO_PROMISE_S_MIN, self.ttl_s))

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a lease that stands, for what can be promised now."""
        super().renew(topic, address, now)
        lease = Lease(topic, address)
        self._promised_until[lease] = max(self._promised_until[lease], now + self.promise_s(now))

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """As the `ttl` table's, but a full table makes room if it may."""
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


def is_loopback(host: str) -> bool:
    """Whether this IP address is of the machine itself, and cannot come from elsewhere."""
    return host.startswith("127.") or host == "::1"


def prefix_of(host: str) -> str | bytes | None:
    """The network that shares a limit with this IP address: its /24 or /48; None for loopback."""
    if is_loopback(host):
        return None
    return _prefix_of_ipv6(host) if ":" in host else host[: host.rindex(".")]


@lru_cache(maxsize=4096)
def _prefix_of_ipv6(host: str) -> bytes:
    return ip_address(host).packed[:6]


def _count_down(counts: Counter[Key], key: Key) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
