"""The page: findings as one HTML document, without scripts or network. Pure."""

from pathlib import Path

from kcast.loadtest.charts import svg
from kcast.loadtest.charts.escaping import Html, joined, markup, trusted
from kcast.spark.findings.findings import Findings
from kcast.spark.report import (
    answer,
    attack,
    attribution,
    audience,
    balance,
    capacity,
    cost,
    delivery,
    latency,
    losses,
    method,
    note,
    over_time,
    top,
    what_if,
)
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.markup import Section

_PARTS = (
    *(delivery.section, over_time.section, latency.section, balance.section, cost.section),
    *(
        attribution.section,
        losses.section,
        audience.section,
        attack.section,
        capacity.section,
        what_if.section,
    ),
    *(note.judgement, note.simulation),
)

STYLE = joined((svg.STYLE, trusted(Path(__file__).with_name("report.css").read_text(encoding="utf-8"))))
"""The style sheet of the page: that of the drawings, then its own."""

_POLICY = markup("default-src 'none';style-src 'unsafe-inline'")
"""Lets the page fetch nothing and run no script."""


_DOCUMENT = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{head} · kcast</title>
<style>
{style}</style></head><body>
<header><p class="brand">kcast · {what}</p><h1>{head}</h1>
<p class="lead">{lead}</p>
{setting}
{notices}
{facts}
{navigation}
</header><main>
{sections}
{method}
</main>
{footer}
</body></html>
"""


def sections(findings: Findings, cells: NamedCells) -> list[Section]:
    """Returns the parts of the page that have anything to say."""
    return [section for part in _PARTS if (section := part(findings, cells)) is not None]


def page(findings: Findings) -> Html:
    """Returns the whole document."""
    cells = NamedCells.of(findings)
    parts = sections(findings, cells)
    simulated = findings.table("note") or findings.table("simulation")
    head = answer.headline(findings, cells)
    facts = joined(
        markup("<div><dt>{}</dt><dd>{}</dd></div>", what, figure)
        for figure, what in top.facts(findings, cells)
    )
    return markup(
        _DOCUMENT,
        policy=_POLICY,
        head=head,
        style=STYLE,
        what="load test" if cells.all or not simulated else "The note of 2004 at its own scale",
        lead=top.lead(findings, cells),
        setting=top.setting(cells),
        notices=top.notices(findings, cells),
        facts=markup('<dl class="facts">{}</dl>', facts) if facts else "",
        navigation=top.navigation(parts, [("reading", method.TITLE)]),
        sections=joined((section.html([cell.name for cell in cells.all]) for section in parts), "\n"),
        method=method.html(findings, cells),
        footer=method.footer(findings),
    )
