"""The part on time: what arrived over the load, beside the servers that were down, and latencies. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.scales import Linear, decades, from_zero, shares_near
from kcast.loadtest.charts.svg import Drawings, square, stroke
from kcast.loadtest.charts.words import (
    brief_milliseconds,
    count,
    milliseconds,
    number,
    p_equals,
    percent,
    span,
)
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.coincidence import Coincidence, coincidence
from kcast.spark.report.markup import NOT_VALID, Badge, Section, details, figure
from kcast.spark.report.numbers import folded
from kcast.spark.report.time_panels import Panel, Scales, Slot, panel

DRAWN_MAX = 12
"""Most scenarios that are drawn open; the drawings of others are folded."""

_COLUMNS = ("from_s", "to_s", "pairs", "share", "servers_down", "p50_ms", "p99_ms")
Course = tuple[NamedCell, list[Slot]]

_SPACE = "\N{NO-BREAK SPACE}"
_LEVEL = 0.05
_FIRM = 0.25  # a slot with less than this of the pairs of the fullest one tells too little to be named
_TIMES_APART = 3.0  # loads that differ by more have axes of time of their own
_HOW = (
    "Each step has the pairs whose message was due then; below it stand the servers that were down, on "
    "average over the step, and the latency of its first copies. All drawings have the same scales{}."
)


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a drawing for each scenario; None without the table."""
    found = _courses(findings, cells)
    if not found:
        return None
    made = panels(findings, cells)
    drawn = [panel(one) for one in made]
    body: list[Html] = [figure(_grid(drawn[:DRAWN_MAX]), _how(made), _legend(made))]
    if rest := drawn[DRAWN_MAX:]:
        body.append(details(f"{count(len(rest), 'more scenario')} over time", _grid(rest)))
    body.append(folded("over_time", [row for _, row in cells.rows(findings, "over_time")], cells))
    valid = [(cell, slots) for cell, slots in found if cell.is_valid]
    told = coincidence([(cell.row["epoch_s"], slots) for cell, slots in valid if cell.row["epoch_s"]])
    return Section("over-time", "Over time", _says(valid, told, found), _badge(valid, told), body)


def panels(findings: Findings, cells: NamedCells) -> list[Panel]:
    """What is drawn of each scenario, in the order of the page."""
    found = _courses(findings, cells)
    every = [slot for _, slots in found for slot in slots]
    if not every:
        return []
    pairs = max(row["pairs"] for row in findings.table("over_time"))
    times_ms = [value for slot in every for value in (slot.p50_ms, slot.p99_ms) if value]
    share = shares_near([slot.share for slot in every if slot.share is not None] or [1.0], pairs)
    down = _down_scale([slot.servers_down or 0.0 for slot in every])
    latency = decades(times_ms, brief_milliseconds) if times_ms else None
    lengths = [slots[-1].to_s for _, slots in found]
    is_common = max(lengths) <= _TIMES_APART * min(lengths)
    whole = {cell.number: row["share"] for cell, row in cells.rows(findings, "reliability")}
    styles = cells.family_styles()
    return [
        Panel(
            cell.name,
            percent(whole.get(cell.number)),
            slots,
            Scales(_time_scale(max(lengths) if is_common else length), share, down, latency),
            styles[cell.family],
            cell.is_valid,
            bool(cell.row["latency_valid"]),
            _label(cell, slots),
        )
        for (cell, slots), length in zip(found, lengths, strict=True)
    ]


def _courses(findings: Findings, cells: NamedCells) -> list[Course]:
    """The slots of each scenario that has any, in the order of the page."""
    found: dict[int, list[Slot]] = defaultdict(list)
    for cell, row in cells.rows(findings, "over_time"):
        if row["from_s"] is not None and row["to_s"] is not None and row["to_s"] > row["from_s"]:
            found[cell.number].append(_slot(row))
    return [(cell, found[cell.number]) for cell in cells.all if cell.number in found]


def _slot(row: Row) -> Slot:
    return Slot(*(row[name] for name in _COLUMNS))


def _time_scale(length_s: float) -> Linear:
    rounded = from_zero([length_s], marks=6)
    return Linear(0, length_s, [mark for mark in rounded.ticks if mark[0] <= length_s])


def _down_scale(values: Sequence[float]) -> Linear:
    most = max(1, ceil(max(values)))
    return Linear(0, most, [(0, "0"), (most, f"{most:,}")])


def _grid(drawn: Sequence[Html]) -> Drawings:
    return Drawings.of(markup('<div class="panels">{}</div>', joined(drawn)), drawn)


def _how(made: Sequence[Panel]) -> str:
    if len(made) == 1:
        return _HOW.partition(" All drawings")[0]
    is_common = len({one.scales.time.ticks[-1] for one in made}) == 1
    return _HOW.format("" if is_common else "; only their axes of time differ")


def _legend(made: Sequence[Panel]) -> list[tuple[Html, str]]:
    styles = {one.style for one in made}
    style = f"s{styles.pop()}" if len(styles) == 1 else "s5"
    legend = [
        (stroke("course", style), "delivered, and median latency"),
        (stroke("course tail", style), "99 % of latencies"),
        (square("down"), "servers down"),
    ]
    if not all(one.is_valid and one.is_latency_valid for one in made):
        legend.append((stroke("course", "invalid"), NOT_VALID))
    return legend


# --- Words -------------------------------------------------------------------------------------------


def _badge(valid: Sequence[Course], told: Coincidence | None) -> Badge:
    if not valid:
        return Badge.of(NOT_VALID)
    if told is None:
        return Badge("not compared")
    return Badge("goes with outages") if told.p_value <= _LEVEL else Badge("no relation seen")


def _says(valid: Sequence[Course], told: Coincidence | None, found: Sequence[Course]) -> str:
    if not valid:
        where = "this scenario" if len(found) == 1 else f"any of the {len(found)} scenarios"
        return f"What arrived cannot be trusted in {where}: it is drawn broken, and not judged."
    return " ".join(filter(None, (_least(valid), _outages(valid, told), _tail(valid))))


def _least(valid: Sequence[Course]) -> str:
    """The slot in which the least share arrived."""
    slots = [
        (slot.share, cell, slot)
        for cell, slots in valid
        for slot in slots
        if slot.share is not None and slot.pairs >= _FIRM * max(one.pairs for one in slots)
    ]
    if not slots:
        return ""
    share, cell, slot = min(slots, key=lambda one: one[0])
    if share == 1:
        return "All pairs were delivered at all times."
    when = f"from {number(slot.from_s)} to {number(slot.to_s)}{_SPACE}s"
    words = f"Least arrived in {cell.name} {when}: {percent(share)}"
    return f"{words}." if slot.servers_down is None else f"{words}, while {_down(slot.servers_down)}."


def _down(servers: float) -> str:
    """A mean number of servers in words: `1 server was down`, `2.4 servers were down`."""
    if not servers:
        return "no server was down"
    were = "server was" if servers == 1 else "servers were"
    return f"{number(servers)} {were} down"


def _outages(valid: Sequence[Course], told: Coincidence | None) -> str:
    """Whether less arrived while more servers were down; said only where it was computed."""
    if not any(slot.servers_down for _, slots in valid for slot in slots):
        return "No server was down."
    if told is None:
        return "Epochs are too few, or too equal, to say whether less arrives while more servers are down."
    measure = f"rank correlation {told.correlation:+.2f}".replace("-", "−")
    chance = f"p {p_equals(told.p_value)}".replace(" ", _SPACE)
    if told.p_value <= _LEVEL:
        return f"Less arrived in epochs with more servers down ({measure}, {chance})."
    return f"That less arrives in epochs with more servers down does not show ({measure}, {chance})."


def _tail(valid: Sequence[Course]) -> str:
    tails = [
        slot.p99_ms
        for cell, slots in valid
        if cell.row["latency_valid"]
        for slot in slots
        if slot.p99_ms is not None
    ]
    if not tails:
        return ""
    return f"The 99th percentile of latency was {span(tails, milliseconds)} over time."


def _label(cell: NamedCell, slots: Sequence[Slot]) -> str:
    shares = [slot.share for slot in slots if slot.share is not None]
    downs = [slot.servers_down for slot in slots if slot.servers_down is not None]
    told = [f"{cell.name} over {number(slots[-1].to_s)} s"]
    if shares:
        told.append(f"{span(shares, percent)} delivered" + ("" if cell.is_valid else f" ({NOT_VALID})"))
    if downs:
        told.append(f"{span(downs, number)} servers down")
    if tails := [slot.p99_ms for slot in slots if slot.p99_ms is not None]:
        valid = "" if cell.row["latency_valid"] else f" ({NOT_VALID})"
        told.append(f"99th percentile of latency {span(tails, milliseconds)}{valid}")
    return ", ".join(told)
