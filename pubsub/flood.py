"""Notices that more arrives than a server can take, and lets the kernel drop a part of the strangers' share.

The sign is the receive buffer: what waits in it is late, and when it is full, datagrams are lost, whoever
sent them. While more than an eighth of it is in use, `kcast.pubsub.sieve` closes step by step; afterwards it
opens step by step, which shows whether the flood is over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Protocol

from kcast.pubsub.endpoint import Address
from kcast.pubsub.sieve import SOURCES_MAX, Kind, Sieve

PRESSURE_SHARE = 1 / 8
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

    def known_sources(self) -> Iterable[Address]:
        """Sources that have shown a cookie, the latest first."""


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
        self._ports = ports
        self._sieve = Sieve(random, passes_loopback=passes_loopback)
        self._tell = tell
        self._seen: dict[Kind, int] = {}
        self._pressed_at = self._opened_at = self._known_at = self._told_at = float("-inf")
        self._is_able = True

    @property
    def is_active(self) -> bool:
        """Whether a filter is set. If so, `look` is to be called now and then."""
        return not self._sieve.is_open

    def look(self, now: float) -> None:
        """Closes or opens the sieve by a step, if it is time. Call it when much arrives, and while active."""
        if not self._is_able or now < self._pressed_at + STEP_S:
            return
        if any(port.waiting_share > PRESSURE_SHARE for port in self._ports):
            self._pressed_at = now
            self._sieve.press(self._arrived())
            self._know(now)
            if now >= self._told_at + TELLING_S:
                self._told_at = now
                self._tell("flooded by strangers: the kernel drops a part of what they send")
        elif self.is_active and now >= max(self._pressed_at, self._opened_at) + OPENING_STEP_S:
            self._opened_at = now
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
            self._sieve.know(islice(self._core.known_sources(), SOURCES_MAX))

    def _arrived(self) -> dict[Kind, int]:
        """Returns how many datagrams of strangers have arrived since the last step."""
        before, self._seen = self._seen, dict(self._core.strangers)
        return {kind: count - before.get(kind, 0) for kind, count in self._seen.items()}
