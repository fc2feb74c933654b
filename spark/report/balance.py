"""The part on balance: how evenly servers are loaded. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts.scales import from_zero
from kcast.loadtest.charts.svg import BAND, SPECK, swatch
from kcast.loadtest.charts.words import count, listed, number, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import DISAGREES, NO_THEORY
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import NOT_VALID, Badge, Section, figure
from kcast.spark.report.numbers import folded

WHAT = "forwarded copies"


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a row of servers for each scenario; None without the table."""
    found = [
        (cell, row)
        for cell, row in cells.rows(findings, "balance")
        if row["what"] == WHAT and row["mean"] and None not in (row["cv"], row["peak"])
    ]
    if not found:
        return None
    loads: dict[int, list[float]] = defaultdict(list)
    means = {cell.number: row["mean"] for cell, row in found}
    for server in findings.table("servers"):
        if server["cell"] in means:
            loads[server["cell"]].append(server["forwarded"] / means[server["cell"]])
    scale = from_zero([row["peak"] for _, row in found], "×")
    styles = cells.family_styles()
    drawn = [
        rows.of_cell(
            cell,
            styles[cell.family],
            _marks(row, loads[cell.number]),
            f"CV {row['cv']:.2f}",
            _title(cell, row),
        )
        for cell, row in found
    ]
    judged = [(cell, row) for cell, row in found if cell.is_valid and row["predicted_cv"] is not None]
    uneven = [cell.name for cell, row in judged if row["verdict"] == DISAGREES]
    label = "Load of the servers: " + "; ".join(_title(cell, row) for cell, row in found)
    legend = [
        (SPECK, "a server"),
        (BAND, "the mean ± the CV that random placement gives"),
        (swatch(3, "hollow s5"), "the busiest"),
    ]
    how = (
        "Copies that each server forwarded, divided by the mean of its scenario. The CV is the standard "
        "deviation divided by the mean. The load counts as even if chance gives such a CV."
    )
    every = [row for _, row in cells.rows(findings, "balance")]
    return Section(
        "balance",
        "Balance",
        _says(found, judged, uneven),
        _badge(judged, uneven, any(cell.is_valid for cell, _ in found)),
        (
            figure(rows.chart(drawn, scale, "copies forwarded, of the mean", label), how, legend),
            folded("balance", every, cells),
        ),
    )


def _badge(judged: Sequence[object], uneven: Sequence[str], any_valid: bool) -> Badge:
    if not judged:
        return Badge.of(NO_THEORY) if any_valid else Badge.of(NOT_VALID)
    return Badge("less even than by chance", "warn") if uneven else Badge("as even as by chance", "good")


def _says(
    found: Sequence[tuple[NamedCell, Row]], judged: Sequence[tuple[NamedCell, Row]], uneven: Sequence[str]
) -> str:
    trusted = [(cell, row) for cell, row in found if cell.is_valid] or found
    cell, worst = max(trusted, key=lambda one: one[1]["peak"])
    words = (
        f"The busiest of {count(worst['servers'], 'server')} forwarded {number(worst['peak'])} times the "
        f"mean ({cell.name})"
    )
    if not judged:
        return f"{words}."
    cvs = span([row["cv"] for _, row in judged], lambda value: f"{value:.2f}")
    theory = span([row["predicted_cv"] for _, row in judged], lambda value: f"{value:.2f}")
    words += (
        f". The standard deviation of the loads is {cvs} of the mean; chance alone would make it {theory}"
    )
    return f"{words}. It is too great in {listed(uneven)}." if uneven else f"{words}."


def _marks(row: Row, loads: Sequence[float]) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if row["predicted_cv"] is not None:
        marks.append(rows.Band(1 - row["predicted_cv"], 1 + row["predicted_cv"]))
    marks.append(rows.Tick(1, "mean"))
    if loads:
        marks.append(rows.Specks(loads))
    return [*marks, rows.Dot(row["peak"], 3, "hollow")]


def _title(cell: NamedCell, row: Row) -> str:
    predicted = "" if row["predicted_cv"] is None else f" (by chance {number(row['predicted_cv'], 2)})"
    return (
        f"{cell.name}: CV {number(row['cv'], 2)}{predicted}, busiest {number(row['peak'])} times the mean of "
        f"{row['servers']:,} servers"
    )
