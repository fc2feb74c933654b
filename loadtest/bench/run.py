"""Runs a benchmark: starts its workers, follows them to the end, and puts their figures together."""

import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, monotonic_ns
from typing import Protocol, Self

from kcast.hashring.policy import Policy
from kcast.loadtest.bench import figures
from kcast.loadtest.bench.course import Course, Progress
from kcast.loadtest.bench.figures import Delivered, Published, ServerFigures
from kcast.loadtest.bench.orders import Job
from kcast.loadtest.bench.own_servers import OwnServers
from kcast.loadtest.bench.plan import BenchPlan, spread
from kcast.loadtest.bench.workers import BenchFailed, Workers

START_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 30.0  # until which a worker that was told to stop has told its figures
_START_S = 0.1  # until which all have heard when the start is
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster to use. `text` is that of its file, None where `name` leads to it.

    `own` are its servers; None where they are not the benchmark's own.
    """

    text: str | None
    name: str
    servers: int
    policy: Policy
    own: OwnServers | None = None


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What came of a benchmark. `servers` is None where these are not its own."""

    published: Published | None
    delivered: Delivered | None
    servers: ServerFigures | None
    is_interrupted: bool


class Watcher(Protocol):
    """Is told how a benchmark goes."""

    def say(self, text: str) -> None:
        """Takes a line."""

    def progress(self, progress: Progress) -> None:
        """Called several times a second."""

    def clear(self) -> None:
        """There will be no more progress."""


def run(plan: BenchPlan, target: Target, watcher: Watcher, wait_s: float = 0.0) -> BenchResult:
    """Runs a benchmark to its end, or until Ctrl-C; `wait_s` is for the first message of others.

    Raises BenchFailed; KeyboardInterrupt where Ctrl-C comes before the start, or a second time.
    """
    publishers = spread(plan.publishers, _cores()) if plan.publishes else []
    subscribers = spread(plan.subscribers, _cores()) if plan.subscribes else []
    jobs = [_job(plan, target, [], each) for each in subscribers]
    jobs += [_job(plan, target, each, []) for each in publishers]
    subscribing = set(range(len(subscribers)))
    publishing = set(range(len(subscribers), len(jobs)))
    with Workers(jobs) as workers:
        names = _await_ready(workers, target, watcher)
        if not plan.publishes:
            watcher.say(f"waits for messages, at most {wait_s:g} s for the first")
        cpu_before_ns = target.own.cpu_ns() if target.own else 0
        start_ns = monotonic_ns() + int(_START_S * 1e9)
        workers.go({"go_ns": start_ns, "names": names if plan.publishes else None})
        course = Course(plan, publishing, subscribing, start_ns / 1e9, wait_s)
        with _FirstCtrlC() as ctrl_c:
            try:
                _follow(workers, course, watcher, ctrl_c)
            finally:
                watcher.clear()
        servers = None
        if target.own is not None:
            cpu_ns = target.own.cpu_ns() - cpu_before_ns
            copies, drops = target.own.end()
            servers = ServerFigures(cpu_ns, copies, dict(sorted(drops.items())))
    return _result(plan, course, publishing, subscribing, servers, ctrl_c.has_come)


class _FirstCtrlC:
    """Notes the first Ctrl-C within a `with`, in place of raising KeyboardInterrupt; the second raises it."""

    def __init__(self) -> None:
        self.has_come = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _take(self, *_: object) -> None:
        self.has_come = True
        signal.signal(signal.SIGINT, self._before)


def _cores() -> int:
    with suppress(AttributeError):  # not Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _job(plan: BenchPlan, target: Target, publishers: Sequence[int], subscribers: Sequence[int]) -> Job:
    return {
        "plan": plan.as_json(),
        "publishers": list(publishers),
        "subscribers": list(subscribers),
        "text": target.text,
        "name": target.name,
        "ready_timeout_s": READY_TIMEOUT_S,
    }


def _await_ready(workers: Workers, target: Target, watcher: Watcher) -> list[str]:
    """Waits until all are ready; returns the names of the publishers."""
    names: list[str] = []
    leased = wanted = 0
    waiting, until = len(workers), monotonic() + START_TIMEOUT_S
    for each in workers.told(_POLL_S):
        if monotonic() > until:
            raise BenchFailed(
                f"{waiting} of {len(workers)} processes of the benchmark are not ready after "
                f"{START_TIMEOUT_S:g} s; is this machine very busy?"
            )
        if each is None:
            continue
        told = each.told
        names += told["names"]
        leased, wanted, waiting = leased + told["leased"], wanted + told["wanted"], waiting - 1
        if told["without_receipt"] or told["without_lease"]:
            what = "a receipt" if told["without_receipt"] else "a lease"
            why = "is this machine very busy?"
            if target.own is None:
                why = f"'kcast doctor --cluster {shlex.quote(target.name)}' says why"
            raise BenchFailed(f"no server gives {what}: {why}")
        if not waiting:
            break
    if leased < wanted:
        watcher.say(f"only {leased} of {wanted} leases stand: some servers do not answer")
    return names


def _follow(workers: Workers, course: Course, watcher: Watcher, ctrl_c: _FirstCtrlC) -> None:
    """Returns when all have told their figures."""
    stopped_at: dict[int, float] = {}
    for each in workers.told(_POLL_S):
        now = monotonic()
        if each is not None:
            course.take(each.worker, each.told, now)
        if course.is_done:
            return
        watcher.progress(course.progress(now))
        if ctrl_c.has_come:
            course.end_early()
        ready = course.to_stop(now) - stopped_at.keys()
        workers.stop(*ready)
        stopped_at.update(dict.fromkeys(ready, now))
        left = stopped_at.keys() - course.figures.keys()
        if any(now > stopped_at[worker] + STOP_TIMEOUT_S for worker in left):
            raise BenchFailed("a process of the benchmark does not end; is this machine very busy?")


def _result(
    plan: BenchPlan,
    course: Course,
    publishing: set[int],
    subscribing: set[int],
    servers: ServerFigures | None,
    is_interrupted: bool,
) -> BenchResult:
    published = delivered = None
    if publishing:
        published = figures.published(plan, *_counts(course, publishing, "publishers"))
    if subscribing:
        clients, cpu_ns = _counts(course, subscribing, "subscribers")
        delivered = figures.delivered(clients, published.messages if published else None, cpu_ns)
    return BenchResult(published, delivered, servers, is_interrupted)


def _counts(course: Course, workers: set[int], side: str) -> tuple[list[figures.Told], int]:
    """Returns what each client of these workers has counted, and the CPU time of the workers."""
    told = [course.figures[worker] for worker in sorted(workers)]
    return [client for each in told for client in each[side]], sum(each["cpu_ns"] for each in told)
