"""The load of the servers: how even it is, and what random placement of the topics gives. No Spark."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt

from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.placement import FORWARDED, LEASES, RECEIVED, Topics, placement_cv, with_outages

COLUMNS = {RECEIVED: "received", FORWARDED: "forwarded", LEASES: "leases"}
FROM_TAPS = (RECEIVED, LEASES)
"""Known only of servers that keep a tap."""


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
    """Returns the tables `balance` and `servers`.

    Scenarios without taps have no rows in `balance` for what only taps record.
    """
    topics = {row["cell"]: Topics(*(int(row[name]) for name in Topics._fields)) for row in sums["topics"]}
    balance: list[Row] = []
    servers: list[Row] = []
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
                balance.append({"cell": cell.number, "what": what, **spread(loads), "predicted_cv": cv})
    order = ("cell", "what", "servers", "total", "mean", "cv", "predicted_cv", "peak", "gini")
    return {"balance": [{name: row[name] for name in order} for row in balance], "servers": servers}


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
