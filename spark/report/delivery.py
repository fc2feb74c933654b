"""The part on delivery: what arrived with how many copies, beside theory. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil, log10

from kcast.loadtest.charts import rows
from kcast.loadtest.charts.scales import nines_words, shares
from kcast.loadtest.charts.svg import EXPECTED, INVALID, RING, Figure, Svg, swatch
from kcast.loadtest.charts.words import NOTHING, count, interval, listed, percent, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED
from kcast.spark.report.cells import FAMILIES, CellRow, NamedCell, NamedCells
from kcast.spark.report.parts import NOT_VALID, Badge, Section, Stacked, Table, gravest, verdict, verdict_of

_WHISKERS = "Whiskers are 95 % intervals; the grey bar has 95 % of the runs that this theory allows."


def answer(findings: Findings, cells: NamedCells) -> tuple[str, Badge] | None:
    """What theory given what happened says of all scenarios; None where nothing can be trusted."""
    found = [(cell, row["verdict"]) for cell, row in cells.rows(findings, "reliability") if cell.is_valid]
    if not found:
        return None
    judged = [(cell.name, each) for cell, each in found if each != NO_THEORY]
    together = [row["verdict"] for row in findings.table("joint") if row["theory"] == "given_events"]
    if not judged:
        return "There is no theory for it.", verdict(NO_THEORY)
    if wrong := [name for name, each in judged if each == DISAGREES]:
        where = f"in {len(wrong)} of {count(len(judged), 'scenario')}: {listed(wrong)}"
        return f"That is not what theory says, {where}.", verdict(DISAGREES)
    if DISAGREES in together:
        return "Each scenario agrees with theory, but not all of them together.", verdict(DISAGREES)
    weak = [name for name, each in judged if each == NOT_REFUTED]
    if weak or NOT_REFUTED in together:
        where = f" in {listed(weak, 6)}" if 0 < len(weak) < len(judged) else ""
        return f"That does not refute theory, and is too little to confirm it{where}.", verdict(NOT_REFUTED)
    where = "" if cells.all_valid else ", where the figures can be trusted"
    words = f"That is what theory says, given the outages, views, draws and leases as they came{where}."
    return words, verdict(AGREES)


def measured(findings: Findings, cells: NamedCells) -> list[CellRow]:
    """The scenarios that have pairs, with their rows of `reliability`."""
    return [(cell, row) for cell, row in cells.rows(findings, "reliability") if row["share"] is not None]


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns every scenario, drawn and in a table; None without pairs."""
    found = measured(findings, cells)
    if not found:
        return None
    told = answer(findings, cells)
    return Section(
        "delivery",
        "What arrived",
        " ".join(_says(found)),
        verdict(NOT_VALID) if told is None else told[1],
        figures(findings, cells),
        [_table(found)],
        remarks=[*_notes(found), *_audience(findings, cells)],
    )


def _says(found: Sequence[CellRow]) -> Iterator[str]:
    valid = [(cell, row) for cell, row in found if cell.is_valid]
    low, high = (pick(valid or found, key=lambda one: float(one[1]["share"])) for pick in (min, max))
    if len(valid) == 1:
        yield f"{percent(low[1]['share'])} of {count(low[1]['pairs'], 'pair')} arrived in {low[0].name}."
    elif valid:
        ends = [f"{percent(row['share'])} ({cell.name})" for cell, row in (low, high)]
        yield f"From {ends[0]} to {ends[1]} of the pairs arrived."
    if len(valid) < len(found):
        names = [cell.name for cell, _ in found if not cell.is_valid]
        yield f"Not judged, since not valid: {listed(names, 6)}."


def _notes(found: Sequence[CellRow]) -> list[str]:
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for cell, row in found:
        for note in row["note"].split("; ") if row["note"] and cell.is_valid else ():
            notes[note].append(cell.name)
    return [
        f"{'' if len(names) == len(found) else listed(names) + ': '}{note}." for note, names in notes.items()
    ]


def _audience(findings: Findings, cells: NamedCells) -> Iterator[str]:
    every = cells.rows(findings, "audience")
    if valid := [row for cell, row in every if cell.is_valid and row["share"] is not None]:
        reached = span([row["share"] for row in valid], percent)
        told = gravest([row["verdict"] for row in valid]).words
        yield f"Messages that reached all their subscribers: {reached} (beside theory beforehand: {told})."


def _given(row: Row) -> tuple[float | None, float | None, float | None]:
    """The share by the theory on which the verdict rests, and the range of 95 % of its runs."""
    return row["given_events"], row["given_events_low"], row["given_events_high"]


def _table(found: Sequence[CellRow]) -> Table:
    heads = ("scenario", "delivered", "verdict", "theory given what happened", "theory beforehand")
    body = []
    for cell, row in found:
        most = max(2, ceil(log10(max(1, row["pairs"]))) - 2)  # decimals that this many pairs can tell
        share, low, high = _given(row)
        given = Stacked(percent(share, most=most), "" if low is None else interval(low, high, most))
        body.append(
            [
                Stacked(cell.name, count(row["pairs"], "pair")),
                Stacked(percent(row["share"]), interval(row["low"], row["high"])),
                verdict_of(cell, row),
                *((given, percent(row["beforehand"], most=most)) if cell.is_valid else (NOTHING, NOTHING)),
            ]
        )
    return Table("Delivery in every scenario, beside theory", heads, body)


def figures(findings: Findings, cells: NamedCells) -> list[Figure]:
    """A row for each scenario: what arrived, and what theory says."""
    found = measured(findings, cells)
    if not found:
        return []
    values = (value for cell, row in found for value in (row["share"], row["low"], row["high"], *_given(row)))
    scale = shares((value for value in values if value is not None), max(row["pairs"] for _, row in found))
    drawn = [
        rows.ChartRow(
            f"{cell.name}: {cell.copies}",
            percent(row["share"]),
            list(_marks(cell, row)),
            cell.style,
            cell.is_valid,
        )
        for cell, row in found
    ]
    label = "Delivery: " + "; ".join(f"{row.label}: {row.value}" for row in drawn)
    how = nines_words(scale) + _WHISKERS
    chart = rows.chart(drawn, scale, "pairs delivered", label)
    return [Figure([chart], list(_legend(found, cells)), how)]


def _legend(found: Sequence[CellRow], cells: NamedCells) -> Iterator[tuple[Svg, str]]:
    styles = dict(sorted((cell.style, FAMILIES.get(cell.family, "others")) for cell, _ in found))
    for style, family in styles.items() if len(styles) > 1 else ():
        yield swatch(0, f"dot s{style}"), family
    if any(_given(row)[0] is not None for cell, row in found if cell.is_valid):
        yield EXPECTED, "theory given what happened"
    if any(row["verdict"] == DISAGREES for cell, row in found if cell.is_valid):
        yield RING, DISAGREES
    if not cells.all_valid:
        yield INVALID, NOT_VALID


def _marks(cell: NamedCell, row: Row) -> Iterator[rows.Mark]:
    given, low, high = _given(row)
    if cell.is_valid and low is not None and high is not None:
        yield rows.band(low, high)
    if cell.is_valid and given is not None:
        yield rows.tick(given)
    if row["low"] is not None and row["high"] is not None:
        yield rows.whisker(min(row["low"], row["share"]), max(row["high"], row["share"]))
    if cell.is_valid and row["verdict"] == DISAGREES:
        yield rows.ring(row["share"])
    yield rows.dot(row["share"], title=interval(row["low"], row["high"]))
