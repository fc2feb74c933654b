"""How far a benchmark has come, by what its workers tell, and when its subscribers are to stop. Sans-IO."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from kcast.loadtest.bench.plan import BenchPlan

# After this number of reports by which nothing more has come, a worker has nothing more to wait for. The time
# since would not tell: a worker with much to read reports late.
QUIET_REPORTS = 15
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
        self._still: Counter[int] = Counter()  # by worker: its reports since more was delivered
        self._ends_early = False

    def take(self, worker: int, told: Mapping[str, Any], now: float) -> None:
        """Takes what a worker tells: its progress, or its figures at the end."""
        if told["is"] == "figures":
            self.figures[worker] = told
            return
        before = self._told[worker]["delivered"] if worker in self._told else 0
        self._told[worker] = told
        self._still[worker] += 1
        if told["delivered"] > before:
            self._still[worker] = 0
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
        quiet = {each for each in left if self._still[each] >= QUIET_REPORTS}
        if self._publishing:
            published = self._sum("attempted")
            return quiet | {each for each in left if self._least(each) >= published}
        if self._ends_early:
            return left
        if self._first_at is None:
            return left if now >= self._began_at + self._wait_s else set()
        if self._plan.duration_s is not None:
            return left if now >= self._first_at + self._plan.duration_s else set()
        return quiet

    def _least(self, worker: int) -> int:
        least: int = self._told[worker]["least"] if worker in self._told else 0
        return least

    def _sum(self, name: str) -> int:
        return sum(told[name] for told in self._told.values())
