"""The part on who is reached, and how soon. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts import rows
from kcast.loadtest.charts.scales import decades
from kcast.loadtest.charts.svg import Figure, swatch
from kcast.loadtest.charts.words import (
    NOTHING,
    brief_milliseconds,
    count,
    interval,
    milliseconds,
    percent,
    span,
)
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.parts import NOT_VALID, Badge, Cell, Section, Stacked, Table, verdict

TITLE = "Who is reached, and how soon"
_SHAPES = {50: (0, "half of the audience"), 100: (3, "all of it")}
_HOW = (
    "Time from when a message was due until 10, 25, 50, 75, 90 and 100 % of its subscribers had it, on a "
    "logarithmic axis: the median over the messages that reached so many."
)
_HOW_MANY = (
    "P(reach) is the share of pairs that came in time, with an interval of 99.9 %; the formulas are for "
    "fan-out K′ where F of N servers are mute. After sync: with what came late, or by a log."
)

_Times = Sequence[tuple[NamedCell, Sequence[Row]]]


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns the times of each scenario, and P(reach) beside theory; None without the tables."""
    every = _times(findings, cells)
    valid = _valid(every)
    table = _reach(findings.table("reach"))
    if not every:
        return None
    says, badge = "Times cannot be trusted in any scenario, and are not shown.", verdict(NOT_VALID)
    if valid:
        half, whole = (_medians(valid, part) for part in _SHAPES)
        says = (
            f"Half of a message’s subscribers had it after {_span(half)}, all of them after {_span(whole)} "
            "(medians)."
        )
        rest = len(every) - len(valid)
        badge = Badge(f"{rest} of {len(every)} not valid", "warn") if rest else Badge("valid", "good")
    seen = _sightings(findings, cells)
    tables = [each for each in (table, _table(valid) if valid else None, seen) if each]
    remarks = [_HOW_MANY] if table else []
    return Section("reach", TITLE, says, badge, figures(findings, cells), tables, remarks)


def _span(values: Sequence[float]) -> str:
    return span(values, milliseconds).removeprefix("from ") if values else NOTHING


def _medians(valid: _Times, part: int) -> list[float]:
    return [row["p50_ms"] for _, own in valid for row in own if row["percent"] == part and row["p50_ms"]]


def _times(findings: Findings, cells: NamedCells) -> _Times:
    found: defaultdict[NamedCell, list[Row]] = defaultdict(list)
    for cell, row in cells.rows(findings, "reach_times"):
        found[cell].append(row)
    return list(found.items())


def _valid(every: _Times) -> _Times:
    return [(cell, own) for cell, own in every if cell.has_valid_latency]


def figures(findings: Findings, cells: NamedCells) -> list[Figure]:
    """A row for each scenario, with the time until each part of the audience was reached."""
    valid = _valid(_times(findings, cells))
    values = [row["p50_ms"] for _, own in valid for row in own if row["p50_ms"]]
    if not values:
        return []
    scale = decades([min(values) / 1.5, max(values) * 1.5], brief_milliseconds)
    drawn = []
    for cell, own in valid:
        times = {row["percent"]: row["p50_ms"] for row in own if row["p50_ms"]}
        if not times:
            continue
        dots = [
            rows.dot(times[part], shape, title=f"{words}: {milliseconds(times[part])}")
            for part, (shape, words) in _SHAPES.items()
            if part in times
        ]
        marks = [rows.whisker(min(times.values()), max(times.values())), rows.specks(times.values()), *dots]
        told = ", ".join(milliseconds(times[part]) for part in _SHAPES if part in times)
        drawn.append(rows.ChartRow(cell.name, told, marks, cell.style))
    legend = [(swatch(shape, "dot s5"), words) for shape, words in _SHAPES.values()]
    label = "Time until half and all are reached: " + "; ".join(f"{row.label}: {row.value}" for row in drawn)
    return [Figure([rows.chart(drawn, scale, "time", label)], legend, _HOW)]


def _table(valid: _Times) -> Table:
    heads = ("scenario", *(f"{row['percent']} %" for row in valid[0][1]), "reached all")
    body: list[list[Cell]] = []
    for cell, own in valid:
        told = [milliseconds(row["p50_ms"]) if row["p50_ms"] is not None else NOTHING for row in own]
        reached = percent(own[-1]["reached"] / own[-1]["messages"])
        body.append([Stacked(cell.name, count(own[-1]["messages"], "message")), *told, reached])
    return Table("Median time until a part of the audience was reached", heads, body, summary="All times")


def _sightings(findings: Findings, cells: NamedCells) -> Table | None:
    body: list[list[Cell]] = [
        [
            *(row["name"], row["what"], cell.name, count(row["subscribers"], "subscriber")),
            f"{row['first_s']:.1f} – {row['last_s']:.1f} s",
        ]
        for cell, row in cells.rows(findings, "sightings")
    ]
    heads = ("who", "what", "scenario", "told by", "first and last")
    return (
        Table("Whom subscribers told of", heads, body, "Who came, went, or sent too much", (1, 2))
        if body
        else None
    )


def _beside(row: Row) -> str:
    return f"{percent(row['offline'])} away" if row["offline"] else "with a spammer" if row["spam"] else ""


def _reach(found: Sequence[Row]) -> Table | None:
    heads = ("fan-out", "mute", "P(reach)", "after sync", "1 − C(F, K′)/C(N, K′)", "1 − (F/N)^K′")
    body: list[list[Cell]] = [
        [
            Stacked(f"{row['publish']} of {row['servers']}", count(row["messages"], "message")),
            Stacked(str(row["mute"]), _beside(row)),
            Stacked(percent(row["share"]), interval(row["low"], row["high"])),
            *(percent(row[name]) for name in ("after_sync", "theory", "large_n")),
        ]
        for row in found
    ]
    caption = "P(reach), with intervals of 99.9 %, beside the formulas for F mute servers of N"
    return Table(caption, heads, body) if body else None
