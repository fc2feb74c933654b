"""Latencies as a log of HdrHistogram, which its viewers and tools in many languages read. Pure.

Formats: the log by HistogramLogWriter, version 1.3; histograms in it by encodeIntoCompressedByteBuffer of
AbstractHistogram, version 2 of the encoding (https://github.com/HdrHistogram/HdrHistogram). The package
hdrhistogram of Python writes no tags, and would bring setuptools to all who install kcast.
"""

import struct
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from urllib.parse import quote

from kcast.spark.findings.findings import Findings

_DIGITS = 3
_SUB_BUCKET_BITS = 11  # 2 * 10^3 values have a resolution of 1: the next power of two is 2^11
_HALF_COUNT = 1 << (_SUB_BUCKET_BITS - 1)
_HIGHEST_NS = 3_600_000_000_000  # an hour
_COOKIE, _COMPRESSED_COOKIE = 0x1C849303 | 0x10, 0x1C849304 | 0x10
_LEB_BYTES_MAX = 9
_NS_PER_MS = 1_000_000


def log(findings: Findings) -> str:
    """Returns a histogram for each scenario and start of the time, as a log; empty without latencies.

    A histogram's tag is the scenario's name, %-encoded, and `sent` behind a / where times count from sending.
    Its values are ns, and its greatest is told in ms. It is stamped with the start of its run.
    """
    scenarios = {row["cell"]: row for row in findings.table("scenarios")}
    has_several = len({row["run"] for row in scenarios.values()}) > 1
    counts: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    for row in findings.table("latency_buckets"):
        counts[row["cell"], row["since"]][row["value_ns"]] = row["count"]
    if not counts:
        return ""
    started = _started(findings)
    lines = [
        "#[Histogram log format version 1.3]",
        "#[BaseTime: 0.000 (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for (cell, since), of_cell in counts.items():
        scenario = scenarios[cell]
        name = f"{scenario['run']}/{scenario['scenario']}" if has_several else str(scenario["scenario"])
        tag = quote(name if since == "intended" else f"{name}/{since}", safe="/=+:*")
        begins_s, length_s = started.get(scenario["run"], 0.0), scenario["duration_s"] or 0.0
        most_ms = max(of_cell) / _NS_PER_MS
        encoded = b64encode(compressed(of_cell)).decode()
        lines.append(f"Tag={tag},{begins_s:.3f},{length_s:.3f},{most_ms:.3f},{encoded}")
    return "\n".join([*lines, ""])


def _started(findings: Findings) -> Mapping[str, float]:
    """The time at which each run began, in seconds of Unix time, as far as it is known."""
    found = {}
    for capture in findings.about.get("captures") or ():
        try:
            found[str(capture["run"])] = datetime.fromisoformat(str(capture["started"])).timestamp()
        except (KeyError, ValueError):
            continue
    return found


def compressed(counts: Mapping[int, int]) -> bytes:
    """Returns a histogram of these values (whole ns, up to an hour) and their counts, encoded."""
    places: dict[int, int] = defaultdict(int)
    for value, count in counts.items():
        places[_place(min(max(value, 0), _HIGHEST_NS))] += count
    payload = b"".join(_zig_zag(number) for number in _runs(places))
    header = struct.pack(">iiiiqqd", _COOKIE, len(payload), 0, _DIGITS, 1, _HIGHEST_NS, 1.0)
    packed = zlib.compress(header + payload)
    return struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed


def _place(value: int) -> int:
    """The index of a value's count: buckets double in width, each with half as many places as the first."""
    bucket = max(0, value.bit_length() - _SUB_BUCKET_BITS)
    return (bucket + 1) * _HALF_COUNT + (value >> bucket) - _HALF_COUNT


def _runs(places: Mapping[int, int]) -> Iterator[int]:
    """Counts in the order of their places; a run of n places without any is -n."""
    end = 0
    for place in sorted(places):
        if place > end:
            yield end - place if place - end > 1 else 0
        yield places[place]
        end = place + 1


def _zig_zag(number: int) -> bytes:
    """A number in ZigZag LEB128, whose ninth byte has eight bits."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F and len(encoded) < _LEB_BYTES_MAX - 1:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
