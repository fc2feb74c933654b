"""loadtest/users/alarm.py: greenlets wake up when they should, and never before. Nothing is patched here."""

from collections.abc import Iterator
from random import Random
from time import monotonic_ns

import gevent
import pytest

from kcast.loadtest.users.alarm import Alarm

MS = 1_000_000


@pytest.fixture(params=["timerfd", "gevent"])
def alarm(request: pytest.FixtureRequest) -> Iterator[Alarm]:
    alarm = Alarm()
    if request.param == "gevent":
        alarm.close()  # as on systems without a timerfd
    yield alarm
    alarm.close()


def test_all_wake_up_in_order_and_none_too_early(alarm: Alarm) -> None:
    rng = Random(1)
    start_ns = monotonic_ns()
    dues = [start_ns + rng.randrange(100) * MS for _ in range(200)]
    woken: list[tuple[int, int]] = []

    def wait(due_ns: int) -> None:
        alarm.wait_until(due_ns)
        woken.append((due_ns, monotonic_ns()))

    gevent.joinall([gevent.spawn(wait, due_ns) for due_ns in dues], timeout=20)
    assert sorted(due_ns for due_ns, _ in woken) == sorted(dues)
    assert all(now_ns >= due_ns for due_ns, now_ns in woken)
    lateness = sorted(now_ns - due_ns for due_ns, now_ns in woken)
    assert lateness[len(lateness) // 2] < 50 * MS


def test_what_is_over_is_not_waited_for(alarm: Alarm) -> None:
    assert not alarm.wait_until(monotonic_ns() - 1)
    assert alarm.wait_until(monotonic_ns() + MS)


def test_one_that_is_killed_keeps_nobody_waiting(alarm: Alarm) -> None:
    start_ns = monotonic_ns()
    first = gevent.spawn(alarm.wait_until, start_ns + 10 * MS)
    second = gevent.spawn(alarm.wait_until, start_ns + 20 * MS)
    gevent.sleep(0)
    first.kill()
    assert second.get(timeout=20)
    assert monotonic_ns() >= start_ns + 20 * MS


def test_an_earlier_time_comes_first(alarm: Alarm) -> None:
    start_ns = monotonic_ns()
    late = gevent.spawn(alarm.wait_until, start_ns + 3_600_000 * MS)
    gevent.sleep(0)
    assert gevent.spawn(alarm.wait_until, start_ns + 5 * MS).get(timeout=20)
    assert not late.ready()
    late.kill()
