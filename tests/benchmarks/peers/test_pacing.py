"""The open-loop schedule."""

from itertools import pairwise

import pytest

from tests.benchmarks.peers.pacing import Schedule

SCHEDULES = [
    Schedule(rate, seconds, tick_s)
    for rate in (3.0, 200.0, 1999.0, 12_345.6, 1_000_000.0)
    for seconds in (0.25, 1.0)
    for tick_s in (0.0005, 0.001, 0.00007)
    if rate * seconds < 300_000
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_messages_become_due_at_their_rate(schedule: Schedule) -> None:
    due = [schedule.due(tick) for tick in range(schedule.tick_count)]
    assert all(later >= earlier for earlier, later in pairwise(due))
    # In each tick as many as its part of the rate, rounded.
    per_tick = schedule.rate * schedule.tick_s
    assert all(abs(count - per_tick * (tick + 1)) < 1.0 for tick, count in enumerate(due))
    assert due[-1] == schedule.message_count == schedule.due(10**9)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_message_is_due_at_the_first_tick_that_has_it(schedule: Schedule) -> None:
    for message in range(0, schedule.message_count, max(1, schedule.message_count // 1000)):
        tick = round(schedule.due_s(message) / schedule.tick_s)
        assert schedule.due(tick) > message
        assert tick == 0 or schedule.due(tick - 1) <= message


def test_a_schedule_has_at_least_one_tick() -> None:
    assert Schedule(1e6, 0.0001, 0.0005).message_count == 500
