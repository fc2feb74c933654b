"""The part on the note of 2004: its claims beside what was simulated. Pure."""

from kcast.loadtest.charts.words import brief, count, listed
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import DISAGREES, FAILS, HOLDS, HOLDS_IF
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.parts import Badge, Cell, Section, Table, verdict


def section(findings: Findings, _: NamedCells) -> Section | None:
    """Returns each claim with its verdict; None without the table."""
    claims, scenes = findings.table("note"), findings.table("simulation")
    if not claims:
        return None
    verdicts = [claim["verdict"] for claim in claims]
    told = ", ".join(f"{each} {verdicts.count(each)}" for each in (HOLDS, HOLDS_IF, FAILS))
    says = f"The verdicts on {count(len(claims), 'claim')}: {told}."
    if scenes:
        servers = count(max(scene["servers"] for scene in scenes), "server")
        outcomes = brief(sum(scene["outcomes"] for scene in scenes))
        says += f" {outcomes} outcomes were simulated, with {servers}; tables/simulation.csv has all scenes."
        wrong = [scene["scene"] for scene in scenes if scene["verdict"] == DISAGREES]
        says += f" Theory disagrees with {listed(wrong)}." if wrong else " Theory agrees with all of them."
    holding = len(claims) - verdicts.count(FAILS)
    badge = Badge(f"{holding} of {len(claims)} hold", "good" if holding == len(claims) else "warn")
    heads = ("claim", "formula", "measured", "verdict")
    body: list[list[Cell]] = [
        [verdict(claim[name]) if name == "verdict" else claim[name] for name in heads] for claim in claims
    ]
    table = Table("The claims of the note", heads, body, words=range(4))
    return Section("note", "The note of 2004", says, badge, tables=[table])
