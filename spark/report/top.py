"""The head of the page: the result in one line, warnings, the main figures and links. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.words import brief, count, listed, milliseconds, number, percent
from kcast.loadtest.results.causes import ON_NETWORK, UNEXPLAINED
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS
from kcast.spark.report import answer, conditions
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.delivery_curves import CellRow
from kcast.spark.report.markup import Badge, Section, Tone, bullets, details

_REASONS_OPEN = 6
_GOAL = 0.999


def lead(findings: Findings, cells: NamedCells) -> Html:
    """What theory says of the answer, and sentences on what was tested."""
    if not cells.all:
        if findings.table("note"):
            return markup("No capture was analysed: this is the note of 2004, simulated.")
        return Html()
    judged = answer.verdict(findings, cells)
    told: list[str] = [] if judged is None else [markup("<b>{}</b> {}", judged[0], judged[1].html())]
    messages = sum(cell.row["messages"] or 0 for cell in cells.all)
    pairs = sum(row["pairs"] or 0 for _, row in cells.rows(findings, "reliability"))
    told.append(
        f"{count(messages, 'message')} were published in {count(len(cells.all), 'scenario')}, and "
        f"{count(pairs, 'pair')} of a message and a subscriber were to be delivered."
    )
    in_fact = answer.in_fact(findings, cells)
    if in_fact:
        told.append(in_fact)
    return joined(told, " ")


def setting(cells: NamedCells) -> Html:
    """The conditions of the test in a line: what all scenarios share, and in what they differ."""
    if not cells.all:
        return Html()
    of_each = [conditions.setting(cell.row) for cell in cells.all]
    shared = [fact for fact in of_each[0] if all(fact in facts for facts in of_each)]
    others = dict.fromkeys(fact for facts in of_each for fact in facts if fact not in shared)
    words = "; ".join(shared)
    if others:
        words += f"{'; ' if words else ''}differing: {listed(list(others), 6)}"
    return markup('<p class="quiet">The test: {}.</p>', words)


def facts(findings: Findings, cells: NamedCells) -> list[tuple[str, str]]:
    """Returns the main figures, each with its meaning."""
    found = cells.rows(findings, "reliability")
    valid = [(cell, row) for cell, row in found if cell.is_valid and row["share"] is not None]
    told = [
        tile
        for tile in (
            _arrived(valid),
            _missed(findings, cells, valid),
            _enough(valid),
            _latency(findings, cells),
            _copies(findings, cells),
        )
        if valid and tile is not None
    ]
    claims = findings.table("note")
    simulated = findings.table("simulation")
    if not valid and simulated:
        told.append((brief(sum(row["outcomes"] for row in simulated)), "outcomes simulated"))
        told.append((f"{max(row['servers'] for row in simulated):,}", "servers"))
        judged = [row for row in simulated if row["verdict"] in (AGREES, DISAGREES)]
        fine = sum(row["verdict"] == AGREES for row in judged)
        if judged:
            told.append((f"{fine} of {len(judged)}", "scenes agree with theory"))
    if claims and len(told) < 4:
        holding = sum(claim["verdict"] != FAILS for claim in claims)
        told.append((f"{holding} of {len(claims)}", "of the note’s claims hold, some on conditions"))
    return told


def _arrived(valid: Sequence[CellRow]) -> tuple[str, str] | None:
    """What surely arrived, of the scenario with the most; its share is in the title."""
    sure = [(row["low"], cell) for cell, row in valid if row["low"] is not None]
    if not sure:
        return None
    low, cell = max(sure, key=lambda one: one[0])
    way = "" if len(valid) == 1 else f" with {conditions.copies(cell.row)}"
    return f"≥ {percent(low)}", f"arrived{way}, as far as this run can tell: low end of the 95 % interval"


def _missed(findings: Findings, cells: NamedCells, valid: Sequence[CellRow]) -> tuple[str, str] | None:
    pairs = sum(row["pairs"] or 0 for _, row in valid)
    misses = sum((row["pairs"] or 0) - (row["delivered"] or 0) for _, row in valid)
    if not misses:
        return "none", f"missed, of {count(pairs, 'pair')}"
    if not findings.table("attribution"):
        return brief(misses), f"missed, of {count(pairs, 'pair')}"
    labels = {cause.label for cause in UNEXPLAINED if cause not in ON_NETWORK}
    unexplained = sum(
        row["misses"]
        for cell, row in cells.rows(findings, "attribution")
        if cell.is_valid and row["cause"] in labels
    )
    why = f"{unexplained:,} for no known cause" if unexplained else "each for a known cause"
    return brief(misses), f"missed, of {count(pairs, 'pair')}: {why}"


def _enough(valid: Sequence[CellRow]) -> tuple[str, str] | None:
    """The fewest copies that surely deliver what the note promises; None if there are none."""
    sure = [
        (cell.k_prime, cell.number, cell)
        for cell, row in valid
        if row["low"] is not None and row["low"] >= _GOAL
    ]
    if not sure or len(valid) < 2:
        return None
    k_prime, _, cell = min(sure)
    return count(k_prime, "copy", "copies"), f"are enough for {percent(_GOAL, 1)}, surely ({cell.name})"


def _latency(findings: Findings, cells: NamedCells) -> tuple[str, str] | None:
    rows = [(cell, row) for cell, row in cells.rows(findings, "latency") if row["since"] == "intended"]
    known = [row for _, row in rows if None not in (row["p50_ms"], row["p99_ms"])]
    if not known:
        return None
    sound = [row for cell, row in rows if cell.row["latency_valid"] and row in known]
    if not sound:
        return "not valid", "latency: the machine that ran the test was too busy to measure it"
    medians, tails = ([row[name] for row in sound] for name in ("p50_ms", "p99_ms"))
    within = f"is the median latency; 99 % came within {milliseconds(max(tails))}"
    if len(sound) == 1:
        return milliseconds(medians[0]), within
    return milliseconds(max(medians)), f"{within}, in the slowest scenario"


def _copies(findings: Findings, cells: NamedCells) -> tuple[str, str] | None:
    rows = [row for cell, row in cells.rows(findings, "cost") if cell.is_valid and row["lines_per_delivery"]]
    if not rows:
        return None
    lines = [row["lines_per_delivery"] for row in rows]
    words = "lines in and out of all servers are the cost of a delivery"
    low, high = number(min(lines)), number(max(lines))
    return (low if low == high else f"{low} to {high}"), words


def notices(findings: Findings, cells: NamedCells) -> Html:
    """Notices on what was left out and what cannot be trusted, and why; empty without any."""
    parts = [_conditions(findings)]
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


def _conditions(findings: Findings) -> Html:
    """What became of the conditions of --fail-if; empty without any."""
    told = findings.about.get("conditions") or ()
    if not told:
        return Html()
    tones: dict[str, Tone] = {
        "fulfilled": "bad",
        "not certain": "warn",
        "not fulfilled": "good",
        "no such scenario": "bad",
    }
    items = bullets(
        markup(
            "<b>{}</b> in {}: {} {}",
            each["condition"],
            each["scenario"],
            each["words"],
            Badge(each["answer"], tones.get(each["answer"], "bad")).html(),
        )
        for each in told
    )
    return _notice("Conditions of this test, which fails if one is fulfilled", items)


def _notice(head: str, body: Html) -> Html:
    return markup('<aside class="notice"><h2>{}</h2>{}</aside>', head, body)


def navigation(sections: Sequence[Section], others: Sequence[tuple[str, str]]) -> Html:
    """Returns links to all parts of the page."""
    entries = [*((section.anchor, section.title) for section in sections), *others]
    links = joined(markup('<li><a href="#{}">{}</a></li>', anchor, name) for anchor, name in entries)
    return markup('<nav aria-label="Parts of this page"><ul>{}</ul></nav>', links)
