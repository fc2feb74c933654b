"""The topics and the subscribers of which most pairs were missed. No Spark."""

from collections.abc import Mapping, Sequence

from kcast.loadtest.results.causes import Cause
from kcast.spark.findings.cells import Cell, by_cell
from kcast.spark.findings.findings import Row


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the tables `misses_by_topic` and `misses_by_subscriber`, most misses of a scenario first."""
    return {
        "misses_by_topic": _table(cells, sums["misses_by_topic"], "topic"),
        "misses_by_subscriber": _table(cells, sums["misses_by_subscriber"], "subscriber"),
    }


def _table(cells: Sequence[Cell], found: Sequence[Row], of: str) -> list[Row]:
    rows = by_cell(found)
    return [
        {
            **{"cell": cell.number, of: row[of], "pairs": row["pairs"], "misses": row["misses"]},
            "share": row["misses"] / row["pairs"],
            **{"cause": Cause(row["cause"]).label, "cause_misses": row["cause_misses"]},
        }
        for cell in cells
        for row in rows[cell.number]
    ]
