"""spark/report/hdr_log.py and open_metrics.py: figures for other programs, in the formats that these read."""

import struct
import zlib
from base64 import b64decode
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kcast.spark.findings.findings import Findings
from kcast.spark.report import hdr_log, open_metrics
from tests.support.report_findings import findings, scenarios, with_losses

GRID = scenarios("k-prime")
FOUND = findings(GRID)


# HdrHistogram.


def decoded(encoded: bytes) -> dict[int, int]:
    """Counts by the greatest values that count as equal, read as HdrHistogram's specification has it."""
    cookie, length = struct.unpack(">ii", encoded[:8])
    assert (cookie, length) == (0x1C849314, len(encoded) - 8)
    plain = zlib.decompress(encoded[8:])
    cookie, length, offset, digits, lowest, highest, ratio = struct.unpack(">iiiiqqd", plain[:40])
    assert (cookie, length) == (0x1C849313, len(plain) - 40)
    assert (offset, digits, lowest, highest, ratio) == (0, 3, 1, 3_600_000_000_000, 1.0)
    counts, place, at = {}, 0, 40
    while at < len(plain):
        number = shift = 0
        while True:
            byte = plain[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if number < 0:
            place -= number
            continue
        if number:
            bucket, sub = divmod(place, 1024)
            value = place if bucket < 2 else (sub + 1024) << (bucket - 1)
            width = 1 if bucket < 2 else 1 << (bucket - 1)
            counts[value + width - 1] = number
        place += 1
    return counts


def test_a_histogram_is_the_one_that_hdrhistogram_reads() -> None:
    # HdrHistogram_py 0.10.8 reads it: one of 123, three of 4563 and two of 7892991, as below.
    told = "HISTFAAAACt4nJNpmSzMwMDAxQABzFCaEch0M9ixgMH+A0TgKyPTe322hWsYWQCQzwfD"
    ours = hdr_log.compressed({123: 1, 4560: 3, 7_890_000: 2})
    assert zlib.decompress(ours[8:]) == zlib.decompress(b64decode(told)[8:])
    assert decoded(ours) == {123: 1, 4563: 3, 7_892_991: 2}


def test_values_are_kept_to_a_thousandth_with_all_counts() -> None:
    counts = {value: count for count, value in enumerate((0, 1, 2047, 2048, 99_900, 10**9, 10**12), 1)}
    counts[10**12] = 300  # more than one byte
    found = decoded(hdr_log.compressed(counts))
    assert sum(found.values()) == sum(counts.values())
    for (value, count), (greatest, found_count) in zip(counts.items(), found.items(), strict=True):
        assert found_count == count
        assert value <= greatest <= value * 1.001 + 1
    assert max(decoded(hdr_log.compressed({10**15: 1}))) == pytest.approx(3.6e12, rel=1e-3), "an hour at most"


def test_the_log_has_each_scenario_with_its_times() -> None:
    head, _, legend, *lines = hdr_log.log(FOUND).splitlines()
    assert head == "#[Histogram log format version 1.3]"
    assert legend.startswith('"StartTimestamp","Interval_Length"')
    assert [line.split(",")[0] for line in lines] == [
        f"Tag={name}{since}" for name in (scenario.name for scenario in GRID) for since in ("", "/sent")
    ]
    for line, row in zip(lines, FOUND.table("latency"), strict=True):
        _, begins_s, length_s, most_ms, encoded = line.split(",")
        assert float(begins_s) == 1_795_311_480.0, "when the run began"
        assert float(length_s) == GRID[0].duration_s
        assert float(most_ms) == pytest.approx(row["max_ms"])
        assert sum(decoded(b64decode(encoded)).values()) == sum(
            bucket["count"]
            for bucket in FOUND.table("latency_buckets")
            if (bucket["cell"], bucket["since"]) == (row["cell"], row["since"])
        )
    assert hdr_log.log(Findings({})) == ""
    two = hdr_log.log(findings(GRID, runs=("a, b", "c")))
    assert "Tag=a%2C%20b/5-1-5," in two, "no comma and no space of a name"


# OpenMetrics.


def families(text: str) -> dict[str, Any]:
    parsed = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # has no types
    return {family.name: family for family in parsed}


def test_metrics_are_openmetrics_with_the_figures_of_the_tables() -> None:
    text = open_metrics.metrics(FOUND)
    assert text.endswith("# EOF\n")
    found = families(text)
    shares = {sample.labels["scenario"]: sample for sample in found["kcast_delivered_ratio"].samples}
    for row, scenario in zip(FOUND.table("reliability"), GRID, strict=True):
        sample = shares[scenario.name]
        assert sample.value == row["share"]
        assert sample.labels["policy"] == str(scenario.policy)
        assert float(sample.timestamp) == 1_795_312_262.0, "when the run ended"
    missed = sum(sample.value for sample in found["kcast_missed"].samples)
    assert missed == sum(row["misses"] for row in FOUND.table("attribution"))


def test_metrics_tell_what_the_network_lost_where_it_is_known() -> None:
    lossy = with_losses(FOUND, 1, {"in": (0.01, 0.005, 0.02), "out": None})
    (sample,) = families(open_metrics.metrics(lossy))["kcast_network_loss_ratio"].samples
    assert (sample.labels["scenario"], sample.labels["leg"], sample.value) == (GRID[1].name, "in", 0.01)


def test_a_histogram_cumulates_all_latencies() -> None:
    found = families(open_metrics.metrics(FOUND))
    samples = [
        sample
        for sample in found["kcast_latency_since_intended_seconds"].samples
        if sample.labels["scenario"] == GRID[0].name
    ]
    buckets = [sample.value for sample in samples if sample.name.endswith("_bucket")]
    assert all(before <= after for before, after in pairwise(buckets))
    rows = [row for row in FOUND.table("latency_buckets") if (row["cell"], row["since"]) == (0, "intended")]
    assert buckets[-1] == sum(row["count"] for row in rows)
    (total,) = (sample.value for sample in samples if sample.name.endswith("_sum"))
    assert total == pytest.approx(sum(row["count"] * row["value_ns"] for row in rows) / 1e9)


def test_nothing_makes_no_samples() -> None:
    assert open_metrics.metrics(Findings({})).splitlines()[-1] == "# EOF"
