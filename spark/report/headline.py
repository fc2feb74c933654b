"""The head of the page: the result in one line, and what theory says of it. Pure."""

from collections.abc import Iterator

from kcast.loadtest.charts.words import brief_percent, count, listed, percent, span
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import FAILS
from kcast.spark.report import over_time
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.delivery import measured


def headline(findings: Findings, cells: NamedCells) -> str:
    """What arrived with how many copies, and what share of the servers was down: the title of the page."""
    if not cells.all:
        return _of_the_note(findings)
    if not cells.any_valid:
        return "These figures cannot be trusted"
    found = [(cell, row) for cell, row in measured(findings, cells) if cell.is_valid]
    if not found:
        return "Nothing was to arrive"
    (low, least), (high, most) = (pick(found, key=lambda one: float(one[1]["share"])) for pick in (min, max))
    shares = percent(least["share"]), percent(most["share"])
    if len(found) == 1:
        told = f"{shares[0]} arrived with {low.copies}"
    elif shares[0] == shares[1]:
        told = f"{shares[0]} arrived in all {len(found)} scenarios"
    elif low.copies == high.copies or low.conditions != high.conditions:
        told = f"From {shares[0]} to {shares[1]} arrived in {len(found)} scenarios"
    else:
        told = f"{shares[0]} arrived with {low.copies}, {shares[1]} with {high.copies}"
    down = _down(findings, cells)
    return f"{told}, with {_span(down)} of the servers {_are(cells)}" if any(down) else told


def _are(cells: NamedCells) -> str:
    return "mute" if {cell.row["by"] for cell in cells.all} == {"mute"} else "down"


def _down(findings: Findings, cells: NamedCells) -> list[float]:
    """The shares of the servers that were in fact down, of each valid scenario for which it is known."""
    valid = [course for course in over_time.courses(findings, cells) if course[0].is_valid]
    return [share for course in valid if (share := over_time.share_down(course)) is not None]


def _span(shares: list[float]) -> str:
    return span(shares, lambda share: percent(share, 1)).removeprefix("from ")


def _of_the_note(findings: Findings) -> str:
    claims = findings.table("note")
    if not claims:
        return "Nothing was analysed"
    failing = sum(claim["verdict"] == FAILS for claim in claims)
    if failing:
        return f"Of the note’s {len(claims)} claims {failing} {'does' if failing == 1 else 'do'} not hold"
    return "What the note of 2004 claims holds"


def lead(findings: Findings, cells: NamedCells) -> Iterator[str]:
    """Sentences on what was tested."""
    if not cells.all:
        if findings.table("note"):
            yield "No capture was analysed: this is the note of 2004, simulated."
        return
    messages = sum(cell.row["messages"] or 0 for cell in cells.all)
    pairs = sum(row["pairs"] or 0 for _, row in cells.rows(findings, "reliability"))
    yield (
        f"{count(messages, 'message')} were published in {count(len(cells.all), 'scenario')}, and "
        f"{count(pairs, 'pair')} of a message and a subscriber were to be delivered."
    )
    down, planned = _down(findings, cells), {cell.row["down"] for cell in cells.all if cell.is_valid}
    if any(down) and len(planned) == 1:
        plan = brief_percent(planned.pop())
        yield f"On average {_span(down)} of the servers were {_are(cells)}; the plan was {plan}."


def setting(cells: NamedCells) -> str:
    """The conditions of the test in a line: what all scenarios share, and in what they differ."""
    every = [cell.conditions for cell in cells.all]
    facts = list(dict.fromkeys(fact for own in every for fact in own))
    shared = [fact for fact in facts if all(fact in own for own in every)]
    others = [fact for fact in facts if fact not in shared]
    return "; ".join([*shared, *([f"differing: {listed(others, 6)}"] if others else [])])
