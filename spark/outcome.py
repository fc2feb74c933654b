"""What an analysis prints at its end, and its exit code. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kcast.client.cli.text import table
from kcast.loadtest.charts.words import count, number, percent_digits, probability
from kcast.loadtest.results.verdicts import EXIT_LATENCY_NOT_VALID, EXIT_REFUSED, caveat
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import DISAGREES, THEORIES

_DELIVERY_HEADS = (
    *("scenario", "pairs", "delivered", "interval"),
    *(THEORIES[name] for name in ("beforehand", "given_events")),
    "theory",
)
_LATENCY_HEADS = ("latency", "p50 ms", "p99 ms", "valid")
_SIMULATION_HEADS = ("scene", "outcomes", "delivered", "interval", "theory", "")
_NOTE_HEADS = ("the note says", "measured", "")
_NOTHING = "-"


def exit_code(findings: Findings, *, is_strict: bool) -> int:
    """0, unless scenarios were left out, the delivery of one is not valid, or a theory is refused.

    Theory is that given what happened, for each scenario and for all together, that draws are random, and
    that of the simulation. If strict, latencies must be valid, too.
    """
    scenarios = findings.table("scenarios")
    if findings.problems or not all(row["delivery_valid"] for row in scenarios):
        return EXIT_REFUSED
    if any(row["verdict"] == DISAGREES for row in _judged(findings)):
        return EXIT_REFUSED
    if is_strict and not all(row["latency_valid"] for row in scenarios):
        return EXIT_LATENCY_NOT_VALID
    return 0


def _judged(findings: Findings) -> Iterator[Row]:
    yield from findings.table("reliability")
    yield from (row for row in findings.table("joint") if row["theory"] == "given_events")
    yield from findings.table("draws")
    yield from findings.table("simulation")


def lines(findings: Findings) -> list[str]:
    """Tables for people: scenarios beside theory, joint tests, the simulation, the note, and what is not
    valid."""
    parts = [
        _deliveries(findings),
        _latencies(findings),
        _losses(findings),
        _joint(findings.table("joint")),
        _simulation(findings.table("simulation")),
        _note(findings.table("note")),
        _not_valid(findings),
    ]
    found: list[str] = []
    for part in parts:
        if part:
            found += ["", *part] if found else part
    return found


def objects(findings: Findings) -> Iterator[Row]:
    """The same as objects for JSON, each with its `type`."""
    reliability = {row["cell"]: row for row in findings.table("reliability")}
    for row in findings.table("scenarios"):
        yield {"type": "scenario", **row, **reliability.get(row["cell"], {})}
    for name in ("joint", "losses", "touched", "simulation", "note", "health"):
        yield from ({"type": name, **row} for row in findings.table(name))
    yield from ({"type": "problem", "text": problem} for problem in findings.problems)


def _deliveries(findings: Findings) -> list[str]:
    called = findings.names()
    shares = {row["cell"]: row for row in findings.table("reliability")}
    rows = []
    for scenario in findings.table("scenarios"):
        share = shares[scenario["cell"]]
        rows.append(
            (
                called[scenario["cell"]],
                f"{share['pairs']:,}",
                _percent(share["share"]),
                _interval(share["low"], share["high"]),
                *(_percent(share[theory]) for theory in ("beforehand", "given_events")),
                _verdict(share) if scenario["delivery_valid"] else "NOT VALID",
            )
        )
    return table(_DELIVERY_HEADS, rows) if rows else []


def _verdict(share: Row) -> str:
    """The verdict, with the difference in percentage points that could have been seen."""
    if share["detectable"] is None:
        return str(share["verdict"])
    return f"{share['verdict']}, to {number(100 * share['detectable'], 2)} points"


def _latencies(findings: Findings) -> list[str]:
    called = findings.names()
    is_valid = {row["cell"]: row["latency_valid"] for row in findings.table("scenarios")}
    rows = [
        (
            called[row["cell"]],
            _number(row["p50_ms"]),
            _number(row["p99_ms"]),
            "yes" if is_valid[row["cell"]] else "no",
        )
        for row in findings.table("latency")
        if row["since"] == "intended"
    ]
    return table(_LATENCY_HEADS, rows) if rows else []


def _losses(findings: Findings) -> list[str]:
    """What the network lost in each scenario though nobody asked for it, and the verdict with it."""
    called = findings.names()
    shares = {row["cell"]: row for row in findings.table("reliability")}
    rows = defaultdict[int, list[str]](list)
    lossy = {row["cell"] for row in findings.table("losses") if row["lost"]}
    for row in findings.table("losses"):
        if row["cell"] in lossy and row["share"] is not None:
            rows[row["cell"]].append(
                f"{_percent(row['share'])} {row['leg']} ({_interval(row['low'], row['high'])})"
            )
    told = []
    for cell, of in rows.items():
        told.append(f"{called[cell]}: loss nobody asked for: {', '.join(of)}: {shares[cell]['verdict']}")
    return told


def _joint(rows: Sequence[Row]) -> list[str]:
    return [
        f"theory {THEORIES[row['theory']]}: {row['verdict']} in "
        f"{count(row['scenarios'], 'scenario')} together ({_reason(row)})"
        for row in rows
        if row["scenarios"]
    ]


def _reason(row: Row) -> str:
    if not row["degrees"]:
        return "it leaves nothing to chance"
    return (
        f"chi-squared {number(row['statistic'])}, {count(row['degrees'], 'degree')} of freedom, "
        f"p {probability(row['p_value'])}"
    )


def _simulation(rows: Sequence[Row]) -> list[str]:
    cells = (
        (
            row["scene"],
            f"{row['outcomes']:,}",
            _percent(row["share"]),
            _interval(row["low"], row["high"]),
            _percent(row["theory"]),
            row["verdict"],
        )
        for row in rows
    )
    return table(_SIMULATION_HEADS, cells) if rows else []


def _note(rows: Sequence[Row]) -> list[str]:
    cells = ((row["claim"], row["measured"], row["verdict"]) for row in rows)
    return table(_NOTE_HEADS, cells, left=3) if rows else []


def _not_valid(findings: Findings) -> list[str]:
    called = findings.names()
    reasons = [caveat(row["what"], called[row["cell"]], row["reason"]) for row in findings.table("health")]
    contradicted = [
        f"DISAGREES: {called[row['cell']]}: {row['note']}"
        for row in findings.table("reliability")
        if row["verdict"] == DISAGREES and row["note"]
    ]
    valid = {row["cell"] for row in findings.table("scenarios") if row["delivery_valid"]}
    others = {
        f"DISAGREES: {called[row['cell']]}: {_WHAT[name].format(**row)}": None
        for name in _WHAT
        for row in findings.table(name)
        if row["verdict"] == DISAGREES and row["cell"] in valid
    }
    return [*reasons, *contradicted, *others, *(f"LEFT OUT: {problem}" for problem in findings.problems)]


_WHAT = {
    "audience": "whole audiences were reached more or less often than chance gives by plan",
    "balance": "{what} are less even than by chance",
    "cost": "copies for a pair are not what chance gives by plan",
    "draws": "draws are not random ({what}): two have {common:.3g} servers in common, {theory:.3g} by chance",
}
"""What disagrees, by table; a sentence that may use the row's columns."""


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{percent_digits(share)} %"


def _interval(low: float | None, high: float | None) -> str:
    return _NOTHING if low is None or high is None else f"{percent_digits(low)}-{percent_digits(high)}"


def _number(value: float | None) -> str:
    return _NOTHING if value is None else number(value)
