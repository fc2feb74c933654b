"""Makes locust keep and show response times below a millisecond, to three significant figures everywhere.

By itself locust counts response times by whole milliseconds, and truncates what it prints, and percentiles in
CSV files, to whole numbers. Locust lets one replace how it counts, but not how it prints: so methods are
patched here, and a test checks that locust still calls them. `apply` is needed in every process: workers
count, their master prints.
"""

from math import floor, log10
from typing import Any

from locust import stats

_FIGURES = 3


def bucket(response_time: float) -> float:
    """Rounds a time to three significant figures: below 1 % off, and some thousand values at most."""
    if not response_time:
        return 0.0
    return round(response_time, _FIGURES - 1 - floor(log10(abs(response_time))))


def readable(milliseconds: float) -> str:
    """Formats a time for a table's column: down to microseconds, at most six characters up to 999,999 ms."""
    size = abs(milliseconds)
    decimals = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return f"{milliseconds:.{decimals}f}"


def apply() -> None:
    """Patches locust in this process."""
    for owner, functions in (
        (stats, {"bucket_response_time": bucket}),
        (stats.StatsEntry, {"to_string": _to_string, "percentile": _percentile, "to_dict": _to_dict}),
        (stats.StatsCSV, {"_percentile_fields": _percentile_fields}),
    ):
        for name, function in functions.items():
            setattr(owner, name, function)


_to_dict_before = stats.StatsEntry.to_dict


def _to_string(entry: stats.StatsEntry, current: bool = True) -> str:
    """Formats a row of the table of requests."""
    rps = entry.current_rps if current else entry.total_rps
    failures_per_s = entry.current_fail_per_sec if current else entry.total_fail_per_sec
    name_width = stats.STATS_NAME_WIDTH - stats.STATS_TYPE_WIDTH + 4
    times = (
        entry.avg_response_time,
        entry.min_response_time or 0,
        entry.max_response_time,
        entry.median_response_time or 0,
    )
    average, least, most, median = map(readable, times)
    failures = f"{entry.num_failures}({entry.fail_ratio:.2%})"
    return (
        f"{entry.method or '':<{stats.STATS_TYPE_WIDTH}} {entry.name:<{name_width}} "
        f"{entry.num_requests:7} {failures:>12} |{average:>7} {least:>7} {most:>7}{median:>7} | "
        f"{rps or 0:7.2f} {failures_per_s or 0:11.2f}"
    )


def _percentile(entry: stats.StatsEntry) -> str:
    """Formats a row of the table of percentiles."""
    times = (readable(entry.get_response_time_percentile(part)) for part in stats.PERCENTILES_TO_REPORT)
    columns = " ".join(f"{time:>6}" for time in times)
    return (
        f"{entry.method or '':<{stats.STATS_TYPE_WIDTH}} {entry.name:<{stats.STATS_NAME_WIDTH}} "
        f"{columns} {entry.num_requests:8}"
    )


def _to_dict(entry: stats.StatsEntry, escape_string_values: bool = False) -> dict[str, Any]:
    """Returns what the web UI and the HTML report show; they round it themselves."""
    return {
        **_to_dict_before(entry, escape_string_values),
        "min_response_time": bucket(entry.min_response_time or 0),
        "max_response_time": bucket(entry.max_response_time),
    }


def _percentile_fields(
    writer: stats.StatsCSV, stats_entry: stats.StatsEntry, use_current: bool = False
) -> list[str] | list[float]:
    """Returns the percentiles of a row in a CSV file."""
    if not stats_entry.num_requests:
        return writer.percentiles_na
    percentile = (
        stats_entry.get_current_response_time_percentile
        if use_current and stats_entry.use_response_times_cache
        else stats_entry.get_response_time_percentile
    )
    fields: list[float] = [percentile(part) or 0 for part in writer.percentiles_to_report]
    return fields
