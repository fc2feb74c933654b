"""Causes in words: shares of the misses, in the order of the way."""

from kcast.loadtest.results.causes import MEANINGS, Cause
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.attribution import tables
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Findings

CELLS = [Cell(number, "run", Scenario(), "complete", 0) for number in range(3)]


def row(cell: int, cause: Cause, pairs: int, paths: int) -> dict[str, int]:
    return {"cell": cell, "cause": int(cause), "pairs": pairs, "paths": paths}


def test_shares_are_of_the_misses_of_the_cell() -> None:
    causes = [
        row(1, Cause.DELIVERED, 90, 250),
        row(1, Cause.LOSS_IN, 1, 30),
        row(1, Cause.DOWN, 3, 40),
        row(0, Cause.DRAW, 0, 7),
        row(0, Cause.DELIVERED, 5, 5),
    ]
    found = tables(CELLS, {"causes": causes})
    Findings({}, tables=found)  # has the table's columns, in order, of its types
    told = [
        (each["cell"], each["cause"], each["misses"], each["share"], each["paths"])
        for each in found["attribution"]
    ]
    assert told == [
        (0, "draw", 0, 0.0, 7),
        (0, "delivered", 0, 0.0, 5),
        (1, "down", 3, 0.75, 40),
        (1, "loss-in", 1, 0.25, 30),
        (1, "delivered", 0, 0.0, 250),
    ]
    assert found["attribution"][2]["meaning"] == MEANINGS[Cause.DOWN]
