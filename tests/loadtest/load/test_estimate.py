"""loadtest/load/estimate.py: what a scenario would take."""

from typing import Any

import pytest

from kcast.loadtest.load.estimate import estimate, total
from kcast.loadtest.scenario import Scenario

PLAIN = Scenario(publishers=2, rate=50.0, duration_s=10.0, subscribers=8, topics=10, topics_per_subscriber=5)


def test_messages_pairs_and_copies_follow_from_the_scenario() -> None:
    found = estimate(PLAIN)
    # 2 x 50 x 10 messages, each for 8 x 5 / 10 subscribers, by 3 of 5 servers.
    assert (found.messages, found.pairs, found.copies) == (1000, 4000, 12_000)
    assert estimate(PLAIN.with_(publishers=0, mixed=2)).pairs == 1000 * (8 + 2) * 5 / 10


def test_copies_follow_policy_and_faults() -> None:
    cases: list[Any] = [
        ({"side": "subscribe"}, 1.0),
        ({"scheme": "CH"}, 5 / 3),
        ({"repeat": 2}, 2.0),
        ({"duplicate": 0.5}, 1.5),
        ({"loss_in": 0.1}, 0.9),
        ({"loss_out": 0.1}, 1.0),  # they are captured too
        ({"outages": "independent", "outage": 0.25}, 0.75),
        ({"outages": "exact", "down": 3}, 0.75),
    ]
    for changes, factor in cases:
        assert estimate(PLAIN.with_(**changes)).copies == pytest.approx(12_000 * factor)


def test_time_disk_and_cpu_grow_with_what_is_asked() -> None:
    small, large = estimate(PLAIN), estimate(PLAIN.with_(duration_s=1000.0))
    assert small.time_s > PLAIN.duration_s + PLAIN.deadline_s
    assert large.time_s > 1000 and large.disk_bytes > 50 * small.disk_bytes
    assert large.cpu_share == pytest.approx(small.cpu_share)
    busy = PLAIN.with_(rate=5000.0)
    assert estimate(busy).cpu_share == pytest.approx(100 * small.cpu_share)
    assert estimate(busy, workers=4).cpu_share == pytest.approx(25 * small.cpu_share)


def test_more_servers_take_longer_to_start_and_a_lab_less() -> None:
    many = PLAIN.with_(servers=1000)
    assert estimate(many).time_s > estimate(PLAIN).time_s + 15
    assert estimate(many.with_(backend="lab")).time_s < estimate(PLAIN).time_s + 5


def test_the_total_is_the_sum_but_of_cpu() -> None:
    one, other = estimate(PLAIN), estimate(PLAIN.with_(rate=100.0))
    both = total([one, other])
    assert (both.name, both.messages) == ("in all", one.messages + other.messages)
    assert both.time_s == one.time_s + other.time_s
    assert both.cpu_share == other.cpu_share
    assert total([]).cpu_share == 0
