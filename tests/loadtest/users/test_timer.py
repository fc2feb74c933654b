"""loadtest/users/timer.py: greenlets wake up when they should, and never before. Nothing is patched here."""

from collections.abc import Iterator
from random import Random
from time import monotonic_ns

import gevent
import pytest

from kcast.loadtest.users.timer import Timer

MS = 1_000_000


@pytest.fixture(params=["timerfd", "gevent"])
def timer(request: pytest.FixtureRequest) -> Iterator[Timer]:
    timer = Timer()
    if request.param == "gevent":
        timer.close()  # as on systems without a timerfd
    yield timer
    timer.close()


def test_all_wake_up_and_none_too_early(timer: Timer) -> None:
    for seed in range(20):  # until this machine is idle enough to show that it is not the timer that is late
        rng = Random(seed)
        start_ns = monotonic_ns()
        dues = [start_ns + rng.randrange(100) * MS for _ in range(200)]
        woken: list[tuple[int, int]] = []

        def wait(due_ns: int, woken: list[tuple[int, int]] = woken) -> None:
            timer.wait_until(due_ns)
            woken.append((due_ns, monotonic_ns()))

        gevent.joinall([gevent.spawn(wait, due_ns) for due_ns in dues], timeout=20)
        assert sorted(due_ns for due_ns, _ in woken) == sorted(dues)
        lateness = sorted(now_ns - due_ns for due_ns, now_ns in woken)
        assert lateness[0] >= 0
        if lateness[len(lateness) // 2] < 50 * MS:
            return
    pytest.fail("the median was never within 50 ms")


def test_a_time_that_has_passed_is_not_waited_for(timer: Timer) -> None:
    assert not timer.wait_until(monotonic_ns() - 1)
    # A busy machine may keep this process from asking until 1 ms has passed.
    assert any(timer.wait_until(monotonic_ns() + delay_ms * MS) for delay_ms in (1, 10, 100, 1000))


def test_a_killed_greenlet_keeps_no_other_waiting(timer: Timer) -> None:
    start_ns = monotonic_ns()
    first = gevent.spawn(timer.wait_until, start_ns + 10 * MS)
    second = gevent.spawn(timer.wait_until, start_ns + 20 * MS)
    gevent.sleep(0)
    first.kill()
    second.get(timeout=20)
    assert monotonic_ns() >= start_ns + 20 * MS


def test_an_earlier_time_comes_first(timer: Timer) -> None:
    start_ns = monotonic_ns()
    late = gevent.spawn(timer.wait_until, start_ns + 3_600_000 * MS)
    gevent.sleep(0)
    gevent.spawn(timer.wait_until, start_ns + 5 * MS).get(timeout=20)
    assert monotonic_ns() >= start_ns + 5 * MS
    assert not late.ready()
    late.kill()
