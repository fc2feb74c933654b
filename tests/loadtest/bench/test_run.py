"""loadtest/bench/run.py: the processes, of which none is left."""

import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.bench import run as module
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.run import Workers
from kcast.loadtest.bench.worker import BenchFailed, Job
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.load_command import living


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ProcessCluster(1, ttl_s=60) as servers:
        yield servers.cluster(Policy(1, 1, 1))


def job(cluster: Cluster | Path, publishers: list[int], subscribers: list[int], count: int = 1) -> Job:
    return Job(BenchPlan(kind="pubsub", count=count), publishers, subscribers, cluster, 0.0)


def broken(*_: object) -> None:
    os._exit(7)


@pytest.mark.world
def test_a_worker_that_fails_says_why(tmp_path: Path, cluster: Cluster) -> None:
    with (
        Workers([job(tmp_path / "no.cluster", [0], [])]) as workers,
        pytest.raises(BenchFailed, match=r"no\.cluster: No such file or directory"),
    ):
        workers.answers([0])
    with (
        Workers([job(cluster, [0], [])], broken) as workers,
        pytest.raises(BenchFailed, match="ended with exit code 7"),
    ):
        workers.answers([0])


@pytest.mark.world
def test_workers_tell_their_figures_at_their_end_or_at_ctrl_c(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: set[int] = set()
    for count in (300, 100_000_000):
        with Workers([job(cluster, [], [0], count), job(cluster, [0], [], count)]) as workers:
            assert [held for _, held in workers.answers([0, 1])] == [[(1, 1)], [(1, 1)]]
            workers.order([0, 1], (monotonic_ns() + 300_000_000, None))
            if count > 300:  # nobody would wait for its end
                monkeypatch.setattr(module, "wait", interrupted_once())
            (publisher,), cpu_ns = workers.figures([1])
            workers.order([0], publisher.numbers["attempted"])
            (subscriber,), _ = workers.figures([0])
            started |= {process.pid for process in workers.processes if process.pid is not None}
            assert cpu_ns > 0 and workers.are_stopped == (count > 300)
        if count == 300:
            assert publisher.numbers["attempted"] == subscriber.numbers["messages"] == 300
    assert len(started) == 4 and not living(started)


def interrupted_once() -> Callable[[Any], Any]:
    answers: Iterator[BaseException | None] = iter([KeyboardInterrupt()])

    def waits(connections: Any) -> Any:
        if error := next(answers, None):
            raise error
        return wait(connections)

    return waits
