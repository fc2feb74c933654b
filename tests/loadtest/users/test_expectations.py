"""loadtest/users/expectations.py: misses, compared with all that was published, message by message."""

from random import Random

import pytest

from kcast.loadtest.scenario import Scenario, message_id
from kcast.loadtest.users.expectations import AHEAD_NS, SLOT_NS, Expectations, Received
from kcast.loadtest.users.roster import OPEN, Window
from kcast.loadtest.users.schedule import Schedule

S = 1_000_000_000
SCENARIO = Scenario(seed=3, rate=40.0, topics=6, topics_per_subscriber=3)


def messages(window: Window) -> list[tuple[int, int, int]]:
    """Returns what is published in a window: id, time, topic."""
    part = Schedule(SCENARIO).messages(*window)
    columns = zip(part.seq.tolist(), part.t_ns.tolist(), part.topic_id.tolist(), strict=True)
    return [(message_id(window.pub_id, seq), t_ns, topic) for seq, t_ns, topic in columns]


def settle_all(received: Received, expectations: Expectations, until_ns: int) -> list[int]:
    return [
        missed
        for start in range(0, until_ns, SLOT_NS)
        for missed in received.settle(expectations.slot(start, start + SLOT_NS))
    ]


@pytest.fixture
def expectations() -> Expectations:
    return Expectations(Schedule(SCENARIO))


def test_misses_are_what_was_published_wanted_and_not_received() -> None:
    for seed in range(5):
        rng = Random(seed)
        windows = [Window(0, 0, 4 * S), Window(1, S // 3, 2 * S), Window(1, 3 * S, 4 * S), Window(7, 0, 1)]
        expectations = Expectations(Schedule(SCENARIO))
        expectations.update(windows)
        topics = (1, 2, 5)
        from_ns, to_ns = 350_000_000, 3 * S + 123_456_789
        received = Received(topics, SCENARIO.topics, from_ns, to_ns)
        wanted = [
            (msg_id, t_ns)
            for window in windows
            for msg_id, t_ns, topic in messages(window)
            if topic in topics and from_ns <= t_ns < to_ns
        ]
        taken = {msg_id for msg_id, t_ns in wanted if rng.random() < 0.7 and received.add(msg_id, t_ns)}
        missed = settle_all(received, expectations, 5 * S)
        assert sorted(missed) == sorted(msg_id for msg_id, _ in wanted if msg_id not in taken), f"seed {seed}"
        assert len(wanted) > 50
        assert taken
        assert received.settled_ns == to_ns
        assert not received._msg_ids  # it would grow for ever


def test_a_message_after_it_was_settled_does_not_count(expectations: Expectations) -> None:
    window = Window(0, 0, S)
    expectations.update([window])
    received = Received(range(6), 6, 0)
    (msg_id, t_ns, _), *_ = messages(window)
    assert len(settle_all(received, expectations, S)) == len(messages(window))
    assert not received.add(msg_id, t_ns)
    assert received.settled_ns == S


def test_a_message_counts_once_and_only_in_its_time() -> None:
    received = Received([0], 6, 100, 200)
    assert [received.add(1, 100), received.add(1, 100)] == [True, False]
    assert not received.add(2, 99)
    assert not received.add(3, 200)


def test_a_window_that_is_closed_later_ends_what_is_expected(expectations: Expectations) -> None:
    expectations.update([Window(0, 0, OPEN)])
    before = expectations.slot(0, 2 * S)
    expectations.update([Window(0, 0, S)])
    after = expectations.slot(0, 2 * S)
    assert len(after.msg_id) < len(before.msg_id)
    assert sorted(after.msg_id.tolist()) == sorted(msg_id for msg_id, _, _ in messages(Window(0, 0, S)))
    assert expectations.window_of(0) == Window(0, 0, S)
    assert expectations.window_of(1) is None


def test_intended_times_are_known_ahead_and_forgotten(expectations: Expectations) -> None:
    expectations.update([Window(0, 0, OPEN)])
    expectations.look_ahead(0, 0)
    times = {msg_id: t_ns for msg_id, t_ns, _ in messages(Window(0, 0, AHEAD_NS))}
    assert {msg_id: expectations.intended_ns(msg_id) for msg_id in times} == times
    expectations.update([Window(4, S, OPEN)])  # comes when the next seconds have been looked up already
    late = {msg_id: t_ns for msg_id, t_ns, _ in messages(Window(4, S, AHEAD_NS))}
    assert {msg_id: expectations.intended_ns(msg_id) for msg_id in late} == late
    for second in range(1, 40):
        expectations.look_ahead(second * S, (second - 5) * S)
    assert {expectations.intended_ns(msg_id) for msg_id in (*times, *late)} == {None}
    assert len(expectations._intended) < 2 * 40 * (AHEAD_NS // S + 10)
    assert expectations.intended_ns(message_id(99, 0)) is None


@pytest.mark.parametrize("is_told_first", [True, False])
def test_what_began_long_ago_is_looked_up_from_now_on(
    expectations: Expectations, is_told_first: bool
) -> None:
    if is_told_first:
        expectations.update([Window(0, 0, OPEN)])
    expectations.look_ahead(1000 * S, 995 * S)
    if not is_told_first:
        expectations.update([Window(0, 0, OPEN)])  # a process that comes late is told afterwards
    (msg_id, t_ns, _), *_ = messages(Window(0, 1000 * S, 1001 * S))
    assert expectations.intended_ns(msg_id) == t_ns
    assert len(expectations._intended) < 40 * 30


def test_without_publishers_nothing_is_expected(expectations: Expectations) -> None:
    assert settle_all(Received([0], 6, 0), expectations, S) == []
