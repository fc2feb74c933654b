"""The page: findings as one HTML document, without scripts or network. Needs jinja2, and nothing else."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from kcast.loadtest.charts.svg import STYLE_FILE, visible
from kcast.loadtest.charts.words import seconds
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES
from kcast.spark.report import (
    balance,
    causes,
    cost,
    delivery,
    headline,
    latency,
    note,
    over_time,
    reach,
    trust,
)
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.parts import ROWS_MAX, Badge, Section, Tone

_PARTS = (
    *(delivery.section, causes.section, causes.losses, over_time.section, latency.section, reach.section),
    *(balance.section, cost.section, trust.section, note.section),
)
_HYPHENED = re.compile(r"(?<!\S)(\S{1,12}-\S{1,12})(?!\S)")
_ANSWERS: Mapping[str, Tone] = {"fulfilled": "bad", "not certain": "warn", "not fulfilled": "good"}
"""The tones of what became of conditions of --fail-if."""


def _finalize(value: object) -> object:
    """What a template writes of a value: markup as it is, and text without what a terminal would obey."""
    return value if hasattr(value, "__html__") else visible(str(value)).replace(" %", "\N{NO-BREAK SPACE}%")


def _unbroken(words: str) -> Markup:
    """Words in which no line ends at a hyphen, as names of scenarios have them, unless they are long."""
    return Markup(_HYPHENED.sub(r'<span class="name">\1</span>', str(escape(visible(words)))))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader([Path(__file__).parent, STYLE_FILE.parent]),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalize,
    trim_blocks=True,
    lstrip_blocks=True,
)


_ENVIRONMENT.filters["unbroken"] = _unbroken


def sections(findings: Findings, cells: NamedCells) -> list[Section]:
    """Returns the parts of the page that have anything to say."""
    return [section for part in _PARTS if (section := part(findings, cells)) is not None]


def page(findings: Findings) -> str:
    """Returns the whole document."""
    cells = NamedCells.of(findings)
    about = findings.about
    command = about.get("command") or ""
    return _ENVIRONMENT.get_template("page.j2").render(
        what="load test" if cells.all or not findings.table("note") else "the note of 2004 at its own scale",
        head=headline.headline(findings, cells),
        answer=delivery.answer(findings, cells),
        lead=" ".join(headline.lead(findings, cells)),
        setting=headline.setting(cells),
        notices=[*_conditions(about.get("conditions") or ()), *trust.notices(findings, cells)],
        sections=sections(findings, cells),
        rows_max=ROWS_MAX,
        tables=[name for name in TABLES if name in findings.tables],
        captures=about.get("captures") or (),
        made=", ".join(
            (
                f"kcast {about.get('kcast', '')}".rstrip(),
                *([f"analysed {about['made']}"] if about.get("made") else []),
                *([f"in {seconds(float(about['seconds']))}"] if about.get("seconds") else []),
            )
        ),
        command=command if isinstance(command, str) else " ".join(map(str, command)),
    )


def _conditions(told: Sequence[Mapping[str, Any]]) -> list[trust.Notice]:
    """What became of the conditions of --fail-if; none without any."""
    items = [
        (
            f"{each['condition']} in {each['scenario']}: {each['words']}",
            Badge(each["answer"], _ANSWERS.get(each["answer"], "bad")),
        )
        for each in told
    ]
    return [trust.Notice("Conditions of this test, which fails if one is fulfilled", items)] if items else []
