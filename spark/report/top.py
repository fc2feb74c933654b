"""The head of the page: the result in one line, warnings, the main figures and links. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.words import count, listed, p_equals, percent
from kcast.loadtest.results.causes import UNEXPLAINED
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, NOT_REFUTED
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.delivery import summarise
from kcast.spark.report.markup import Section, bullets, details

_REASONS_OPEN = 6
_GOAL = 0.999


def title(findings: Findings, cells: NamedCells) -> str:
    """The result in one line."""
    if not cells.all:
        claims = findings.table("note")
        if not claims:
            return "Nothing was analysed"
        failing = sum(claim["verdict"] == FAILS for claim in claims)
        if failing:
            return f"Of the note’s {len(claims)} claims {failing} {'does' if failing == 1 else 'do'} not hold"
        return "What the note of 2004 claims holds"
    came = summarise(findings, cells)
    if not came.scenarios:
        return "What the captures show"
    if len(came.invalid) == came.scenarios:
        return "These figures cannot be trusted"
    if came.disagreeing:
        of = count(came.judged, "scenario")
        return f"What arrived is not what theory says, in {len(came.disagreeing)} of {of}"
    if came.joint is not None and came.joint["verdict"] == DISAGREES:
        return "Each scenario agrees with theory, but not all of them together"
    if not came.judged:
        return "What arrived; there is no theory for it"
    if came.joint is not None and came.joint["verdict"] == NOT_REFUTED:
        return "What arrived does not refute theory, and is too little to confirm it"
    if came.invalid:
        return "What arrived is what theory says, where it can be trusted"
    return "What arrived is what theory says"


def lead(findings: Findings, cells: NamedCells) -> Html:
    """Sentences on what was analysed."""
    told: list[str] = []
    if cells.all:
        runs = len({cell.row["run"] for cell in cells.all})
        messages = sum(cell.row["messages"] or 0 for cell in cells.all)
        servers = {cell.row["servers"] for cell in cells.all}
        of = f"{servers.pop():,} servers" if len(servers) == 1 else "several sizes"
        told.append(
            f"{count(messages, 'message')} were published to clusters of {of}, in "
            f"{count(len(cells.all), 'scenario')} of {count(runs, 'run')}."
        )
        told.append(
            markup(
                "A <b>pair</b> is a message and a subscriber that should get it; this is how many did, why "
                "the others did not, and what theory says."
            )
        )
    else:
        told.append("No capture was analysed: this is the note of 2004, simulated.")
    following = findings.about.get("following")
    if following:
        told.append(f"The capture still grows: {following}")
    return joined(told, " ")


def facts(findings: Findings, cells: NamedCells) -> list[tuple[str, str]]:
    """Returns the main figures, each with its meaning."""
    found = cells.rows(findings, "reliability")
    valid = [(cell, row) for cell, row in found if cell.is_valid]
    told: list[tuple[str, str]] = []
    if valid:
        pairs = sum(row["pairs"] or 0 for _, row in valid)
        told.append((f"{pairs:,}", "pairs"))
        misses = sum((row["pairs"] or 0) - (row["delivered"] or 0) for _, row in valid)
        labels = {cause.label for cause in UNEXPLAINED}
        unexplained = sum(
            row["misses"]
            for cell, row in cells.rows(findings, "attribution")
            if cell.is_valid and row["cause"] in labels
        )
        if findings.table("attribution") or not misses:
            told.append(
                (
                    f"{misses:,}",
                    f"misses, {f'{unexplained:,} unexplained' if unexplained else 'all explained'}",
                )
            )
        came = summarise(findings, cells)
        if came.joint is not None and came.joint["p_value"] is not None:
            told.append(
                (
                    f"p {p_equals(came.joint['p_value'])}",
                    f"joint test of {count(came.joint['scenarios'], 'scenario')} against theory",
                )
            )
        enough = _enough(valid)
        if enough:
            told.append(enough)
    claims = findings.table("note")
    simulated = findings.table("simulation")
    if not valid and simulated:
        told.append((f"{sum(row['outcomes'] for row in simulated):,}", "outcomes simulated"))
        told.append((f"{max(row['servers'] for row in simulated):,}", "servers"))
        judged = [row for row in simulated if row["verdict"] in (AGREES, DISAGREES)]
        fine = sum(row["verdict"] == AGREES for row in judged)
        if judged:
            told.append((f"{fine} of {len(judged)}", "scenes agree with theory"))
    if claims and len(told) < 4:
        holding = sum(claim["verdict"] != FAILS for claim in claims)
        told.append((f"{holding} of {len(claims)}", "of the note’s claims hold, some on conditions"))
    return told


def _enough(valid: Sequence[tuple[NamedCell, Row]]) -> tuple[str, str] | None:
    """The least K' that surely delivers what the note promises; None if there is none."""
    sure = [
        (cell.k_prime, cell.name) for cell, row in valid if row["low"] is not None and row["low"] >= _GOAL
    ]
    if not sure or len(valid) < 2:
        return None
    k_prime, name = min(sure)
    return f"K′ = {k_prime}", f"is enough for {percent(_GOAL, 1)} ({name})"


def notices(findings: Findings, cells: NamedCells) -> Html:
    """Notices on what was left out and what cannot be trusted, and why; empty without any."""
    parts = []
    if findings.problems:
        parts.append(_notice("Not everything was analysed", bullets(findings.problems)))
    reasons: dict[str, dict[str, list[str]]] = {"delivery": defaultdict(list), "latency": defaultdict(list)}
    for cell, row in cells.rows(findings, "health"):
        reasons.setdefault(row["what"], defaultdict(list))[row["reason"]].append(cell.name)
    invalid = {
        "delivery": [cell.name for cell in cells.all if not cell.is_valid],
        "latency": [cell.name for cell in cells.all if not cell.row["latency_valid"]],
    }
    heads = {
        "delivery": "Shares and causes cannot be trusted in",
        "latency": "Latencies cannot be trusted in",
    }
    for what, names in invalid.items():
        if not names:
            continue
        whole = len(names) == len(cells.all)
        which = (
            ("this scenario" if len(names) == 1 else f"all {len(names)} scenarios")
            if whole
            else listed(names, 6)
        )
        told = bullets(
            reason if len(of) == len(cells.all) else markup("<b>{}</b>: {}", listed(of, 6), reason)
            for reason, of in reasons[what].items()
        )
        is_long = len(reasons[what]) > (_REASONS_OPEN if what == "delivery" else 1)
        body = details("Why, and what to do", told) if is_long else told
        drawn = markup("<p>Values drawn hollow and dashed are not judged.</p>{}", body)
        parts.append(_notice(f"{heads[what]} {which}", drawn))
    return joined(parts)


def _notice(head: str, body: Html) -> Html:
    return markup('<aside class="notice"><h2>{}</h2>{}</aside>', head, body)


def navigation(sections: Sequence[Section], others: Sequence[tuple[str, str]]) -> Html:
    """Returns links to all parts of the page."""
    entries = [*((section.anchor, section.title) for section in sections), *others]
    links = joined(markup('<li><a href="#{}">{}</a></li>', anchor, name) for anchor, name in entries)
    return markup('<nav aria-label="Parts of this page"><ul>{}</ul></nav>', links)
