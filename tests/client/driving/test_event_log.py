"""client/driving/event_log.py: what peers can cause is told at a bounded rate."""

import logging

import pytest

from kcast.client.driving.event_log import BURST, INTERVAL_S, EventLog, Pace, and_more
from kcast.client.events import (
    AllServersLost,
    ClockDoubt,
    ClusterRefused,
    Event,
    Forged,
    GroupTrouble,
    ListTrouble,
    ServerLost,
)


def put(pace: Pace[str], kind: str, now: float) -> list[str]:
    return pace.put(kind, and_more(kind), now)


def test_a_few_come_at_once_and_then_one_an_interval() -> None:
    pace: Pace[str] = Pace()
    assert [put(pace, "lost", 0.0) for _ in range(BURST + 3)] == [["lost"]] * BURST + [[]] * 3
    assert pace.next_timeout() == INTERVAL_S
    assert put(pace, "lost", INTERVAL_S) == ["lost (and 3 more like this)"]
    assert pace.next_timeout() is None
    assert put(pace, "lost", INTERVAL_S) == []
    assert pace.due(2 * INTERVAL_S - 0.1) == []
    assert pace.due(2 * INTERVAL_S) == ["lost"]
    assert pace.due(1000.0) == []


def test_kinds_share_the_rate_and_take_turns() -> None:
    pace: Pace[str] = Pace()
    while put(pace, "lost", 0.0):
        pass
    kinds = ("lost", "returned", "refused")
    told = []
    for number in range(600):
        for kind in kinds:
            told += put(pace, kind, number / 10)
    assert [line.split()[0] for line in told] == ["lost", "returned", "refused", "lost", "returned"]
    assert sum(1 + int(line.split()[2]) for line in [*told, *pace.end()]) == 1 + 600 * len(kinds)
    assert pace.end() == []


def test_what_is_added_to_a_line() -> None:
    assert and_more("x")(0) == "x"
    assert and_more("x")(7) == "x (and 7 more like this)"


WARNED: list[Event] = [
    AllServersLost(3),
    ServerLost("host:1", "name"),
    ClusterRefused("bad"),
    ListTrouble("example.org/a", "rollback", "it is older", 3),
    GroupTrouble("ops", "stale", "it ends soon"),
]


@pytest.mark.parametrize(
    "event", [*WARNED, ClockDoubt(b"t", "k", 40.0), Forged(b"t", 300.0), Forged(b"t", 300.0, "k")]
)
def test_warnings_come_at_a_bounded_rate(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    with caplog.at_level(logging.INFO, "kcast.client"):
        for number in range(1000):
            log.tell(event, 1000.0 + number / 100)
        assert len(caplog.records) == BURST
        assert {record.levelname for record in caplog.records} == {"WARNING"}
        caplog.clear()
        log.tell(event, 2000.0)
    assert caplog.messages[0].endswith(" more like this)")
