"""The leases that a client wants at one server: when each is to be asked for, and when it ends. Sans-IO.

Times are kept in two heaps whose entries are never removed when a time changes: an entry counts only if it
still says what the lease says.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class _Lease:
    due_at: float  # when to ask for it; infinite while asked
    asked_at: float = -inf
    expires_at: float = -inf
    looked_at: float = inf  # when expiry is looked at next: one entry a lease, however often it is renewed
    is_live: bool = False


class Leases:
    """Topics (wire form) wanted at one server."""

    def __init__(self) -> None:
        self._leases: dict[bytes, _Lease] = {}
        self._due: list[tuple[float, bytes]] = []
        self._expiring: list[tuple[float, bytes]] = []
        self._void_at = -inf

    def want(self, topic: bytes, now: float) -> None:
        """Wants a lease from now on."""
        if topic not in self._leases:
            self._leases[topic] = _Lease(due_at=now)
            heapq.heappush(self._due, (now, topic))

    def unwant(self, topic: bytes) -> None:
        """Wants it no longer: it runs out."""
        self._leases.pop(topic, None)

    def is_live(self, topic: bytes) -> bool:
        """Whether the server has promised copies of this topic for now."""
        lease = self._leases.get(topic)
        return lease is not None and lease.is_live

    def next_due(self) -> float | None:
        """When the first lease is to be asked for; perhaps earlier than needed, never later."""
        return self._due[0][0] if self._due else None

    def next_expiry(self) -> float | None:
        """When the first lease ends; perhaps earlier than it does, never later."""
        return self._expiring[0][0] if self._expiring else None

    def is_due(self, now: float) -> bool:
        """Whether any lease is to be asked for now."""
        while self._due and self._due[0][0] <= now:
            if self._is_current(*self._due[0]):
                return True
            heapq.heappop(self._due)
        return False

    def take_due(self, until: float, count_max: int, size_bytes_max: int) -> list[bytes]:
        """Topics due by `until`, as many as fit with their LF; they are not due again until `ask_again`."""
        topics: list[bytes] = []
        size_bytes = 0
        while self._due and self._due[0][0] <= until and len(topics) < count_max:
            due_at, topic = self._due[0]
            if self._is_current(due_at, topic):
                size_bytes += len(topic) + 1
                if size_bytes > size_bytes_max:
                    break
                self._leases[topic].due_at = inf
                topics.append(topic)
            heapq.heappop(self._due)
        return topics

    def ask_again(self, topics: Iterable[bytes], at: float) -> None:
        """Makes these topics due at a new time."""
        for topic in topics:
            lease = self._leases.get(topic)
            if lease is not None:
                lease.due_at = at
                heapq.heappush(self._due, (at, topic))

    def ask_for_all(self, now: float) -> None:
        """Makes all leases due now, whether they stand or not."""
        self.ask_again(self._leases, now)

    def grant(self, topic: bytes, asked_at: float, expires_at: float, renew_at: float) -> bool:
        """The server has promised it; whether it did not stand before. A late answer to an older question
        than the one last answered, or one asked before all were void, changes nothing."""
        lease = self._leases.get(topic)
        if lease is None or asked_at < max(lease.asked_at, self._void_at):
            return False
        lease.asked_at, lease.expires_at = asked_at, expires_at
        self._look_at_expiry(topic, lease)
        self.ask_again((topic,), renew_at)
        was_live, lease.is_live = lease.is_live, True
        return not was_live

    def expire(self, now: float) -> list[bytes]:
        """The topics whose leases have ended by now."""
        ended = []
        while self._expiring and self._expiring[0][0] <= now:
            looked_at, topic = heapq.heappop(self._expiring)
            lease = self._leases.get(topic)
            if lease is None or lease.looked_at != looked_at:
                continue
            lease.looked_at = inf
            if lease.expires_at > now:
                self._look_at_expiry(topic, lease)
            elif lease.is_live:
                lease.is_live = False
                ended.append(topic)
        return ended

    def void(self, now: float) -> list[bytes]:
        """The server knows none of them any more; the topics whose leases stood."""
        self._void_at = now
        live = [topic for topic, lease in self._leases.items() if lease.is_live]
        for topic in live:
            self._leases[topic].is_live = False
        return live

    def _look_at_expiry(self, topic: bytes, lease: _Lease) -> None:
        if lease.expires_at < lease.looked_at:
            lease.looked_at = lease.expires_at
            heapq.heappush(self._expiring, (lease.expires_at, topic))

    def _is_current(self, due_at: float, topic: bytes) -> bool:
        lease = self._leases.get(topic)
        return lease is not None and lease.due_at == due_at
