"""spark/report/conditions.py: what was against the messages, and how many copies they had, in words."""

import pytest

from kcast.spark.findings.findings import Row
from kcast.spark.report import conditions
from tests.support.report_findings import findings, scenarios


def row(**given: object) -> Row:
    own = {"outages": "independent", "by": "isolation", "down": 0.1, "servers": 12, "known": 1.0}
    return {**own, "loss_in": 0.02, "loss_out": 0.02, "repeat": 1, **given}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "a tenth of the servers were down and 2 % of packets were lost each way"),
        ({"outages": "none"}, "2 % of packets were lost each way"),
        ({"outages": "none", "loss_in": 0.0, "loss_out": 0.0}, "all servers were up and no packet was lost"),
        ({"down": 0.15, "loss_in": 0.0}, "15 % of the servers were down and 2 % of packets were lost on the"),
        ({"loss_out": 0.01}, "2 % of packets were lost to servers and 1 % to clients"),
        (
            {"outages": "exact", "down": 1 / 3, "by": "kill"},
            "4 of 12 servers were down, killed and started again",
        ),
        ({"outages": "exact", "down": 1 / 12}, "1 of 12 servers was down and"),
        ({"outages": "zones", "down": 0.25}, "a quarter of the zones were down, with all their servers"),
        ({"outages": "rolling", "by": "stall"}, "one server after the other was down, halted"),
        ({"known": 0.9}, "each client knew only 90 % of the servers"),
    ],
)
def test_what_was_taken_away_is_told(given: dict[str, object], told: str) -> None:
    assert told in conditions.while_words(row(**given)).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (("RCH", 5, 3, 5), "3 copies of 5"),
        (("RCH", 5, 5, 1), "1 copy of 5"),
        (("CH", 5, 5, 5), "all 5 copies"),
        (("CH", 1, 1, 1), "1 copy"),
        (("S", 1, 1, 1), "1 copy"),
        (("R", 12, 4, 4), "4 of 12 servers on each side"),
    ],
)
def test_copies_are_told(policy: tuple[str, int, int, int], told: str) -> None:
    own = dict(zip(("scheme", "k", "publish", "subscribe"), policy, strict=True))
    words = conditions.copies(row(**own)).replace("\N{NO-BREAK SPACE}", " ")
    assert words == told
    assert conditions.copies(row(**own, repeat=2)).endswith(", each sent 2 times")


def test_only_what_all_have_in_common_is_common() -> None:
    grid = findings(scenarios("k-prime")).table("scenarios")
    assert conditions.common(grid).startswith("a tenth of the servers were down")
    assert conditions.common([*grid, {**grid[0], "loss_in": 0.5}]) == ""
    assert conditions.common([]) == ""
