"""Delivery in numbers: every cell beside three theories. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import THEORIES
from kcast.spark.report.markup import NOT_VALID, Head, Verdict, badge, name_cell, table, text
from kcast.spark.report.panels import CellRow
from kcast.spark.report.words import NOTHING, count, interval, listed, p_equals, percent, signed


def cells_table(found: Sequence[CellRow], findings: Findings) -> str:
    """Every cell, beside three theories, and what to know of them."""
    heads = [
        Head("scenario", "and its pairs: messages times subscribers that should have received them"),
        Head("delivered", "in time, with its 95 % interval on the effective sample size"),
        Head("verdict", "on theory given what happened; z: standard deviations between the two"),
        Head(
            THEORIES["given_events"], "theory: outages, views, draws, leases as captured; 95 % of such runs"
        ),
        Head(THEORIES["for_servers"], "theory: outages and views as planned"),
        Head(THEORIES["beforehand"], "theory: independent outages, any number of servers, equal views"),
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
    if row["given_events"] is not None:
        given = percent(row["given_events"])
        given += f"<span class='sub'>{interval(row['given_events_low'], row['given_events_high'])}</span>"
    return [given, percent(row["for_servers"]), percent(row["beforehand"])]


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
    joint = [
        f"{THEORIES[row['theory']]}: p {p_equals(row['p_value'])} ({row['verdict']})"
        for row in findings.table("joint")
        if row["p_value"] is not None
    ]
    if joint:
        told.append(
            "All valid cells together, by the sum of squared z, against theory "
            f"{'; '.join(joint)}. p is the chance of deviating so much, or more, if theory is right."
        )
    return "".join(f'<p class="quiet">{text(note)}</p>' for note in told)
