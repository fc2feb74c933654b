"""The part on balance: how evenly servers are loaded. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kcast.loadtest.charts import rows
from kcast.loadtest.charts.scales import from_zero
from kcast.loadtest.charts.svg import BAND, Figure, square, swatch
from kcast.loadtest.charts.words import count, number
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.parts import SIGNS, Section, gravest, ratio, verdict_of

_WHAT = "forwarded copies"
_HOW = (
    "Copies that each server forwarded, divided by the mean of its scenario. The CV is the standard "
    "deviation divided by the mean, in brackets that by chance. The verdict of the whole also counts lines "
    f"received, and leases. {SIGNS}"
)
_LEGEND = (
    (square("speck s5"), "a server"),
    (BAND, "the mean ± the CV that random placement gives"),
    (swatch(3, "hollow s5"), "the busiest"),
)


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a row of servers for each scenario; None without the table."""
    every = cells.rows(findings, "balance")
    found = [(cell, row) for cell, row in every if row["what"] == _WHAT and row["mean"] and row["peak"]]
    if not found:
        return None
    loads: defaultdict[int, list[float]] = defaultdict(list)
    means = {cell.number: row["mean"] for cell, row in found}
    for server in findings.table("servers"):
        if server["cell"] in means:
            loads[server["cell"]].append(server["forwarded"] / means[server["cell"]])
    drawn = [
        rows.ChartRow(
            cell.name,
            f"CV {ratio(row['cv'])} ({ratio(row['predicted_cv'])}) {verdict_of(cell, row).sign}",
            list(_marks(row, loads[cell.number])),
            cell.style,
            cell.is_valid,
        )
        for cell, row in found
    ]
    label = "Load of the servers: " + "; ".join(f"{row.label}: {row.value}" for row in drawn)
    scale = from_zero([row["peak"] for _, row in found], "×")
    trusted = [(cell, row) for cell, row in found if cell.is_valid] or found
    cell, worst = max(trusted, key=lambda one: float(one[1]["peak"]))
    busiest = f"forwarded {number(worst['peak'])} times the mean ({cell.name})"
    return Section(
        "balance",
        "Balance",
        f"The busiest of {count(worst['servers'], 'server')} {busiest}.",
        gravest([row["verdict"] for cell, row in every if cell.is_valid], any_valid=cells.any_valid),
        [Figure([rows.chart(drawn, scale, "copies forwarded, of the mean", label)], _LEGEND, _HOW)],
    )


def _marks(row: Row, loads: Sequence[float]) -> Iterator[rows.Mark]:
    if row["predicted_cv"] is not None:
        yield rows.band(1 - row["predicted_cv"], 1 + row["predicted_cv"])
    yield rows.tick(1, "mean")
    yield rows.specks(loads)
    yield rows.dot(row["peak"], 3, "hollow")
