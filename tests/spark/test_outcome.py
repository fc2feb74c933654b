"""spark/outcome.py: what an analysis prints at its end, and its exit code."""

import json
import re
from dataclasses import replace

from kcast.client.cli.text import to_json
from kcast.loadtest.results.verdicts import caveat
from kcast.spark import outcome
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, NO_THEORY, TABLES
from tests.support.report_findings import findings, scenarios

GRID = scenarios("k-prime")


def with_rows(found: Findings, table: str, rows: list[Row]) -> Findings:
    return replace(found, tables={**found.tables, table: rows})


def sound() -> Findings:
    """Findings in which all is valid and agrees with theory."""
    found = findings(GRID, simulated=True)
    for table in ("reliability", "joint", "simulation"):
        found = with_rows(found, table, [{**row, "verdict": AGREES} for row in found.table(table)])
    assert found.table("health") == []
    return found


# --- Exit codes --------------------------------------------------------------------------------------


def test_all_well_is_0() -> None:
    for is_strict in (False, True):
        assert outcome.exit_code(sound(), is_strict=is_strict) == 0


def test_no_theory_and_a_claim_of_the_note_that_fails_are_no_failures_of_the_run() -> None:
    found = sound()
    for table in ("reliability", "joint", "simulation"):
        found = with_rows(found, table, [{**row, "verdict": NO_THEORY} for row in found.table(table)])
    claims = [{**row, "verdict": FAILS} for row in found.table("note")]
    assert claims
    assert outcome.exit_code(with_rows(found, "note", claims), is_strict=True) == 0


def test_what_disagrees_with_theory_is_refused() -> None:
    for table in ("reliability", "joint", "simulation"):
        rows = [dict(row) for row in sound().table(table)]
        rows[0]["verdict"] = DISAGREES
        assert table != "joint" or rows[0]["theory"] == "given_events"
        assert outcome.exit_code(with_rows(sound(), table, rows), is_strict=False) == 3


def test_draws_that_are_not_random_are_refused_and_told() -> None:
    drawn = dict(
        zip((column.name for column in TABLES["draws"]), (0, "topic", 40, 0, 3.0, 1.125), strict=False)
    )
    for verdict, code in ((AGREES, 0), (DISAGREES, 3)):
        found = with_rows(sound(), "draws", [drawn | {"z": 9.0, "verdict": verdict}])
        assert outcome.exit_code(found, is_strict=False) == code
        told = [line for line in outcome.lines(found) if "draws are not random (topic)" in line]
        assert len(told) == (code == 3)
    assert told[0].endswith("two have 3 servers in common, 1.12 by chance")
    # What chance gives by plan is told, and decides nothing.
    costly = [{**row, "verdict": DISAGREES} for row in sound().table("cost")]
    found = with_rows(sound(), "cost", costly)
    assert outcome.exit_code(found, is_strict=False) == 0
    assert sum("copies for a pair" in line for line in outcome.lines(found)) == len(costly)


def test_theory_beforehand_decides_nothing() -> None:
    found = sound()
    rows = [
        {**row, "verdict": DISAGREES if row["theory"] == "beforehand" else AGREES}
        for row in found.table("joint")
    ]
    assert outcome.exit_code(with_rows(found, "joint", rows), is_strict=True) == 0


def test_a_latency_that_is_not_valid_fails_only_who_asks_for_that() -> None:
    late = findings(GRID, latency_invalid=[1])
    assert [outcome.exit_code(late, is_strict=is_strict) for is_strict in (False, True)] == [0, 4]
    disagreeing = findings(GRID, latency_invalid=[1], disagreeing=[0])
    left_out = replace(sound(), problems=["x: scenario y is left out"])
    for refused in (disagreeing, left_out, findings(GRID, invalid=[2], latency_invalid=[1])):
        assert outcome.exit_code(refused, is_strict=True) == 3


# --- What is said ------------------------------------------------------------------------------------


def test_each_scenario_is_a_line_with_theory_beside() -> None:
    found = sound()
    lines = outcome.lines(found)
    heads = next(number for number, line in enumerate(lines) if line.startswith("scenario"))
    assert " ".join(" ".join(lines[: heads + 1]).split()).count("happened") == 1
    assert lines[heads].split()[:4] == ["scenario", "pairs", "delivered", "interval"]
    lines = lines[heads:]
    for line, cell, share in zip(
        lines[1:], found.table("scenarios"), found.table("reliability"), strict=False
    ):
        assert line.split()[:2] == [cell["scenario"], f"{share['pairs']:,}"]
        assert line.split()[2] == f"{share['share'] * 100:.2f}" or share["share"] > 0.999
        assert re.search(r"  agrees, to [0-9.e-]+ points$", line)
    assert lines[1 + len(GRID)] == ""
    head, *latencies = lines[2 + len(GRID) : 3 + 2 * len(GRID)]
    assert head.split() == ["latency", "p50", "ms", "p99", "ms", "valid"]
    assert [line.split()[0] for line in latencies] == [cell["scenario"] for cell in found.table("scenarios")]
    assert all(line.endswith("yes") for line in latencies)
    joint = [line for line in lines if line.startswith("theory given what happened: agrees in ")]
    assert len(joint) == 1


def test_a_joint_test_that_leaves_nothing_to_chance_says_so() -> None:
    rows = [{**row, "degrees": 0, "statistic": 0.0, "p_value": 1.0} for row in sound().table("joint")]
    told = [line for line in outcome.lines(with_rows(sound(), "joint", rows)) if line.startswith("theory ")]
    assert told and all(line.endswith("together (it leaves nothing to chance)") for line in told)


def test_scenarios_of_several_runs_have_the_runs_name() -> None:
    found = findings(GRID, runs=["run-a", "run-b"])
    assert found.names()[0] == f"run-a/{GRID[0].name}"
    assert outcome.lines(found)[-1].startswith("run-b/") or "run-b/" in "\n".join(outcome.lines(found))
    assert findings(GRID).names()[0] == GRID[0].name


def test_what_cannot_be_trusted_has_no_verdict_and_its_reasons() -> None:
    found = replace(findings(GRID, invalid=[1], latency_invalid=[2]), problems=["x: left out: why"])
    lines = outcome.lines(found)
    assert next(line for line in lines if line.startswith(GRID[1].name)).endswith("  NOT VALID")
    head = next(number for number, line in enumerate(lines) if line.startswith("latency "))
    assert [line.split()[-1] for line in lines[head + 1 : head + 4]] == ["yes", "no", "no"]
    for row in found.table("health"):
        name = GRID[row["cell"]].name
        assert caveat(row["what"], name, row["reason"]) in lines
    assert lines[-1] == "LEFT OUT: x: left out: why"


def test_the_simulation_and_what_it_says_of_the_note() -> None:
    found = findings(simulated=True)
    lines = outcome.lines(found)
    assert lines[0].startswith("scene ")
    for row in found.table("simulation"):
        assert any(line.startswith(row["scene"]) and line.endswith(row["verdict"]) for line in lines)
    for row in found.table("note"):
        assert any(line.startswith(row["claim"]) and line.endswith(row["verdict"]) for line in lines)


def test_objects_tell_the_same_and_are_json() -> None:
    found = replace(findings(GRID, invalid=[1], simulated=True), problems=["x"])
    objects = [json.loads(to_json(each)) for each in outcome.objects(found)]
    cells = [each for each in objects if each["type"] == "scenario"]
    assert [cell["scenario"] for cell in cells] == [scenario.name for scenario in GRID]
    assert [cell["share"] for cell in cells] == [row["share"] for row in found.table("reliability")]
    for table in ("joint", "simulation", "note", "health"):
        rows = [each for each in objects if each["type"] == table]
        assert rows == [{"type": table, **row} for row in found.table(table)]
    assert objects[-1] == {"type": "problem", "text": "x"}


def test_nothing_is_said_of_nothing() -> None:
    assert outcome.lines(Findings({})) == []
    assert outcome.exit_code(Findings({}), is_strict=True) == 0
