"""Puts what was measured into a page, between comments that say what belongs there. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence

from bench.peers.results import Run
from bench.peers.tables import Cells, bar_cells, row_cells, skipped_words
from kcast.loadtest.charts.words import NOTHING, number

_BLOCK = re.compile(r"(<!-- measured: ([a-z0-9-]+) -->\n).*?(<!-- measured until here -->)", re.S)


def filled(page: str, run: Run) -> str:
    """Returns the page with what belongs between its comments. Raises ValueError for an unknown one."""

    def fill(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        return f"{begin}\n{block(name, run)}\n\n{end}"

    return _BLOCK.sub(fill, page)


def block(name: str, run: Run) -> str:
    """Returns what belongs after the comment of this name: a row's table, or one of `_PARTS`."""
    if name in _PARTS:
        return "\n".join(_PARTS[name](run))
    if name not in run.rows:
        raise ValueError(f"the page has a row {name}, which was not measured")
    row = run.rows[name]
    parts = []
    if row.unit_per_s:
        parts.append(f"Load 1 is {number(row.unit_per_s)} copies a second.")
    parts += [f"{each}: {note}." for each, subject in row.subjects.items() for note in subject.notes]
    parts += [f"{words}." for words in skipped_words(row.skipped)]
    lines = list(row_cells(row))
    return "\n".join([*parts, *([""] if parts else []), *(markdown(lines) if len(lines) > 1 else [])])


def markdown(lines: Sequence[Cells]) -> list[str]:
    """Returns cells as a table of Markdown, the first line as its head."""
    head, *rest = lines
    return [_line(head), "|---" * len(head) + "|", *map(_line, rest)]


def _line(cells: Cells) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _about(run: Run) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for name, value in run.machine.items():
        yield _line((name, value))
    for name, value in run.versions.items():
        if value:
            yield _line((name, value))
    trees = sorted({row.tree for row in run.rows.values() if row.tree})
    if trees:
        yield _line(("commit of kcast", ", ".join(trees)))
    for name, amount in run.method.items():
        yield _line((name.replace("_", " "), f"{amount:g}"))
    yield _line(("command", f"`{run.command}`"))
    for words in skipped_words(run.skipped):
        yield ""
        yield f"{words}."


def _bars(run: Run) -> Iterator[str]:
    yield from markdown(list(bar_cells(run)))


def _highest(run: Run) -> Iterator[str]:
    """The highest rate that each server sustains, a row a line."""
    rows = {
        name: row
        for name, row in run.rows.items()
        if sum(subject.highest_per_s is not None for subject in row.subjects.values()) > 2
    }
    names = list(dict.fromkeys(name for row in rows.values() for name in row.subjects))
    lines: list[Cells] = [["row", *names]]
    for name, row in rows.items():
        found = (row.subjects.get(each) for each in names)
        lines.append([name, *(NOTHING if each is None else number(each.highest_per_s) for each in found)])
    yield from markdown(lines)


_PARTS: dict[str, Callable[[Run], Iterator[str]]] = {
    "about": _about,
    "bars": _bars,
    "highest": _highest,
}
