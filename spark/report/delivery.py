"""The part on delivery against K and K': its sentence, its verdict and its table. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcast.loadtest.charts.escaping import Html, joined
from kcast.loadtest.charts.words import NOTHING, count, interval, listed, number, p_equals, percent, signed
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED, THEORIES
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.delivery_curves import (
    CellRow,
    Curve,
    drawn_alone,
    drawn_curves,
    is_curve,
    length,
    panels,
)
from kcast.spark.report.markup import NOT_VALID, Badge, Head, Section, name_cell, paragraph, table, under
from kcast.spark.report.numbers import folded


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """The verdicts on all scenarios: how many there are, names of some, and the joint test."""

    scenarios: int
    invalid: Sequence[str]
    disagreeing: Sequence[str]
    judged: int
    joint: Row | None

    @property
    def badge(self) -> Badge:
        """The badge of all scenarios together."""
        if self.scenarios and len(self.invalid) == self.scenarios:
            return Badge.of(NOT_VALID)
        if self.disagreeing or (self.joint is not None and self.joint["verdict"] == DISAGREES):
            return Badge.of(DISAGREES)
        if self.joint is not None and self.joint["verdict"] == NOT_REFUTED:
            return Badge.of(NOT_REFUTED)
        return Badge.of(AGREES if self.judged else NO_THEORY)


def summarise(findings: Findings, cells: NamedCells) -> DeliverySummary:
    """Reads the tables `reliability` and `joint`."""
    found = cells.rows(findings, "reliability")
    valid = [(cell, row) for cell, row in found if cell.is_valid]
    joints = [row for row in findings.table("joint") if row["theory"] == "given_events"]
    return DeliverySummary(
        scenarios=len(found),
        invalid=[cell.name for cell, _ in found if not cell.is_valid],
        disagreeing=[cell.name for cell, row in valid if row["verdict"] == DISAGREES],
        judged=sum(row["verdict"] in (AGREES, NOT_REFUTED, DISAGREES) for _, row in valid),
        joint=next(iter(joints), None),
    )


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns the curves, and every scenario in a table; None without the table."""
    found = [(cell, row) for cell, row in cells.rows(findings, "reliability") if row["share"] is not None]
    if not found:
        return None
    came = summarise(findings, cells)
    body = [*drawn_curves(found, cells), *drawn_alone(found, cells), _table(found, findings)]
    body.append(
        folded("reliability", [row for _, row in found], cells, summary="All numbers of every scenario")
    )
    return Section("delivery", "Delivery against K", _says(found, came), came.badge, body)


def _says(found: Sequence[CellRow], came: DeliverySummary) -> str:
    valid = [(cell, row) for cell, row in found if cell.is_valid]
    if not valid:
        return "The delivery of no scenario can be trusted, for the reasons above."
    sentences = [*_rises(valid), _judgement(came)]
    return " ".join(sentence for sentence in sentences if sentence)


def _rises(valid: Sequence[CellRow]) -> list[str]:
    """Sentences on the change of delivery along the longest curves."""
    lines = [(panel.heading, line) for panel in panels(valid) for line in panel.lines if is_curve(line)]
    if not lines:
        low, high = (pick(valid, key=_share) for pick in (min, max))
        if len(valid) == 1:
            return [f"{percent(_share(low))} of {low[1]['pairs']:,} pairs arrived in {low[0].name}."]
        return [
            f"Delivery goes from {percent(_share(low))} ({low[0].name}) "
            f"to {percent(_share(high))} ({high[0].name})."
        ]
    # The two longest, in the order of the page.
    lengths = sorted((length(line) for _, line in lines), reverse=True)
    longest = [(heading, line) for heading, line in lines if length(line) >= lengths[:2][-1]][:2]
    told: list[str] = []
    for heading, line in longest:
        first, last = line.found[0], line.found[-1]
        which = line.name + (f" ({heading})" if heading else "")
        told.append(f"With {which}, {'it' if told else 'delivery'} {_way(line, first, last)}.")
    return told


def _way(line: Curve, first: CellRow, last: CellRow) -> str:
    low, high = percent(_share(first)), percent(_share(last))
    least, most = f"{line.letter} = {line.x(first[0]):,}", f"{line.x(last[0]):,}"
    if low == high:
        return f"is {low} at {least} and at {most}"
    return f"goes from {low} at {least} to {high} at {most}"


def _judgement(came: DeliverySummary) -> str:
    joint = came.joint
    words = ""
    if came.judged == 1 and not came.disagreeing:
        words = "Theory given what happened agrees."
    elif came.judged:
        fine = came.judged - len(came.disagreeing)
        words = f"Theory given what happened agrees in {fine} of {count(came.judged, 'scenario')}"
        words += f"; not in {listed(came.disagreeing)}" if came.disagreeing else ""
        if joint is not None and joint["p_value"] is not None:
            words += f" (all together: p {p_equals(joint['p_value'])})"
        words += "."
    if came.invalid:
        verb = "is" if len(came.invalid) == 1 else "are"
        words += f" {count(len(came.invalid), 'scenario')} cannot be trusted and {verb} not judged."
    return words.strip()


def _share(found: CellRow) -> float:
    return float(found[1]["share"])


# --- The table --------------------------------------------------------------------------------------


def _table(found: Sequence[CellRow], findings: Findings) -> Html:
    """Returns every scenario beside the theories, with notes."""
    heads = [
        Head("scenario", "and its pairs: messages times subscribers that should get them"),
        Head("delivered", "in time, with its 95 % interval on the effective sample size"),
        Head(
            "verdict",
            "on theory given what happened; z: standard deviations "
            "between the two; and the smallest difference that would be seen in nine of ten runs",
        ),
        Head(
            THEORIES["given_events"], "theory: outages, views, draws, leases as captured; 95 % of such runs"
        ),
        Head(THEORIES["beforehand"], "theory: outages and views as planned"),
    ]
    body = [
        [
            name_cell(cell.name, count(row["pairs"], "pair")),
            joined((percent(row["share"]), under(interval(row["low"], row["high"])))),
            _judged(row, is_valid=cell.is_valid),
            *_theories(row, is_valid=cell.is_valid),
        ]
        for cell, row in found
    ]
    notes = _notes(found, findings)
    return joined((table(heads, body, "Delivery in every scenario, beside two theories"), *notes))


def _theories(row: Row, *, is_valid: bool) -> list[str]:
    if not is_valid:
        return [NOTHING] * 2
    given = percent(row["given_events"])
    if row["given_events"] is not None:
        given = joined((given, under(interval(row["given_events_low"], row["given_events_high"]))))
    return [given, percent(row["beforehand"])]


def _judged(row: Row, *, is_valid: bool) -> Html:
    if not is_valid:
        return Badge.of(NOT_VALID).html()
    z = "" if row["z"] is None else under(f"z {signed(row['z'])}")
    if row["detectable"] is not None:
        z = joined((z, under(f"to {number(100 * row['detectable'])} points")))
    return joined((Badge.of(row["verdict"]).html(), z))


def _notes(found: Sequence[CellRow], findings: Findings) -> list[Html]:
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
            "All valid scenarios together, by the sum of squared z, against theory "
            f"{'; '.join(joint)}. p is the probability of this deviation or a greater one if theory is right."
        )
    return [paragraph(note) for note in told]
