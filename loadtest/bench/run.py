"""Runs a benchmark: starts its workers, follows them to the end, and puts their figures together."""

import json
import multiprocessing
import os
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Self

from rich.console import Console

from kcast.client.cli.common import say
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.bench.counts import Counts, Figures, delivered, published
from kcast.loadtest.bench.plan import BenchPlan, spread
from kcast.loadtest.bench.report import NAME, progress_words
from kcast.loadtest.bench.worker import Job, work
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.pubsub.drops import STEPS
from kcast.pubsub.errors import KcastError

READY_TIMEOUT_S = 10.0
END_TIMEOUT_S = 5.0
# After this number of reports by which nothing more has come, a worker has nothing more to wait for. The time
# since would not tell: a worker with much to read reports late.
QUIET_REPORTS = 15

_START_S = 0.1  # until which all have heard when the start is
_POLL_S = 0.1


class BenchFailed(KcastError, RuntimeError):
    """A benchmark could not be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster to use, as clients are opened with it, and its name. `own` are its servers; None where they
    are not the benchmark's own."""

    cluster: Cluster | Path | str
    name: str
    servers: int
    policy: Policy
    own: ProcessCluster | None = None


def run(plan: BenchPlan, target: Target, wait_s: float = 0.0) -> Figures:
    """Runs a benchmark to its end, or until Ctrl-C; `wait_s` is for the first message of others.

    Raises BenchFailed; KeyboardInterrupt where Ctrl-C comes before the start, or a second time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    subscribers = spread(plan.subscribers, cores) if plan.subscribes else []
    publishers = spread(plan.publishers, cores) if plan.publishes else []
    jobs = [Job(plan, [], each, target.cluster, READY_TIMEOUT_S) for each in subscribers]
    jobs += [Job(plan, each, [], target.cluster, READY_TIMEOUT_S) for each in publishers]
    course = Course(plan, {*range(len(subscribers), len(jobs))}, {*range(len(subscribers))}, wait_s)
    with Workers(jobs) as workers:
        names = _await_ready(workers, jobs, target)
        if not plan.publishes:
            say(NAME, f"waits for messages, at most {wait_s:g} s for the first")
        cpu_before_ns = _cpu_ns(target.own)
        start_ns = monotonic_ns() + int(_START_S * 1e9)
        workers.order(range(len(jobs)), (start_ns, names if plan.publishes else None))
        status = Console(stderr=True, highlight=False).status("")  # on a terminal only
        with _first_ctrl_c() as interrupts, status:
            for numbers, seconds in _follow(workers, course, interrupts, start_ns / 1e9):
                status.update(progress_words(plan, numbers, seconds))
        own_servers = None
        if target.own is not None:
            cpu_ns = _cpu_ns(target.own) - cpu_before_ns
            target.own.stop()
            own_servers = {"cpu_ns": cpu_ns, **last_words(target.own.logs().values())}
    ours = published(plan, *course.counts_of(course.publishing)) if plan.publishes else None
    theirs = None
    if plan.subscribes:
        counts, cpu_ns = course.counts_of(course.subscribing)
        theirs = delivered(counts, ours["messages"] if ours else None, cpu_ns)
    return {
        **{"policy": str(target.policy), "servers": target.servers, "own_servers": own_servers},
        **{"interrupted": bool(interrupts), "published": ours, "delivered": theirs},
    }


def _await_ready(workers: "Workers", jobs: list[Job], target: Target) -> frozenset[str]:
    """Waits until all are ready; returns the names of the publishers."""
    names: dict[int, list[str]] = {}
    leased = wanted = 0
    for worker, _, said in workers.said(_POLL_S):
        if worker is None:
            continue
        publishes, (its_names, held) = bool(jobs[worker].publishers), said
        if not all(stands for stands, _ in held):
            why = "is this machine very busy?"
            if target.own is None:
                why = f"'kcast doctor --cluster {shlex.quote(target.name)}' says why"
            raise BenchFailed(f"no server gives {'a receipt' if publishes else 'a lease'}: {why}")
        names[worker] = its_names if publishes else []
        if not publishes:
            leased, wanted = leased + sum(each for each, _ in held), wanted + sum(each for _, each in held)
        if len(names) == len(jobs):
            break
    if leased < wanted:
        say(NAME, f"only {leased} of {wanted} leases stand: some servers do not answer")
    return frozenset(name for each in names.values() for name in each)


def _follow(
    workers: "Workers", course: "Course", interrupts: list[int], began_at: float
) -> Iterator[tuple[Counter[str], float]]:
    """Yields how far they are after how many seconds, until all have told their figures."""
    stopped: set[int] = set()
    for worker, kind, said in workers.said(_POLL_S):
        now_s = monotonic() - began_at
        if worker is not None:
            course.take(worker, kind, said, now_s)
        if course.is_done:
            return
        yield course.progress, now_s
        ready = course.to_stop(now_s, ends_early=bool(interrupts)) - stopped
        workers.order(ready, None)
        stopped |= ready


@contextmanager
def _first_ctrl_c() -> Iterator[list[int]]:
    """Gives a list that has the first Ctrl-C, in place of raising KeyboardInterrupt; the second raises it."""
    interrupts: list[int] = []

    def take(number: int, _: object) -> None:
        interrupts.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, take)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


class Course:
    """How far a benchmark has come, by what its workers say, and when they are to stop. Sans-IO.

    `publishing` and `subscribing` are the numbers of the workers with publishers and with subscribers. Times
    are seconds since the start; publishers elsewhere are waited for until `wait_s`.
    """

    def __init__(self, plan: BenchPlan, publishing: set[int], subscribing: set[int], wait_s: float) -> None:
        self.publishing = publishing
        self.subscribing = subscribing
        self.figures: dict[int, tuple[list[Counts], int]] = {}  # of the workers that are done
        self._plan = plan
        self._wait_s = wait_s
        self._said: dict[int, Counter[str]] = {}
        self._first_s: float | None = None  # when the first message had been delivered
        self._still: Counter[int] = Counter()  # by worker: its reports since more was delivered

    def take(self, worker: int, kind: str, said: Any, now_s: float) -> None:
        """Takes what a worker says."""
        if kind == "figures":
            self.figures[worker] = said
        elif said["messages"] > self._of(worker, "messages"):
            self._still[worker] = 0
            self._first_s = now_s if self._first_s is None else self._first_s
        else:
            self._still[worker] += 1
        if kind == "progress":
            self._said[worker] = said

    @property
    def progress(self) -> Counter[str]:
        """How far all have come together; of `least` the sum says nothing."""
        return sum(self._said.values(), Counter[str]())

    @property
    def is_done(self) -> bool:
        """Whether all have told their figures."""
        return self.figures.keys() >= self.publishing | self.subscribing

    def counts_of(self, workers: set[int]) -> tuple[list[Counts], int]:
        """Returns what each client of these workers has counted, and the CPU time of the workers."""
        told = [self.figures[worker] for worker in sorted(workers)]
        return [each for counts, _ in told for each in counts], sum(cpu_ns for _, cpu_ns in told)

    def to_stop(self, now_s: float, *, ends_early: bool = False) -> set[int]:
        """Returns the workers that are to stop: their subscribers have nothing more to wait for.

        At an early end publishers stop, and subscribers wait for what has been published, but for no others.
        """
        if publishing := self.publishing - self.figures.keys():
            return publishing if ends_early else set()
        left = self.subscribing - self.figures.keys()
        quiet = {each for each in left if self._still[each] >= QUIET_REPORTS}
        if self.publishing:
            attempted = self.progress["attempted"]
            return quiet | {each for each in left if self._of(each, "least") >= attempted}
        if self._first_s is None:
            is_over = now_s >= self._wait_s
        elif self._plan.duration_s is None:
            return left if ends_early else quiet
        else:
            is_over = now_s >= self._first_s + self._plan.duration_s
        return left if is_over or ends_early else set()

    def _of(self, worker: int, name: str) -> int:
        return self._said[worker][name] if worker in self._said else 0


class Workers:
    """A process for each of these jobs; use it with `with`. None outlives the process that started it: each
    ends when its connection does, which the kernel closes however that process ends."""

    def __init__(self, jobs: Sequence[Job], program: Callable[[Connection, Job], None] = work) -> None:
        self._jobs = jobs
        self._program = program
        self._connections: list[Connection] = []
        self.processes: list[BaseProcess] = []

    def __enter__(self) -> Self:
        # Ctrl-C is for us, who then end the workers in order: they go on ignoring what is ignored here.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            context = multiprocessing.get_context("spawn")
            for job in self._jobs:
                ours, its = context.Pipe()
                self._connections.append(ours)
                with its:
                    self.processes.append(context.Process(target=self._program, args=(its, job), daemon=True))
                    self.processes[-1].start()
        except BaseException:
            self.__exit__()
            raise
        finally:
            signal.signal(signal.SIGINT, before)
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        until = monotonic() + END_TIMEOUT_S
        for process in self.processes:
            if process.pid is not None:
                process.join(max(0.0, until - monotonic()))
                process.kill()
                process.join()

    def order(self, workers: Iterable[int], order: object) -> None:
        """Tells these workers to begin, or with None to stop and to tell their figures."""
        for worker in workers:
            with suppress(OSError):  # one that has ended: `said` will tell
                self._connections[worker].send(order)

    def said(self, timeout_s: float) -> Iterator[tuple[int | None, str, Any]]:
        """Yields what workers say, as it comes; None, "", None where nothing has come for `timeout_s`. It
        never ends.

        Raises BenchFailed where one has failed, or has ended before it told its figures.
        """
        numbers: dict[object, int] = {each: number for number, each in enumerate(self._connections)}
        done: set[int] = set()
        while True:
            ready = wait([self._connections[number] for number in numbers.values()], timeout_s)
            if not ready:
                yield None, "", None
            for connection in ready:
                number = numbers[connection]
                try:
                    kind, said = self._connections[number].recv()
                except (EOFError, OSError):
                    del numbers[connection]
                    if number not in done:
                        self.processes[number].join(END_TIMEOUT_S)
                        code = self.processes[number].exitcode
                        raise BenchFailed(f"a process of the benchmark ended with exit code {code}") from None
                    continue
                if kind == "failed":
                    raise BenchFailed(said)
                if kind == "figures":
                    done.add(number)
                yield number, kind, said


# --- Servers of its own ------------------------------------------------------------------------------


def last_words(logs: Iterable[str]) -> Figures:
    """Reads what servers that have ended wrote into their logs, in JSON: how many `copies` they sent, and
    their `drops`, by reason (docs/operations.md, Reasons)."""
    copies, drops = 0, Counter[str]()
    for line in (line for log in logs for line in log.splitlines()):
        with suppress(ValueError):  # not the log's
            told = json.loads(line)
            if told.get("event") == "end":
                copies += told["copies"]
                drops.update({reason: n for reason, n in told["drops"].items() if reason not in STEPS})
    return {"copies": copies, "drops": dict(sorted(drops.items()))}


def _cpu_ns(servers: ProcessCluster | None) -> int:
    """Returns the CPU time that all have had until now; 0 where the system does not tell."""
    return 0 if servers is None else sum(stat.cpu_ns for stat in servers.stats())
