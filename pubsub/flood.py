"""Notices that more arrives than a server can take, and lets the kernel drop a part of the strangers' share.

The sign is the receive buffer: what waits in it is late, and when it is full, datagrams are lost, whoever
sent them. While more than an eighth of it is in use, `kcast.pubsub.sieve` closes step by step; afterwards it
opens step by step, which shows whether the flood is over. Once a second, and when somebody is found who
floods, it learns anew who is known: in slices, so that the server receives in between. If the
buffer fills all the same, some of those who are known flood: `kcast.pubsub.heavy` tells who. Where all that
arrives is from others who are known, or from exempt loopback, there is nothing to sift, and no filter is set.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Protocol

from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.heavy import Heavy
from kcast.pubsub.networks import Networks
from kcast.pubsub.sieve import Kind, Sieve

PRESSURE_SHARE = 1 / 8
OVERFLOW_SHARE = 1 / 2
HARD_STEPS = 5  # at once when somebody is found who floods: the buffer is full of that
STEP_S = 0.01  # between steps of closing: as long as it takes to see what the last one did
OPENING_STEP_S = 0.25  # and of opening, after so long without pressure
KNOWING_S = 1.0  # between looks at who is known
SLICE = 512  # known sources that one look deals with: some milliseconds, for IPv6
TELLING_S = 60.0
RETRY_S = 10.0  # after the kernel has refused even the shortest filter

_TOLD = "flooded: the kernel drops a part of what strangers send, and who floods"
_TOLD_REFUSED = (
    "flooded, and the kernel takes no filter, so all that strangers send reaches the server: "
    "net.core.optmem_max may be too small"
)


class Port(Protocol):
    """A socket as this module sees it."""

    @property
    def waiting_share(self) -> float:
        """How full its receive buffer is."""

    def sift(self, program: bytes | None) -> bool:
        """Sets or removes a filter. Returns False if it could not; then no filter is set."""


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
        self._resting_until = float("-inf")
        self._coming: list[Address] | None = None  # known sources that the next filter has not learned yet
        self._is_ready = False  # whether the sieve knows whom to pass
        self._is_crowded = False  # whether there may be more of them than it has room for

    @property
    def is_active(self) -> bool:
        """Whether a filter is set or floods are watched. If so, `look` is to be called now and then."""
        return self._heavy.is_watching or not self._sieve.is_open

    @property
    def is_learning(self) -> bool:
        """Whether a filter is being made. If so, `look` is to be called again as soon as there is time."""
        return self._coming is not None

    def saw(self, bursts: Iterable[Burst], now: float) -> None:
        """Takes note of what has arrived."""
        heavy = self._heavy
        if heavy:
            # Also where no filter is set: who is demoted counts as soon as the buffer fills again.
            if now >= heavy.forget_at:
                heavy.forget(now)
            heavy.saw(bursts)

    def look(self, now: float) -> None:
        """Closes or opens the sieve by a step, if it is time. Call it when much arrives, and while active.

        A filter that is to know many sources is made in slices, one in each call.
        """
        if now < self._resting_until:
            return
        is_changed = self._coming is not None and self._learn()
        # A step could not be seen to work before the sieve knows whom to pass.
        if not is_changed and (self._is_ready or self._coming is None):
            is_changed = self._step(now)
        if is_changed and self._is_ready:
            self._set(now)

    def _step(self, now: float) -> bool:
        """Closes or opens the sieve, if it is time. Returns whether it did."""
        if now < self._pressed_at + STEP_S:
            return False
        waiting_share = max((port.waiting_share for port in self._ports), default=0.0)
        if waiting_share > PRESSURE_SHARE:
            was_quiet = not self.is_active and now >= self._pressed_at + OPENING_STEP_S
            self._pressed_at = now
            is_overflowing = waiting_share > OVERFLOW_SHARE
            arrived = self._arrived()
            if was_quiet:
                return False  # what has arrived since the last flood tells nothing of this one
            is_found = is_overflowing and self._heavy.demote(sum(arrived.values()), now)
            self._heavy.is_watching = is_overflowing
            if is_found:
                arrived = self._heavy.arrived()
                self._is_ready = False
            # Where nobody is sifted, a filter would keep out nobody but who comes next.
            if any(arrived.values()):
                for _ in range(HARD_STEPS if is_found else 1):
                    self._sieve.press(arrived)
            if self.is_active:
                self._know(now)
            else:
                self._forget()
            return not self._sieve.is_open
        if self.is_active and now >= max(self._pressed_at, self._opened_at) + OPENING_STEP_S:
            self._opened_at = now
            self._heavy.is_watching = False
            self._arrived()
            self._sieve.relax()
            self._know(now)
            return True
        return False

    def _set(self, now: float) -> None:
        if self._sieve.is_open:
            if not self._heavy.is_watching:
                self._remove()
            return
        while not self._attach(self._sieve.program()):
            # A port that kept an older filter would go on keeping out those who are new.
            if not self._sieve.shrink():
                self._remove()
                self._resting_until = now + RETRY_S
                self._tell_sometimes(_TOLD_REFUSED, now)
                return
            self._is_ready = False
            self._know(now)
            if not self._is_ready:
                return
        if now < self._pressed_at + OPENING_STEP_S:
            self._tell_sometimes(_TOLD, now)

    def _attach(self, program: bytes) -> bool:
        return all(port.sift(program) for port in self._ports)

    def _remove(self) -> None:
        self._sieve.open()
        self._heavy.is_watching = False
        self._forget()
        for port in self._ports:
            port.sift(None)

    def _forget(self) -> None:
        """Forgets who is known, and what of it was learned."""
        self._coming = None
        self._is_ready = False

    def _tell_sometimes(self, text: str, now: float) -> None:
        if now >= self._told_at + TELLING_S:
            self._told_at = now
            self._tell(text)

    def _know(self, now: float) -> None:
        """Begins to learn who is known, if it is time or something depends on it."""
        if self._is_ready and (self._coming is not None or now < self._known_at + KNOWING_S):
            return
        self._known_at = now
        self._coming = list(islice(self._core.known_sources(self._random), self._sieve.sources_max))
        self._is_crowded = len(self._coming) == self._sieve.sources_max
        self._heavy.begin(now)
        self._sieve.begin()
        if len(self._coming) <= SLICE:
            self._learn()

    def _learn(self) -> bool:
        """Learns a slice of who is known. Returns whether it was the last."""
        assert self._coming is not None
        some = self._coming[:SLICE]
        del self._coming[:SLICE]
        self._sieve.add(self._heavy.add(some))
        if self._coming:
            return False
        self._coming = None
        self._heavy.complete()
        self._sieve.complete()
        self._is_ready = True
        return True

    def _arrived(self) -> Mapping[Kind, int]:
        """Returns how many datagrams that a filter would sift have arrived since the last step: of strangers
        and of those demoted; or else of those who are known, and for whom the filter has no room."""
        before, self._seen = self._seen, dict(self._core.strangers)
        demoted, others = self._heavy.arrived(), self._heavy.others()
        arrived = {
            kind: self._seen.get(kind, 0) - before.get(kind, 0) + demoted.get(kind, 0) for kind in Kind
        }
        return others if self._is_crowded and not any(arrived.values()) else arrived
