"""client/blocking.py: threads, wake-ups, failures, forks.

What all drivers do is in `tests.client.test_drivers`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kcast.client.blocking import Client, ClientClosed
from kcast.client.cluster import Cluster, format_cluster, lab
from kcast.client.core import ClientCore
from kcast.client.driving.engine import Engine
from kcast.client.events import Delivery, Outcome, Published
from kcast.client.session import requests
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.pubsub.wire import TopicError
from tests.support.driver_suite import mute_cluster
from tests.support.locks import held_elsewhere

pytestmark = pytest.mark.world

WAIT_S = 20.0
ONE = Policy(1, 1, 1)
NOBODY = lab([("127.0.0.1", 9)], ONE)


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

        taken: list[bytes] = []

        def take(_: int) -> None:
            for delivery in subscription:
                taken.append(delivery.payload)

        taking = [pool.submit(take, number) for number in range(3)]
        published = [outcome for outcomes in pool.map(publish, range(8)) for outcome in outcomes]
        assert {outcome.receipts for outcome in published} == {1}
        assert {outcome.seq for outcome in published} == set(range(1, 401))
        deadline = time.monotonic() + WAIT_S
        while len(taken) < 400 and time.monotonic() < deadline:
            time.sleep(0.001)  # a receipt may be there before the copy
        subscription.close()
        for each in taking:
            each.result(WAIT_S)
        assert sorted(taken) == sorted(f"{a} {b}".encode() for a in range(8) for b in range(50))


def test_wake_ups_are_not_lost_and_not_repeated(cluster: Cluster) -> None:
    with Client(cluster) as client:
        client.publish("t", "x")
        for number in range(300):
            assert client.publish("t", str(number)).receipts == 1
        assert not client._thread._is_woken
        with pytest.raises(BlockingIOError):
            client._thread._wake_receiver.recv(1)


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
        with pytest.raises(TimeoutError):  # the lease has not lapsed
            events.get(0.0)
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
            with pytest.raises(KeyboardInterrupt):
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
                wait()
        assert time.monotonic() - waits_since < 5.0


def test_waiting_for_the_lock_can_be_interrupted_and_leaves_no_trace(cluster: Cluster) -> None:
    """Otherwise the client's thread would make room for ever for a thread that does not wait."""
    with Client(cluster) as client:
        with held_elsewhere(client._thread._lock), pytest.raises(KeyboardInterrupt):
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
            client.publish("t", "x")
        assert client.publish("t", "x").receipts == 1
        assert not client._thread._waiting


# --- Handlers of signals, finalizers, callbacks -------------------------------------------------------


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Has a function run in the middle of a core's method, once, as a signal's handler may; and sees to it
    that the core is never used by two at a time."""

    def patch(name: str, function: Callable[[], object]) -> None:
        waiting, used = [function], set[ClientCore]()

        def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(core: ClientCore, *args: Any, **options: Any) -> Any:
                assert core not in used, "it is used within itself"
                used.add(core)
                try:
                    if method.__name__ == name and waiting:
                        waiting.pop()()
                    return method(core, *args, **options)
                finally:
                    used.remove(core)

            return call

        for each in ("publish", "subscribe", "unsubscribe", "receive", "handle_timeout", "flush"):
            monkeypatch.setattr(ClientCore, each, wrapped(getattr(ClientCore, each)))

    return patch


Once = Callable[[str, Callable[[], object]], None]


@pytest.mark.parametrize("interrupted", ["publish", "handle_timeout"])
def test_what_interrupts_a_verb_or_a_turn_publishes_a_moment_later(
    cluster: Cluster, once: Once, interrupted: str
) -> None:
    with Client(cluster) as client:
        subscription, ended = client.subscribe("t"), client.subscribe("u")
        events = client.events()
        assert (subscription.ready(WAIT_S), ended.ready(WAIT_S)) == ((1, 1), (1, 1))
        outcomes, refused = [], []
        is_over = threading.Event()

        def handler() -> None:
            outcomes.append(client.publish_nowait("t", "within"))
            outcomes.append(client.publish_nowait("", "x"))
            calls: list[Callable[[], Any]] = [lambda: client.publish("t", "x"), lambda: client.subscribe("v")]
            calls += [client.events, lambda: client.drops, lambda: client.kernel_drops]
            calls += [lambda: client.counts, lambda: client.send_errors]
            calls += [subscription.get, subscription.ready, events.get]
            for call in calls:
                with pytest.raises(RuntimeError, match="use publish_nowait") as raised:
                    call()
                refused.append(raised)
            ended.close()
            events.close()
            is_over.set()

        once(interrupted, handler)
        assert client.publish("t", "around").receipts == 1
        assert is_over.wait(WAIT_S)
        assert len(refused) == 10
        assert outcomes[0].result(WAIT_S).receipts == 1
        with pytest.raises(TopicError):
            outcomes[1].result(WAIT_S)
        assert list(ended) == []
        assert len(list(events)) <= 2, "it ends"
        payloads = {each.payload for _ in range(2) if (each := subscription.get(WAIT_S))}
        assert payloads == {b"around", b"within"}


def test_callback_may_do_all_but_wait(cluster: Cluster) -> None:
    with Client(cluster) as client:
        told: list[object] = []
        done = threading.Event()

        def call_back(_: object) -> None:
            told.append(client.subscribe("v").leases)
            waits: list[Callable[[], Any]] = [lambda: client.publish("t", "x"), client.events().get]
            waits += [lambda: client.request("t", "x"), lambda: client.request_all("t", "x")]
            waits += [client.service("t", repr).wait, client.members("t").ready]
            for wait in waits:
                with pytest.raises(RuntimeError, match="must not wait: use publish_nowait or request_nowait"):
                    wait()
            done.set()

        client.publish_nowait("t", "x").add_done_callback(call_back)
        assert done.wait(WAIT_S)
        assert told == [(0, 1)]


SIGNALS = 1000


def storm(cluster_file: str) -> None:
    """Signals that come as fast as they are handled, while the main thread does all that it can do.

    An answer is awaited for long: one that comes late is the machine's fault, one that never comes is ours.
    """
    requests.TIMEOUT_S_FIRST = requests.TIMEOUT_S_MIN = requests.TIMEOUT_S_MAX = WAIT_S
    with Client(cluster_file) as client:
        subscription = client.subscribe("t")
        assert subscription.ready(WAIT_S) == (1, 1)
        outcomes = []

        def handler(*_: object) -> None:
            outcomes.append(client.publish_nowait("t", "handler"))
            if len(outcomes) < SIGNALS:  # the next one only now: a busy machine is not drowned in them
                signal.setitimer(signal.ITIMER_REAL, 0.001)

        signal.signal(signal.SIGALRM, handler)
        receipts = sent = taken = 0
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while len(outcomes) < SIGNALS:
                receipts += client.publish("t", "main").receipts
                for _ in range(5):
                    client.publish_nowait("t", "bare", confirm=False)
                sent += 6
                with suppress(TimeoutError):
                    while subscription.get(0.0):
                        taken += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert all(set(each.result(WAIT_S).servers.values()) == {Outcome.RECEIPT} for each in outcomes)
        assert receipts == sent // 6
        while taken < sent + len(outcomes) and subscription.get(WAIT_S):
            taken += 1
        assert taken == sent + len(outcomes)


def test_storm_of_signals_harms_nothing(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "cluster.txt"
    file.write_text(format_cluster(cluster))
    program = f"from tests.client.test_blocking import storm; storm({str(file)!r})"
    subprocess.run((sys.executable, "-X", "faulthandler", "-c", program), check=True, timeout=15 * WAIT_S)


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
    with pytest.raises(ClientClosed, match="is closed"):
        client.publish("t", "x")
    assert client.drops == client.send_errors == {}
    assert client.counts["datagrams_received"] > 0
    assert client.local_port > 0


def test_program_that_forgets_to_close_ends() -> None:
    program = (
        "from tests.client.test_blocking import *; client = Client(NOBODY).open(); client.subscribe('t')"
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

        monkeypatch.setattr(Engine, "finish_turn", turn)
        client._thread.wake()
        calls: list[Callable[[], Any]] = [each.result for each in waiting]
        calls += [lambda: client.publish("t", "x"), lambda: client.subscribe("u"), client.events]
        calls += [subscription.get, subscription.ready, events.get, lambda: next(iter(subscription))]
        for call in calls:
            with pytest.raises(ClientClosed, match=r"has failed: RuntimeError\('boom'\)") as raised:
                call()
            assert raised.value.__cause__ is boom
        assert subscription.leases == (0, 0)


def test_function_that_ends_its_thread_leaves_nobody_waiting(pool: ThreadPoolExecutor) -> None:
    """What calls sys.exit fails the client; all who wait are told."""

    def leave(_: Delivery) -> None:
        sys.exit("enough")

    with mute_cluster() as mute, Client(mute) as client:
        subscription = client.subscribe("t", on_delivery=leave)
        waiting = [pool.submit(call) for call in (lambda: client.publish("t", "x"), subscription.get)]
        deliveries = [Delivery(b"t", b"", "s", "p", seq) for seq in range(1, 4)]
        with client._thread._lock:
            client.core._events += deliveries
            client._thread.wake()
        for each in waiting:
            with pytest.raises(ClientClosed, match=r"has failed: SystemExit\('enough'\)"):
                each.result(WAIT_S)


# --- Forks --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_process_does_not_hang_on_a_lock_that_nobody_will_let_go(cluster: Cluster) -> None:
    with Client(cluster) as client:
        subscription, events = client.subscribe("t"), client.events()
        subscription.ready(WAIT_S)
        with held_elsewhere(client._thread._lock, subscription._changed, events._changed):
            child = os.fork()
            if not child:
                signal.alarm(int(WAIT_S))
                refused = 0
                calls: list[Callable[[], Any]] = [
                    lambda: client.publish("t", "x"),
                    lambda: client.subscribe("u"),
                ]
                calls += [client.events, subscription.get, subscription.ready, events.get]
                calls += [lambda: subscription.leases, lambda: client.drops, lambda: client.kernel_drops]
                calls += [lambda: client.counts, lambda: client.send_errors, lambda: client.local_port]
                for call in calls:
                    try:
                        call()
                    except ClientClosed:
                        refused += 1
                subscription.close()
                events.close()
                client.close()
                os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 12
        assert client.publish("t", "x").receipts == 1
        assert subscription.get(WAIT_S)


# --- Imports ------------------------------------------------------------------------------------------


def test_under_gevent_ctrl_c_reaches_the_program_whatever_it_interrupts() -> None:
    # There the thread is a greenlet of the main thread's, and the signal may come in the middle of a turn.
    program = """
from gevent import monkey

monkey.patch_all()
import time
from kcast.client.blocking import Client
from kcast.client.cluster import lab


class Path:
    def __init__(self, core):
        self.receive, self.next_timeout, self.flush = core.receive, core.next_timeout, core.flush

    def handle_timeout(self, now):
        raise KeyboardInterrupt


try:
    with Client(lab([("127.0.0.1", 9)]), path=Path):
        time.sleep(10)
except KeyboardInterrupt:
    print("heard")
"""
    run = subprocess.run((sys.executable, "-c", program), stdout=subprocess.PIPE, timeout=30, check=False)
    assert run.stdout == b"heard\n"
