"""Percentiles of how long messages took, from how many times there were of each value. No Spark."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row

NS_PER_MS = 1_000_000
SINCE = ("intended", "sent")
"""Of what there are tables; "delay" is how late messages left."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds to three significant figures, as `loadtest.results.percentiles.Times`; all 0 of none."""

    count: int = 0
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def percentiles(buckets: Iterable[tuple[int, int, int]]) -> Percentiles:
    """Of (value in ns, how many, sum of the times as they were in ns). By nearest rank: each is a value."""
    ordered = sorted(buckets)
    total = sum(count for _, count, _ in ordered)
    if not total:
        return Percentiles()
    mean_ms = sum(total_ns for _, _, total_ns in ordered) / total / NS_PER_MS
    # Without the margin, 0.7 of 10 would be more than 7.
    ranks = [max(1, ceil(share * total - 1e-9 * total)) for share in _SHARES]
    found: list[float] = []
    below = 0
    for value_ns, count, _ in ordered:
        below += count
        while len(found) < len(ranks) and ranks[len(found)] <= below:
            found.append(value_ns / NS_PER_MS)
    return Percentiles(total, float(f"{mean_ms:.3g}"), *found)


def times(sums: Mapping[str, Sequence[Row]]) -> dict[tuple[int, str], Percentiles]:
    """By cell, and what the times are counted from: intended, sent, and delay. Those without times are not in
    it."""
    buckets: dict[tuple[int, str], list[tuple[int, int, int]]] = defaultdict(list)
    for row in sums["latency_buckets"]:
        buckets[row["cell"], row["since"]].append((row["value_ns"], row["count"], int(row["total_ns"])))
    return {key: percentiles(values) for key, values in buckets.items()}


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """`latency`: without times there is no percentile. And `latency_buckets`."""
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
