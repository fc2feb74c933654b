"""The share of messages that reached all their subscribers; the longest run that one subscriber missed."""

from collections.abc import Callable, Mapping, Sequence
from math import fsum

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.effective_size import ClusterSums
from kcast.hashring.model import audience
from kcast.loadtest.results.effective_trials import interval_note, message_trials
from kcast.loadtest.results.plan_simulator import Runs
from kcast.loadtest.results.planned_variance import MESSAGE
from kcast.loadtest.results.prediction import draws, independent_path, servers_per_topic, share_down
from kcast.loadtest.results.simulated_law import ratio
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell, by_cell, clusters_by_cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.plan_laws import beside, verdict

NS_PER_S = 1_000_000_000

ENOUGH = 0.01
"""A difference of shares that is to be seen, or of as much as is missed by theory where that is more."""


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `audience`, from the sums `audience_sizes`, `audience_clusterings` and `deaf`.

    Scenarios without pairs are left out.
    """
    sizes = by_cell(sums["audience_sizes"])
    clusters = clusters_by_cell(sums["audience_clusterings"], "messages", "all_reached")
    deaf = {row["cell"]: row for row in sorted(sums["deaf"], key=_length)}
    there = [cell for cell in cells if sizes[cell.number]]
    rows = [_row(cell, sizes[cell.number], clusters[cell.number], deaf.get(cell.number)) for cell in there]
    tests = [
        beside(cell.scenario, share_reached, row["share"]) for cell, row in zip(there, rows, strict=True)
    ]
    count = sum(found is not None for found in tests)
    for row, found in zip(rows, tests, strict=True):
        row["verdict"] = verdict(found, count, max(ENOUGH, 1 - found.law.mean) if found else ENOUGH)
    return {"audience": rows}


def _length(deaf: Row) -> tuple[int, int, int, int]:
    """The order of runs: of equally long ones that of the lower numbers comes last."""
    return deaf["messages"], deaf["duration_ns"], -deaf["sub_id"], -deaf["topic_id"]


def share_reached(runs: Runs) -> NDArray[np.float64]:
    """A figure of runs: the share of messages that reached all their subscribers."""
    return ratio(runs.all_reached, runs.messages)


def _row(cell: Cell, sizes: Sequence[Row], clusters: Mapping[str, ClusterSums], deaf: Row | None) -> Row:
    messages = sum(row["messages"] for row in sizes)
    reached = sum(row["all_reached"] for row in sizes)
    of_cell = {
        # Each message is a cluster of one trial.
        MESSAGE: ClusterSums(messages, messages, reached, messages, reached, reached),
        **clusters,
    }
    by_size = {row["subscribers"]: row["messages"] for row in sizes}
    share = reached / messages
    effective = message_trials(cell.scenario, of_cell)
    low, high = (None, None) if interval_note(effective) else effective.interval(share)
    return {
        "cell": cell.number,
        "messages": messages,
        "subscribers": sum(row["messages"] * row["subscribers"] for row in sizes) / messages,
        "all_reached": reached,
        "share": share,
        "low": low,
        "high": high,
        "theory": theory(cell.scenario, by_size),
        "none_reached": sum(row["none_reached"] for row in sizes),
        "longest_deaf_messages": deaf["messages"] if deaf else 0,
        "longest_deaf_s": deaf["duration_ns"] / NS_PER_S if deaf else 0.0,
        "deaf_subscriber": deaf["sub_id"] if deaf else None,
        "deaf_topic": deaf["topic_id"] if deaf else None,
    }


def theory(scenario: Scenario, messages_by_size: Mapping[int, int]) -> float | None:
    """The share of messages that reach all subscribers, by the model; None where it does not fit.

    `messages_by_size` maps a number of subscribers to the number of messages with that many.
    """
    if independent_path(scenario) is None:
        return None
    up = 1 - share_down(scenario)
    return _mean(
        messages_by_size,
        lambda size: audience(*_policy(scenario), size, up, scenario.loss_in, scenario.loss_out),
    )


def _policy(scenario: Scenario) -> tuple[int, int, int]:
    return servers_per_topic(scenario), *draws(scenario)


def _mean(messages_by_size: Mapping[int, int], chance: Callable[[int], float]) -> float:
    found = (count * chance(size) for size, count in sorted(messages_by_size.items()))
    return fsum(found) / sum(messages_by_size.values())
