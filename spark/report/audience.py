"""The part on audiences: messages that reached all their subscribers. Pure."""

from collections.abc import Sequence

from kcast.loadtest.charts.scales import shares
from kcast.loadtest.charts.svg import DASH, swatch
from kcast.loadtest.charts.words import count, interval, listed, number, percent, seconds, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import Badge, Section, figure
from kcast.spark.report.numbers import folded


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a row for each scenario, and the longest run that anybody missed; None without the table."""
    found = [(cell, row) for cell, row in cells.rows(findings, "audience") if row["share"] is not None]
    if not found:
        return None
    values = (
        row[name] for _, row in found for name in ("share", "low", "high", "theory") if row[name] is not None
    )
    styles = cells.family_styles()
    drawn = [
        rows.of_cell(cell, styles[cell.family], _marks(cell, row), percent(row["share"]), _title(cell, row))
        for cell, row in found
    ]
    label = "Messages that reached all their subscribers: " + "; ".join(
        _title(cell, row) for cell, row in found
    )
    judged = [(cell, row) for cell, row in found if cell.is_valid and _is_judged(row)]
    outside = [cell.name for cell, row in judged if not row["low"] <= row["theory"] <= row["high"]]
    how = (
        "Share of the messages that reached every subscriber they should have, with 95 % intervals; the dash "
        "is theory beforehand."
    )
    legend = [(swatch(0, "dot s5"), "measured")]
    if judged:
        legend.append((DASH, "theory"))
    return Section(
        "audience",
        "Whole audiences",
        _says(found, judged, outside),
        Badge.of_all(
            {row["verdict"] for cell, row in found if cell.is_valid},
            any_valid=any(cell.is_valid for cell, _ in found),
        ),
        (
            figure(rows.chart(drawn, shares(values), "messages that reached all", label), how, legend),
            folded("audience", [row for _, row in found], cells),
        ),
    )


def _is_judged(row: Row) -> bool:
    return row["theory"] is not None and row["low"] is not None and row["high"] is not None


def _says(
    found: Sequence[tuple[NamedCell, Row]], judged: Sequence[tuple[NamedCell, Row]], outside: Sequence[str]
) -> str:
    trusted = [(cell, row) for cell, row in found if cell.is_valid] or found
    least, most = (pick(trusted, key=lambda one: one[1]["share"]) for pick in (min, max))
    audience = span([row["subscribers"] for _, row in trusted if row["subscribers"]] or [0], number)
    words = (
        f"{percent(most[1]['share'])} of messages reached all of their subscribers ({audience} on average)"
        if len(trusted) == 1
        else f"From {percent(least[1]['share'])} ({least[0].name}) to {percent(most[1]['share'])} "
        f"({most[0].name}) of messages reached all of their subscribers ({audience} on average)"
    )
    deaf = [(cell, row) for cell, row in trusted if row["longest_deaf_messages"]]
    if deaf:
        cell, row = max(deaf, key=lambda one: one[1]["longest_deaf_messages"])
        run = count(row["longest_deaf_messages"], "message")
        words += (
            f". The longest run that one subscriber missed was {run} of a topic, over "
            f"{seconds(row['longest_deaf_s'])} ({cell.name})"
        )
    if outside:
        words += f". Theory lies outside the interval of {listed(outside)}"
        words += ", as happens by chance for one scenario in twenty" if len(judged) > 1 else ""
    return f"{words}."


def _marks(cell: NamedCell, row: Row) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if row["low"] is not None and row["high"] is not None:
        marks.append(rows.Whisker(min(row["low"], row["share"]), max(row["high"], row["share"])))
    marks.append(rows.Dot(row["share"]))
    if cell.is_valid and row["theory"] is not None:
        marks.append(rows.Tick(row["theory"]))
    return marks


def _title(cell: NamedCell, row: Row) -> str:
    theory = "" if row["theory"] is None else f"; theory {percent(row['theory'])}"
    return f"{cell.name}: {percent(row['share'])}, {interval(row['low'], row['high'])}{theory}"
