"""How evenly the work lies on the servers. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt

from kcast.loadtest.charts.scales import from_zero
from kcast.loadtest.charts.svg import BAND, SPECK, swatch
from kcast.loadtest.charts.words import count, listed, number, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import NO_THEORY
from kcast.spark.report import rows
from kcast.spark.report.cells import Cell, Cells
from kcast.spark.report.markup import NOT_VALID, Badge, Section, figure
from kcast.spark.report.numbers import folded

WHAT = "forwarded copies"
_DEVIATIONS = 3.0
"""Standard deviations by which a coefficient of variation may be off, about CV / sqrt(2 servers) each."""


def section(findings: Findings, cells: Cells) -> Section | None:
    """A line of servers for each cell."""
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
    uneven = [cell.name for cell, row in judged if _is_uneven(row)]
    label = "Load of the servers: " + "; ".join(_title(cell, row) for cell, row in found)
    legend = [
        (SPECK, "a server"),
        (BAND, "the mean, give or take the CV that random placement gives"),
        (swatch(3, "hollow s5"), "the busiest"),
    ]
    how = (
        "Copies that each server forwarded, in units of the mean of its cell. CV is the standard deviation "
        f"over the mean; as even as chance has it is what is less than {_DEVIATIONS:.0f} standard deviations "
        "of the CV itself above what is predicted."
    )
    every = [row for _, row in cells.rows(findings, "balance")]
    return Section(
        "balance",
        "Balance",
        _says(found, judged, uneven),
        _verdict(judged, uneven, any(cell.is_valid for cell, _ in found)),
        (
            figure(rows.chart(drawn, scale, "copies forwarded, of the mean", label), how, legend),
            folded("balance", every, cells),
        ),
    )


def _is_uneven(row: Row) -> bool:
    spread = row["predicted_cv"] / sqrt(2 * max(1, row["servers"]))
    return bool(row["cv"] > row["predicted_cv"] + _DEVIATIONS * spread)


def _verdict(judged: Sequence[object], uneven: Sequence[str], any_valid: bool) -> Badge:
    if not judged:
        return Badge.of(NO_THEORY) if any_valid else Badge.of(NOT_VALID)
    return Badge("less even than chance", "warn") if uneven else Badge("as even as chance has it", "good")


def _says(
    found: Sequence[tuple[Cell, Row]], judged: Sequence[tuple[Cell, Row]], uneven: Sequence[str]
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
    words += f". The CV is {cvs}, where random placement of these topics gives {theory}"
    return f"{words}; {listed(uneven)} is more than that." if uneven else f"{words}."


def _marks(row: Row, loads: Sequence[float]) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if row["predicted_cv"] is not None:
        marks.append(rows.Band(1 - row["predicted_cv"], 1 + row["predicted_cv"]))
    marks.append(rows.Tick(1, "mean"))
    if loads:
        marks.append(rows.Specks(loads))
    return [*marks, rows.Dot(row["peak"], 3, "hollow")]


def _title(cell: Cell, row: Row) -> str:
    predicted = "" if row["predicted_cv"] is None else f" (by chance {number(row['predicted_cv'], 2)})"
    return (
        f"{cell.name}: CV {number(row['cv'], 2)}{predicted}, busiest {number(row['peak'])} times the mean of "
        f"{row['servers']:,} servers"
    )
