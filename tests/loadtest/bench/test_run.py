"""loadtest/bench/run.py: when subscribers have nothing to wait for, and processes, of which none is left."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.run import QUIET_REPORTS, BenchFailed, Course, Workers, last_words
from kcast.loadtest.bench.worker import Job
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.load_command import living

PUB, SUB, OTHER = 2, 0, 1  # workers
WAIT_S = 60.0


def course(**given: Any) -> Course:
    plan = BenchPlan(**{"kind": "pubsub", "subscribers": 2, **given})
    return Course(plan, {PUB} if plan.publishes else set(), {SUB, OTHER}, WAIT_S)


def progress(attempted: int = 0, delivered: int = 0, missing: int = 0) -> Counter[str]:
    said = {"attempted": attempted, "missing": missing}
    return Counter({**said, "messages": delivered, "least": delivered})


def test_progress_is_that_of_all_workers() -> None:
    made = course()
    made.take(PUB, "progress", progress(attempted=10), 1)
    made.take(SUB, "progress", progress(delivered=4, missing=2), 1)
    made.take(SUB, "progress", progress(delivered=7, missing=1), 2)
    made.take(OTHER, "progress", progress(delivered=8), 2)
    assert made.progress == {"attempted": 10, "messages": 15, "missing": 1, "least": 15}


def test_nobody_stops_while_there_is_a_publisher() -> None:
    made = course()
    made.take(SUB, "progress", progress(delivered=10), 1)
    assert made.to_stop(900) == set()


def test_a_subscriber_with_all_messages_stops_at_once() -> None:
    made = course()
    made.take(PUB, "progress", progress(attempted=10), 1)
    made.take(SUB, "progress", progress(delivered=10), 1)
    made.take(OTHER, "progress", progress(delivered=9), 2)
    made.take(PUB, "figures", ([], 0), 2)
    assert made.to_stop(2) == {SUB}
    assert not made.is_done
    made.take(SUB, "figures", ([], 0), 2.1)
    assert made.to_stop(2.1) == set()
    made.take(OTHER, "progress", progress(delivered=10), 2.2)
    assert made.to_stop(2.2) == {OTHER}
    made.take(OTHER, "figures", ([], 0), 3)
    assert made.is_done


def test_one_that_reports_again_and_again_that_nothing_comes_stops() -> None:
    made = course()
    made.take(PUB, "progress", progress(attempted=10), 1)
    made.take(SUB, "progress", progress(delivered=9), 2)
    made.take(PUB, "figures", ([], 0), 2)
    for _ in range(QUIET_REPORTS):
        assert made.to_stop(2) == set()
        made.take(SUB, "progress", progress(delivered=9), 2)
    assert made.to_stop(2) == {SUB}
    made.take(SUB, "progress", progress(delivered=10), 2)
    made.take(PUB, "progress", progress(attempted=11), 2)
    assert made.to_stop(2) == set()


def test_one_that_is_too_busy_to_report_is_awaited() -> None:
    made = course()
    made.take(PUB, "progress", progress(attempted=10), 1)
    made.take(SUB, "progress", progress(delivered=9), 2)
    made.take(PUB, "figures", ([], 0), 2)
    assert made.to_stop(900) == set()


def quiet(made: Course, *workers: int, delivered: int) -> None:
    for worker in workers:
        for _ in range(QUIET_REPORTS):
            made.take(worker, "progress", progress(delivered=delivered), 50)


def test_publishers_elsewhere_are_awaited_as_long_as_was_asked_for() -> None:
    made = course(kind="sub")
    quiet(made, SUB, OTHER, delivered=0)
    assert made.to_stop(WAIT_S - 0.1) == set()
    assert made.to_stop(WAIT_S) == {SUB, OTHER}


def test_after_the_first_message_quiet_ends_it() -> None:
    made = course(kind="sub")
    made.take(SUB, "progress", progress(delivered=1), 50)
    assert made.to_stop(900) == set()
    quiet(made, SUB, OTHER, delivered=1)
    assert made.to_stop(50) == {SUB}  # the other one has had its first message meanwhile
    quiet(made, OTHER, delivered=1)
    assert made.to_stop(50) == {SUB, OTHER}


def test_a_duration_counts_from_the_first_message_and_quiet_does_not_end_it() -> None:
    made = course(kind="sub", duration_s=10.0)
    made.take(SUB, "progress", progress(delivered=1), 50)
    quiet(made, SUB, OTHER, delivered=1)
    assert made.to_stop(59.9) == set()
    assert made.to_stop(60) == {SUB, OTHER}


def test_an_early_end_does_not_wait_for_others() -> None:
    made = course(kind="sub", duration_s=10.0)
    assert made.to_stop(0, ends_early=True) == {SUB, OTHER}


def test_an_early_end_still_waits_for_what_was_published() -> None:
    made = course()
    made.take(PUB, "progress", progress(attempted=10), 1)
    made.take(SUB, "progress", progress(delivered=9), 1)
    assert made.to_stop(1.1) == set()
    assert made.to_stop(1.1, ends_early=True) == {PUB}
    made.take(PUB, "figures", ([], 0), 1.2)
    made.take(SUB, "progress", progress(delivered=10), 1.2)
    assert made.to_stop(1.3, ends_early=True) == {SUB}


# --- Processes ---------------------------------------------------------------------------------------

PLAN = BenchPlan(kind="pubsub", count=100_000_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ProcessCluster(1, ttl_s=60) as servers:
        yield servers.cluster(Policy(1, 1, 1))


def job(cluster: Cluster | Path, publishers: list[int], subscribers: list[int]) -> Job:
    return Job(PLAN, publishers, subscribers, cluster, 10.0)


def await_said(workers: Workers, what: str, count: int) -> dict[int, Any]:
    found = {}
    for worker, kind, said in workers.said(1.0):
        if worker is not None and kind == what:
            found[worker] = said
            count -= 1
        if count <= 0:
            break
    return found


def broken(*_: object) -> None:
    os._exit(7)


@pytest.mark.world
def test_a_worker_that_fails_says_why(tmp_path: Path, cluster: Cluster) -> None:
    with (
        Workers([job(tmp_path / "no.cluster", [0], [])]) as workers,
        pytest.raises(BenchFailed, match=r"no\.cluster: No such file or directory"),
    ):
        await_said(workers, "ready", 1)
    with (
        Workers([job(cluster, [0], [])], broken) as workers,
        pytest.raises(BenchFailed, match="ended with exit code 7"),
    ):
        await_said(workers, "ready", 1)


@pytest.mark.world
def test_workers_stop_when_they_are_told_to_and_tell_their_figures(cluster: Cluster) -> None:
    with Workers([job(cluster, [], [0]), job(cluster, [0], [])]) as workers:
        await_said(workers, "ready", 2)
        workers.order((0, 1), (0, None))
        await_said(workers, "progress", 10)
        workers.order((0, 1), None)
        figures = await_said(workers, "figures", 2)
        started = {process.pid for process in workers.processes if process.pid is not None}
    assert len(started) == 2 and not living(started)
    assert figures[1][0][0].numbers["attempted"] > 0
    assert figures[0][0][0].numbers["messages"] > 0


# --- Servers of its own ------------------------------------------------------------------------------


def test_copies_and_drops_of_all_servers_are_added_up() -> None:
    logs = (
        '{"time": "t", "event": "drops", "drops": {"late": 2}, "text": "dropped late=2"}\n'
        '{"time": "t", "event": "end", "copies": 10, "drops": {"late": 2, "credit": 5, "work": 9}}\n',
        'Traceback: no JSON\n{"event": "end", "copies": 7, "drops": {"credit": 1}}\n{"event": "en',
        "",
    )
    words = last_words(logs)
    assert words["copies"] == 17
    assert words["drops"] == {"late": 2, "credit": 6}  # to be asked for work is no loss
