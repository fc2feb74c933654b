"""The part on causes: why pairs were missed. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import percents
from kcast.loadtest.charts.svg import square
from kcast.loadtest.charts.words import count, listed, percent
from kcast.loadtest.results.causes import MEANINGS, ON_NETWORK, SHORTCOMINGS, UNEXPLAINED, Cause
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import NOT_VALID, Badge, Section, details, figure, terms
from kcast.spark.report.numbers import folded

_BY = {
    "misses_by_topic": "Topics with most misses",
    "misses_by_subscriber": "Subscribers with most misses",
}
_TONES = 4
_OTHER, _OWN, _UNEXPLAINED = "q4", "own", "alarm"
# What a network lost is measured, and has a part of its own.
_UNEXPLAINED_LABELS = {cause.label for cause in UNEXPLAINED if cause not in ON_NETWORK}
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
    body += [
        folded(name, [row for _, row in cells.rows(findings, name)], cells, summary=summary)
        for name, summary in _BY.items()
    ]
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
    if len(misses) == 1:
        words = f"{count(total, 'miss', 'misses')} had one cause: {top[0]}"
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
    """Returns a look for each cause, in the order of the way.

    What the test or the policy has caused is grey, with a tone for each of the most frequent. The fault of
    the machine has the colour of warnings, and what is unexplained that of alarms.
    """
    alarming = dict.fromkeys(_OWN_LABELS, _OWN) | dict.fromkeys(_UNEXPLAINED_LABELS, _UNEXPLAINED)
    plain = [label for label, _ in every.most_common() if label not in alarming]
    tones = {label: f"q{number}" for number, label in enumerate(plain[:_TONES])}
    ranks = {cause.label: cause for cause in Cause}
    ordered = sorted(every, key=lambda label: (label in alarming, ranks.get(label, len(ranks))))
    return {label: alarming.get(label) or tones.get(label, _OTHER) for label in ordered}


def _bar(misses: dict[str, int], looks: dict[str, str]) -> list[rows.Mark]:
    total = sum(misses.values())
    marks: list[rows.Mark] = []
    at = 0
    for cause, look in looks.items():
        number = misses.get(cause, 0)
        if number:
            title = f"{cause}: {number:,}, {percent(number / total, 1)}"
            words = f"{cause} {percent(number / total, 0)}"
            marks.append(rows.Bar(at / total, (at + number) / total, look, title, words))
            at += number
    return marks


def _meanings(used: Sequence[Row]) -> Html:
    meanings = {cause.label: meaning for cause, meaning in MEANINGS.items()}
    found = {row["cause"]: row["meaning"] or meanings.get(row["cause"], "") for row in used}
    return details("What the causes mean", terms(found.items())) if found else Html()
