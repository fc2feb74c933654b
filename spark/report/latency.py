"""The part on latency. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import log10

from kcast.loadtest.charts.scales import Logarithmic, decades
from kcast.loadtest.charts.svg import INVALID, swatch
from kcast.loadtest.charts.words import brief_milliseconds, milliseconds, span
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells
from kcast.spark.report.markup import NOT_VALID, Badge, Section, figure
from kcast.spark.report.numbers import folded

_BINS = 110
_NS_PER_MS = 1_000_000

_PERCENTILES = (("p50_ms", 0, "median"), ("p99_ms", 3, "99 %"), ("p999_ms", 2, "99.9 %"))


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns a distribution for each scenario; None without the table."""
    found = [
        (cell, row)
        for cell, row in cells.rows(findings, "latency")
        if row["since"] == "intended" and None not in (row["p50_ms"], row["p99_ms"])
    ]
    if not found:
        return None
    valid = [(cell, row) for cell, row in found if cell.row["latency_valid"]]
    scale = _scale(found)
    buckets: dict[int, list[Row]] = defaultdict(list)
    for bucket in findings.table("latency_buckets"):
        if bucket["since"] == "intended":
            buckets[bucket["cell"]].append(bucket)
    styles = cells.family_styles()
    drawn = [
        rows.ChartRow(
            cell.name,
            [*_hill(buckets[cell.number], scale), *_dots(row)],
            milliseconds(row["p50_ms"]),
            _title(cell, row),
            "",
            styles[cell.family],
            bool(cell.row["latency_valid"]),
        )
        for cell, row in found
    ]
    label = "Latencies: " + "; ".join(_title(cell, row) for cell, row in found)
    legend = [(swatch(shape, "dot s5"), words) for _, shape, words in _PERCENTILES]
    if len(valid) < len(found):
        legend.append((INVALID, NOT_VALID))
    how = (
        "Time from when a message was due to its first copy, on a logarithmic axis. The hills show how often "
        "each latency occurred; the figure at the end is the median."
    )
    every = [row for _, row in cells.rows(findings, "latency")]
    return Section(
        "latency",
        "Latency",
        _says(found, valid),
        Badge("valid", "good")
        if len(valid) == len(found)
        else _not_valid(len(found) - len(valid), len(found)),
        (
            figure(rows.chart(drawn, scale, "latency", label, tall=True), how, legend),
            folded("latency", every, cells, summary="All percentiles, from both times"),
        ),
    )


def _not_valid(count: int, of: int) -> Badge:
    return Badge.of(NOT_VALID) if count == of else Badge(f"{count} of {of} not valid", "warn")


def _says(found: Sequence[tuple[NamedCell, Row]], valid: Sequence[tuple[NamedCell, Row]]) -> str:
    if not valid:
        where = "this scenario" if len(found) == 1 else f"any of the {len(found)} scenarios"
        return f"Latencies cannot be trusted in {where}: they are drawn hollow, and not judged."
    medians, tails = ([row[name] for _, row in valid] for name in ("p50_ms", "p99_ms"))
    words = (
        f"Half of the first copies came within {span(medians, milliseconds).removeprefix('from ')}, "
        f"99 % within {span(tails, milliseconds).removeprefix('from ')}"
    )
    if len(valid) < len(found):
        return f"{words}, in the {len(valid)} of {len(found)} scenarios whose latencies can be trusted."
    return f"{words}."


def _scale(found: Sequence[tuple[NamedCell, Row]]) -> Logarithmic:
    values = [row[name] for _, row in found for name in ("p50_ms", "p999_ms") if row[name]]
    return decades([min(values) / 3, max(values) * 1.3] if values else [], brief_milliseconds)


def _hill(buckets: Sequence[Row], scale: Logarithmic) -> list[rows.Mark]:
    """The frequency of latencies along the axis, the greatest 1."""
    width = log10(scale.high / scale.low) / _BINS
    counts = [0] * (_BINS + 2)
    for bucket in buckets:
        place = log10(max(bucket["value_ns"], 1) / _NS_PER_MS / scale.low) / width
        if 0 <= place < _BINS:
            counts[int(place) + 1] += bucket["count"]
    most = max(counts)
    if not most:
        return []
    # Smoothed over three bins: buckets of three figures are coarser than some bins.
    smooth = [0.0, *((a + 2 * b + c) / 4 for (a, b), (_, c) in pairwise(pairwise(counts))), 0.0]
    peak = max(smooth)
    return [
        rows.Ridge(
            [
                (scale.low * 10 ** (width * (index - 0.5)), value / peak)
                for index, value in enumerate(smooth)
                if value or any(smooth[max(0, index - 1) : index + 2])
            ]
        )
    ]


def _dots(row: Row) -> list[rows.Mark]:
    return [rows.Dot(row[name], shape) for name, shape, _ in _PERCENTILES if row[name] is not None]


def _title(cell: NamedCell, row: Row) -> str:
    told = ", ".join(f"{words} {milliseconds(row[name])}" for name, _, words in _PERCENTILES)
    return f"{cell.name}: {told}" + ("" if cell.row["latency_valid"] else f"; {NOT_VALID}")
