"""client/layers/choosing.py: many requests at few places, in virtual time."""

import heapq
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from math import inf
from typing import Any

import pytest

from kcast.client.events import Delivery
from kcast.client.layers.caller import Caller
from kcast.client.layers.calls import Reply
from kcast.client.layers.service import Job, Service
from kcast.client.layers.words import Answer, Asked, Declined
from tests.support.layer_lab import ADA, BOB, ME, TOPIC, FakeHost, FakeWaiter, asked_of, heard, present

MAILBOX = b"{calc}/" + ME.encode()


class Net:
    """A caller and workers that hear each other after half of `rtt_s`."""

    def __init__(self, rtt_s: float = 0.001) -> None:
        self.now, self.rtt_s = 0.0, rtt_s
        self.said: Counter[bytes] = Counter()
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        self._layers: list[Any] = []
        self.caller = self.add(lambda host: Caller(host, TOPIC, ME))

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._number), act))

    def add(self, make: Callable[[FakeHost], Any]) -> Any:
        host = FakeHost(seed=len(self._layers))
        # What it publishes goes over this path, and not into its list: replaced, which mypy forbids.
        host.publish = self._publish  # type: ignore[method-assign]
        layer = make(host)
        self._layers.append(layer)
        self.after(0.0, lambda: layer.handle_timeout(self.now))
        return layer

    def _publish(self, topic: bytes, payload: bytes, now: float) -> None:
        self.said[payload[:1]] += 1
        delivery = Delivery(topic, payload, "s", "p", 1, {}, 0.0, None)
        for layer in self._layers:
            if topic in layer.topics:
                self.after(self.rtt_s / 2, partial(self._hear, layer, delivery))

    def _hear(self, layer: Any, delivery: Delivery) -> None:
        layer.hear(delivery, self.now)

    def add_worker(self, name: str, job_s: float, concurrency: int, method: str = "add") -> None:
        def run(job: Job) -> None:
            job.stop = lambda: None
            self.after(job_s, lambda: worker.finish(job, b"3", self.now))

        worker = self.add(lambda host: Service(host, TOPIC, name, (method,), run, concurrency=concurrency))

    def ask(self, timeout_s: float = 60.0, method: str = "add") -> FakeWaiter:
        waiter = FakeWaiter()
        self.caller.ask(waiter, b"", method, timeout_s, self.now)
        return waiter

    def run_until(self, until: float) -> None:
        while True:
            due = min(self._layers, key=lambda layer: layer.next_at)
            event_at = self._events[0][0] if self._events else inf
            if min(event_at, due.next_at) > until:
                self.now = until
                return
            if due.next_at <= event_at:
                self.now = max(self.now, due.next_at)
                due.handle_timeout(self.now)
            else:
                self.now, _, act = heapq.heappop(self._events)
                act()


def test_many_at_once_end_about_as_soon_as_they_can() -> None:
    for job_s, concurrency, latest_s, most in (0.01, 16, 1.5, 2300), (0.5, 1000, 2.0, 2300):
        net = Net()
        net.add_worker(ADA, job_s, concurrency)
        net.run_until(1.0)
        waiters = [net.ask() for _ in range(2000)]
        assert net.said[b"?"] == 64, "more than it can read at once"
        net.run_until(1.0 + latest_s)
        assert all(isinstance(waiter.told[0], Reply) for waiter in waiters)
        assert net.said[b"?"] < most


def test_a_request_for_a_busy_worker_takes_no_place_of_another_one() -> None:
    net = Net()
    net.add_worker(ADA, 0.01, 1)
    net.add_worker(BOB, 300.0, 1, "mul")
    net.run_until(1.0)
    for _ in range(2):
        net.ask(method="mul")
    net.run_until(1.1)
    waiters = [net.ask() for _ in range(100)]
    net.run_until(2.5)
    assert all(waiter.told for waiter in waiters)


@pytest.mark.parametrize("rtt_s", [0.2, 1.0])
def test_a_caller_learns_that_answers_have_become_slow(rtt_s: float) -> None:
    net = Net()
    for name in ADA, BOB:
        net.add_worker(name, 0.001, 16)
    net.run_until(1.0)
    attempts = []
    for number in range(60):
        if number == 20:
            net.rtt_s = rtt_s
        waiter = net.ask()
        net.run_until(net.now + 3.0)
        attempts.append(waiter.told[0].attempts)
    assert sum(attempts[-30:]) == 30 and max(attempts) > 1


def test_what_ends_costs_the_same_however_many_wait() -> None:
    costs = []
    for waiting in 20, 2000:
        caller, answer = _held(waiting)
        costs.append(_calls_of(partial(caller.hear, answer, 0.0)))
        assert len(caller) == waiting - 1
    assert costs[0] == costs[1]


def test_callers_try_a_full_worker_at_different_times() -> None:
    times = set()
    for seed in range(5):
        caller, _ = _held(2, seed)
        times.add(caller.next_at)
    assert len(times) == 5 and min(times) >= 0.025 and max(times) <= 0.05


def test_what_has_ended_is_not_kept_until_its_deadline() -> None:
    host = FakeHost()
    caller = Caller(host, TOPIC, ME)
    caller.handle_timeout(0.0)
    caller.hear(present(ADA, "add", seconds=300), 0.0)
    for number in range(2000):
        caller.ask(FakeWaiter(), b"", "add", 3600.0, number / 1000)
        ((_, word),) = host.take()
        assert isinstance(word, Asked)
        caller.hear(heard(MAILBOX, Answer(word.q, ADA, 0, 1, b"3")), number / 1000)
    assert len(caller._due._heap) < 200


def _held(waiting: int, seed: int = 1) -> tuple[Caller, Delivery]:
    """A caller with a request that runs, and others that wait; and the answer of the first one."""
    host = FakeHost(seed)
    caller = Caller(host, TOPIC, ME)
    caller.handle_timeout(0.0)
    caller.hear(present(ADA, "add", seconds=300), 0.0)
    caller.ask(FakeWaiter(), b"", "add", 60.0, 0.0)
    ((_, first),) = asked_of(host.take())
    for _ in range(waiting - 1):
        caller.ask(FakeWaiter(), b"", "add", 60.0, 0.0)
        for _, word in asked_of(host.take()):
            caller.hear(heard(MAILBOX, Declined(word.q, ADA, "busy")), 0.0)
    return caller, heard(MAILBOX, Answer(first.q, ADA, 0, 1, b"3"))


def _calls_of(act: Callable[[], object]) -> int:
    """How many functions are called."""
    calls = 0

    def count_it(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count_it)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls
