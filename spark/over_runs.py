"""`kcast analyse --runs FOLDER`: the runs of a folder over time, from their results, without Spark."""

import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kcast.client.cli.text import table
from kcast.loadtest.charts.words import percent_digits, probability, significant
from kcast.loadtest.store.overview import overview
from kcast.loadtest.store.runs import read_store
from kcast.spark.findings.findings import Findings
from kcast.spark.gate import Estimate
from kcast.spark.report.over_runs import ABOUT

_NOTHING = "-"
_CHANGED = "!"


def read(folder: Path) -> dict[str, Any]:
    """Returns what the report shows of the runs in a folder. Raises CaptureError."""
    return overview(read_store(folder))


def lines(store: Mapping[str, Any]) -> list[str]:
    """Tables for people: the runs with all scenarios, n-way, and the changes."""
    names = list(dict.fromkeys(row["scenario"] for row in store["results"]))
    of_run = {(row["place"], row["scenario"]): row for row in store["results"]}
    heads = ("run", "began", "kcast", *names)
    rows = [
        (
            str(run["place"] + 1),
            str(run["started"])[:16].replace("T", " "),
            run["kcast"] or _NOTHING,
            *(_share(of_run.get((run["place"], name))) for name in names),
        )
        for run in store["runs"]
    ]
    told = [
        *table(heads, rows, left=3),
        "delivered, in %, with its difference to the first valid run in points; "
        f"{_CHANGED}: the interval of the difference, for all runs of a scenario together, excludes 0",
    ]
    told += ["", *map(_change, store["changes"])] if store["changes"] else ["", "no change was found"]
    return [*told, *(f"LEFT OUT: {problem}" for problem in store["problems"])]


def _share(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return _NOTHING
    if not row["delivery_valid"]:
        return "NOT VALID"
    share = percent_digits(row["share"])
    if row["difference"] is None:
        return share
    is_other = not row["difference_low"] <= 0 <= row["difference_high"]
    return f"{share} ({row['difference'] * 100:+.2f}{_CHANGED if is_other else ''})"


def _change(change: Mapping[str, Any]) -> str:
    if change["figure"] == "delivered":
        ends = f"{change['low'] * 100:+.2f} to {change['high'] * 100:+.2f}"
        levels = (
            f"{percent_digits(change['before'])} % to {percent_digits(change['after'])} % ({ends} points)"
        )
    else:
        levels = f"{significant(change['before'])} ms to {significant(change['after'])} ms"
    figure = change["figure"].removesuffix("_ms")
    where = f"{change['scenario']} from run {change['place'] + 1} on"
    return f"CHANGED: {where}: {figure} {levels}, p {probability(change['p_value'])}"


def findings_of(store: Mapping[str, Any]) -> Findings:
    """Findings that have nothing but a store of runs."""
    about = {
        "kcast": metadata.version("kcast"),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"kcast {shlex.join(sys.argv[1:])}",
        ABOUT: store,
    }
    return Findings(about, store["problems"])


def newest(store: Mapping[str, Any]) -> dict[str, dict[str, Estimate]]:
    """The estimates of each scenario's newest run, for conditions. Latencies and copies have no interval."""
    found: dict[str, dict[str, Estimate]] = {}
    for row in store["results"]:
        doubt = "" if row["delivery_valid"] else "its delivery is not valid"
        own = {"delivered": Estimate(row["share"], row["low"], row["high"], doubt)}
        own["copies"] = Estimate(row["copies"], row["copies"], row["copies"], doubt)
        for figure in ("p50", "p99"):
            value = row[f"{figure}_ms"]
            if value is not None:
                late = "" if row["latency_valid"] else "its latency is not valid"
                own[figure] = Estimate(value, value, value, late)
        found[row["scenario"]] = own
    return found
