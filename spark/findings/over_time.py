"""What arrived over time, beside the servers that were down. No Spark."""

from collections.abc import Mapping, Sequence

from kcast.loadtest.results.percentiles import NS_PER_MS
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row

_NS_PER_S = 1_000_000_000


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `over_time`: a row for each slot of time in which a pair was due."""
    known = {cell.number for cell in cells}
    rows = [_row(row) for row in sums["over_time"] if row["cell"] in known]
    return {"over_time": sorted(rows, key=lambda row: (row["cell"], row["from_s"]))}


def _row(row: Row) -> Row:
    return {
        "cell": row["cell"],
        **{"from_s": row["from_ns"] / _NS_PER_S, "to_s": row["to_ns"] / _NS_PER_S},
        **{"pairs": row["pairs"], "delivered": row["delivered"], "share": row["delivered"] / row["pairs"]},
        **{"p50_ms": _ms(row["p50_ns"]), "p99_ms": _ms(row["p99_ns"]), "servers_down": row["down"]},
    }


def _ms(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / NS_PER_MS
