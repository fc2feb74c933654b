"""Which cells make a curve, and which curves share their axes. Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kcast.spark.findings.findings import Row
from kcast.spark.report.cells import Cell, groups

CellRow = tuple[Cell, Row]


@dataclass(frozen=True, slots=True)
class Line:
    """Cells of one curve, in the order of what it runs along."""

    name: str
    family: str
    letter: str
    x: Callable[[Cell], int]
    found: Sequence[CellRow]


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves on the same axes."""

    heading: str
    x_title: str
    lines: Sequence[Line]


def panels(found: Sequence[CellRow]) -> list[Panel]:
    """For each condition the curves along K', and those along K."""
    rows_of = {cell.number: row for cell, row in found}
    made = []
    for heading, members in groups([cell for cell, _ in found]):
        of_family: dict[tuple[str, int], list[CellRow]] = defaultdict(list)
        along_k: dict[tuple[str, int], list[CellRow]] = defaultdict(list)
        for cell in members:
            own = (cell, rows_of[cell.number])
            is_rch = cell.row["scheme"] == "RCH"
            of_family[(cell.family, cell.k if is_rch else 0)].append(own)
            if is_rch:
                along_k[(cell.family, cell.k_prime)].append(own)
        # A curve needs two points; where there is one, others may stand beside it.
        lines = [
            _line(family, f"K = {k}" if k else "", "K′" if k else "K", lambda cell: cell.k_prime, own)
            for (family, k), own in of_family.items()
        ]
        if any(is_curve(line) for line in lines):
            made.append(Panel(heading, _along(lines), lines))
        lines = [
            _line(family, f"K′ = {k_prime}", "K", lambda cell: cell.k, own)
            for (family, k_prime), own in along_k.items()
        ]
        lines = [line for line in lines if is_curve(line)]
        if lines:
            made.append(Panel(heading, "K: servers of a topic", lines))
    return made


def _line(family: str, which: str, letter: str, x: Callable[[Cell], int], own: Sequence[CellRow]) -> Line:
    name = ", ".join(filter(None, (family, which)))
    return Line(name, family, letter, x, sorted(own, key=lambda found: (x(found[0]), found[0].number)))


def is_curve(line: Line) -> bool:
    """Whether it has two points."""
    return length(line) > 1


def length(line: Line) -> int:
    """Places along it that have a cell."""
    return len({line.x(cell) for cell, _ in line.found})


def _along(lines: Sequence[Line]) -> str:
    families = {line.family.split(",")[0] for line in lines}
    if families == {"RCH"}:
        sides = {line.family.split("few ")[-1] for line in lines}
        if len(sides) == 1:
            does = "a message goes to" if sides == {"publish"} else "a subscriber is at"
            return f"K′: servers that {does}, of K"
        return "K′: servers that one side uses, of K"
    if "RCH" in families:
        return "K′ of RCH, K of the others"
    return "K: servers that each side uses"
