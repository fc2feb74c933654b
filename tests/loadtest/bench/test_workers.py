"""loadtest/bench/workers.py and worker.py: processes that fail say so, and none is left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcast.client.cluster import format_cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.bench import workers as module
from kcast.loadtest.bench.orders import Job
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.workers import BenchFailed, Workers
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.load_command import living
from tests.support.waiting import wait_until

PLAN = BenchPlan(kind="pubsub", count=100_000_000)

# Starts a worker, tells its process id, and waits for ever.
PARENT = """
import sys, time
from kcast.loadtest.bench import workers
running = workers.Workers([{job!r}])
running.__enter__()
print(running.process_ids[0], flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ProcessCluster(1, ttl_s=60) as servers:
        yield format_cluster(servers.cluster(Policy(1, 1, 1)))


def job(text: str | None, publishers: list[int], subscribers: list[int], name: str = "lab") -> Job:
    return {
        "plan": PLAN.as_json(),
        "publishers": publishers,
        "subscribers": subscribers,
        "text": text,
        "name": name,
        "ready_timeout_s": 10.0,
    }


def await_told(workers: Workers, what: str, count: int) -> None:
    for each in workers.told(1.0):
        count -= each is not None and each.told["is"] == what
        if count <= 0:
            return


def test_a_worker_that_cannot_begin_says_why(tmp_path: Path) -> None:
    with (
        Workers([job(None, [0], [], str(tmp_path / "no.cluster"))]) as workers,
        pytest.raises(BenchFailed, match=r"no\.cluster: No such file or directory"),
    ):
        await_told(workers, "ready", 1)


def test_a_worker_that_breaks_is_told_with_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROGRAM", (sys.executable, "-c", "raise SystemExit('a bug')"))
    with (
        Workers([job("", [0], [])]) as workers,
        pytest.raises(BenchFailed, match="ended with exit code 1\n  a bug"),
    ):
        await_told(workers, "ready", 1)


def test_a_worker_that_is_killed_is_told(cluster: str) -> None:
    with Workers([job(cluster, [], [0]), job(cluster, [0], [])]) as workers:
        await_told(workers, "ready", 2)
        os.kill(workers.process_ids[1], signal.SIGKILL)
        with pytest.raises(BenchFailed, match="exit code -9"):
            await_told(workers, "figures", 2)
        started = set(workers.process_ids)
    assert len(started) == 2 and not living(started)


def test_workers_stop_when_they_are_told_to_and_tell_their_figures(cluster: str) -> None:
    with Workers([job(cluster, [], [0]), job(cluster, [0], [])]) as workers:
        await_told(workers, "ready", 2)
        workers.go({"go_ns": 0, "names": None})
        await_told(workers, "progress", 10)
        workers.stop(0, 1)
        figures = {}
        for each in workers.told(1.0):
            if each is not None and each.told["is"] == "figures":
                figures[each.worker] = each.told
                if len(figures) == 2:
                    break
    assert figures[1]["publishers"][0]["attempted"] > 0
    assert figures[0]["subscribers"][0]["delivered"] > 0


def test_no_worker_outlives_whoever_started_it(cluster: str) -> None:
    program = PARENT.format(job=job(cluster, [0], []))
    with subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert living({worker})
        parent.kill()
    wait_until(lambda: not living({worker}), "the worker's end")
