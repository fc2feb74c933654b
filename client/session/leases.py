"""The leases that a client wants at one server: when each is to be asked for, and when it ends. Sans-IO.

A lease is *live* while the server's promise stands. Otherwise it is *new*. A new one may have a price
(PROTOCOL §5.11). So may the renewal of a live one, but not of the first few that the server has granted
(§7.9). So these kinds are asked for apart. Where the renewals have a price, those that were granted last may
have to run out (`keep_at_most`). Times are kept in heaps, and entries stay there when a time
changes: an entry counts only if it still agrees with its lease.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from math import inf

from kcast.pubsub.limits import LEASES_KEPT_FREE


class Sort(IntEnum):
    """Whether a lease is live, and whether its renewal may have a price."""

    NEW = 0
    FIRST = 1  # one of the first that were granted, of those that are live
    MORE = 2  # another that is live
    LATER = 3  # one that is live, granted after those that can be kept: not to be renewed


RENEWALS = (Sort.FIRST, Sort.MORE)
ALL = tuple(Sort)

STALE_MAX = 64  # entries of a heap that count no more, beyond twice as many as there are leases


@dataclass(slots=True)
class _Lease:
    due_at: float  # when to ask for it; infinite while asked
    asked_at: float = -inf
    expires_at: float = -inf
    check_at: float = inf  # when `expire` looks at it next; renewals add no entry to the heap
    sort: Sort = Sort.NEW


class Leases:
    """The topics (wire form) wanted at one server: `size_bytes` in all, with their LF."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._leases: dict[bytes, _Lease] = {}
        self._heaps: list[list[tuple[float, bytes]]] = [[] for _ in ALL]
        self._expiring: list[tuple[float, bytes]] = []
        self._void_at = -inf
        # The live ones in the order in which they were granted.
        self._first: dict[bytes, None] = {}
        self._more: dict[bytes, None] = {}
        self._later: dict[bytes, None] = {}
        self._more_max = inf

    def __len__(self) -> int:
        return len(self._leases)

    def want(self, topic: bytes, now: float) -> None:
        """Wants a lease from now on."""
        if topic not in self._leases:
            self._leases[topic] = _Lease(due_at=now)
            self.size_bytes += len(topic) + 1
            heapq.heappush(self._heaps[Sort.NEW], (now, topic))

    def unwant(self, topic: bytes) -> None:
        """Lets a lease run out."""
        lease = self._leases.get(topic)
        if lease is not None:
            self._set_live(topic, lease, False)
            del self._leases[topic]
            self.size_bytes -= len(topic) + 1
            self._drop_stale()

    def is_wanted(self, topic: bytes) -> bool:
        """Whether it is wanted, live or not."""
        return topic in self._leases

    def is_live(self, topic: bytes) -> bool:
        """Whether the server has promised copies of this topic for now."""
        lease = self._leases.get(topic)
        return lease is not None and lease.sort is not Sort.NEW

    @property
    def has_new(self) -> bool:
        """Whether any is wanted that is not live."""
        return len(self._leases) > self._live_count

    @property
    def room(self) -> float:
        """How many more could be kept, if they were granted."""
        return LEASES_KEPT_FREE + self._more_max - self._live_count

    @property
    def _live_count(self) -> int:
        return len(self._first) + len(self._more) + len(self._later)

    def next_due(self, sorts: Iterable[Sort] = ALL) -> float | None:
        """Returns when the first lease of these sorts is due (perhaps too early, never too late), or None."""
        heaps = self._heaps
        return min([heaps[sort][0][0] for sort in sorts if heaps[sort]], default=None)

    def next_expiry(self) -> float | None:
        """Returns when the first lease ends (perhaps too early, never too late), or None."""
        return self._expiring[0][0] if self._expiring else None

    def is_due(self, now: float, sorts: Iterable[Sort] = ALL) -> bool:
        """Returns whether any lease of these sorts is to be asked for now."""
        due_at = self.next_due(sorts)
        if due_at is not None and due_at <= now:
            due_at = self.first_due(sorts)
        return due_at is not None and due_at <= now

    def first_due(self, sorts: Iterable[Sort]) -> float | None:
        """Returns when the first lease of these sorts is due, or None."""
        return min([heap[0][0] for sort in sorts if (heap := self._current(sort))], default=None)

    def take_due(
        self, until: float, count_max: int, size_bytes_max: int, sorts: Iterable[Sort] = ALL
    ) -> list[bytes]:
        """Returns topics due by `until`, as many as fit with their LF, beginning with those due for longest.

        They are not due again until `ask_again`.
        """
        topics: list[bytes] = []
        size_bytes = 0
        while len(topics) < count_max:
            # Renewals do not go first: where there are many, new leases would never have a turn.
            heaps = [heap for sort in sorts if (heap := self._current(sort))]
            heap = min(heaps, key=lambda heap: heap[0], default=[])
            if not heap or heap[0][0] > until:
                break
            topic = heap[0][1]
            size_bytes += len(topic) + 1
            if size_bytes > size_bytes_max:
                break
            heapq.heappop(heap)
            self._leases[topic].due_at = inf
            topics.append(topic)
        return topics

    def ask_again(self, topics: Iterable[bytes], at: float) -> None:
        """Makes these topics due at a new time; `inf` is never."""
        for topic in topics:
            lease = self._leases.get(topic)
            if lease is not None:
                lease.due_at = at
                if at < inf:
                    heapq.heappush(self._heaps[lease.sort], (at, topic))

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
        was_live = lease.sort is not Sort.NEW
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
        was_live = lease.sort is not Sort.NEW
        self._set_live(topic, lease, False)
        self.ask_again((topic,), again_at)
        return was_live

    def expire(self, now: float) -> list[bytes]:
        """Ends leases whose time is over; returns their topics."""
        ended = []
        while self._expiring and self._expiring[0][0] <= now:
            check_at, topic = heapq.heappop(self._expiring)
            if not self._is_checked_at(check_at, topic):
                continue
            lease = self._leases[topic]
            lease.check_at = inf
            if lease.expires_at > now:
                self._check_at_expiry(topic, lease)
            elif lease.sort is not Sort.NEW:
                self._set_live(topic, lease, False)
                ended.append(topic)
        return ended

    def void(self, now: float) -> list[bytes]:
        """Ends all leases, since the server knows none of them any more; returns the topics of live ones."""
        self._void_at = now
        live = [*self._first, *self._more, *self._later]
        for topic in live:
            self._set_live(topic, self._leases[topic], False)
        return live

    def keep_at_most(self, count: float) -> list[bytes]:
        """Lets all live leases run out but the first ones and `count` more, those granted first; returns
        those."""
        self._more_max = count
        behind = list(self._more)[int(count) :] if count < len(self._more) else []
        for topic in behind:
            del self._more[topic]
            self._set_sort(topic, self._leases[topic], Sort.LATER)
        self._later = dict.fromkeys(behind) | self._later
        self._move_up()
        return behind

    def put_behind(self, topics: Iterable[bytes]) -> None:
        """Takes it that others were granted before these: the server counts in another order."""
        for topic in topics:
            lease = self._leases.get(topic)
            if lease is not None and lease.sort is not Sort.NEW:
                self._set_live(topic, lease, False)
                self._set_live(topic, lease, True)

    def _check_at_expiry(self, topic: bytes, lease: _Lease) -> None:
        if lease.expires_at < lease.check_at:
            lease.check_at = lease.expires_at
            heapq.heappush(self._expiring, (lease.expires_at, topic))

    def _set_live(self, topic: bytes, lease: _Lease, is_live: bool) -> None:
        if is_live == (lease.sort is not Sort.NEW):
            return
        if is_live:
            sort = Sort.LATER
            if len(self._first) < LEASES_KEPT_FREE:
                sort = Sort.FIRST
            elif len(self._more) < self._more_max:
                sort = Sort.MORE
            self._live(sort)[topic] = None
            self._set_sort(topic, lease, sort)
            return
        del self._live(lease.sort)[topic]
        self._set_sort(topic, lease, Sort.NEW)
        self._move_up()

    def _live(self, sort: Sort) -> dict[bytes, None]:
        return {Sort.FIRST: self._first, Sort.MORE: self._more}.get(sort, self._later)

    def _move_up(self) -> None:
        """Fills the places that have become free, with those granted first of the rest."""
        while len(self._first) < LEASES_KEPT_FREE and (rest := self._more or self._later):
            self._move(rest, self._first, Sort.FIRST)
        while len(self._more) < self._more_max and self._later:
            self._move(self._later, self._more, Sort.MORE)

    def _move(self, source: dict[bytes, None], target: dict[bytes, None], sort: Sort) -> None:
        topic = next(iter(source))
        del source[topic]
        target[topic] = None
        self._set_sort(topic, self._leases[topic], sort)

    def _set_sort(self, topic: bytes, lease: _Lease, sort: Sort) -> None:
        lease.sort = sort
        if lease.due_at < inf:
            heapq.heappush(self._heaps[sort], (lease.due_at, topic))

    def _current(self, sort: Sort) -> list[tuple[float, bytes]]:
        """Returns the heap of this sort, beginning with an entry that counts, if there is any."""
        heap = self._heaps[sort]
        while heap and not self._is_due_at(*heap[0], sort):
            heapq.heappop(heap)
        return heap

    def _is_due_at(self, due_at: float, topic: bytes, sort: Sort) -> bool:
        """Whether an entry of this sort's heap counts."""
        lease = self._leases.get(topic)
        return lease is not None and lease.due_at == due_at and lease.sort is sort

    def _is_checked_at(self, check_at: float, topic: bytes) -> bool:
        """Whether an entry of the heap of expiries counts."""
        lease = self._leases.get(topic)
        return lease is not None and lease.check_at == check_at

    def _drop_stale(self) -> None:
        """Drops the entries that count no more of heaps that consist mostly of them.

        Those of topics that were unwanted would stay until they come first: for as long as a lease lasts, and
        for ever at a server that is never asked. At least half of a heap goes, so that this costs a constant
        time for each entry.
        """
        entries_max = 2 * len(self._leases) + STALE_MAX
        for sort, heap in zip(ALL, self._heaps, strict=True):
            if len(heap) > entries_max:
                heap[:] = {entry for entry in heap if self._is_due_at(*entry, sort)}
                heapq.heapify(heap)
        if len(self._expiring) > entries_max:
            self._expiring[:] = {entry for entry in self._expiring if self._is_checked_at(*entry)}
            heapq.heapify(self._expiring)
