"""What subscribers should receive, and what of it they have missed. Pure logic; times are ns after t0.

`Expectations`, one a process, knows all publishers' windows, and so, with the schedule, all messages. It cuts
time into slots that all subscribers share. A subscriber's `Received` keeps the messages that have come. When
the last deadline of a slot has passed, each of its messages on the subscriber's topics is either there, or
missed. So a slot costs a few microseconds per subscriber, and a message a fraction of one.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.users.roster import OPEN, Window
from kcast.loadtest.users.schedule import Schedule

SLOT_NS = 100_000_000
AHEAD_NS = 10_000_000_000  # how far ahead intended times are looked up; the loop may be late by as much

_SEQ_BITS = 32  # as in `scenario.message_id`


class Slot(NamedTuple):
    """All messages with intended times from `from_ns` up to, not including, `to_ns`."""

    from_ns: int
    to_ns: int
    msg_id: NDArray[np.int64]
    t_ns: NDArray[np.int64]
    topic_id: NDArray[np.int32]


class Expectations:
    """The windows of all publishers, and the messages that follow from them."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._windows: dict[int, dict[int, Window]] = {}  # by publisher and beginning
        self._intended: dict[int, int] = {}
        self._looked_up: deque[tuple[int, list[int]]] = deque()  # the end of a look-up, and its messages
        self._looked_to_ns = 0
        self._forgotten_ns = 0

    def update(self, windows: Iterable[Window]) -> None:
        """Adds windows, or changes the ends of known ones."""
        for window in windows:
            known = self._windows.setdefault(window.pub_id, {})
            if not known:  # earlier look-ups of the present did not include this publisher
                from_ns = max(window.from_ns, self._forgotten_ns)
                self._look_up(window.pub_id, from_ns, self._looked_to_ns)
            known[window.from_ns] = window

    def window_of(self, pub_id: int) -> Window | None:
        """Returns the last window of a publisher; None if it has had none."""
        windows = self._windows.get(pub_id)
        return windows[max(windows)] if windows else None

    def intended_ns(self, msg_id: int) -> int | None:
        """Returns when a message is to be published; None if no message with this id is due about now."""
        return self._intended.get(msg_id)

    def look_ahead(self, now_ns: int, forget_ns: int) -> None:
        """Looks up the messages of the next seconds, and forgets those before `forget_ns`."""
        self._forgotten_ns = max(self._forgotten_ns, forget_ns)
        from_ns = max(self._looked_to_ns, forget_ns)
        to_ns = now_ns + AHEAD_NS
        if to_ns > from_ns:
            for pub_id in self._windows:
                self._look_up(pub_id, from_ns, to_ns)
            self._looked_to_ns = to_ns
        while self._looked_up and self._looked_up[0][0] <= forget_ns:
            for msg_id in self._looked_up.popleft()[1]:
                self._intended.pop(msg_id, None)

    def _look_up(self, pub_id: int, from_ns: int, to_ns: int) -> None:
        part = self._schedule.messages(pub_id, from_ns, to_ns)
        numbers = (part.seq | (pub_id << _SEQ_BITS)).tolist()
        self._intended.update(zip(numbers, part.t_ns.tolist(), strict=True))
        self._looked_up.append((to_ns, numbers))

    def slot(self, from_ns: int, to_ns: int) -> Slot:
        """Returns the messages between these times, by the windows as they are known now."""
        ids, times, topics = [], [], []
        for pub_id, windows in self._windows.items():
            for window in windows.values():
                start, stop = max(from_ns, window.from_ns), min(to_ns, window.to_ns)
                if start < stop:
                    part = self._schedule.messages(pub_id, start, stop)
                    ids.append(part.seq | (pub_id << _SEQ_BITS))
                    times.append(part.t_ns)
                    topics.append(part.topic_id)
        if not ids:
            empty = np.empty(0, np.int64)
            return Slot(from_ns, to_ns, empty, empty, np.empty(0, np.int32))
        return Slot(from_ns, to_ns, np.concatenate(ids), np.concatenate(times), np.concatenate(topics))


class Received:
    """The messages that one subscriber to `topics` has received, of those intended from `from_ns` to `to_ns`.

    Everything intended before `settled_ns` is known to be received or missed.
    """

    def __init__(self, topics: Iterable[int], topic_count: int, from_ns: int, to_ns: int = OPEN) -> None:
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.settled_ns = from_ns
        self._wants = np.zeros(topic_count, np.bool_)
        self._wants[list(topics)] = True
        self._msg_ids: set[int] = set()

    def add(self, msg_id: int, t_ns: int) -> bool:
        """Notes a message that was intended for `t_ns`. False if it is a duplicate, or out of time."""
        if not self.settled_ns <= t_ns < self.to_ns or msg_id in self._msg_ids:
            return False
        self._msg_ids.add(msg_id)
        return True

    def settle(self, slot: Slot) -> list[int]:
        """Returns the missed messages of a slot. Call it after the slot's deadlines, slot after slot."""
        self.settled_ns = max(self.from_ns, min(slot.to_ns, self.to_ns))
        if slot.to_ns <= self.from_ns or slot.from_ns >= self.to_ns:
            return []
        wanted = self._wants[slot.topic_id]
        if slot.from_ns < self.from_ns or slot.to_ns > self.to_ns:
            wanted &= (slot.t_ns >= self.from_ns) & (slot.t_ns < self.to_ns)
        numbers = slot.msg_id[wanted].tolist()
        missed = [msg_id for msg_id in numbers if msg_id not in self._msg_ids]
        self._msg_ids.difference_update(numbers)
        return missed
