"""Tables of what was measured, and sentences about it. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench.peers.bars import Judged, judge
from bench.peers.results import RowResult, Run, middle
from kcast.client.cli.text import table
from kcast.loadtest.charts.words import NOTHING, milliseconds, number, percent

Cells = Sequence[str]

FIGURES = {
    "server_us": "CPU per copy",
    "copies_per_s": "copies a second",
    "messages_per_s": "messages a second",
    "p50_us": "median latency",
    "p99_us": "99th percentile of latency",
}
"""Those that bars are about."""


class Column(NamedTuple):
    """A column of a row's table. With `has_ratio` the ratio to the references follows it."""

    head: str
    figure: str
    form: Callable[[float | None], str]
    has_ratio: bool = False


def micros(value: float | None) -> str:
    """Returns a CPU time in microseconds, to three decimals."""
    return NOTHING if value is None else f"{value:.3f}"


def latency(value_us: float | None) -> str:
    """Returns a latency in a suitable unit."""
    return milliseconds(None if value_us is None else value_us / 1000)


def ratio(value: float | None) -> str:
    """Returns a ratio."""
    return NOTHING if value is None else f"{value:.2f}"


SERVER_COLUMNS = (
    Column("us/copy", "server_us", micros, has_ratio=True),
    Column("load's", "load_us", micros),
    Column("delivered", "share", percent),
    Column("copies/s", "copies_per_s", number),
    Column("p50", "p50_us", latency),
    Column("p99", "p99_us", latency),
    Column("p99.9", "p999_us", latency),
    Column("quiet p50", "quiet_p50_us", latency),
    Column("quiet p99", "quiet_p99_us", latency),
)
CLIENT_COLUMNS = (
    Column("messages/s", "messages_per_s", number, has_ratio=True),
    Column("us/message", "client_us", micros),
    Column("delivered", "share", percent),
    Column("p50", "p50_us", latency, has_ratio=True),
    Column("p99", "p99_us", latency, has_ratio=True),
)


def columns_of(row: RowResult) -> list[Column]:
    """Returns the columns for which the row has figures."""
    there = {
        name
        for subject in row.subjects.values()
        for rounds in subject.loads.values()
        for figures in rounds
        for name, value in figures.items()
        if value is not None
    }
    columns = CLIENT_COLUMNS if "messages_per_s" in there else SERVER_COLUMNS
    return [column for column in columns if column.figure in there]


def row_cells(row: RowResult) -> Iterator[Cells]:
    """Yields the cells of a row's table, its head first. Figures are medians, ratios those of rounds."""
    columns = columns_of(row)
    head = ["load", "of"]
    for column in columns:
        head += [column.head, "ratio", "from, to"] if column.has_ratio else [column.head]
    yield head
    for load in row.loads:
        for name, subject in row.subjects.items():
            if load not in subject.loads:
                continue
            cells = [load, name]
            for column in columns:
                cells.append(column.form(subject.median(load, column.figure)))
                if column.has_ratio:
                    found = row.ratios(load, column.figure, name, row.references)
                    ends = f"{min(found):.2f}, {max(found):.2f}" if found else NOTHING
                    cells += [ratio(middle(found)), ends]
            yield cells


def bar_cells(run: Run) -> Iterator[Cells]:
    """Yields the cells of the table of all bars."""
    yield "row", "load", "of", "figure", "beside", "bar", "ratio", ""
    for name in run.rows:
        for judged in judge(run, name):
            bar = judged.bar
            yield (
                name,
                bar.load,
                bar.subject,
                FIGURES[bar.figure],
                others_words(bar.others),
                f"{'at least' if bar.is_least else 'at most'} {bar.limit:g}",
                ratio(judged.ratio),
                mark(judged),
            )


def bar_words(judged: Judged) -> str:
    """Returns a bar, and whether it is met, as a sentence."""
    bar = judged.bar
    return (
        f"{bar.subject} at load {bar.load}, {FIGURES[bar.figure]}: {ratio(judged.ratio)} "
        f"of {others_words(bar.others)} "
        f"({'at least' if bar.is_least else 'at most'} {bar.limit:g}: {mark(judged)})"
    )


def mark(judged: Judged) -> str:
    """Returns whether a bar is met."""
    return {True: "met", False: "MISSED", None: "not measured"}[judged.is_met]


def others_words(others: Sequence[str]) -> str:
    """Returns with whom a ratio is made."""
    return others[0] if len(others) == 1 else f"the better of {' and '.join(others)}"


def skipped_words(skipped: dict[str, str]) -> list[str]:
    """Returns a sentence for each of those of whom there are no figures."""
    return [f"{name} is skipped: {why}" for name, why in skipped.items()]


def terminal(run: Run, name: str) -> str:
    """Returns all that was found in a row."""
    row = run.rows[name]
    parts = [f"\n{name}: {row.title}"]
    if row.unit_per_s:
        parts.append(f"load 1 is {row.unit_per_s:,.0f} copies/s")
    head, *lines = row_cells(row)
    if lines:
        parts += table(head, lines, left=2)
    for each, subject in row.subjects.items():
        if subject.highest_per_s is not None:
            parts.append(f"{each} sustains {subject.highest_per_s:,.0f} copies/s")
        parts += [f"{each}: {note}" for note in subject.notes]
    parts += skipped_words(row.skipped)
    parts += [bar_words(judged) for judged in judge(run, name)]
    return "\n".join(parts)
