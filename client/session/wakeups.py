"""When which session has something to do. Sans-IO."""

import heapq
from collections.abc import Iterator
from math import inf

from kcast.client.session.session import Session


class Wakeups:
    """A heap of times, one for each session. A session may be woken too early, and never is too late.

    `next_at` is when the first one is due; infinite where none is.
    """

    def __init__(self) -> None:
        self.next_at = inf
        self._heap: list[tuple[float, int, Session]] = []
        self._at: dict[Session, float] = {}
        self._count = 0  # so that sessions need no order

    def put(self, session: Session, at: float) -> None:
        """Wakes a session at this time, unless it is woken before."""
        if at < self._at.get(session, inf):
            self._at[session] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, session))
            self.next_at = self._heap[0][0]

    def take_due(self, now: float) -> Iterator[Session]:
        """Yields the sessions whose time has come."""
        while self.next_at <= now:
            at, _, session = heapq.heappop(self._heap)
            self.next_at = self._heap[0][0] if self._heap else inf
            if self._at.get(session) == at:
                del self._at[session]
                yield session
