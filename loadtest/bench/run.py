"""Runs a benchmark: starts its workers, takes them to the end, and puts their figures together."""

import multiprocessing
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Self

from kcast.client.cli.common import say
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.bench.counts import Counts, Figures, delivered, published
from kcast.loadtest.bench.plan import BenchPlan, spread
from kcast.loadtest.bench.report import NAME
from kcast.loadtest.bench.worker import BenchFailed, Job, work
from kcast.loadtest.clusters.processes import ProcessCluster

END_TIMEOUT_S = 5.0

_START_S = 0.1  # until which all have heard when the start is


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
    jobs = [Job(plan, [], each, target.cluster, wait_s) for each in subscribers]
    jobs += [Job(plan, each, [], target.cluster, wait_s) for each in publishers]
    subscribing, publishing = range(len(subscribers)), range(len(subscribers), len(jobs))
    ours = theirs = own_servers = None
    with Workers(jobs) as workers:
        names = _await_ready(workers, jobs, target)
        cpu_before_ns = _cpu_ns(target.own)
        workers.order(range(len(jobs)), (monotonic_ns() + int(_START_S * 1e9), names))
        say(NAME, "begins" if plan.publishes else f"waits for messages, at most {wait_s:g} s for the first")
        if plan.publishes:
            ours = published(plan, *workers.figures(publishing))
            workers.order(subscribing, ours["messages"])
        if plan.subscribes:
            expected = ours["messages"] if ours else None
            theirs = delivered(*workers.figures(subscribing), expected)
        if target.own is not None:
            own_servers = {"cpu_ns": _cpu_ns(target.own) - cpu_before_ns}
    return {
        **{"policy": str(target.policy), "servers": target.servers, "own_servers": own_servers},
        **{"interrupted": workers.are_stopped, "published": ours, "delivered": theirs},
    }


def _await_ready(workers: "Workers", jobs: list[Job], target: Target) -> frozenset[str] | None:
    """Waits until all are ready; returns the names of the publishers, None where they are elsewhere."""
    answers = workers.answers(range(len(jobs)))
    for job, (_, held) in zip(jobs, answers, strict=True):
        if not all(stands for stands, _ in held):
            why = "is this machine very busy?"
            if target.own is None:
                why = f"'kcast doctor --cluster {shlex.quote(target.name)}' says why"
            raise BenchFailed(f"no server gives {'a receipt' if job.publishers else 'a lease'}: {why}")
    leases = [each for job, (_, held) in zip(jobs, answers, strict=True) if job.subscribers for each in held]
    leased, wanted = (sum(each[place] for each in leases) for place in (0, 1))
    if leased < wanted:
        say(NAME, f"only {leased} of {wanted} leases stand: some servers do not answer")
    return frozenset(name for names, _ in answers for name in names) if jobs[-1].publishers else None


class Workers:
    """A process for each of these jobs; use it with `with`. None outlives the process that started it: each
    ends when its connection does, which the kernel closes however that process ends."""

    def __init__(self, jobs: Sequence[Job], program: Callable[[Connection, Job], None] = work) -> None:
        self._jobs = jobs
        self._program = program
        self._connections: list[Connection] = []
        self._open: dict[Any, int] = {}  # connections of those that have not ended
        self._answers: dict[int, Any] = {}
        self.processes: list[BaseProcess] = []
        self.are_stopped = False  # by Ctrl-C

    def __enter__(self) -> Self:
        # Ctrl-C is for us, who then end the workers in order: they go on ignoring what is ignored here.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            context = multiprocessing.get_context("spawn")
            for job in self._jobs:
                ours, its = context.Pipe()
                self._open[ours] = len(self._connections)
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
        """Tells these workers when to begin, or what to end by."""
        for worker in workers:
            with suppress(OSError):  # one that has ended: `answers` will tell
                self._connections[worker].send(order)

    def figures(self, workers: Sequence[int]) -> tuple[list[Counts], int]:
        """Returns what each client of these workers has counted, and the CPU time of the workers. The first
        Ctrl-C stops them."""
        told = self.answers(workers, are_to_stop=True)
        return [each for counts, _ in told for each in counts], sum(cpu_ns for _, cpu_ns in told)

    def answers(self, workers: Sequence[int], *, are_to_stop: bool = False) -> list[Any]:
        """Returns what each of these workers says next. Raises BenchFailed where any worker fails, and
        KeyboardInterrupt, which workers that `are_to_stop` take the first time."""
        while not self._answers.keys() >= {*workers}:
            try:
                ready = wait(list(self._open))
            except KeyboardInterrupt:
                if self.are_stopped or not are_to_stop:
                    raise
                self.are_stopped = True
                self.order(workers, None)
                continue
            for connection in ready:
                number = self._open[connection]
                try:
                    answer = self._connections[number].recv()
                except (EOFError, OSError):
                    del self._open[connection]
                    self.processes[number].join(END_TIMEOUT_S)
                    if code := self.processes[number].exitcode:
                        raise BenchFailed(f"a process of the benchmark ended with exit code {code}") from None
                    continue
                if isinstance(answer, BenchFailed):
                    raise answer
                self._answers[number] = answer
        return [self._answers.pop(worker) for worker in workers]


def _cpu_ns(servers: ProcessCluster | None) -> int:
    """Returns the CPU time that all have had until now; 0 where the system does not tell."""
    return 0 if servers is None else sum(stat.cpu_ns for stat in servers.stats())
