"""The answer in a sentence, with the conditions under which it holds, and what theory says of it. Pure."""

from collections.abc import Sequence

from kcast.loadtest.charts.words import count, listed, percent
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import DISAGREES, FAILS, NOT_REFUTED
from kcast.spark.report import conditions
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.delivery import DeliverySummary, summarise
from kcast.spark.report.delivery_curves import CellRow
from kcast.spark.report.markup import Badge
from kcast.spark.report.met import met

_CLOSE = 0.25
"""Largest difference of the share down from the plan, of that, with which the plan is taken for what was."""


def headline(findings: Findings, cells: NamedCells) -> str:
    """What arrived, and under which conditions: the title of the page."""
    if not cells.all:
        return _of_the_note(findings)
    came = summarise(findings, cells)
    if not came.scenarios:
        return "What the captures show"
    if len(came.invalid) == came.scenarios:
        return "These figures cannot be trusted"
    found = [(cell, row) for cell, row in cells.rows(findings, "reliability") if cell.is_valid]
    measured = [(cell, row) for cell, row in found if row["share"] is not None]
    if not measured:
        return "Nothing was to arrive"
    return _arrived(measured) + _by_plan(findings, measured)


def _of_the_note(findings: Findings) -> str:
    claims = findings.table("note")
    if not claims:
        return "Nothing was analysed"
    failing = sum(claim["verdict"] == FAILS for claim in claims)
    if failing:
        return f"Of the note’s {len(claims)} claims {failing} {'does' if failing == 1 else 'do'} not hold"
    return "What the note of 2004 claims holds"


def _arrived(measured: Sequence[CellRow]) -> str:
    under = conditions.common([cell.row for cell, _ in measured])
    (low, least), (high, most) = (
        pick(measured, key=lambda one: float(one[1]["share"])) for pick in (min, max)
    )
    while_ = f", while {under}" if under else ""
    shares = percent(least["share"]), percent(most["share"])
    ways = conditions.copies(low.row), conditions.copies(high.row)
    if len(measured) == 1:
        first = f"{ways[0]}: {shares[0]} arrived"
        return f"{first[:1].upper()}{first[1:]}{f' while {under}' if under else ''}"
    if shares[0] == shares[1]:
        return f"{shares[0]} arrived in all {len(measured)} scenarios{while_}"
    if ways[0] == ways[1] or not under:
        least_at = "" if under else f", least with {ways[0]} while {conditions.while_words(low.row)}"
        return f"From {shares[0]} to {shares[1]} arrived in {len(measured)} scenarios{while_}{least_at}"
    return f"{shares[0]} arrived with {ways[0]}, {shares[1]} with {ways[1]}{while_}"


def _by_plan(findings: Findings, measured: Sequence[CellRow]) -> str:
    """Says that conditions are those of the plan, where chance made them quite different."""
    found = met(findings, {cell.number for cell, _ in measured})
    planned = {cell.row["down"] for cell, _ in measured}
    if found is None or len(planned) != 1:
        return ""
    share = planned.pop() or 0.0
    is_close = abs(found.down - share) <= _CLOSE * share
    return "" if is_close or not conditions.common([cell.row for cell, _ in measured]) else ", by plan"


def in_fact(findings: Findings, cells: NamedCells) -> str:
    """A sentence on what copies met in fact; empty where nothing was against them, or it is not known."""
    found = met(findings, {cell.number for cell in cells.all if cell.is_valid})
    if found is None:
        return ""
    every = ((found.down, "of the copies met a server that was down"), *found.lost)
    words = [f"{percent(share, 1)} {what}" for share, what in every if share]
    return f"In fact, {listed(words)}." if words else ""


def verdict(findings: Findings, cells: NamedCells) -> tuple[str, Badge] | None:
    """A sentence on theory, with its badge; None where nothing was measured that can be trusted."""
    came = summarise(findings, cells)
    if not came.scenarios or len(came.invalid) == came.scenarios:
        return None
    return _verdict_words(came), came.badge


def _verdict_words(came: DeliverySummary) -> str:
    if came.disagreeing:
        of = count(came.judged, "scenario")
        which = listed(came.disagreeing)
        return f"That is not what theory says, in {len(came.disagreeing)} of {of}: {which}."
    if came.joint is not None and came.joint["verdict"] == DISAGREES:
        return "Each scenario agrees with theory, but not all of them together."
    if not came.judged:
        return "There is no theory for it."
    if came.joint is not None and came.joint["verdict"] == NOT_REFUTED:
        return "That does not refute theory, and is too little to confirm it."
    where = ", where the figures can be trusted" if came.invalid else ""
    return f"That is what theory says, given what happened{where}."
