"""The load of the servers: how even it is, and what random placement of the topics gives. No Spark.

The CV is tested against its own law between runs of the plan: with few topics it varies by more, and is more
skewed, than that of a normal sample.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.effective_size import CONFIDENCE
from kcast.loadtest.results.plan_simulator import Runs
from kcast.loadtest.results.simulated_law import ratio
from kcast.spark.findings import draws
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.placement import FORWARDED, LEASES, RECEIVED, Topics, placement_cv, with_outages
from kcast.spark.findings.plan_laws import Beside, beside, verdict
from kcast.spark.findings.tables import TABLES

COLUMNS = {RECEIVED: "received", FORWARDED: "forwarded", LEASES: "leases"}


def servers_of(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[int, list[Row]]:
    """Returns each scenario's servers, in order, with `received`, `forwarded`, `leases` and `up_ns`.

    Servers that have a tap, or did anything, are counted. Where no server has a tap, all servers of the
    scenario are, and what only taps record is None. `up_ns` is None where the length of the load is unknown.
    """
    found: dict[int, dict[int, Row]] = defaultdict(dict)
    for row in sums["servers"]:
        found[row["cell"]][row["server_id"]] = row
    result: dict[int, list[Row]] = {}
    for cell in cells:
        known = found[cell.number]
        has_taps = any(row["lived"] for row in known.values())
        if has_taps:
            ids = [
                number
                for number, row in known.items()
                if row["lived"] or row["received"] or row["forwarded"] or row["leases"]
            ]
        else:
            ids = list({*known, *range(cell.scenario.servers)})
        result[cell.number] = [_server(number, known.get(number), has_taps) for number in sorted(ids)]
    return result


def _server(number: int, row: Row | None, has_taps: bool) -> Row:
    values: Row = {"received": 0, "forwarded": 0, "leases": 0} if row is None else row
    span_ns = None if row is None else row["span_ns"]
    return {
        "server_id": number,
        "received": values["received"] if has_taps else None,
        "forwarded": values["forwarded"],
        "leases": values["leases"] if has_taps else None,
        "up_ns": None if row is None or span_ns is None else max(0, span_ns - row["down_ns"]),
    }


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the tables `balance`, `draws` and `servers`.

    Scenarios without taps have no rows in `balance` for what only taps record.
    """
    topics = {row["cell"]: Topics(*(int(row[name]) for name in Topics._fields)) for row in sums["topics"]}
    balance: list[Row] = []
    servers: list[Row] = []
    tests: list[Beside | None] = []
    for cell in cells:
        of_cell = servers_of(cells, sums)[cell.number]
        up_ns = [row["up_ns"] for row in of_cell if row["up_ns"] is not None]
        predicted = placement_cv(cell.scenario, topics.get(cell.number, Topics(*(0,) * len(Topics._fields))))
        servers += [
            {"cell": cell.number, **{name: row[name] for name in ("server_id", *COLUMNS.values())}}
            for row in of_cell
        ]
        for what, column in COLUMNS.items():
            loads = [row[column] for row in of_cell if row[column] is not None]
            if loads:
                # A server that was down keeps the leases that it had.
                cv = predicted[what] if what == LEASES else with_outages(predicted[what], up_ns)
                row = {"cell": cell.number, "what": what, **spread(loads), "predicted_cv": cv}
                # Idle servers belong to the plan; where some never lived, it is another cluster.
                is_whole = len(loads) == cell.scenario.servers
                found = beside(cell.scenario, Cv(column), row["cv"]) if is_whole else None
                row["cv_high"] = None if found is None else found.quantile(CONFIDENCE)
                tests.append(found)
                balance.append(row)
    count = sum(found is not None for found in tests)
    for row, found in zip(balance, tests, strict=True):
        row["verdict"] = verdict(found, count, found.law.mean if found else 0.0, only_above=True)
    order = [column.name for column in TABLES["balance"]]
    in_order = [{name: row[name] for name in order} for row in balance]
    return {"balance": in_order, **draws.tables(cells, sums), "servers": servers}


@dataclass(frozen=True, slots=True)
class Cv:
    """A figure of runs: the CV of the servers' `received`, `forwarded` or `leases`."""

    load: str

    def __call__(self, runs: Runs) -> NDArray[np.float64]:
        """Returns the CV of each run."""
        loads = getattr(runs, self.load)
        return ratio(loads.std(axis=1), loads.mean(axis=1))


def spread(loads: Sequence[int]) -> Row:
    """Returns mean, CV, peak and Gini coefficient of all servers; the last three are None without load.

    The CV is that of the population, not of a sample.
    """
    total, count = sum(loads), len(loads)
    row: Row = {
        "servers": count,
        "total": total,
        "mean": total / count,
        "cv": None,
        "peak": None,
        "gini": None,
    }
    if total:
        squares = sum(load * load for load in loads)
        ranked = sum((2 * place - count - 1) * load for place, load in enumerate(sorted(loads), 1))
        row |= {
            "cv": sqrt(count * squares - total * total) / total,
            "peak": max(loads) * count / total,
            "gini": ranked / (count * total),
        }
    return row
