"""The parts on causes: why pairs were missed, and what the network lost though nobody asked for it. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

from kcast.loadtest.charts import rows
from kcast.loadtest.charts.scales import percents
from kcast.loadtest.charts.svg import Figure, square
from kcast.loadtest.charts.words import NOTHING, count, interval, listed, percent
from kcast.loadtest.results.causes import MEANINGS, ON_NETWORK, SHORTCOMINGS, UNEXPLAINED, Cause
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import DISAGREES
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.parts import NOT_VALID, Badge, Cell, Section, Stacked, Table, verdict

_TONES = 4
_OTHER, _OWN, _UNEXPLAINED = "q4", "own", "alarm"
_OWN_LABELS = {cause.label for cause in SHORTCOMINGS}
# What a network lost is measured, and has a part of its own.
_UNEXPLAINED_LABELS = {cause.label for cause in UNEXPLAINED if cause not in ON_NETWORK}
_WAYS = {"in": "to servers", "out": "to subscribers", "both": "both ways"}
_HOW = (
    "Misses of each scenario by cause, as shares of all its misses. A pair could be reached through several "
    "servers; its cause is that of the server through which the message came furthest."
)


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a bar of causes for each scenario, and what they mean; None without the table."""
    if "attribution" not in findings.tables or not cells.all:
        return None
    every = _misses(findings, cells, only_valid=False)
    trusted = _misses(findings, cells, only_valid=cells.any_valid)
    unexplained = sum(trusted[label] for label in _UNEXPLAINED_LABELS)
    badge = Badge(f"{unexplained:,} unexplained", "bad") if unexplained else Badge("all explained", "good")
    return Section(
        "attribution",
        "Why the rest did not arrive",
        _says(trusted, unexplained) + ("" if cells.any_valid else " These scenarios cannot be trusted."),
        badge if cells.any_valid else verdict(NOT_VALID),
        figures(findings, cells),
        [_meanings(every)] if every else [],
    )


def _misses(findings: Findings, cells: NamedCells, *, only_valid: bool) -> Counter[str]:
    found = Counter[str]()
    for cell, row in cells.rows(findings, "attribution"):
        if row["misses"] and (cell.is_valid or not only_valid):
            found[row["cause"]] += row["misses"]
    return found


def _says(found: Counter[str], unexplained: int) -> str:
    total = found.total()
    if not total:
        return "Nothing was missed."
    top = listed([f"{label} {percent(often / total, 1)}" for label, often in found.most_common(3)])
    known = f"{unexplained:,} have no cause on record" if unexplained else "each has its cause"
    words = f"Of {count(total, 'miss', 'misses')} {known}: {top}"
    if own := sum(found[label] for label in _OWN_LABELS):
        words += f"; {percent(own / total)} were the fault of the machine that ran the test"
    return f"{words}."


def figures(findings: Findings, cells: NamedCells) -> list[Figure]:
    """The misses of each scenario by cause; none where nothing was missed."""
    every = _misses(findings, cells, only_valid=False)
    if not every:
        return []
    looks = _looks(every)
    of_cells = {cell.number: dict[str, int]() for cell in cells.all}
    for cell, row in cells.rows(findings, "attribution"):
        of_cells[cell.number][row["cause"]] = row["misses"]
    drawn = [
        rows.ChartRow(
            cell.name,
            f"{total:,} missed" if (total := sum(of_cells[cell.number].values())) else "none missed",
            list(_bar(of_cells[cell.number], looks)),
            is_valid=cell.is_valid,
        )
        for cell in cells.all
    ]
    label = "Causes of misses: " + "; ".join(f"{row.label}: {row.value}" for row in drawn)
    legend = [(square(look), cause) for cause, look in looks.items()]
    return [Figure([rows.chart(drawn, percents(), "of the misses", label)], legend, _HOW)]


def _looks(every: Counter[str]) -> dict[str, str]:
    """Returns a look for each cause, in the order of the way.

    What the test or the policy has caused is grey, with a tone for each of the most frequent. The fault of
    the machine has the colour of warnings, and what is unexplained that of alarms.
    """
    alarming = dict.fromkeys(_OWN_LABELS, _OWN) | dict.fromkeys(_UNEXPLAINED_LABELS, _UNEXPLAINED)
    plain = [label for label, _ in every.most_common() if label not in alarming]
    tones = {label: f"q{tone}" for tone, label in enumerate(plain[:_TONES])}
    ranks = {cause.label: cause for cause in Cause}
    ordered = sorted(every, key=lambda label: (label in alarming, ranks.get(label, len(ranks))))
    return {label: alarming.get(label) or tones.get(label, _OTHER) for label in ordered}


def _bar(own: Mapping[str, int], looks: Mapping[str, str]) -> Iterator[rows.Mark]:
    total, at = sum(own.values()), 0
    for cause, look in looks.items():
        if often := own.get(cause, 0):
            title = f"{cause}: {often:,}, {percent(often / total, 1)}"
            yield rows.bar(at / total, (at + often) / total, f"bar {look}", title)
            at += often


def _meanings(every: Counter[str]) -> Table:
    meanings = {cause.label: meaning for cause, meaning in MEANINGS.items()}
    counted = {cause: (every[cause], every[cause] / every.total()) for cause in _looks(every)}
    body: list[list[Cell]] = [
        [cause, Stacked(f"{often:,}", percent(share, 1)), meanings.get(cause, "")]
        for cause, (often, share) in counted.items()
    ]
    return Table("What the causes mean", ("cause", "misses", "what it means"), body, words={2})


def losses(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns what the network lost on each leg, and what that touches; None if it lost nothing."""
    lossy = {row["cell"] for row in findings.table("losses") if row["lost"]}
    found = [
        (cell, row)
        for cell, row in cells.rows(findings, "losses")
        if cell.number in lossy and row["share"] is not None
    ]
    if not lossy:
        return None
    shares = [row for row in findings.table("reliability") if row["cell"] in lossy]
    refused = sum(row["verdict"] == DISAGREES for row in shares)
    most = max((row["share"] for _, row in found if row["leg"] == "both"), default=None)
    words = (
        f"The network lost up to {percent(most)} of the lines on their way from publishers to subscribers, "
        "although the test did not ask for it. Given this loss, theory allows what arrived in "
        f"{len(shares) - refused} of {count(len(shares), 'scenario')}"
        f"{'; in the others copies were lost together' if refused else ''}."
    )
    body = [
        [
            Stacked(cell.name, f"by {row['known_by']}"),
            Stacked(_WAYS[row["leg"]], count(row["lines"], "line")),
            Stacked(percent(row["share"]), interval(row["low"], row["high"])),
            row["bunches"] or NOTHING,
        ]
        for cell, row in found
    ]
    table = Table("What the network lost", ("scenario", "way", "lost", "in bunches"), body, words={1, 3})
    badge = Badge("lost together", "bad") if refused else Badge("measured")
    touched = _touched(findings, cells)
    return Section("losses", "What the network lost", words, badge, tables=[table], remarks=touched)


def _touched(findings: Findings, cells: NamedCells) -> list[str]:
    """What the loss makes of other figures."""
    reasons: dict[str, list[str]] = {}
    for cell, row in cells.rows(findings, "touched"):
        reasons.setdefault(f"{row['figure']}: {row['by']}", []).append(cell.name)
    return [f"In {cells.which(names)}, {reason}." for reason, names in reasons.items()]
