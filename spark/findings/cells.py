"""Cells: the scenarios of all runs, as the analysis numbers them; and the table `scenarios`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcast.hashring.effective_size import ClusterSums
from kcast.loadtest.results.prediction import share_down
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.findings import Row

DELIVERY, LATENCY = "delivery", "latency"
"""What is judged valid or not: the values of the column `what` in the table `health`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario of one run.

    `number` is its value in the column `cell`; `t0_ns` is when the load began, 0 if nothing was to be sent.
    """

    number: int
    run: str
    scenario: Scenario
    status: str
    t0_ns: int


def by_cell(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    """The rows of each cell, by its number; a cell that has none gets an empty list."""
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["cell"]].append(row)
    return found


def clusters_by_cell(
    rows: Iterable[Row], trials: str, successes: str
) -> Mapping[int, Mapping[str, ClusterSums]]:
    """Sums over clusters of outcomes: by cell, then by the name of the clustering.

    `trials` and `successes` are the names of these columns in the job's sums.
    """
    names = ("clusters", trials, successes, "squares", "products", "success_squares")
    found: defaultdict[int, dict[str, ClusterSums]] = defaultdict(dict)
    for row in rows:
        found[row["cell"]][row["clustering"]] = ClusterSums(*(int(row[name]) for name in names))
    return found


def tables(
    cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]], health: Sequence[Row]
) -> dict[str, list[Row]]:
    """The table `scenarios`. `health` is the table of that name: a cell without a reason in it is valid."""
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
        "epoch_s": float(scenario.epoch_s),
        "seed": scenario.seed,
        "delivery_valid": (cell.number, DELIVERY) not in reasons,
        "latency_valid": (cell.number, LATENCY) not in reasons,
    }
