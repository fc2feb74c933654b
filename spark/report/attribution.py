"""The part on causes: why pairs were missed. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import percents
from kcast.loadtest.charts.svg import square
from kcast.loadtest.charts.words import count, listed, percent
from kcast.loadtest.results.causes import MEANINGS, SHORTCOMINGS, UNEXPLAINED
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import NOT_VALID, Badge, Section, details, figure, terms
from kcast.spark.report.numbers import folded

_COLOURS = 6
_OTHER, _UNEXPLAINED = "f6", "f7"
_UNEXPLAINED_LABELS = {cause.label for cause in UNEXPLAINED}
_OWN_LABELS = {cause.label for cause in SHORTCOMINGS}


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a bar of causes for each scenario with misses; None without the table."""
    misses: dict[int, dict[str, int]] = defaultdict(dict)
    for row in findings.table("attribution"):
        if row["misses"]:
            misses[row["cell"]][row["cause"]] = row["misses"]
    if "attribution" not in findings.tables or not cells.all:
        return None
    trusted = Counter[str]()
    for cell in cells.all:
        if cell.is_valid:
            trusted.update(misses[cell.number])
    every = sum((Counter(of_cell) for of_cell in misses.values()), Counter[str]())
    any_valid = any(cell.is_valid for cell in cells.all)
    body = [_figure([(cell, misses[cell.number]) for cell in cells.all], every)] if every else []
    used = [row for _, row in cells.rows(findings, "attribution")]
    body.append(folded("attribution", used, cells, summary="Misses and paths by cause"))
    return Section(
        "attribution",
        "Why the rest did not arrive",
        _says(trusted if any_valid else every, any_valid),
        _badge(trusted, any_valid),
        [*body, _meanings(used)],
    )


def _badge(trusted: Counter[str], any_valid: bool) -> Badge:
    if not any_valid:
        return Badge.of(NOT_VALID)
    unexplained = sum(trusted[label] for label in _UNEXPLAINED_LABELS)
    return Badge(f"{unexplained:,} unexplained", "bad") if unexplained else Badge("all explained", "good")


def _says(misses: Counter[str], any_valid: bool) -> str:
    total = sum(misses.values())
    if not total:
        return "Nothing was missed."
    top = [f"{label} {percent(number / total, 1)}" for label, number in misses.most_common(3)]
    words = f"Each of {count(total, 'miss', 'misses')} has its cause: {listed(top)}"
    unexplained = sum(misses[label] for label in _UNEXPLAINED_LABELS)
    if unexplained:
        words = f"Of {count(total, 'miss', 'misses')} {unexplained:,} have no cause on record; {listed(top)}"
    own = sum(misses[label] for label in _OWN_LABELS)
    if own:
        words += f"; {percent(own / total)} were the fault of the machine that ran the test"
    return f"{words}." if any_valid else f"{words}. These scenarios cannot be trusted."


def _figure(found: Sequence[tuple[NamedCell, dict[str, int]]], every: Counter[str]) -> Html:
    looks = _looks(every)
    drawn = []
    for cell, misses in found:
        total = sum(misses.values())
        drawn.append(
            rows.ChartRow(
                cell.name,
                _bar(misses, looks) if total else [],
                f"{total:,} missed" if total else "none missed",
                is_valid=cell.is_valid,
            )
        )
    legend = [(square(look), cause) for cause, look in looks.items() if look != _OTHER]
    others = [cause for cause, look in looks.items() if look == _OTHER]
    if others:
        legend.append((square(_OTHER), f"others: {listed(others)}"))
    label = "Causes of misses: " + "; ".join(
        f"{cell.name}: " + ", ".join(f"{cause} {number:,}" for cause, number in misses.items())
        for cell, misses in found
        if misses
    )
    how = (
        "Misses of each scenario by cause, as shares of all its misses. A pair could be reached through "
        "several servers; its cause is that of the server through which the message came furthest."
    )
    return figure(rows.chart(drawn, percents(), "of the misses", label), how, legend)


def _looks(every: Counter[str]) -> dict[str, str]:
    """Returns a colour for each of the most frequent causes; unexplained ones have that of alarms."""
    looks = {label: _UNEXPLAINED for label in every if label in _UNEXPLAINED_LABELS}
    for label, _ in every.most_common():
        if label not in looks:
            used = len(looks) - sum(look in (_UNEXPLAINED, _OTHER) for look in looks.values())
            looks[label] = f"f{_ORDER[used]}" if used < _COLOURS else _OTHER
    return looks


_ORDER = (0, 4, 1, 3, 5, 2)


def _bar(misses: dict[str, int], looks: dict[str, str]) -> list[rows.Mark]:
    total = sum(misses.values())
    marks: list[rows.Mark] = []
    at = 0
    for cause, look in looks.items():
        number = misses.get(cause, 0)
        if number:
            title = f"{cause}: {number:,}, {percent(number / total, 1)}"
            marks.append(rows.Bar(at / total, (at + number) / total, look, title))
            at += number
    return marks


def _meanings(used: Sequence[Row]) -> Html:
    meanings = {cause.label: meaning for cause, meaning in MEANINGS.items()}
    found = {row["cause"]: row["meaning"] or meanings.get(row["cause"], "") for row in used}
    return details("What the causes mean", terms(found.items())) if found else Html()
