"""The part on latency. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import log10

from kcast.loadtest.charts import rows
from kcast.loadtest.charts.scales import Logarithmic, decades
from kcast.loadtest.charts.svg import Figure, swatch
from kcast.loadtest.charts.words import brief_milliseconds, milliseconds, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import CellRow, NamedCells
from kcast.spark.report.parts import NOT_VALID, Badge, Section, verdict

_BINS, _HILL_PX = 110, 44.0
_NS_PER_MS = 1_000_000
_PERCENTILES = (("p50_ms", 0, "median"), ("p99_ms", 3, "99 %"), ("p999_ms", 2, "99.9 %"))
_HOW = (
    "Time from when a message was due to its first copy, on a logarithmic axis. The hills show how often "
    "each latency occurred; the figures at the end are the median and the 99th percentile."
)


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a distribution for each scenario whose latencies can be trusted; None without the table."""
    found = _known(findings, cells)
    if not found:
        return None
    valid = [(cell, row) for cell, row in found if cell.has_valid_latency]
    if not valid:
        says = "Latencies cannot be trusted in any scenario, and are not shown."
        return Section("latency", "Latency", says, verdict(NOT_VALID))
    medians, tails = ([row[name] for _, row in valid] for name in ("p50_ms", "p99_ms"))
    says = (
        f"Half of the first copies came within {span(medians, milliseconds).removeprefix('from ')}, "
        f"99 % within {span(tails, milliseconds).removeprefix('from ')}"
    )
    rest, badge = len(found) - len(valid), Badge("valid", "good")
    if rest:
        says += f", in the {len(valid)} of {len(found)} scenarios whose latencies can be trusted"
        badge = Badge(f"{rest} of {len(found)} not valid", "warn")
    return Section("latency", "Latency", f"{says}.", badge, figures(findings, cells))


def _known(findings: Findings, cells: NamedCells) -> list[CellRow]:
    """The scenarios with latencies from when messages were due."""
    return [
        (cell, row)
        for cell, row in cells.rows(findings, "latency")
        if row["since"] == "intended" and None not in (row["p50_ms"], row["p99_ms"])
    ]


def figures(findings: Findings, cells: NamedCells) -> list[Figure]:
    """The latencies of scenarios that are valid."""
    valid = [(cell, row) for cell, row in _known(findings, cells) if cell.has_valid_latency]
    values = [row[name] for _, row in valid for name in ("p50_ms", "p999_ms") if row[name]]
    if not values:
        return []
    scale = decades([min(values) / 3, max(values) * 1.3], brief_milliseconds)
    buckets: defaultdict[int, list[Row]] = defaultdict(list)
    for bucket in findings.table("latency_buckets"):
        if bucket["since"] == "intended":
            buckets[bucket["cell"]].append(bucket)
    drawn = []
    for cell, row in valid:
        dots = [
            rows.dot(row[name], shape, title=f"{words}: {milliseconds(row[name])}")
            for name, shape, words in _PERCENTILES
            if row[name] is not None
        ]
        told = f"{milliseconds(row['p50_ms'])}, {milliseconds(row['p99_ms'])}"
        marks = [rows.ridge(_hill(buckets[cell.number], scale), _HILL_PX), *dots]
        drawn.append(rows.ChartRow(cell.name, told, marks, cell.style))
    legend = [(swatch(shape, "dot s5"), words) for _, shape, words in _PERCENTILES]
    label = "Latencies, median and 99 %: " + "; ".join(f"{row.label}: {row.value}" for row in drawn)
    return [Figure([rows.chart(drawn, scale, "latency", label, _HILL_PX)], legend, _HOW)]


def _hill(buckets: Sequence[Row], scale: Logarithmic) -> list[tuple[float, float]]:
    """The frequency of latencies along the axis, the greatest 1."""
    width = log10(scale.high / scale.low) / _BINS
    counts = Counter[int]()
    for bucket in buckets:
        counts[int(log10(max(bucket["value_ns"], 1) / _NS_PER_MS / scale.low) // width)] += bucket["count"]
    every = [counts[place] for place in range(-1, _BINS + 1)]
    # Smoothed over three bins: buckets of three figures are coarser than some bins.
    smooth = [(a + 2 * b + c) / 4 for (a, b), (_, c) in pairwise(pairwise(every))]
    peak = max(smooth) or 1.0
    return [(scale.low * 10 ** (width * (at + 0.5)), height / peak) for at, height in enumerate(smooth)]
