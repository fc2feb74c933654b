"""The table of cells: what was run, and whether what came of it can be trusted. No Spark."""

from collections.abc import Mapping, Sequence
from typing import Any

from kcast.loadtest.results.prediction import share_down
from kcast.spark.findings.cell import Cell

Row = dict[str, Any]
DELIVERY, LATENCY = "delivery", "latency"


def tables(
    cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]], health: Sequence[Row]
) -> dict[str, list[Row]]:
    """`cells`. `health` is the table of that name: what has no reason in it is valid."""
    messages = {row["cell"]: row["messages"] for row in sums["cost"]}
    reasons = {(row["cell"], row["what"]) for row in health}
    return {"scenarios": [_row(cell, messages.get(cell.number, 0), reasons) for cell in cells]}


def _row(cell: Cell, messages: int, reasons: set[tuple[int, str]]) -> Row:
    scenario = cell.scenario
    policy = scenario.policy
    return {
        "cell": cell.number,
        "run": cell.run,
        "scenario": scenario.name,
        "scheme": scenario.scheme,
        "side": scenario.side if scenario.scheme == "RCH" else "",
        "k": policy.k,
        "publish": policy.publish,
        "subscribe": policy.subscribe,
        "servers": scenario.servers,
        "backend": scenario.backend,
        "down": share_down(scenario),
        "outages": scenario.outages,
        "by": scenario.by,
        "loss_in": scenario.loss_in,
        "loss_out": scenario.loss_out,
        "repeat": scenario.repeat,
        "known": scenario.known,
        "messages": messages,
        "publishers": scenario.publishing_users,
        "subscribers": scenario.subscribing_users,
        "duration_s": scenario.duration_s,
        "seed": scenario.seed,
        "delivery_valid": (cell.number, DELIVERY) not in reasons,
        "latency_valid": (cell.number, LATENCY) not in reasons,
    }
