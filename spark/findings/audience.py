"""How many messages reached all their subscribers, and the longest run that one subscriber missed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any

from hashring.clusters import Clusters
from hashring.model import audience
from loadtest.results.luck import MESSAGE, measured
from loadtest.results.prediction import hosts, share_down
from loadtest.scenario import Scenario
from spark.findings.cell import Cell
from spark.findings.theory import draws, independent_path

NS_PER_S = 1_000_000_000

Row = dict[str, Any]


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The table audience, of the sums `audience_sizes`, `audience_clusterings` and `deaf`.

    Cells without pairs are left out.
    """
    sizes, clusters = _by_cell(sums["audience_sizes"]), _by_cell(sums["audience_clusterings"])
    deaf = {row["cell"]: row for row in sums["deaf"]}
    rows = [
        _row(cell, sizes[cell.number], clusters[cell.number], deaf.get(cell.number))
        for cell in cells
        if sizes[cell.number]
    ]
    return {"audience": rows}


def _by_cell(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["cell"]].append(row)
    return found


def _row(cell: Cell, sizes: Sequence[Row], clusters: Sequence[Row], deaf: Row | None) -> Row:
    messages = sum(row["messages"] for row in sizes)
    reached = sum(row["all_reached"] for row in sizes)
    of_cell = {
        # A message is a trial of its own.
        MESSAGE: Clusters(messages, messages, reached, messages, reached, reached),
        **{row["clustering"]: _clusters(row) for row in clusters},
    }
    share = reached / messages
    low, high = measured(cell.scenario, of_cell).interval(share)
    return {
        "cell": cell.number,
        "messages": messages,
        "subscribers": sum(row["messages"] * row["subscribers"] for row in sizes) / messages,
        "all_reached": reached,
        "share": share,
        "low": low,
        "high": high,
        "theory": theory(cell.scenario, {row["subscribers"]: row["messages"] for row in sizes}),
        "none_reached": sum(row["none_reached"] for row in sizes),
        "longest_deaf_messages": deaf["messages"] if deaf else 0,
        "longest_deaf_s": deaf["duration_ns"] / NS_PER_S if deaf else 0.0,
        "deaf_subscriber": deaf["sub_id"] if deaf else None,
        "deaf_topic": deaf["topic_id"] if deaf else None,
    }


def _clusters(row: Row) -> Clusters:
    names = ("clusters", "messages", "all_reached", "squares", "products", "hits")
    return Clusters(*(int(row[name]) for name in names))


def theory(scenario: Scenario, messages_by_size: Mapping[int, int]) -> float | None:
    """The model's share, for messages with so many subscribers; None where it has none."""
    if independent_path(scenario) is None:
        return None
    k, (publish, subscribe) = hosts(scenario), draws(scenario)
    up = 1 - share_down(scenario)
    reached = (
        count * audience(k, publish, subscribe, size, up, scenario.loss_in, scenario.loss_out)
        for size, count in sorted(messages_by_size.items())
    )
    return fsum(reached) / sum(messages_by_size.values())
