"""Tables of what was measured, for terminals. Pure."""

from collections.abc import Iterator, Sequence

from kcast.loadtest.charts.words import NOTHING, milliseconds, number, percent
from tests.benchmarks.peers.bars import Judged, judge
from tests.benchmarks.peers.kinds import BETTER_OF, FORWARDER
from tests.benchmarks.peers.results import RowResult, Run, middle

Cells = Sequence[str]

FIGURE_NAMES = {"server_us": "CPU per copy", "copies_per_s": "copies a second"}


def references(name: str) -> Sequence[str]:
    """Returns the subjects with which a row's ratios are made."""
    return (FORWARDER.name,) if name == "single" else BETTER_OF


def row_cells(name: str, row: RowResult) -> Iterator[Cells]:
    """Yields the cells of a row's table, its head first."""
    yield (
        "load", "server", "us/copy", "ratio", "from, to", "load us", "delivered", "copies/s",
        "p50", "p99", "p99.9",
    )  # fmt: skip
    loads = list(dict.fromkeys(load for subject in row.subjects.values() for load in subject.loads))
    for load in loads:
        for name_, subject in row.subjects.items():
            if load not in subject.loads:
                continue
            ratios = row.ratios(load, "server_us", name_, references(name))

            def told(figure: str, subject=subject, load=load) -> float | None:
                return subject.median(load, figure)

            def time(figure: str) -> str:
                value = told(figure)
                return milliseconds(None if value is None else value / 1000)

            yield (
                load,
                name_,
                decimals(told("server_us"), 3),
                decimals(middle(ratios), 2),
                f"{min(ratios):.2f}, {max(ratios):.2f}" if ratios else NOTHING,
                decimals(told("load_us"), 3),
                percent(told("share")),
                number(told("copies_per_s")),
                time("p50_us"), time("p99_us"), time("p999_us"),
            )  # fmt: skip


def decimals(value: float | None, places: int) -> str:
    """Returns a number with so many decimals."""
    return NOTHING if value is None else f"{value:.{places}f}"


def bar_words(judged: Judged) -> str:
    """Returns a bar, and whether it is met, as a sentence."""
    bar = judged.bar
    what = (
        f"{bar.subject} at load {bar.load}: {FIGURE_NAMES[bar.figure]} {'at least' if bar.is_least else 'at most'} "
        f"{bar.limit:g} times that of {others_words(bar.others)}"
    )
    if judged.ratio is None:
        return f"{what}: not measured"
    return f"{what}: {judged.ratio:.2f}, {'met' if judged.is_met else 'MISSED'}"


def others_words(others: Sequence[str]) -> str:
    """Returns with whom a ratio is made."""
    return others[0] if len(others) == 1 else f"the better of {' and '.join(others)}"


def aligned(lines: Sequence[Cells]) -> str:
    """Returns cells in columns, words to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 1 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def terminal(run: Run, name: str, title: str) -> str:
    """Returns all that was found in a row."""
    row = run.rows[name]
    parts = [f"\n{name}: {title}"]
    if row.unit_per_s:
        parts.append(f"load 1 is {row.unit_per_s:,.0f} copies/s")
    lines = list(row_cells(name, row))
    if len(lines) > 1:
        parts.append(aligned(lines))
    for each, subject in row.subjects.items():
        if subject.highest_per_s is not None:
            parts.append(f"{each} sustains {subject.highest_per_s:,.0f} copies/s")
        parts += [f"{each}: {note}" for note in subject.notes]
    parts += [f"{each} is skipped: {why}" for each, why in row.skipped.items()]
    parts += [bar_words(judged) for judged in judge(run, name)]
    return "\n".join(parts)
