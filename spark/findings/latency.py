"""Percentiles of latencies, from the number of times that each value occurred. No Spark."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from kcast.loadtest.results.percentiles import Percentiles
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row

SINCE = ("intended", "sent")
"""Start times for which there are rows. The sums have "delay" too: how late messages left."""


def times(sums: Mapping[str, Sequence[Row]]) -> dict[tuple[int, str], Percentiles]:
    """Returns percentiles by scenario and start time ("intended", "sent" or "delay").

    Scenarios without times are left out.
    """
    buckets: dict[tuple[int, str], list[tuple[int, int, int]]] = defaultdict(list)
    for row in sums["latency_buckets"]:
        buckets[row["cell"], row["since"]].append((row["value_ns"], row["count"], int(row["total_ns"])))
    found = {}
    for key, rows in buckets.items():
        values_ns, counts, sums_ns = zip(*sorted(rows), strict=True)
        found[key] = Percentiles.of_counts(values_ns, counts, sum(sums_ns))
    return found


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the tables `latency`, with null percentiles where there are no times, and `latency_buckets`."""
    found = times(sums)
    latency: list[Row] = []
    for cell in cells:
        for since in SINCE:
            of = found.get((cell.number, since))
            values = asdict(of or Percentiles())
            if of is None:
                values = {name: value if name == "count" else None for name, value in values.items()}
            latency.append({"cell": cell.number, "since": since, **values})
    order = {since: place for place, since in enumerate(SINCE)}
    rows = [row for row in sums["latency_buckets"] if row["since"] in order]
    rows.sort(key=lambda row: (row["cell"], order[row["since"]], row["value_ns"]))
    names = ("cell", "since", "value_ns", "count")
    return {"latency": latency, "latency_buckets": [{name: row[name] for name in names} for row in rows]}
