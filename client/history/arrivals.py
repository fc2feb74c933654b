"""When an entry that has come counts: after its parents. Sans-IO. PROTOCOL §9.12.

| state | sign | next state |
|---|---|---|
| unknown | comes, and each parent above the floors counts, or was refused | counts |
| unknown | comes, and one does not | waits |
| waits | its last missing parent counts, was refused, or is below a floor that has risen | counts |
| waits | 0.5 s, and what is missing is below the floors of all others that were heard | counts |
| waits | 0.5 s | waits; what is missing is asked for |
| waits | 10 s | counts, as an orphan |
| waits | there are too many, and it has the largest id | unknown: it comes again with the next sync |
| waits | the floor has risen above it | unknown |

Only what counts is stored, told and sent to others.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from kcast.client.history.entries import Row
from kcast.client.history.index import LOWEST

ASK_S = 0.5
GIVE_UP_S = 10.0
WAITING_MAX = 1024
WAITING_BYTES_MAX = 1024 * 1024
REFUSED_MAX = 1024


class _Waiting(NamedTuple):
    row: Row
    missing: set[bytes]
    since: float


class Arrivals:
    """The entries that wait for their parents.

    `counts` tells whether an id counts. `take` is called with each row that counts from now on, `lose` with
    each that is forgotten. `next_at` is when `handle_timeout` has something to do.
    """

    def __init__(
        self, counts: Callable[[bytes], bool], take: Callable[[Row], object], lose: Callable[[Row], object]
    ) -> None:
        self.next_at = inf
        self._counts, self._take, self._lose = counts, take, lose
        self._floor = LOWEST
        self.waiting: dict[bytes, _Waiting] = {}  # by id, that came first, first
        self._children: dict[bytes, set[bytes]] = {}  # of missing parents
        self.refused = deque[bytes](maxlen=REFUSED_MAX)
        self._bytes = 0
        self._looked_at = -inf

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, entry_id: bytes) -> bool:
        return entry_id in self.waiting

    def come(self, row: Row, now: float) -> None:
        """Takes an entry that neither counts nor waits."""
        missing = {each for each in row.parents if each >= self._floor and not self._counts(each)}
        missing = {each for each in missing if each not in self.refused}
        if missing:
            self._wait(_Waiting(row, missing, now))
        else:
            self._count(row)
        self._look_later()

    def _wait(self, waiting: _Waiting) -> None:
        entry_id = waiting.row.entry_id
        self.waiting[entry_id] = waiting
        self._bytes += len(waiting.row.message)
        for parent in waiting.missing:
            self._children.setdefault(parent, set()).add(entry_id)
        while len(self.waiting) > WAITING_MAX or self._bytes > WAITING_BYTES_MAX:
            self._lose(self._forget(max(self.waiting)))

    def refuse(self, entry_id: bytes) -> None:
        """Takes note that an entry has come and is not wanted: nothing waits for it."""
        self.refused.append(entry_id)
        self._release(entry_id)
        self._look_later()

    def rise(self, floor: bytes) -> None:
        """Takes note that no entry below a bound is to be had, or wanted, any more."""
        if floor <= self._floor:
            return
        self._floor = floor
        for entry_id in [each for each in self.waiting if each < floor]:
            self._lose(self._forget(entry_id))
        for parent in [each for each in self._children if each < floor]:
            self._release(parent)
        self._look_later()

    def handle_timeout(self, now: float, lowest: bytes = LOWEST) -> list[tuple[bytes, bytes]]:
        """Lets those count that have waited for 10 s, the smallest id first; or for 0.5 s, and only for what
        is below a bound, which nobody has. Returns the first and the last parent that has not come of each
        other one that has waited for 0.5 s, once."""
        late = [each.row.entry_id for each in self.waiting.values() if now >= each.since + GIVE_UP_S]
        for entry_id in sorted(late):
            if entry_id in self.waiting:  # or the one before it was all that it waited for
                self._count(self._forget(entry_id)._replace(is_orphan=True))
        needless, asked = set[bytes](), list[tuple[bytes, bytes]]()
        for each in self.waiting.values():
            if each.since <= now - ASK_S:
                missing = each.missing - self.waiting.keys()
                needless |= {parent for parent in missing if parent < lowest}
                if each.since > self._looked_at - ASK_S and (missing := missing - needless):
                    asked.append((min(missing), max(missing)))
        for parent in sorted(needless):
            self._release(parent)
        self._looked_at = now
        self._look_later()
        return asked

    def _count(self, row: Row) -> None:
        self._take(row)
        self._release(row.entry_id)

    def _release(self, parent: bytes) -> None:
        """Lets those count that waited for a parent alone, and those that waited for them."""
        ready = [parent]
        while ready:
            counted = ready.pop()
            for child in sorted(self._children.pop(counted, ())):
                waiting = self.waiting[child]
                waiting.missing.discard(counted)
                if not waiting.missing:
                    self._take(self._forget(child))
                    ready.append(child)

    def _forget(self, entry_id: bytes) -> Row:
        waiting = self.waiting.pop(entry_id)
        self._bytes -= len(waiting.row.message)
        for parent in waiting.missing:
            children = self._children[parent]
            children.discard(entry_id)
            if not children:
                del self._children[parent]
        return waiting.row

    def _look_later(self) -> None:
        oldest = next(iter(self.waiting.values()), None)
        self.next_at = inf if oldest is None else max(oldest.since, self._looked_at) + ASK_S
