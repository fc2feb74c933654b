"""Plots of what was measured, as SVG. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.peers.kinds import KCAST, MOSQUITTO, NATS, REDIS
from bench.peers.results import RowResult, Run
from kcast.loadtest.charts.curves import Axes, MeasuredPoint, Series, TheoryLine, picture
from kcast.loadtest.charts.scales import Linear, Scale, decades
from kcast.loadtest.charts.svg import swatch
from kcast.loadtest.charts.words import number

STYLES = {name: style for style, name in enumerate((*KCAST, NATS.name, REDIS.name, MOSQUITTO.name))}
"""The servers that are drawn, each with its colour and shape."""

MAIN = {
    "1-to-1": "1 to 1",
    "1-to-100": "1 to 100",
    "fan-out-10": "fan-out 10",
    "fan-out-1": "fan-out 1",
}
"""The rows of the first plots, and their names there."""


@dataclass(frozen=True)
class Growth:
    """A plot of the cost in rows of which one figure grows."""

    file: str
    title: str
    x_title: str
    rows: Mapping[float, str]


GROWTHS = (
    Growth(
        "audience",
        "A topic with more and more subscribers",
        "subscribers",
        {1: "1-to-1", 10: "audience-10", 100: "1-to-100", 1000: "audience-1000", 10_000: "audience-10000"},
    ),
    Growth(
        "topics",
        "More and more topics, fan-out 1",
        "topics",
        {100: "topics-100", 1000: "fan-out-1", 10_000: "topics-10000", 100_000: "topics-100000"},
    ),
    Growth(
        "leases",
        "More and more leases, most of them idle",
        "leases",
        {10_000: "fan-out-10", 100_000: "leases-100000", 400_000: "leases-400000"},
    ),
    Growth(
        "size",
        "Larger and larger messages, fan-out 10",
        "bytes of a payload",
        {16: "size-16", 100: "fan-out-10", 1000: "size-1000"},
    ),
)


def plots(run: Run) -> Iterator[tuple[str, str]]:
    """Yields the names of files, without an ending, and what is in them."""
    cost = _by_row(run, "1", "server_us", ends=("server_us", "server_us"))
    if cost:
        yield (
            "cost",
            _picture(
                cost,
                _by_name(run),
                "us of a server's CPU per copy",
                "",
                "What a copy costs",
                "At the rate that saturates the better of nats-server and redis-server. Lower is better",
            ),
        )
    latency = _by_row(run, "0.3", "p50_us", ends=("p50_us", "p99_us"))
    if latency:
        yield (
            "latency",
            _picture(
                latency,
                _by_name(run),
                "us from when a message was due to its copy",
                "",
                "Latency, median and 99th percentile",
                "At 0.3 of that rate. Messages are sent together every 500 us",
            ),
        )
    for growth in GROWTHS:
        series = _growing(run, growth)
        if series:
            xs = list(growth.rows)
            yield (
                growth.file,
                _picture(
                    series,
                    decades(xs, number),
                    "us of a server's CPU per copy",
                    growth.x_title,
                    growth.title,
                    "At the rate that saturates the better of nats-server and redis-server",
                ),
            )


def _picture(
    series: Mapping[str, Series], x: Scale, y_title: str, x_title: str, title: str, subtitle: str
) -> str:
    values = [
        value
        for one in series.values()
        for point in one.points
        for value in (point.y, point.low, point.high)
        if value
    ]
    legend = [(swatch(one.style, f"dot s{one.style}"), name) for name, one in series.items()]
    axes = Axes(x, decades(values, number), x_title, y_title)
    return picture(list(series.values()), axes, title, subtitle, legend)


def _by_name(run: Run) -> Scale:
    """Returns an axis on which each row of the first plots has a place."""
    names = [words for row, words in MAIN.items() if row in run.rows]
    return Linear(-0.5, len(names) - 0.5, list(enumerate(names)))


def _by_row(run: Run, load: str, figure: str, *, ends: tuple[str, str]) -> dict[str, Series]:
    rows = [run.rows[name] for name in MAIN if name in run.rows]
    return _series(dict(enumerate(rows)), load, figure, ends, has_lines=False)


def _growing(run: Run, growth: Growth) -> dict[str, Series]:
    there = {x: run.rows[name] for x, name in growth.rows.items() if name in run.rows}
    return (
        _series(there, "1", "server_us", ("server_us", "server_us"), has_lines=True) if len(there) > 1 else {}
    )


def _series(
    rows: Mapping[float, RowResult], load: str, figure: str, ends: tuple[str, str], *, has_lines: bool
) -> dict[str, Series]:
    """Returns a series for each server that has been measured in some of the rows.

    Its whiskers reach from the least of the rounds to the most of them, or from one figure's median to
    another's.
    """
    found = {}
    for name, style in STYLES.items():
        points = []
        for x, row in rows.items():
            subject = row.subjects.get(name)
            y = subject.median(load, figure) if subject else None
            if subject is None or not y:
                continue
            rounds = [value for each in subject.loads[load] if (value := each.get(figure))]
            if ends[0] == ends[1]:
                low, high = min(rounds), max(rounds)
            else:
                low, high = (subject.median(load, end) or y for end in ends)
            points.append(MeasuredPoint(x, y, low, high))
        if points:
            lines = [TheoryLine([(point.x, point.y) for point in points], "for_servers")] if has_lines else []
            found[name] = Series(style, points, lines)
    return found
