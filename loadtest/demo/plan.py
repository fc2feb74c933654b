"""What a demo runs, what comes of it, and whom it tells meanwhile."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from kcast.loadtest.demo.tally import Cell, Phase, Tally

K = 5
K_PRIMES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: how many topics, subscribers and publishers for each K', and `rate` messages a second."""

    servers: int = 12
    kill: int = 4
    ttl_s: int = 4
    topics: int = 24
    subscribers: int = 16
    publishers: int = 4
    seed: int = 1
    rate: int = 400


@dataclass(slots=True)
class Result:
    """What came of it. Servers go by their keys. Times are seconds after the servers had restarted."""

    cells: list[Cell] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    kernel_drops: int = 0
    slow_drops: int = 0
    killed: tuple[str, ...] = ()
    dead_of_topic: dict[str, int] = field(default_factory=dict)
    subscriptions: int = 0
    unanswered: int = 0
    """Publishes that a live server was sent in a judged phase, and gave no receipt for."""
    leases_after_s: float | None = None
    """When all leases stood again."""
    last_loss_s: float | None = None
    """When the last message was published that did not reach all of its audience."""

    @property
    def dropped(self) -> int:
        """What arrived at clients and was dropped because it was not read in time."""
        return self.kernel_drops + self.slow_drops


class Watcher(Protocol):
    """Whom a run tells how it goes."""

    def say(self, text: str) -> None:
        """Something has been done."""

    def begin(self, phase: Phase, messages: int | None) -> None:
        """A phase begins, with so many messages, or None where its time is what is set."""

    def update(self, phase: Phase, published: int, tally: Tally) -> None:
        """So far; several times a second."""

    def end(self, phase: Phase, tally: Tally) -> None:
        """All of the phase's messages have arrived, or will not."""
