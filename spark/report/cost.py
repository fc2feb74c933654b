"""The part on cost: lines and bytes for a delivery, and the side on which K' is cheaper. Pure."""

from collections.abc import Sequence

from kcast.loadtest.charts.scales import from_zero
from kcast.loadtest.charts.svg import square
from kcast.loadtest.charts.words import listed, number, percent, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import Badge, Section, figure
from kcast.spark.report.numbers import folded

_SIDES = ("K/K′/K", "K/K/K′")
"""The policies with K' on the publishing and on the subscribing side."""
_PIECES = (
    ("sendings", "q0", "sent to servers"),
    ("renewals", "q1", "leases asked and renewed"),
    ("first", "q2", "first copies"),
    ("duplicates", "q3", "further copies"),
)


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a bar of lines for each scenario; None without the table."""
    found = [(cell, row) for cell, row in cells.rows(findings, "cost") if row["lines_per_delivery"]]
    if not found:
        return None
    scale = from_zero(row["lines_per_delivery"] for _, row in found)
    drawn = [
        rows.ChartRow(
            cell.name, _bar(row), number(row["lines_per_delivery"]), _title(cell, row), is_valid=cell.is_valid
        )
        for cell, row in found
    ]
    label = "Lines for each pair delivered: " + "; ".join(_title(cell, row) for cell, row in found)
    legend = [(square(name), words) for _, name, words in _PIECES]
    how = (
        "Lines that servers take in and send for each pair delivered; several may share a datagram. Theory "
        "beforehand does not know which servers were down: a short run may differ from it by chance."
    )
    judged = [
        (cell, row)
        for cell, row in found
        if cell.is_valid and row["copies_theory"] and row["copies_per_pair"] is not None
    ]
    return Section(
        "cost",
        "Cost",
        _says(found, judged),
        Badge.of_all(
            {row["verdict"] for cell, row in found if cell.is_valid},
            any_valid=any(cell.is_valid for cell, _ in found),
        ),
        (
            figure(rows.chart(drawn, scale, "lines for each pair delivered", label), how, legend),
            folded("cost", [row for _, row in found], cells),
        ),
    )


def _gap(row: Row) -> float:
    return float(row["copies_per_pair"] / row["copies_theory"] - 1)


def _says(found: Sequence[tuple[NamedCell, Row]], judged: Sequence[tuple[NamedCell, Row]]) -> str:
    trusted = [(cell, row) for cell, row in found if cell.is_valid] or found
    lines = span([row["lines_per_delivery"] for _, row in trusted], number)
    words = [f"Servers take in and send {lines} lines for a delivery"]
    sized = [row["bytes_per_delivery"] for _, row in trusted if row["bytes_per_delivery"]]
    if sized:
        words[0] += f", which are {span(sized, number)} bytes"
    words[0] += "."
    if judged:
        cell, worst = max(judged, key=lambda one: abs(_gap(one[1])))
        copies = span([row["copies_per_pair"] for _, row in judged], lambda value: f"{value:.2f}")
        words.append(
            f"A pair gets {copies} copies; theory beforehand is at most {percent(abs(_gap(worst)), 1)} away"
            + (f" ({cell.name})." if len(judged) > 1 else ".")
        )
    sides = {row["cheaper_side"] for _, row in trusted if row["cheaper_side"]}
    rates = [row["crossover_rate"] for _, row in trusted if row["crossover_rate"]]
    if len(sides) == 1 and rates:
        side = sides.pop()
        fewer, policies = ("fewer", _SIDES) if side == "publish" else ("more", _SIDES[::-1])
        words.append(
            f"At this rate {policies[0]} is cheaper than {policies[1]}; for topics with {fewer} than "
            f"{span(rates, number)} messages/s it is the other way round."
        )
    elif sides:
        some = [cell.name for cell, row in trusted if row["cheaper_side"] == "subscribe"]
        words.append(f"{_SIDES[0]} takes fewer lines than {_SIDES[1]}, except in {listed(some)}.")
    return " ".join(filter(None, words))


def _bar(row: Row) -> list[rows.Mark]:
    lines = {
        "sendings": row["sendings"],
        "renewals": row["renewals"],
        "first": row["copies"] - row["duplicates"],
        "duplicates": row["duplicates"],
    }
    per_line = row["lines_per_delivery"] / max(
        1, sum(lines[name] for name in ("sendings", "renewals")) + row["copies"]
    )
    marks: list[rows.Mark] = []
    at = 0.0
    for name, look, words in _PIECES:
        width = lines[name] * per_line
        if width > 0:
            marks.append(rows.Bar(at, at + width, look, f"{words}: {number(width)} lines a delivery"))
        at += width
    return marks


def _title(cell: NamedCell, row: Row) -> str:
    return f"{cell.name}: {number(row['lines_per_delivery'])} lines a delivery"
