"""The part on trust: which figures are valid, and why others are not. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kcast.loadtest.charts.words import count
from kcast.spark.findings.findings import Findings
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.parts import NOT_VALID, Badge, Cell, Section, Stacked, Table, gravest, verdict

_FIGURES = {"delivery": "Shares and causes", "latency": "Latencies"}
_OPEN_MAX = 6
"""Most reasons that are not folded."""


class Notice(NamedTuple):
    """What readers must know before all else: a sentence, and items, some with a verdict."""

    words: str
    items: Sequence[tuple[str, Badge | None]] = ()


def notices(findings: Findings, cells: NamedCells) -> Iterator[Notice]:
    """What cannot be trusted, and what was left out."""
    if findings.problems:
        yield Notice("Not everything was analysed", [(problem, None) for problem in findings.problems])
    for what, names in _invalid(cells).items():
        if names:
            yield Notice(f"{_FIGURES[what]} cannot be trusted in {cells.which(names)}")


def _invalid(cells: NamedCells) -> dict[str, list[str]]:
    return {
        "delivery": [cell.name for cell in cells.all if not cell.is_valid],
        "latency": [cell.name for cell in cells.all if not cell.has_valid_latency],
    }


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns which figures are valid, and why others are not; None without scenarios."""
    if not cells.all:
        return None
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell, row in cells.rows(findings, "health"):
        reasons.setdefault((row["what"], row["reason"]), []).append(cell.name)
    body: list[list[Cell]] = [
        [Stacked(cells.which(names), _FIGURES.get(what, what).lower()), reason]
        for (what, reason), names in reasons.items()
    ]
    invalid = _invalid(cells)
    told = [
        f"{_FIGURES[what]} are valid in {len(cells.all) - len(names)} of {count(len(cells.all), 'scenario')}."
        for what, names in invalid.items()
    ]
    draws = [row["verdict"] for cell, row in cells.rows(findings, "draws") if cell.is_valid]
    if draws:
        told.append(f"That servers were drawn at random: {gravest(draws).words}.")
    badge = Badge("not all valid", "warn") if any(invalid.values()) else Badge("valid", "good")
    summary = "Why, and what to do" if len(body) > _OPEN_MAX else ""
    table = Table("Why figures are not valid", ("where", "why, and what to do"), body, summary, words={1})
    return Section(
        "trust",
        "What can be trusted",
        " ".join(told),
        badge if cells.any_valid else verdict(NOT_VALID),
        tables=[table] if body else [],
    )
