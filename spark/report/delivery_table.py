"""Delivery in numbers: every cell beside three theories. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kcast.loadtest.charts.words import NOTHING, count, interval, listed, p_equals, percent, signed
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.markup import NOT_VALID, Head, Verdict, badge, name_cell, table, text
from kcast.spark.report.panels import CellRow


def cells_table(found: Sequence[CellRow], findings: Findings) -> str:
    """Every cell, beside three theories, and what to know of them."""
    heads = [
        Head("scenario", "and its pairs: messages times subscribers that should have received them"),
        Head("delivered", "in time, with its 95 % interval on the effective sample size"),
        Head("verdict", "on theory given what happened; z: standard deviations between the two"),
        Head("given what happened", "theory: outages, views, draws, leases as captured; 95 % of such runs"),
        Head("this many servers", "theory: outages and views as planned"),
        Head("endlessly many", "theory: independent outages, endlessly many servers, equal views"),
    ]
    body = [
        [
            name_cell(cell.name, count(row["pairs"], "pair")),
            f"{percent(row['share'])}<span class='sub'>{interval(row['low'], row['high'])}</span>",
            _judged(row, is_valid=cell.is_valid),
            *_theories(row, is_valid=cell.is_valid),
        ]
        for cell, row in found
    ]
    notes = _notes(found, findings)
    return table(heads, body, "Delivery in every cell, beside three theories") + notes


def _theories(row: Row, *, is_valid: bool) -> list[str]:
    if not is_valid:
        return [NOTHING] * 3
    given = NOTHING
    if row["conditional"] is not None:
        given = percent(row["conditional"])
        given += f"<span class='sub'>{interval(row['conditional_low'], row['conditional_high'])}</span>"
    return [given, percent(row["finite"]), percent(row["unconditional"])]


def _judged(row: Row, *, is_valid: bool) -> str:
    if not is_valid:
        return badge(Verdict.of(NOT_VALID))
    z = "" if row["z"] is None else f"<span class='sub'>z {signed(row['z'])}</span>"
    return badge(Verdict.of(row["verdict"])) + z


def _notes(found: Sequence[CellRow], findings: Findings) -> str:
    notes: Mapping[str, list[str]] = defaultdict(list)
    for cell, row in found:
        for note in row["note"].split("; ") if row["note"] and cell.is_valid else ():
            notes[note].append(cell.name)
    told = [
        f"{'' if len(names) == len(found) else listed(names) + ': '}{note}." for note, names in notes.items()
    ]
    names = {
        "conditional": "given what happened",
        "finite": "this many servers",
        "unconditional": "endlessly many",
    }
    joint = [
        f"{names[row['theory']]}: p {p_equals(row['p_value'])} ({row['verdict']})"
        for row in findings.table("joint")
        if row["p_value"] is not None and row["theory"] in names
    ]
    if joint:
        told.append(
            "All valid cells together, by the sum of squared z, against theory "
            f"{'; '.join(joint)}. p is the chance of deviating so much, or more, if theory is right."
        )
    return "".join(f'<p class="quiet">{text(note)}</p>' for note in told)
