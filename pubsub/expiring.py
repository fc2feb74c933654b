"""A set whose keys leave some time after they were renewed last. Sans-IO.

Every key lives equally long from its last renewal, so keys leave in the order of renewal: the oldest stands
first, and no scan is needed.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from math import inf
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class ExpiringSet(Generic[Key]):
    """A set of at most `capacity` keys, each of which leaves `ttl_s` after its last renewal."""

    def __init__(self, ttl_s: float, capacity: float = inf) -> None:
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

    def has(self, key: Key, now: float) -> bool:
        """Whether the key is in the set, and has not expired."""
        return self._expires_at.get(key, now) > now

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

    def pop_expired(self, now: float, count_max: float = inf) -> list[Key]:
        """Removes and returns keys that have expired, the oldest first, `count_max` of them at most."""
        expired: list[Key] = []
        while self._expires_at and len(expired) < count_max:
            key, expires_at = next(iter(self._expires_at.items()))
            if expires_at > now:
                break
            del self._expires_at[key]
            expired.append(key)
        return expired

    def is_over(self, now: float) -> bool:
        """Whether all keys have expired."""
        last = next(reversed(self._expires_at.values()), None)
        return last is None or last <= now

    def next_expiry(self) -> float | None:
        """Returns when the first key leaves, on the clock of `now`; None if the set is empty."""
        return next(iter(self._expires_at.values()), None)
