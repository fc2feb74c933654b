"""The part on attacks: delivery while an attacker blocks some of a topic's servers. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts import curves
from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import percents
from kcast.loadtest.charts.svg import SHAPES, THEORY, swatch
from kcast.loadtest.charts.words import percent
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import THEORIES
from kcast.spark.report.cells import NamedCell, NamedCells, groups
from kcast.spark.report.markup import NOT_VALID, Badge, Section, figure, paragraph
from kcast.spark.report.numbers import folded

_PANELS_MAX = 8


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns curves of delivery for each kind of policy; None without the table."""
    found: dict[int, list[Row]] = defaultdict(list)
    for cell, row in cells.rows(findings, "attack"):
        if None not in (row["delivered"], row["blocked_share"]):
            found[cell.number].append(row)
    there = [cell for cell in cells.all if found[cell.number]]
    if not there:
        return None
    panels = _panels(there)
    body = [
        _figure(heading, members, found, cells.family_styles()) for heading, members in panels[:_PANELS_MAX]
    ]
    if len(panels) > _PANELS_MAX:
        body.append(paragraph(f"{len(panels) - _PANELS_MAX:,} more are in the table below."))
    judged = [
        (abs(row["delivered"] - row["theory"]), cell)
        for cell in there
        for row in found[cell.number]
        if cell.is_valid and row["theory"] is not None
    ]
    every = [row for cell in there for row in found[cell.number]]
    return Section(
        "attack",
        "Under attack",
        _says(there, found, judged),
        Badge.of_all(
            {row["verdict"] for cell in there if cell.is_valid for row in found[cell.number]},
            any_valid=any(cell.is_valid for cell in there),
        ),
        [*body, folded("attack", every, cells)],
    )


def _panels(there: Sequence[NamedCell]) -> list[tuple[str, list[NamedCell]]]:
    """Groups scenarios of one condition and kind of policy, at most as many as there are colours."""
    panels = []
    for heading, members in groups(there):
        of_family: dict[tuple[str, int], list[NamedCell]] = defaultdict(list)
        for cell in members:
            of_family[(cell.family, cell.k if cell.family.startswith("RCH") else 0)].append(cell)
        for own in of_family.values():
            words = ", ".join(filter(None, (own[0].policy(str(own[0].k)), heading)))
            own.sort(key=lambda cell: (cell.k_prime, cell.number))
            panels += [(words, own[at : at + SHAPES]) for at in range(0, len(own), SHAPES)]
    return panels


def _figure(
    heading: str, members: Sequence[NamedCell], found: dict[int, list[Row]], colours: dict[str, int]
) -> Html:
    """Draws scenarios of one kind of policy: in its colour, the darker the more copies."""
    series, legend = [], []
    for style, cell in enumerate(members):
        own = sorted(found[cell.number], key=lambda row: row["blocked_share"])
        lines = [
            curves.TheoryLine(
                [(row["blocked_share"], row["theory"]) for row in own if row["theory"] is not None],
                "expected",
            )
        ]
        points = [
            curves.MeasuredPoint(
                row["blocked_share"],
                row["delivered"],
                title=(
                    f"{cell.name}: {percent(row['delivered'])} with {row['blocked']:,} of {cell.k:,} blocked"
                ),
                is_valid=cell.is_valid,
            )
            for row in own
        ]
        colour = f"s{colours[cell.family]} t{style}"
        drawn_lines = [line for line in lines if len(line.places) > 1]
        series.append(curves.Series(style, points, drawn_lines, colour))
        words = f"{cell.name}{'' if cell.is_valid else f' ({NOT_VALID})'}"
        legend.append((swatch(style, f"dot {colour}"), words))
    if any(one.lines for one in series):
        legend.append((THEORY, f"theory {THEORIES['beforehand']}"))
    axes = curves.Axes(percents(), percents(), "of a topic’s servers blocked, at random", "pairs delivered")
    label = f"Delivery by the share of servers blocked, {heading}: " + "; ".join(
        f"{cell.name}: "
        + ", ".join(
            f"{percent(row['delivered'], 0)} at {percent(row['blocked_share'], 0)}"
            for row in found[cell.number]
        )
        for cell in members
    )
    how = (
        "Points are the pairs that would still be delivered, counted from the copies that came. Theory "
        "beforehand does not know which servers were down: a short run may differ from it by chance."
    )
    return figure(curves.chart(series, axes, label, height=340, small=True), how, legend, heading)


def _says(
    there: Sequence[NamedCell], found: dict[int, list[Row]], judged: Sequence[tuple[float, NamedCell]]
) -> str:
    trusted = [cell for cell in there if cell.is_valid] or list(there)
    words = ""
    best = max(trusted, key=lambda cell: (len(found[cell.number]), cell.k_prime))
    half = _nearest_half(found[best.number])
    if half is not None and 0 < half["blocked"] < best.k:
        words = (
            f"With {half['blocked']:,} of a topic’s {best.k:,} servers blocked, {percent(half['delivered'])} "
            f"would still arrive in {best.name}; only blocking all of them stops a topic."
        )
    else:
        words = f"An attacker has to block all {best.k:,} servers of a topic to stop it in {best.name}."
    if judged:
        gap, cell = max(judged, key=lambda one: one[0])
        words += f" Theory beforehand is at most {gap * 100:.2g} points away ({cell.name})."
    return words


def _nearest_half(own: Sequence[Row]) -> Row | None:
    return min(own, key=lambda row: (abs(row["blocked_share"] - 0.5), row["blocked"]), default=None)
