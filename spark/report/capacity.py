"""The part on capacity: messages that all servers carry, in units of one server. Pure."""

from collections.abc import Sequence

from kcast.loadtest.charts.scales import decades
from kcast.loadtest.charts.svg import DASH, swatch
from kcast.loadtest.charts.words import count, number, percent, span, times
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import Badge, Section, figure
from kcast.spark.report.numbers import folded


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a row for each scenario; None without the table."""
    found = [(cell, row) for cell, row in cells.rows(findings, "capacity") if row["factor"]]
    if not found:
        return None
    values = [row[name] for _, row in found for name in ("factor", "theory", "hottest") if row[name]]
    styles = cells.family_styles()
    drawn = [
        rows.of_cell(cell, styles[cell.family], _marks(cell, row), times(row["factor"]), _title(cell, row))
        for cell, row in found
    ]
    label = "Capacity in units of one server: " + "; ".join(_title(cell, row) for cell, row in found)
    legend = [
        (swatch(0, "dot s5"), "all servers, evenly loaded"),
        (swatch(3, "hollow s5"), "until the busiest is full"),
        (DASH, "theory"),
    ]
    how = (
        "Messages a second that all servers carry together, in units of one server that serves the same "
        "subscribers alone. Lines taken in and lines sent count alike."
    )
    judged = [(cell, row) for cell, row in found if cell.is_valid and row["theory"]]
    return Section(
        "capacity",
        "Capacity",
        _says(found, judged),
        Badge.of_all(
            {row["verdict"] for cell, row in found if cell.is_valid},
            any_valid=any(cell.is_valid for cell, _ in found),
        ),
        (
            figure(
                rows.chart(drawn, decades(values, times), "of what one server carries", label), how, legend
            ),
            folded("capacity", [row for _, row in found], cells),
        ),
    )


def _gap(row: Row) -> float:
    return abs(float(row["factor"] / row["theory"] - 1))


def _says(found: Sequence[tuple[NamedCell, Row]], judged: Sequence[tuple[NamedCell, Row]]) -> str:
    trusted = [(cell, row) for cell, row in found if cell.is_valid] or found
    servers = span([row.row["servers"] for row, _ in trusted], lambda value: f"{value:,.0f}")
    factors = span([row["factor"] for _, row in trusted], times)
    words = f"{servers[:1].upper()}{servers[1:]} servers carry {factors} the messages of one"
    hottest = [row["hottest"] for _, row in trusted if row["hottest"]]
    if hottest:
        words += f"; {span(hottest, times)}, if the busiest is the limit"
    if judged:
        worst = max(judged, key=lambda one: _gap(one[1]))
        words += (
            f". That is within {percent(_gap(worst[1]), 1)} of theory in {count(len(judged), 'scenario')}"
        )
    return f"{words}."


def _marks(cell: NamedCell, row: Row) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if row["hottest"]:
        marks.append(rows.Dot(row["hottest"], 3, "hollow"))
    marks.append(rows.Dot(row["factor"]))
    if cell.is_valid and row["theory"]:
        marks.append(rows.Tick(row["theory"]))
    return marks


def _title(cell: NamedCell, row: Row) -> str:
    told = f"{cell.name}: {times(row['factor'])}"
    if row["hottest"]:
        told += f", {times(row['hottest'])} by the busiest"
    return told + (f"; theory {number(row['theory'])}×" if row["theory"] else "")
