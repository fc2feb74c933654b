"""client.blocking: threads, wake-ups, failures, forks.

What all drivers do is in `tests.test_client_drivers`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from client.blocking import Client, ClientClosed
from client.cluster import Cluster, lab
from client.core import ClientCore
from client.engine import Engine
from client.events import Published
from hashring.policy import Policy
from loadtest.processes import ProcessCluster
from tests.driver_suite import mute_cluster

WAIT_S = 20.0
ONE = Policy(1, 1, 1)
NOBODY = lab([("127.0.0.1", 9)], ONE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One real server."""
    with ProcessCluster(1, ttl_s=60) as processes:
        yield processes.cluster(ONE)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


# --- Threads ------------------------------------------------------------------------------------------


def test_many_threads_share_a_client(cluster: Cluster, pool: ThreadPoolExecutor) -> None:
    with Client(cluster) as client:
        subscription = client.subscribe("t")
        assert subscription.ready(WAIT_S) == (1, 1)

        def publish(thread: int) -> list[Published]:
            return [client.publish("t", f"{thread} {number}") for number in range(50)]

        def take(_: int) -> list[bytes]:
            return [delivery.payload for delivery in subscription]

        taking = [pool.submit(take, number) for number in range(3)]
        published = [outcome for outcomes in pool.map(publish, range(8)) for outcome in outcomes]
        assert {outcome.receipts for outcome in published} == {1}
        assert {outcome.seq for outcome in published} == set(range(1, 401))
        subscription.close()
        taken = [payload for each in taking for payload in each.result(WAIT_S)]
        assert sorted(taken) == sorted(f"{a} {b}".encode() for a in range(8) for b in range(50))


def test_wake_ups_are_not_lost_and_not_repeated(cluster: Cluster) -> None:
    with Client(cluster) as client:
        client.publish("t", "x")
        for number in range(300):
            assert client.publish("t", str(number)).receipts == 1
        assert not client._is_woken
        with pytest.raises(BlockingIOError):
            client._wake_receiver.recv(1)


def test_minting_makes_room_after_each_slice(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are not fair: a thread that works without a pause would keep it from others."""
    with Client(cluster) as client:
        client.publish("t", "x")
        done: list[str] = []
        sleep = time.sleep

        def work(core: ClientCore, tries: int, now: float) -> bool:
            done.append("slice")
            return False

        def pause(seconds: float) -> None:
            done.append("pause")
            sleep(seconds)

        monkeypatch.setattr(time, "sleep", pause)
        monkeypatch.setattr(ClientCore, "work", work)
        monkeypatch.setattr(ClientCore, "is_minting", True)
        for number in range(20):
            client.publish("t", str(number))
        closing_at = time.monotonic()
        client.close()
        assert time.monotonic() - closing_at < 2.0
        assert done[:4] == ["slice", "pause", "slice", "pause"]
        assert ("slice", "slice") not in pairwise(done)


def test_leases_are_renewed_while_the_user_computes() -> None:
    with ProcessCluster(1, ttl_s=2) as processes, Client(processes.cluster(ONE)) as client:
        subscription = client.subscribe("t")
        assert subscription.ready(WAIT_S) == (1, 1)
        events = client.events()
        until = time.monotonic() + 2.4
        while time.monotonic() < until:
            pass
        assert events.get(0.0) is None, "the lease has not lapsed"
        assert client.publish("t", "x").receipts == 1
        assert subscription.get(WAIT_S)


def test_outcome_cannot_be_cancelled_and_may_call_back(cluster: Cluster) -> None:
    """In the client's own thread: what it does there must not block for ever."""
    done = threading.Event()
    with Client(cluster) as client:

        def call_back(_: object) -> None:
            client.publish_nowait("t", "from within")
            client.close()
            done.set()

        outcome = client.publish_nowait("t", "x")
        assert not outcome.cancel()
        outcome.add_done_callback(call_back)
        assert done.wait(WAIT_S)
        assert outcome.result().receipts == 1


def test_waiting_can_be_interrupted() -> None:
    with mute_cluster() as mute, Client(mute) as client:
        subscription = client.subscribe("t")
        waits_since = time.monotonic()
        for wait in (subscription.get, subscription.ready, lambda: client.publish("t", "x")):
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                wait()
        assert time.monotonic() - waits_since < 5.0


# --- Closing ------------------------------------------------------------------------------------------


def test_closing_is_prompt_and_idempotent_from_any_number_of_threads(
    cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    client = Client(cluster)
    client.close()
    client.open()
    assert client.subscribe("t").ready(WAIT_S) == (1, 1)
    closing_at = time.monotonic()
    list(pool.map(lambda _: client.close(), range(8)))
    client.close()
    assert time.monotonic() - closing_at < 2.0
    with pytest.raises(ClientClosed, match="is not open"):
        client.publish("t", "x")
    assert client.drops == {}


def test_nothing_is_left_open() -> None:
    def descriptors() -> list[str]:
        return sorted(map(str, Path("/proc/self/fd").glob("*"))) if sys.platform == "linux" else []

    before = descriptors()
    with Client(NOBODY) as client:
        client.subscribe("t")
        assert len(descriptors()) > len(before) or sys.platform != "linux"
    assert descriptors() == before


def test_client_that_cannot_be_opened_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socketpair() -> None:
        raise OSError("too many open files")

    monkeypatch.setattr("socket.socketpair", no_socketpair)
    client = Client(NOBODY)
    with pytest.raises(OSError, match="too many"):
        client.open()
    client.close()
    with pytest.raises(ClientClosed):
        client.events()


def test_program_that_forgets_to_close_ends() -> None:
    program = (
        "from tests.test_client_blocking import *; client = Client(NOBODY).open(); client.subscribe('t')"
    )
    subprocess.run((sys.executable, "-c", program), check=True, timeout=WAIT_S)


# --- Failures -----------------------------------------------------------------------------------------


def test_failure_in_the_thread_is_told_to_all_who_wait_and_all_who_come(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mute_cluster() as mute, Client(mute) as client:
        subscription, events = client.subscribe("t"), client.events()
        waiting = [
            pool.submit(call)
            for call in (lambda: client.publish("t", "x"), subscription.get, subscription.ready, events.get)
        ]
        boom = RuntimeError("boom")

        def turn(engine: Engine) -> float | None:
            raise boom

        monkeypatch.setattr(Engine, "turn", turn)
        client._wake_sender.send(b"\0")
        calls: list[Callable[[], Any]] = [each.result for each in waiting]
        calls += [lambda: client.publish("t", "x"), lambda: client.subscribe("u"), client.events]
        calls += [subscription.get, subscription.ready, events.get, lambda: next(iter(subscription))]
        for call in calls:
            with pytest.raises(ClientClosed, match=r"has failed: RuntimeError\('boom'\)") as raised:
                call()
            assert raised.value.__cause__ is boom
        assert subscription.leases == (0, 0)


# --- Forks --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_process_does_not_hang_on_a_lock_that_nobody_will_let_go(cluster: Cluster) -> None:
    with Client(cluster) as client:
        subscription, events = client.subscribe("t"), client.events()
        subscription.ready(WAIT_S)
        held, forked = threading.Event(), threading.Event()

        def hold() -> None:
            with client._lock, subscription._inbox.changed, events._inbox.changed:
                held.set()
                forked.wait(WAIT_S)

        holding = threading.Thread(target=hold)
        holding.start()
        assert held.wait(WAIT_S)
        child = os.fork()
        if not child:
            signal.alarm(int(WAIT_S))
            refused = 0
            calls: list[Callable[[], Any]] = [lambda: client.publish("t", "x"), lambda: client.subscribe("u")]
            calls += [client.events, subscription.get, subscription.ready, events.get]
            calls += [lambda: subscription.leases, lambda: client.drops, lambda: client.kernel_drops]
            for call in calls:
                try:
                    call()
                except ClientClosed:
                    refused += 1
            subscription.close()
            events.close()
            client.close()
            os._exit(refused)
        forked.set()
        holding.join()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 9
        assert client.publish("t", "x").receipts == 1
        assert subscription.get(WAIT_S)


# --- Imports ------------------------------------------------------------------------------------------


def test_neither_gevent_nor_asyncio_is_imported() -> None:
    program = (
        "import sys, client.blocking; sys.exit(bool({'gevent', 'greenlet', 'asyncio'} & sys.modules.keys()))"
    )
    subprocess.run((sys.executable, "-c", program), check=True, timeout=WAIT_S)
