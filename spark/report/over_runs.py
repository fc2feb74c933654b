"""The part on a store of runs: each scenario's figures over time, and where they changed. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kcast.loadtest.charts import curves
from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import Linear, Scale, decades, nines_words, shares_near
from kcast.loadtest.charts.svg import INVALID, THEORY, swatch
from kcast.loadtest.charts.words import (
    NOTHING,
    brief_milliseconds,
    count,
    interval,
    listed,
    milliseconds,
    percent,
    probability,
    times,
)
from kcast.spark.findings.findings import Findings
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.markup import (
    NOT_VALID,
    Badge,
    Head,
    Section,
    details,
    figure,
    name_cell,
    paragraph,
    table,
    under,
)

ABOUT = "over_runs"
"""The key of `Findings.about` that has what `kcast.loadtest.store.overview` returns."""

_DRAWN_MAX = 8
_FIGURES = {"delivered": "share delivered", "p50_ms": "median latency", "p99_ms": "latency, 99 %"}
_TICKS_MAX = 8
_WHISKERS = (
    "Whiskers are 95 % intervals, and allow for which servers were down. Where all runs had one seed, the "
    "same servers were down in all of them, so smaller changes are found."
)

Result = Mapping[str, Any]


def section(findings: Findings, _: NamedCells) -> Section | None:
    """Returns a drawing for each scenario, its changes, and all runs in a table; None without a store."""
    store = findings.about.get(ABOUT)
    if not store:
        return None
    results: dict[str, list[Result]] = defaultdict(list)
    for row in store["results"]:
        results[row["scenario"]].append(row)
    repeated = [name for name, rows in results.items() if len(rows) > 1]
    body: list[Html] = []
    for name in repeated[:_DRAWN_MAX]:
        changes = [change for change in store["changes"] if change["scenario"] == name]
        body += _drawn(name, results[name], changes, store["runs"])
    if len(repeated) > _DRAWN_MAX:
        body.append(paragraph(f"{len(repeated) - _DRAWN_MAX:,} more scenarios are in the table below."))
    if store["changes"]:
        body.append(_changes_table(store["changes"], store["runs"]))
    tabled = _results_table(results, store["runs"])
    body.append(tabled if not repeated else details("Every scenario in every run", tabled))
    return Section("over-runs", "Over runs", _says(store, repeated), _badge(store, repeated), body)


def _badge(store: Mapping[str, Any], repeated: Sequence[str]) -> Badge:
    if not repeated:
        return Badge("nothing to compare")
    if store["changes"]:
        return Badge(count(len(store["changes"]), "change"), "warn")
    return Badge("no change found", "good")


def _says(store: Mapping[str, Any], repeated: Sequence[str]) -> str:
    runs = store["runs"]
    words = f"{count(len(runs), 'run')} from {_day(runs[0])} to {_day(runs[-1])}"
    if not repeated:
        return f"{words}; no scenario was run twice with the same settings."
    were = "was" if len(repeated) == 1 else "were"
    words += f", in which {count(len(repeated), 'scenario')} {were} repeated."
    told = [_change_words(change, runs) for change in store["changes"]]
    if not told:
        return f"{words} No figure changed by more than chance explains."
    return f"{words} {listed(told, 3)}."


def _change_words(change: Result, runs: Sequence[Result]) -> str:
    form = percent if change["figure"] == "delivered" else milliseconds
    return (
        f"{change['scenario']}: the {_FIGURES[change['figure']]} went from {form(change['before'])} to "
        f"{form(change['after'])} at run {change['place'] + 1} ({_day(runs[change['place']])})"
    )


def _day(run: Result) -> str:
    return str(run["started"])[:10] or f"run {run['place'] + 1}"


# --- Drawings ----------------------------------------------------------------------------------------


def _drawn(
    name: str, rows: Sequence[Result], changes: Sequence[Result], runs: Sequence[Result]
) -> list[Html]:
    x = _places(rows, runs)
    values = [value for row in rows for value in (row["share"], row["low"], row["high"])]
    scale = shares_near(values, max(row["pairs"] for row in rows))
    points = [
        curves.MeasuredPoint(
            row["place"],
            row["share"],
            row["low"],
            row["high"],
            title=f"{row['run']}: {percent(row['share'])}, {interval(row['low'], row['high'])}",
            is_valid=row["delivery_valid"],
        )
        for row in rows
    ]
    levels = _levels(rows, [change for change in changes if change["figure"] == "delivered"], "delivered")
    label = f"Share delivered of {name} over runs: " + "; ".join(point.title for point in points)
    how = f"{nines_words(scale, 'above')} {_WHISKERS}"
    legend = [(swatch(0, "dot s0"), "a run"), *([(THEORY, "level between changes")] if levels else [])]
    if not all(row["delivery_valid"] and row["latency_valid"] for row in rows):
        legend.append((INVALID, NOT_VALID))
    axes = curves.Axes(x, scale, "runs, by the day on which they began", "pairs delivered")
    made: list[Html] = [
        figure(
            curves.chart([curves.Series(0, points, levels)], axes, label, height=260),
            how.strip(),
            legend,
            name,
        )
    ]
    timed = [row for row in rows if row["p99_ms"]]
    if timed:
        made.append(_drawn_times(name, timed, changes, x))
    return made


def _drawn_times(name: str, rows: Sequence[Result], changes: Sequence[Result], x: Scale) -> Html:
    series, legend = [], []
    for shape, column in ((0, "p50_ms"), (3, "p99_ms")):
        points = [
            curves.MeasuredPoint(
                row["place"],
                row[column],
                title=f"{row['run']}: {_FIGURES[column]} {milliseconds(row[column])}",
                is_valid=row["latency_valid"],
            )
            for row in rows
        ]
        levels = _levels(rows, [change for change in changes if change["figure"] == column], column)
        series.append(curves.Series(shape, points, levels, "s0"))
        legend.append((swatch(shape, "dot s0"), _FIGURES[column]))
    scale = decades((row[column] for row in rows for column in ("p50_ms", "p99_ms")), brief_milliseconds)
    label = f"Latencies of {name} over runs: " + "; ".join(
        point.title for one in series for point in one.points
    )
    axes = curves.Axes(x, scale, "runs, by the day on which they began", "latency, on a logarithmic axis")
    return figure(curves.chart(series, axes, label, height=240), "", legend)


def _places(rows: Sequence[Result], runs: Sequence[Result]) -> Scale:
    """An axis of runs at equal distances, with days as marks where there is room."""
    places = [row["place"] for row in rows]
    step = max(1, -(-len(places) // _TICKS_MAX))
    ticks = [(float(place), _day(runs[place])) for place in places[::step]]
    return Linear(min(places) - 0.5, max(places) + 0.5, ticks)


def _levels(rows: Sequence[Result], changes: Sequence[Result], figure_name: str) -> list[curves.TheoryLine]:
    """The level of each part between changes, as a line; of a series without changes none."""
    if not changes:
        return []
    ordered = sorted(changes, key=lambda change: change["place"])
    places = [row["place"] for row in rows]
    levels = [ordered[0]["before"], *(change["after"] for change in ordered)]
    ends = [change["place"] for change in ordered]
    lines = []
    for level, begin, end in zip(levels, [places[0], *ends], [*ends, places[-1] + 1], strict=True):
        own = [place for place in places if begin <= place < end]
        if own:
            lines.append(curves.TheoryLine([(own[0] - 0.4, level), (own[-1] + 0.4, level)], "expected"))
    return lines


# --- Tables ------------------------------------------------------------------------------------------


def _changes_table(changes: Sequence[Result], runs: Sequence[Result]) -> Html:
    heads = [
        Head("scenario"),
        Head("figure", "", is_words=True),
        Head("with run", "the first run of the new level"),
        Head("before"),
        Head("after"),
        Head("difference", "and its 95 % interval, where the figure has one"),
        Head("p", "share of series without a change that differ as much somewhere"),
    ]
    body = []
    for change in changes:
        is_share = change["figure"] == "delivered"
        form = percent if is_share else milliseconds
        difference = change["after"] - change["before"]
        # A share may have been 0 before.
        told = f"{difference * 100:+.3g} points" if is_share else times(change["after"] / change["before"])
        ends = ""
        if change["low"] is not None:
            ends = f"{change['low'] * 100:+.3g} to {change['high'] * 100:+.3g}"
        body.append(
            [
                name_cell(change["scenario"]),
                _FIGURES[change["figure"]],
                f"{change['place'] + 1} ({_day(runs[change['place']])})",
                form(change["before"]),
                form(change["after"]),
                Html(told) + under(ends),
                probability(change["p_value"]),
            ]
        )
    return table(heads, body, "Changes over runs")


def _results_table(results: Mapping[str, Sequence[Result]], runs: Sequence[Result]) -> Html:
    meaning = "share delivered, with the difference to the first valid run and its interval"
    heads = [
        Head("run"),
        Head("kcast"),
        *(Head(name, meaning) for name in results),
    ]
    of_run = {(row["place"], name): row for name, rows in results.items() for row in rows}
    body = [
        [
            name_cell(f"{run['place'] + 1}: {_day(run)}", str(run["run"])),
            run["kcast"] or NOTHING,
            *(_result(of_run.get((run["place"], name))) for name in results),
        ]
        for run in runs
    ]
    return table(heads, body, "Every scenario in every run")


def _result(row: Result | None) -> str:
    if row is None:
        return NOTHING
    if not row["delivery_valid"]:
        return Badge.of(NOT_VALID).html()
    share = Html(percent(row["share"]))
    if row["difference"] is None:
        return share + under(interval(row["low"], row["high"]))
    low, high = row["difference_low"], row["difference_high"]
    sign = "" if low <= 0 <= high else " !"
    return share + under(f"{row['difference'] * 100:+.3g} ({low * 100:+.3g} to {high * 100:+.3g}){sign}")
