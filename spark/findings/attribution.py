"""The causes of misses, in words. No Spark."""

from collections.abc import Mapping, Sequence

from kcast.loadtest.results.causes import MEANINGS, Cause
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `attribution`: each scenario's causes, in the order in which a message meets them.

    Only causes that ended a path are listed. "delivered" is one of them; it has paths and no misses.
    """
    found = {(row["cell"], Cause(row["cause"])): row for row in sums["causes"]}
    rows = []
    for cell in cells:
        of_cell = [(cause, found[cell.number, cause]) for cause in Cause if (cell.number, cause) in found]
        missed = sum(row["pairs"] for cause, row in of_cell if cause is not Cause.DELIVERED)
        rows += [_row(cell, cause, row, missed) for cause, row in of_cell]
    return {"attribution": rows}


def _row(cell: Cell, cause: Cause, row: Row, missed: int) -> Row:
    misses = 0 if cause is Cause.DELIVERED else row["pairs"]
    return {
        "cell": cell.number,
        "cause": cause.label,
        "meaning": MEANINGS[cause],
        "misses": misses,
        "share": misses / missed if missed else 0.0,
        "paths": row["paths"],
    }
