"""spark/report/cells.py: the words for a scenario's conditions."""

import pytest

from kcast.spark.report import cells


@pytest.mark.parametrize(
    ("outages", "by", "told"),
    [
        ("exact", "kill", "always 4 of 12 servers down (killed)"),
        ("exact", "isolation", "always 4 of 12 servers down"),
        ("independent", "stall", "33.33 % down (halted)"),
        ("zones", "kill", "33.33 % down (by zones, killed)"),
    ],
)
def test_what_is_down_is_told_in_numbers_of_servers_where_these_are_fixed(
    outages: str, by: str, told: str
) -> None:
    condition = {"outages": outages, "by": by, "down": 1 / 3, "servers": 12, "loss_in": 0, "loss_out": 0}
    words = cells._told(condition, {"down"})
    assert words.replace("\N{NO-BREAK SPACE}", " ") == told
