"""The `ttl` table: who holds a lease on which topic, and for how much longer. PROTOCOL §7.1.

Every lease lives the same time from its last renewal, so renewal order is expiry order: the oldest lease
stands first, and expiring costs the leases that expire and no scan.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from pubsub.endpoint import Address

Key = TypeVar("Key", bound=Hashable)


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
    """topic -> subscribers, each for `ttl_s` seconds unless renewed; at most `capacity` leases in all."""

    def __init__(self, ttl_s: float, capacity: int) -> None:
        self._leases: ExpiringSet[tuple[bytes, Address]] = ExpiringSet(ttl_s, capacity)
        self._topics: dict[bytes, _Audience] = {}

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def ttl_s(self) -> float:
        """How long a lease lives from now, in seconds."""
        return self._leases.ttl_s

    @property
    def topic_count(self) -> int:
        """How many topics have a lease on them."""
        return len(self._topics)

    def renew(self, topic: bytes, address: Address, now: float) -> bool:
        """Opens or renews a lease; False where it would be new and the table is full."""
        if not self._leases.renew((topic, address), now):
            return False
        audience = self._topics.get(topic)
        if audience is None:
            audience = self._topics[topic] = _Audience()
        if audience.expires_at.get(address, now) <= now:
            # New, or lapsed and not forgotten yet: it is not in the ready list.
            audience.live_until = 0.0
        audience.expires_at[address] = now + self._leases.ttl_s
        return True

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

    def expire(self, now: float) -> int:
        """Forgets the leases whose time has come; how many they were."""
        expired = self._leases.pop_expired(now)
        for topic, address in expired:
            audience = self._topics[topic]
            del audience.expires_at[address]
            audience.live_until = 0.0
            if not audience.expires_at:
                # An empty topic goes at once, or naming topics would be a way to fill the memory.
                del self._topics[topic]
        return len(expired)

    def next_expiry(self) -> float | None:
        """When the first lease ends, on the clock of `now`; None while there is none."""
        return self._leases.next_expiry()
