"""How far a benchmark has come, by what its workers tell, and when its subscribers are to stop. Sans-IO."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kcast.loadtest.bench.plan import BenchPlan

QUIET_S = 1.5  # in which nothing more has come: then the rest is lost
WAIT_S_DEFAULT = 60.0  # for the first message of publishers elsewhere


class Progress(NamedTuple):
    """Numbers until now: messages that were published, those without a receipt, and those delivered, to all
    subscribers together; what is missing between others; and seconds since the start."""

    published: int
    unheard: int
    delivered: int
    missing: int
    seconds: float


class Course:
    """The course of a benchmark from its start, at `began_at` in seconds of one clock, to its end.

    `publishing` and `subscribing` are the numbers of the workers with publishers and with subscribers.
    """

    def __init__(
        self, plan: BenchPlan, publishing: set[int], subscribing: set[int], began_at: float, wait_s: float
    ) -> None:
        self.figures: dict[int, Mapping[str, Any]] = {}  # of the workers that are done
        self._plan = plan
        self._publishing = publishing
        self._subscribing = subscribing
        self._began_at = began_at
        self._wait_s = wait_s
        self._told: dict[int, Mapping[str, Any]] = {}
        self._first_at: float | None = None  # when the first message had been delivered
        self._grew_at = began_at  # when more had been delivered than before
        self._ends_early = False

    def take(self, worker: int, told: Mapping[str, Any], now: float) -> None:
        """Takes what a worker tells: its progress, or its figures at the end."""
        if told["is"] == "figures":
            self.figures[worker] = told
            return
        before = self._sum("delivered")
        self._told[worker] = told
        if self._sum("delivered") > before:
            self._grew_at = now
            if self._first_at is None:
                self._first_at = now

    def end_early(self) -> None:
        """Makes publishers stop, and subscribers wait for what has been published, but for no others."""
        self._ends_early = True

    def progress(self, now: float) -> Progress:
        """Returns how far it has come."""
        return Progress(
            published=self._sum("attempted"),
            unheard=self._sum("unheard"),
            delivered=self._sum("delivered"),
            missing=self._sum("missing"),
            seconds=now - self._began_at,
        )

    @property
    def is_done(self) -> bool:
        """Whether all have told their figures."""
        return self.figures.keys() >= self._publishing | self._subscribing

    def to_stop(self, now: float) -> set[int]:
        """Returns the workers that are to stop: their subscribers have nothing more to wait for."""
        publishing = self._publishing - self.figures.keys()
        if publishing:
            return publishing if self._ends_early else set()
        left = self._subscribing - self.figures.keys()
        is_quiet = now >= self._grew_at + QUIET_S
        if self._publishing:
            published = self._sum("attempted")
            return {each for each in left if is_quiet or self._least(each) >= published}
        if self._ends_early:
            return left
        if self._first_at is None:
            return left if now >= self._began_at + self._wait_s else set()
        if self._plan.duration_s is not None:
            return left if now >= self._first_at + self._plan.duration_s else set()
        return left if is_quiet else set()

    def _least(self, worker: int) -> int:
        least: int = self._told[worker]["least"] if worker in self._told else 0
        return least

    def _sum(self, name: str) -> int:
        return sum(told[name] for told in self._told.values())
