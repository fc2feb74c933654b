from typing import Any

import pytest

from kcast.loadtest.capture.manifest import Stored
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.completeness import shortfalls

ALL = {table: Stored(1, 10) for table in TABLES}
EVIDENCE: dict[str, Any] = {"scheduled": 10, "copies": 10, "cut_off": True}
SINCE_RUNS_SAY = {"entry", "sighting"}  # what was written, nothing need be guessed of these
OUTAGES = Scenario(outages="independent", outage=0.1)


def missing(*tables: str, scenario: Scenario = OUTAGES, **evidence: Any) -> list[str]:
    found = ALL | {table: Stored(0, 0) for table in tables}
    told = shortfalls(scenario, found, None, **EVIDENCE | evidence)
    return sorted(clause.removesuffix(" is missing") for clause in told)


@pytest.mark.parametrize("table", sorted(TABLES.keys() - SINCE_RUNS_SAY))
def test_every_table_of_a_run_of_all_kinds_of_events_is_missed(table: str) -> None:
    assert missing(table) == [table]


def test_what_need_not_be_is_not_missed() -> None:
    assert missing() == []
    assert missing("outage", cut_off=False) == []
    assert missing("deliver", "server_rx", "lease", copies=0) == []
    assert (
        missing("publish", "pub_tx", "deliver", "server_rx", "lease", "window", scheduled=0, copies=0) == []
    )
    assert (
        missing("server_rx", "lease", "server_life", "server_stat", scenario=Scenario(backend="file")) == []
    )
    assert missing("intent", "subscribe", scenario=Scenario(subscribers=0, mixed=0)) == []
    assert missing("intent", scenario=Scenario(subscribers=0, mixed=1)) == ["intent"]


def test_several_are_all_told() -> None:
    assert missing("publish", "deliver") == ["deliver", "publish"]


def test_what_was_written_is_held_against_what_there_is() -> None:
    def told(found: Stored) -> list[str]:
        return shortfalls(OUTAGES, ALL | {"deliver": found}, ALL, **EVIDENCE)

    assert told(Stored(1, 10)) == []
    assert told(Stored(0, 0)) == ["deliver has 0 rows in 0 files, but 10 rows in 1 file were written"]
    assert told(Stored(1, 9)) == ["deliver has 9 rows in 1 file, but 10 rows in 1 file were written"]
    assert told(Stored(2, 10)) == ["deliver has 10 rows in 2 files, but 10 rows in 1 file were written"]


def test_who_says_what_was_written_is_believed() -> None:
    none = {table: Stored(0, 0) for table in TABLES}
    assert shortfalls(OUTAGES, none, none, **EVIDENCE) == []
