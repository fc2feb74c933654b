"""client/pace.py and client/event_log.py: what peers can cause is told at a bounded rate."""

import logging

import pytest

from kcast.client.event_log import EventLog
from kcast.client.events import (
    AllServersLost,
    ClusterChanged,
    ClusterRefused,
    Event,
    Gap,
    ListTrouble,
    ServerLost,
)
from kcast.client.pace import BURST, INTERVAL_S, Pace, and_more


def test_a_few_come_at_once_and_then_one_an_interval() -> None:
    pace = Pace()
    assert [pace.admit("lost", 0.0) for _ in range(BURST + 3)] == [0] * BURST + [None] * 3
    assert pace.withheld("lost") == 3
    assert pace.admit("lost", INTERVAL_S) == 3
    assert pace.admit("lost", INTERVAL_S) is None
    assert pace.admit("lost", 2 * INTERVAL_S) == 1


def test_kinds_are_apart() -> None:
    pace = Pace()
    while pace.admit("lost", 0.0) is not None:
        pass
    assert pace.admit("returned", 0.0) == 0


def test_after_a_pause_a_few_come_at_once_again() -> None:
    pace = Pace()
    for _ in range(2 * BURST):
        pace.admit("lost", 0.0)
    told = [pace.admit("lost", 1000.0) for _ in range(2 * BURST)]
    assert told == [BURST] + [0] * (BURST - 1) + [None] * BURST


def test_what_is_added_to_a_line() -> None:
    assert and_more(0) == ""
    assert and_more(7) == " (and 7 more like this)"


WARNED: list[Event] = [
    AllServersLost(3),
    ServerLost("host:1", "name"),
    ClusterRefused("bad"),
    ListTrouble("example.org/a", "rollback", "it is older", 3),
]


@pytest.mark.parametrize("event", WARNED)
def test_warnings_come_at_a_bounded_rate(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    with caplog.at_level(logging.INFO, "kcast.client"):
        for number in range(1000):
            log.tell(event, 1000.0 + number / 100)
        assert len(caplog.records) == BURST + 9
        assert {record.levelname for record in caplog.records} == {"WARNING"}
        caplog.clear()
        log.tell(event, 2000.0)
    assert caplog.messages[0].endswith(" more like this)")


def test_what_is_usual_is_told_to_who_asks(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    with caplog.at_level(logging.DEBUG, "kcast.client"):
        log.tell(Gap(b"t", "p", 1, 2), 0.0)
        log.tell(ClusterChanged(("a:1",), ("b:1", "c:1")), 0.0)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told[0] == ("DEBUG", str(Gap(b"t", "p", 1, 2)))
    assert told[1] == ("INFO", "the cluster has changed: 1 added, 2 removed")
