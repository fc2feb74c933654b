"""The share of pairs still delivered if an attacker blocks some of a topic's servers at random.

A pair whose copies came in time from `heard` servers is lost when all of these are blocked. This is computed
from the copies captured, so it holds whatever else happened in the run. Each share is tested against its law
between runs of the plan.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.model import delivery_given_down, hypergeometric
from kcast.loadtest.results.plan_simulator import Runs
from kcast.loadtest.results.prediction import draws, independent_path, servers_per_topic
from kcast.loadtest.results.simulated_law import ratio
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.plan_laws import Beside, beside, verdict

POINTS_MAX = 64
"""Largest number of steps from no blocked server to all; a topic with more servers gets this many."""

ENOUGH = 0.01
"""A difference of shares that is to be seen, or of as much as is missed by theory where that is more."""


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `attack`, from the sums `heard`. Scenarios without pairs are left out."""
    pairs: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for row in sums["heard"]:
        pairs[row["cell"]][row["heard"]] = row["pairs"]
    rows: list[Row] = []
    tests: list[Beside | None] = []
    for cell in cells:
        heard, k = pairs[cell.number], servers_per_topic(cell.scenario)
        if not heard:
            continue
        for blocked in _steps(k):
            share = delivered(heard, k, blocked)
            found = beside(cell.scenario, Left(blocked, k), share)
            low, high = (None, None) if found is None else found.band
            tests.append(found)
            rows.append(
                {
                    "cell": cell.number,
                    "blocked": blocked,
                    "blocked_share": blocked / k,
                    "delivered": share,
                    "theory": theory(cell.scenario, blocked),
                    "low": None if low is None else max(0.0, low),
                    "high": None if high is None else min(1.0, high),
                }
            )
    count = sum(found is not None for found in tests)
    for row, found in zip(rows, tests, strict=True):
        row["verdict"] = verdict(found, count, max(ENOUGH, 1 - found.law.mean) if found else ENOUGH)
    return {"attack": rows}


@dataclass(frozen=True, slots=True)
class Left:
    """A figure of runs: the share of pairs delivered with `blocked` of a topic's `k` servers blocked."""

    blocked: int
    k: int

    def __call__(self, runs: Runs) -> NDArray[np.float64]:
        """Returns the share in each run."""
        lost = np.array([_all_blocked(servers, self.k, self.blocked) for servers in range(self.k + 1)])
        return 1 - ratio(runs.heard @ lost, runs.pairs)


def delivered(heard: Mapping[int, int], k: int, blocked: int) -> float:
    """The share of pairs with a copy from a server that is not blocked (0 to 1).

    `heard` maps a number of servers to the number of pairs with copies from that many. Blocking is at random,
    so all h of a pair's servers are blocked with probability C(k - h, blocked - h) / C(k, blocked).
    """
    lost = fsum(count * _all_blocked(min(servers, k), k, blocked) for servers, count in heard.items())
    return 1 - lost / sum(heard.values())


def theory(scenario: Scenario, blocked: int) -> float | None:
    """The share by the model; None where the model does not fit the scenario."""
    path = independent_path(scenario)
    if path is None:
        return None
    k, (publish, subscribe) = servers_per_topic(scenario), draws(scenario)
    return delivery_given_down(k, publish, subscribe, blocked, path)


def _all_blocked(servers: int, k: int, blocked: int) -> float:
    least, pmf = hypergeometric(k, blocked, servers)
    return pmf[-1] if least + len(pmf) - 1 == servers else 0.0


def _steps(k: int) -> list[int]:
    if k <= POINTS_MAX:
        return list(range(k + 1))
    return [round(k * step / POINTS_MAX) for step in range(POINTS_MAX + 1)]
