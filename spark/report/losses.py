"""The part on the network: what it lost though nobody asked for it, and what that touches. Pure."""

from collections.abc import Sequence

from kcast.loadtest.charts.escaping import Html, joined
from kcast.loadtest.charts.words import NOTHING, count, interval, listed, number, percent
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import DISAGREES
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import Badge, Head, Section, bullets, name_cell, paragraph, table, under
from kcast.spark.report.numbers import folded

_WAYS = {"in": "to servers", "out": "to subscribers", "both": "both ways"}


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns the loss of each leg with its interval, and whether it came in bunches; None if nothing was
    lost."""
    rows = cells.rows(findings, "losses")
    lossy = {cell.number for cell, row in rows if row["lost"]}
    if not lossy:
        return None
    found = [(cell, row) for cell, row in rows if cell.number in lossy and row["share"] is not None]
    shares = {row["cell"]: row for row in findings.table("reliability")}
    told = [(cell, row) for cell, row in cells.rows(findings, "touched") if cell.number in lossy]
    refused = [number for number in lossy if shares[number]["verdict"] == DISAGREES]
    return Section(
        "losses",
        "What the network lost",
        _says(found, [shares[number] for number in sorted(lossy)]),
        Badge("lost together", "bad") if refused else Badge("measured"),
        [
            _table(found),
            paragraph(
                "Only lines count that passed the faults of the test, and that no socket dropped. Next: "
                "those that follow a lost one on its leg, among one publisher's. Others: the other lines "
                "of a message of which one was lost, which went by other servers. If losses are "
                "independent, the share of both is that of the leg."
            ),
            _touched(told, len(cells.all)),
            folded("losses", [row for _, row in rows], cells),
        ],
    )


def _says(found: Sequence[tuple[NamedCell, Row]], shares: Sequence[Row]) -> str:
    both = [row["share"] for _, row in found if row["leg"] == "both"]
    words = (
        f"The network lost {percent(max(both))} of the lines on their way from publishers to subscribers"
        f"{' in the worst scenario' if len(both) > 1 else ''}, although the test did not ask for it."
    )
    known = [row for row in shares if row["given_events"] is not None]
    if known:
        refused = sum(row["verdict"] == DISAGREES for row in known)
        agree = count(len(known) - refused, "scenario")
        words += f" Given this loss, delivery is as theory has it in {agree}"
        words += f", and not in {refused:,}: there copies were lost together." if refused else "."
    return words


def _table(found: Sequence[tuple[NamedCell, Row]]) -> Html:
    heads = [
        Head("scenario", "and how the loss is known", is_words=True),
        Head("way", "of the lines", is_words=True),
        Head("lost", "share lost though nobody asked for it, with its 95 % interval"),
        Head("next", "share lost of the lines after a lost one on its leg, with its 95 % interval"),
        Head("in a row", "mean number of lines lost one after the other"),
        Head("others", "share lost of a message's other lines where one was lost, with its 95 % interval"),
        Head("bunches", "how losses certainly came in bunches", is_words=True),
    ]
    body = [
        [
            name_cell(cell.name, f"by {row['known_by']}"),
            joined((_WAYS[row["leg"]], under(count(row["lines"], "line")))),
            _share(row, ""),
            _share(row, "after_"),
            NOTHING if row["in_a_row"] is None else number(row["in_a_row"]),
            _share(row, "others_"),
            row["bunches"] or NOTHING,
        ]
        for cell, row in found
    ]
    return table(heads, body, "What the network lost, by leg")


def _share(row: Row, prefix: str) -> Html:
    share, low, high = (row[f"{prefix}{name}"] for name in ("share", "low", "high"))
    if share is None:
        return joined((NOTHING,))
    return joined((percent(share), under(interval(low, high))))


def _touched(told: Sequence[tuple[NamedCell, Row]], scenarios: int) -> Html:
    reasons: dict[str, list[str]] = {}
    for cell, row in told:
        reasons.setdefault(f"{row['figure']}: {row['by']}", []).append(cell.name)
    return bullets(
        reason if len(names) == scenarios else f"{listed(names)}: {reason}"
        for reason, names in reasons.items()
    )
