"""The leases that a client wants at one server: when each is to be asked for, and when it ends. Sans-IO.

A lease is *live* while the server's promise stands. Otherwise it is *new*. A new one may have a price
(PROTOCOL §5.11), so the two kinds are asked for apart. Times are kept in heaps, and entries stay there when a
time changes: an entry counts only if it still agrees with its lease.
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
    check_at: float = inf  # when `expire` looks at it next; renewals add no entry to the heap
    is_live: bool = False


class Leases:
    """The topics (wire form) wanted at one server."""

    def __init__(self) -> None:
        self._leases: dict[bytes, _Lease] = {}
        self._renewals: list[tuple[float, bytes]] = []
        self._new: list[tuple[float, bytes]] = []
        self._expiring: list[tuple[float, bytes]] = []
        self._void_at = -inf
        self._live_count = 0

    def __len__(self) -> int:
        return len(self._leases)

    def want(self, topic: bytes, now: float) -> None:
        """Wants a lease from now on."""
        if topic not in self._leases:
            self._leases[topic] = _Lease(due_at=now)
            heapq.heappush(self._new, (now, topic))

    def unwant(self, topic: bytes) -> None:
        """Lets a lease run out."""
        lease = self._leases.pop(topic, None)
        if lease is not None:
            self._live_count -= lease.is_live

    def is_wanted(self, topic: bytes) -> bool:
        """Whether it is wanted, live or not."""
        return topic in self._leases

    def is_live(self, topic: bytes) -> bool:
        """Whether the server has promised copies of this topic for now."""
        lease = self._leases.get(topic)
        return lease is not None and lease.is_live

    @property
    def has_new(self) -> bool:
        """Whether any is wanted that is not live."""
        return len(self._leases) > self._live_count

    def next_due(self, *, renewals: bool = True, new: bool = True) -> float | None:
        """Returns when the first lease of these kinds is due (perhaps too early, never too late), or None."""
        heaps = (self._renewals if renewals else (), self._new if new else ())
        heads = [heap[0][0] for heap in heaps if heap]
        return min(heads, default=None)

    def next_expiry(self) -> float | None:
        """Returns when the first lease ends (perhaps too early, never too late), or None."""
        return self._expiring[0][0] if self._expiring else None

    def is_due(self, now: float, *, renewals: bool = True, new: bool = True) -> bool:
        """Returns whether any lease of these kinds is to be asked for now."""
        return (renewals and self._is_any_due(now, True)) or (new and self._is_any_due(now, False))

    def take_due(
        self, until: float, count_max: int, size_bytes_max: int, *, renewals: bool = True, new: bool = True
    ) -> list[bytes]:
        """Returns topics due by `until`, as many as fit with their LF, beginning with those due for longest.

        They are not due again until `ask_again`.
        """
        topics: list[bytes] = []
        size_bytes = 0
        kinds = [True] * renewals + [False] * new  # the values of `is_live` that are asked for
        while len(topics) < count_max:
            # Renewals do not go first: where there are many, new leases would never have a turn.
            heads = [(self._heap(is_live)[0], is_live) for is_live in kinds if self._heap(is_live)]
            if not heads:
                break
            (due_at, topic), is_live = min(heads)
            if due_at > until:
                break
            if self._is_current(due_at, topic, is_live):
                size_bytes += len(topic) + 1
                if size_bytes > size_bytes_max:
                    break
                self._leases[topic].due_at = inf
                topics.append(topic)
            heapq.heappop(self._heap(is_live))
        return topics

    def ask_again(self, topics: Iterable[bytes], at: float) -> None:
        """Makes these topics due at a new time; `inf` is never."""
        for topic in topics:
            lease = self._leases.get(topic)
            if lease is not None:
                lease.due_at = at
                if at < inf:
                    heapq.heappush(self._heap(lease.is_live), (at, topic))

    def ask_for_all(self, now: float) -> None:
        """Makes all leases due now, live or not."""
        self.ask_again(self._leases, now)

    def renew_all(self, now: float) -> None:
        """Makes all leases due now, except those that are being asked for or paid for."""
        self.ask_again([topic for topic, lease in self._leases.items() if lease.due_at < inf], now)

    def grant(self, topic: bytes, asked_at: float, expires_at: float, renew_at: float) -> bool:
        """Takes the server's promise; returns whether the lease did not stand before.

        An answer changes nothing if a later request was answered before it, or if its request was sent before
        the last `void`.
        """
        lease = self._leases.get(topic)
        if lease is None or asked_at < max(lease.asked_at, self._void_at):
            return False
        lease.asked_at, lease.expires_at = asked_at, expires_at
        self._check_at_expiry(topic, lease)
        was_live = lease.is_live
        self._set_live(topic, lease, True)
        self.ask_again((topic,), renew_at)
        return not was_live

    def deny(self, topic: bytes, asked_at: float, again_at: float) -> bool:
        """Takes the server's word that the lease does not stand; returns whether it did, as far as we knew.

        It is due again at `again_at`. Late answers change nothing, as in `grant`.
        """
        lease = self._leases.get(topic)
        if lease is None or asked_at < max(lease.asked_at, self._void_at):
            return False
        lease.asked_at = asked_at
        was_live = lease.is_live
        self._set_live(topic, lease, False)
        self.ask_again((topic,), again_at)
        return was_live

    def expire(self, now: float) -> list[bytes]:
        """Ends leases whose time is over; returns their topics."""
        ended = []
        while self._expiring and self._expiring[0][0] <= now:
            check_at, topic = heapq.heappop(self._expiring)
            lease = self._leases.get(topic)
            if lease is None or lease.check_at != check_at:
                continue
            lease.check_at = inf
            if lease.expires_at > now:
                self._check_at_expiry(topic, lease)
            elif lease.is_live:
                self._set_live(topic, lease, False)
                ended.append(topic)
        return ended

    def void(self, now: float) -> list[bytes]:
        """Ends all leases, since the server knows none of them any more; returns the topics of live ones."""
        self._void_at = now
        live = [topic for topic, lease in self._leases.items() if lease.is_live]
        for topic in live:
            self._set_live(topic, self._leases[topic], False)
        return live

    def _check_at_expiry(self, topic: bytes, lease: _Lease) -> None:
        if lease.expires_at < lease.check_at:
            lease.check_at = lease.expires_at
            heapq.heappush(self._expiring, (lease.expires_at, topic))

    def _set_live(self, topic: bytes, lease: _Lease, is_live: bool) -> None:
        if lease.is_live != is_live:
            lease.is_live = is_live
            self._live_count += 1 if is_live else -1
            if lease.due_at < inf:
                heapq.heappush(self._heap(is_live), (lease.due_at, topic))

    def _heap(self, is_live: bool) -> list[tuple[float, bytes]]:
        return self._renewals if is_live else self._new

    def _is_any_due(self, now: float, is_live: bool) -> bool:
        due = self._heap(is_live)
        while due and due[0][0] <= now:
            if self._is_current(*due[0], is_live):
                return True
            heapq.heappop(due)
        return False

    def _is_current(self, due_at: float, topic: bytes, is_live: bool) -> bool:
        lease = self._leases.get(topic)
        return lease is not None and lease.due_at == due_at and lease.is_live == is_live
