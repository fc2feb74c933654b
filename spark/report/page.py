"""The page: findings as one HTML document that needs neither network nor scripts. Pure."""

from kcast.spark.findings.findings import Findings
from kcast.spark.report import (
    attack,
    attribution,
    audience,
    balance,
    capacity,
    cost,
    delivery,
    latency,
    method,
    note,
    top,
)
from kcast.spark.report.cells import Cells
from kcast.spark.report.markup import text
from kcast.spark.report.style import STYLE

_PARTS = (
    *(delivery.section, latency.section, balance.section, cost.section, attribution.section),
    *(audience.section, attack.section, capacity.section, note.judgement, note.simulation),
)

_POLICY = "default-src 'none';style-src 'unsafe-inline'"
"""Nothing is fetched, and no script runs."""


def page(findings: Findings) -> str:
    """The whole document."""
    cells = Cells.of(findings)
    sections = [section for part in _PARTS if (section := part(findings, cells)) is not None]
    head = top.title(findings, cells)
    facts = "".join(
        f"<div><dt>{text(what)}</dt><dd>{text(figure)}</dd></div>"
        for figure, what in top.facts(findings, cells)
    )
    what = "Reliability versus K" if cells.all else "The note of 2004 at its own scale"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{text(head)} · kcast</title>",
            f"<style>\n{STYLE}</style></head><body>",
            f'<header><p class="brand">kcast · {what}</p><h1>{text(head)}</h1>',
            f'<p class="lead">{top.lead(findings, cells)}</p>',
            top.notices(findings, cells),
            f'<dl class="facts">{facts}</dl>' if facts else "",
            top.navigation(sections, [("reading", method.TITLE)]),
            "</header><main>",
            *(section.html([cell.name for cell in cells.all]) for section in sections),
            method.html(findings, cells),
            "</main>",
            method.footer(findings),
            "</body></html>",
            "",
        ]
    )
