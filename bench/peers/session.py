"""What a server is loaded through: its publisher, its subscribers, and what has arrived at these."""

import select
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from bench.peers.workloads import LAST, SAMPLED, STAMP_DIGITS, Ring

READY_S = 10.0
NAP_S = 0.0001  # between looks at what has arrived
EVENTS_MAX = 128  # in a turn: half a millisecond
BUFFER_BYTES = 4 * 1024 * 1024  # of sockets, where the system allows that


class Failed(Exception):
    """A server does not do what is asked of it; the message says what it said."""


class Poller:
    """Waits for what arrives, to within some 50 microseconds; `epoll.poll` has whole milliseconds.

    Open it before all sockets: `select` takes only low descriptors. What has a poller `aside` comes first in
    each turn. Else it would wait behind all that has arrived, where much has, as if the server had been slow.
    """

    def __init__(self, aside: "Poller | None" = None) -> None:
        self.aside = aside
        self._epoll = select.epoll()
        self._awaited = (self._epoll,) if aside is None else (self._epoll, aside._epoll)
        self._takers: dict[int, Callable[[], None]] = {}

    def add(self, descriptor: int, take: Callable[[], None]) -> None:
        """Has `take` called whenever there is something to read."""
        self._takers[descriptor] = take
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Ends that, before the descriptor is closed."""
        self._epoll.unregister(descriptor)
        del self._takers[descriptor]

    def turn(self, wait_s: float) -> bool:
        """Takes what has arrived, or what arrives within this time; whether there was something.

        If there is time, it naps after that. Else it would wake up for each copy while a server sends them to
        one subscriber after the other, and cost more than the server.
        """
        until_s = time.monotonic() + wait_s
        count = self._take()
        if not count and wait_s > 0:
            select.select(self._awaited, (), (), wait_s)
            count = self._take()
        if 0 < count < EVENTS_MAX and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(NAP_S, left_s))
        return count > 0

    def _take(self) -> int:
        """Takes what has arrived, or a part of it; returns from how many."""
        count = 0 if self.aside is None else self.aside._take()
        events = self._epoll.poll(0, EVENTS_MAX)
        takers = self._takers
        for descriptor, _ in events:
            if descriptor in takers:
                takers[descriptor]()
        return count + len(events)

    def close(self) -> None:
        """Closes it, and what it has aside."""
        self._epoll.close()
        if self.aside is not None:
            self.aside.close()


class Arrivals:
    """What has arrived at a session's subscribers. Latencies are in microseconds, of sampled messages."""

    def __init__(self) -> None:
        self.copies = 0
        self.latencies_us = array("q")
        self.epoch_s = time.monotonic()
        self.buffer = bytearray(256 * 1024)
        self.view = memoryview(self.buffer)

    def read_times(self, size_bytes: int) -> int:
        """Reads the times in the buffer's first bytes; returns where one is cut off at the end, or -1."""
        buffer = self.buffer
        at = buffer.find(SAMPLED, 0, size_bytes)
        if at < 0:
            return -1
        now_us = int((time.monotonic() - self.epoch_s) * 1e6)
        while at >= 0:
            end = at + 1 + STAMP_DIGITS
            if end > size_bytes:
                return at
            self.latencies_us.append(now_us - int(buffer[at + 1 : end], 16))
            at = buffer.find(SAMPLED, end, size_bytes)
        return -1

    def count_marks(self, size_bytes: int) -> None:
        """Counts the copies in the buffer's first bytes by their last byte."""
        self.copies += self.buffer.count(LAST, 0, size_bytes)


class Session(ABC):
    """A publisher and all subscribers of a workload, ready. Messages are numbered from 0 on."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.arrivals = Arrivals()
        self.position = 0  # messages that have left, or that will never
        self.broken = ""  # why the session is of no use any more

    @abstractmethod
    def send(self, until: int, due_us: Callable[[int], int]) -> None:
        """Sends messages up to `until`, as far as one or a few calls go; `position` tells how far."""

    @abstractmethod
    def settle(self) -> bool:
        """Completes what has been begun; whether there is no more to complete."""


class Opener(Protocol):
    """Opens a session with a server; what it opens, the stack closes."""

    def __call__(self, stack: ExitStack, poller: Poller) -> Session: ...
