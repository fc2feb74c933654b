"""Paths to put between a client's socket and its core: one that only looks, a rough one, and one to
servers that are far away."""

import heapq
from random import Random

from kcast.pubsub.endpoint import Burst, Endpoint, Transmit


class Through:
    """Lets everything through, and keeps what it saw."""

    def __init__(self, core: Endpoint) -> None:
        self.core = core
        self.received: list[Burst] = []
        self.sent: list[Transmit] = []

    def receive(self, burst: Burst, now: float) -> None:
        self.received.append(burst)
        self.core.receive(burst, now)

    def handle_timeout(self, now: float) -> None:
        self.core.handle_timeout(now)

    def next_timeout(self) -> float | None:
        return self.core.next_timeout()

    def flush(self, now: float) -> list[Transmit]:
        transmits = self.core.flush(now)
        self.sent += transmits
        return transmits


class Rough(Through):
    """Holds back what passes for `delay_s` each way, or up to that where it `jitters`; loses some of it, and
    doubles some."""

    def __init__(
        self,
        core: Endpoint,
        rng: Random,
        *,
        delay_s: float = 0.0,
        jitters: bool = False,
        loss: float = 0.0,
        duplicate: float = 0.0,
    ) -> None:
        super().__init__(core)
        self.lost = self.doubled = 0
        self._rng = rng
        self._delay_s = delay_s
        self._jitters = jitters
        self._loss = loss
        self._duplicate = duplicate
        self._arriving: list[tuple[float, int, Burst]] = []
        self._leaving: list[tuple[float, int, Transmit]] = []
        self._count = 0

    @property
    def held(self) -> int:
        return len(self._arriving) + len(self._leaving)

    def receive(self, burst: Burst, now: float) -> None:
        for at, number in self._passes(now):
            heapq.heappush(self._arriving, (at, number, burst))

    def handle_timeout(self, now: float) -> None:
        while self._arriving and self._arriving[0][0] <= now:
            super().receive(heapq.heappop(self._arriving)[2], now)
        super().handle_timeout(now)

    def next_timeout(self) -> float | None:
        times = [heap[0][0] for heap in (self._arriving, self._leaving) if heap]
        return min([*times, *filter(None, [super().next_timeout()])], default=None)

    def flush(self, now: float) -> list[Transmit]:
        for transmit in super().flush(now):
            for at, number in self._passes(now):
                heapq.heappush(self._leaving, (at, number, transmit))
        due = []
        while self._leaving and self._leaving[0][0] <= now:
            due.append(heapq.heappop(self._leaving)[2])
        return due

    def _passes(self, now: float) -> list[tuple[float, int]]:
        """When a thing that comes now goes on: once, twice or never."""
        passes = []
        if self._rng.random() < self._loss:
            self.lost += 1
        else:
            is_double = self._rng.random() < self._duplicate
            self.doubled += is_double
            for _ in range(1 + is_double):
                self._count += 1
                delay_s = self._delay_s * (self._rng.random() if self._jitters else 1.0)
                passes.append((now + delay_s, self._count))
        return passes


class Far(Rough):
    """Holds back what arrives for `delay_s`, and nothing that leaves."""

    def flush(self, now: float) -> list[Transmit]:
        return Through.flush(self, now)
