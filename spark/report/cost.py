"""The part on cost: lines and bytes for a delivery, and the side on which K' is cheaper. Pure."""

from collections.abc import Iterator, Sequence

from kcast.loadtest.charts import rows
from kcast.loadtest.charts.scales import from_zero
from kcast.loadtest.charts.svg import Figure, square
from kcast.loadtest.charts.words import listed, number, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import CellRow, NamedCells
from kcast.spark.report.parts import SIGNS, Section, gravest, ratio, verdict_of

_SIDES = ("K/K′/K", "K/K/K′")
"""The policies with K' on the publishing and on the subscribing side."""
_PIECES = (
    ("sendings", "q0", "sent to servers"),
    ("renewals", "q1", "leases asked and renewed"),
    ("first", "q2", "first copies"),
    ("duplicates", "q3", "further copies"),
)
_HOW = (
    "Lines that servers take in and send for each pair delivered; several may share a datagram. Behind them "
    f"stand the copies of a pair, in brackets by theory beforehand. {SIGNS}"
)


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a bar of lines for each scenario; None without the table."""
    found = [(cell, row) for cell, row in cells.rows(findings, "cost") if row["lines_per_delivery"]]
    if not found:
        return None
    drawn = [
        rows.ChartRow(
            cell.name,
            f"{number(row['lines_per_delivery'])} lines, {ratio(row['copies_per_pair'])} copies "
            f"({ratio(row['copies_theory'])}) {verdict_of(cell, row).sign}",
            list(_bar(row)),
            is_valid=cell.is_valid,
        )
        for cell, row in found
    ]
    label = "Lines for each pair delivered: " + "; ".join(f"{row.label}: {row.value}" for row in drawn)
    scale = from_zero(row["lines_per_delivery"] for _, row in found)
    chart = rows.chart(drawn, scale, "lines for each pair delivered", label)
    return Section(
        "cost",
        "Cost",
        " ".join(_says([(cell, row) for cell, row in found if cell.is_valid] or found)),
        gravest([row["verdict"] for cell, row in found if cell.is_valid], any_valid=cells.any_valid),
        [Figure([chart], [(square(look), words) for _, look, words in _PIECES], _HOW)],
    )


def _says(trusted: Sequence[CellRow]) -> Iterator[str]:
    lines = span([row["lines_per_delivery"] for _, row in trusted], number)
    sized = [row["bytes_per_delivery"] for _, row in trusted if row["bytes_per_delivery"]]
    size = f", which are {span(sized, number)} bytes" if sized else ""
    yield f"Servers take in and send {lines} lines for a delivery{size}."
    sides = {row["cheaper_side"] for _, row in trusted if row["cheaper_side"]}
    rates = [row["crossover_rate"] for _, row in trusted if row["crossover_rate"]]
    if len(sides) == 1 and rates:
        fewer, policies = ("fewer", _SIDES) if sides == {"publish"} else ("more", _SIDES[::-1])
        yield (
            f"By the model {policies[0]} is cheaper than {policies[1]} at this rate; for topics with {fewer} "
            f"than {span(rates, number)} messages/s it is the other way round."
        )
    elif sides:
        others = [cell.name for cell, row in trusted if row["cheaper_side"] == "subscribe"]
        yield f"By the model {_SIDES[0]} takes fewer lines than {_SIDES[1]}, except in {listed(others)}."


def _bar(row: Row) -> Iterator[rows.Mark]:
    lines = {name: row[name] for name in ("sendings", "renewals", "duplicates")}
    lines["first"] = row["copies"] - row["duplicates"]
    per_line, at = row["lines_per_delivery"] / max(1, sum(lines.values())), 0.0
    for name, look, words in _PIECES:
        if (width := lines[name] * per_line) > 0:
            yield rows.bar(at, at + width, f"bar {look}", f"{words}: {number(width)} lines a delivery")
            at += width
