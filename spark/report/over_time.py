"""The part on time: what arrived over the load, beside the servers that were down, and latencies. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil

from kcast.loadtest.charts import strips
from kcast.loadtest.charts.scales import Linear, Scale, decades, from_zero, shares
from kcast.loadtest.charts.svg import Drawing, Figure, square, stroke
from kcast.loadtest.charts.words import brief_milliseconds, count, milliseconds, number, percent, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.parts import NOT_VALID, Badge, Section, verdict

DRAWN_MAX = 12
"""Most scenarios that are drawn."""

_FIRM = 0.25  # a slot with less than this of the pairs of the fullest one tells too little to be named
_TIMES_APART = 3.0  # loads that differ by more have axes of time of their own
_HOW = (
    "Each step has the pairs whose message was due then; below it stand the servers that were down, on "
    "average over the step, and the latency of its first copies, where that can be trusted. All drawings "
    "have the same scales."
)

Course = tuple[NamedCell, Sequence[Row]]


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a drawing for each scenario; None without the table."""
    found = courses(findings, cells)
    if not found:
        return None
    valid = [(cell, rows) for cell, rows in found if cell.is_valid]
    rest = len(found) - DRAWN_MAX
    return Section(
        "over-time",
        "Over time",
        " ".join(_says(valid)) if valid else "What arrived cannot be trusted, and is not judged.",
        Badge("measured") if valid else verdict(NOT_VALID),
        figures(findings, cells),
        remarks=[f"tables/over_time.csv has {count(rest, 'more scenario')}."] if rest > 0 else [],
    )


def courses(findings: Findings, cells: NamedCells) -> list[Course]:
    """The scenarios with slots of time, in the order of the page."""
    found: defaultdict[NamedCell, list[Row]] = defaultdict(list)
    for cell, row in cells.rows(findings, "over_time"):
        found[cell].append(row)
    return list(found.items())


def share_down(course: Course) -> float | None:
    """The share of the servers that were down, on average over the load; None where that is not known."""
    cell, rows = course
    known = [row for row in rows if row["servers_down"] is not None]
    whole_s = sum(row["to_s"] - row["from_s"] for row in known)
    down_s = sum(row["servers_down"] * (row["to_s"] - row["from_s"]) for row in known)
    return down_s / whole_s / cell.row["servers"] if whole_s else None


def _says(valid: Sequence[Course]) -> Iterator[str]:
    slots = [
        (cell, row)
        for cell, rows in valid
        for row in rows
        if row["share"] is not None and row["pairs"] >= _FIRM * max(one["pairs"] for one in rows)
    ]
    if slots:
        cell, row = min(slots, key=lambda slot: float(slot[1]["share"]))
        when = f"from {number(row['from_s'])} to {number(row['to_s'])}\N{NO-BREAK SPACE}s"
        down, were = row["servers_down"], "server was" if row["servers_down"] == 1 else "servers were"
        while_ = "" if down is None else f", while {number(down)} {were} down"
        least = f"Least arrived in {cell.name} {when}: {percent(row['share'])}{while_}."
        yield "All pairs were delivered at all times." if row["share"] == 1 else least
    tails = [row["p99_ms"] for cell, row in slots if cell.has_valid_latency and row["p99_ms"] is not None]
    if tails:
        yield f"The 99th percentile of latency was {span(tails, milliseconds)} over time."


def figures(findings: Findings, cells: NamedCells) -> list[Figure]:
    """Returns a drawing for each of the first scenarios."""
    found = courses(findings, cells)[:DRAWN_MAX]
    every = [(cell, row) for cell, rows in found for row in rows]
    delivered = [row["share"] for _, row in every if row["share"] is not None]
    if not delivered:
        return []
    tails = [row[name] for cell, row in every if cell.has_valid_latency for name in ("p50_ms", "p99_ms")]
    most = max(1, ceil(max(row["servers_down"] or 0.0 for _, row in every)))
    scales = (
        shares(delivered, max(row["pairs"] for _, row in every)),
        Linear(0, most, [(0, "0"), (most, f"{most:,}")]),
        decades((tail for tail in tails if tail), brief_milliseconds),
    )
    lengths_s = [rows[-1]["to_s"] for _, rows in found]
    is_common = max(lengths_s) <= _TIMES_APART * min(lengths_s)
    drawn = [
        _drawn(course, scales, max(lengths_s) if is_common else own_s, cells)
        for course, own_s in zip(found, lengths_s, strict=True)
    ]
    legend = [(stroke("course", "s5"), "delivered, and median latency"), (square("down"), "servers down")]
    if any(tails):
        legend.insert(1, (stroke("course tail", "s5"), "99 % of latencies"))
    if not all(cell.is_valid for cell, _ in found):
        legend.append((stroke("course", "s5 invalid"), NOT_VALID))
    return [Figure(drawn, legend, _HOW)]


def _drawn(course: Course, scales: tuple[Scale, Scale, Scale], length_s: float, cells: NamedCells) -> Drawing:
    cell, rows = course
    share, down, latency = scales

    def steps(column: str) -> list[strips.Step]:
        return [(row["from_s"], row["to_s"], row[column]) for row in rows]

    parts = [
        strips.Strip("pairs delivered", share, 92, [("course", steps("share"))], cell.is_valid),
        strips.Strip("servers down", down, 34, [("down", steps("servers_down"))]),
    ]
    if cell.has_valid_latency:
        both = [("course tail", steps("p99_ms")), ("course", steps("p50_ms"))]
        parts.append(strips.Strip("latency: median, 99 %", latency, 74, both))
    whole = percent(sum(row["delivered"] for row in rows) / max(1, sum(row["pairs"] for row in rows)))
    time = Linear(0, length_s, [tick for tick in from_zero([length_s], marks=6).ticks if tick[0] <= length_s])
    label = f"{cell.name} over {number(rows[-1]['to_s'])} s: {whole} delivered"
    return strips.chart(cell.name, whole, parts, time, cell.style, label)
