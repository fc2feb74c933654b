"""Notices that more arrives than a server can take, and lets the kernel drop a part of the strangers' share.

The sign is the receive buffer: what waits in it is late, and when it is full, datagrams are lost, whoever
sent them. While more than an eighth of it is in use, `kcast.pubsub.sieve` closes step by step; afterwards it
opens step by step, which shows whether the flood is over. If the buffer fills all the same, some of those
who are known flood: `kcast.pubsub.heavy` tells who.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Protocol

from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.heavy import Heavy
from kcast.pubsub.networks import Networks
from kcast.pubsub.sieve import SOURCES_MAX, Kind, Sieve

PRESSURE_SHARE = 1 / 8
OVERFLOW_SHARE = 1 / 2
HARD_STEPS = 5  # at once when somebody is found who floods: the buffer is full of that
STEP_S = 0.01  # between steps of closing: as long as it takes to see what the last one did
OPENING_STEP_S = 0.25  # and of opening, after so long without pressure
KNOWING_S = 1.0  # between looks at who is known
TELLING_S = 60.0


class Port(Protocol):
    """A socket as this module sees it."""

    @property
    def waiting_share(self) -> float:
        """How full its receive buffer is."""

    def sift(self, program: bytes | None) -> bool:
        """Sets or removes a filter."""


class Guarded(Protocol):
    """A server core as this module sees it."""

    @property
    def strangers(self) -> Mapping[Kind, int]:
        """Counts datagrams of strangers."""

    def known_sources(self, random: Random) -> Iterable[Address]:
        """Sources that have shown a cookie, beginning at any place."""


def _nobody(_: str) -> None:
    pass


class FloodGuard:
    """Sets filters on `ports`. `tell` is told in a sentence that a flood began, once a minute at most."""

    def __init__(
        self,
        core: Guarded,
        ports: Sequence[Port],
        random: Random,
        *,
        passes_loopback: bool = True,
        tell: Callable[[str], None] = _nobody,
    ) -> None:
        self._core = core
        self._random = random
        self._ports = ports
        self._sieve = Sieve(random, passes_loopback=passes_loopback)
        self._heavy = Heavy(Networks(exempts_loopback=passes_loopback))
        self._tell = tell
        self._seen: dict[Kind, int] = {}
        self._pressed_at = self._opened_at = self._known_at = self._told_at = float("-inf")
        self._is_able = True

    @property
    def is_active(self) -> bool:
        """Whether a filter is set. If so, `look` is to be called now and then."""
        return not self._sieve.is_open

    def saw(self, bursts: Iterable[Burst]) -> None:
        """Takes note of what has arrived."""
        if self._heavy:
            self._heavy.saw(bursts)

    def look(self, now: float) -> None:
        """Closes or opens the sieve by a step, if it is time. Call it when much arrives, and while active."""
        if not self._is_able or now < self._pressed_at + STEP_S:
            return
        waiting_share = max((port.waiting_share for port in self._ports), default=0.0)
        if waiting_share > PRESSURE_SHARE:
            self._pressed_at = now
            is_overflowing = waiting_share > OVERFLOW_SHARE
            arrived = self._arrived()
            is_found = is_overflowing and self._heavy.demote(sum(arrived.values()), now)
            self._heavy.is_watching = is_overflowing
            if is_found:
                arrived = self._heavy.arrived()
            for _ in range(HARD_STEPS if is_found else 1):
                self._sieve.press(arrived)
            if is_found:
                self._known_at = float("-inf")
            self._know(now)
            if now >= self._told_at + TELLING_S:
                self._told_at = now
                self._tell("flooded: the kernel drops a part of what strangers send, and who floods")
        elif self.is_active and now >= max(self._pressed_at, self._opened_at) + OPENING_STEP_S:
            self._opened_at = now
            self._heavy.is_watching = False
            self._arrived()
            self._sieve.relax()
            self._know(now)
        else:
            return
        program = None if self._sieve.is_open else self._sieve.program()
        for port in self._ports:
            self._is_able &= port.sift(program)

    def _know(self, now: float) -> None:
        if now >= self._known_at + KNOWING_S:
            self._known_at = now
            known = islice(self._core.known_sources(self._random), SOURCES_MAX)
            self._sieve.know(self._heavy.know(known, now))

    def _arrived(self) -> Mapping[Kind, int]:
        """Returns how many datagrams of strangers, and of those demoted, have arrived since the last step."""
        before, self._seen = self._seen, dict(self._core.strangers)
        demoted = self._heavy.arrived()
        return {kind: self._seen.get(kind, 0) - before.get(kind, 0) + demoted.get(kind, 0) for kind in Kind}
