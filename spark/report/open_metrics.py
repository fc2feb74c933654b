"""The main figures and latencies of an analysis in OpenMetrics, for Prometheus and its like. Pure.

Samples carry the time at which their run ended, so `promtool tsdb create-blocks-from openmetrics` can put the
figures of many runs into one store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest

from kcast.spark.findings.findings import Findings, Row

_LABELS = ("run", "scenario", "policy")
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_BOUNDS_NS = [round(step * 10**power) for power in range(5, 10) for step in _STEPS] + [10**10]
"""Upper bounds of the buckets, from 100 us to 10 s."""
_NS_PER_S = 1e9

_GAUGES: Sequence[tuple[str, str, str, str]] = (  # name, what it is, table, column
    ("kcast_delivered_ratio", "Share of pairs delivered in time.", "reliability", "share"),
    ("kcast_delivered_low_ratio", "Lower end of its 95 % interval.", "reliability", "low"),
    ("kcast_delivered_high_ratio", "Upper end of its 95 % interval.", "reliability", "high"),
    ("kcast_expected_ratio", "The share by theory given what happened.", "reliability", "given_events"),
    ("kcast_audience_ratio", "Share of messages that reached all subscribers.", "audience", "share"),
    ("kcast_copies_per_pair", "Copies that came for a pair.", "cost", "copies_per_pair"),
    ("kcast_lines_per_delivery", "Lines in and out of servers.", "cost", "lines_per_delivery"),
    ("kcast_delivery_valid", "1 if shares and causes can be trusted.", "scenarios", "delivery_valid"),
    ("kcast_latency_valid", "1 if latencies can be trusted.", "scenarios", "latency_valid"),
)


def metrics(findings: Findings) -> str:
    """Returns figures of all scenarios as OpenMetrics text, which ends with `# EOF`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(findings))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # has no types
    return text.decode()


class _Collector:
    """Gives the metrics of findings to prometheus_client."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        ended = _ended(findings)
        rows = findings.table("scenarios")
        self._labels = {row["cell"]: _labels(row) for row in rows}
        self._times_s = {row["cell"]: ended.get(row["run"]) for row in rows}

    def collect(self) -> Iterable[Metric]:
        """Yields each metric with the samples of all scenarios."""
        for name, about, table, column in _GAUGES:
            gauge = GaugeMetricFamily(name, about, labels=_LABELS)
            for row in self._findings.table(table):
                if row[column] is not None:
                    self._add(gauge.add_metric, row["cell"], float(row[column]))
            yield gauge
        yield self._counted("kcast_pairs", "Pairs of a message and a subscriber.", "pairs")
        yield self._counted("kcast_delivered", "Pairs delivered in time.", "delivered")
        yield self._misses()
        yield self._network_loss()
        for since in ("intended", "sent"):
            yield self._latency(since)

    def _add(self, add: Callable[..., None], cell: int, *values: object) -> None:
        add(self._labels[cell], *values, timestamp=self._times_s[cell])

    def _counted(self, name: str, about: str, column: str) -> Metric:
        counter = CounterMetricFamily(name, about, labels=_LABELS)
        for row in self._findings.table("reliability"):
            self._add(counter.add_metric, row["cell"], row[column])
        return counter

    def _misses(self) -> Metric:
        counter = CounterMetricFamily("kcast_missed", "Pairs missed, by cause.", labels=(*_LABELS, "cause"))
        for row in self._findings.table("attribution"):
            if row["misses"]:
                labels = [*self._labels[row["cell"]], row["cause"]]
                counter.add_metric(labels, row["misses"], timestamp=self._times_s[row["cell"]])
        return counter

    def _network_loss(self) -> Metric:
        about = "Share of lines that the network lost though the scenario did not ask for it."
        gauge = GaugeMetricFamily("kcast_network_loss_ratio", about, labels=(*_LABELS, "leg"))
        for row in self._findings.table("losses"):
            if row["share"] is not None:
                labels = [*self._labels[row["cell"]], row["leg"]]
                gauge.add_metric(labels, row["share"], timestamp=self._times_s[row["cell"]])
        return gauge

    def _latency(self, since: str) -> Metric:
        about = f"Time to the first copy, from when a message was {'due' if since == 'intended' else 'sent'}."
        histogram = HistogramMetricFamily(f"kcast_latency_since_{since}_seconds", about, labels=_LABELS)
        counts: dict[int, list[Row]] = {}
        for row in self._findings.table("latency_buckets"):
            if row["since"] == since:
                counts.setdefault(row["cell"], []).append(row)
        for cell, rows in counts.items():
            total_s = sum(row["value_ns"] * row["count"] for row in rows) / _NS_PER_S
            self._add(histogram.add_metric, cell, list(_cumulated(rows)), total_s)
        return histogram


def _cumulated(rows: Sequence[Row]) -> Iterator[tuple[str, int]]:
    """Yields (upper bound in s, number of latencies up to it)."""
    for bound_ns in _BOUNDS_NS:
        below = sum(row["count"] for row in rows if row["value_ns"] <= bound_ns)
        yield str(bound_ns / _NS_PER_S), below
    yield "+Inf", sum(row["count"] for row in rows)


def _labels(row: Row) -> list[str]:
    policy = f"{row['k']}/{row['publish']}/{row['subscribe']}"
    return [str(row["run"]), str(row["scenario"]), policy]


def _ended(findings: Findings) -> Mapping[str, float]:
    """The time at which each run ended, in seconds of Unix time, as far as it is known."""
    found = {}
    for capture in findings.about.get("captures") or ():
        try:
            found[str(capture["run"])] = datetime.fromisoformat(str(capture["ended"])).timestamp()
        except (KeyError, ValueError):
            continue
    return found
