"""Delivery, drawn: curves against K and K', and cells that stand alone. Pure."""

from collections.abc import Sequence

from kcast.loadtest.charts import curves
from kcast.loadtest.charts.scales import Scale, shares, whole_numbers
from kcast.loadtest.charts.svg import INVALID, RING, swatch
from kcast.loadtest.charts.words import interval, percent
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import DISAGREES
from kcast.spark.report import rows
from kcast.spark.report.cells import Cell, Cells
from kcast.spark.report.markup import NOT_VALID
from kcast.spark.report.panels import CellRow, Line, panels
from kcast.spark.report.section import figure

_THEORIES = ("finite", "unconditional")
_CLOSE = 0.02
"""Of what is missed: theories that differ by less than this share of it are one line."""

_HOW = (
    "Each step up the axis is ten times less missed. Whiskers are 95 % intervals; the pale bar is where "
    "theory, given the outages, draws and leases that the capture tells of, has 95 % of runs, with its "
    "middle as a dash."
)

_CLIPPED = "What is nearer to 100 % than so many pairs can tell is drawn in the gap below it."


def drawn_curves(found: Sequence[CellRow], cells: Cells) -> list[str]:
    """A figure for each panel."""
    drawn: list[str] = []
    for panel in panels(found):
        styles = _styles(panel.lines, cells)
        every = [own for line in panel.lines for own in line.found]
        y = _scale([row for _, row in every])
        axes = curves.Axes(
            whole_numbers(line.x(cell) for line in panel.lines for cell, _ in line.found),
            y,
            panel.x_title,
            "pairs delivered",
        )
        series = [_series(line, styles[line.name]) for line in panel.lines]
        legend = [(swatch(styles[line.name], f"dot s{styles[line.name]}"), line.name) for line in panel.lines]
        has = {name for one in series for drawn_line in one.lines for name in [drawn_line.name]}
        if "finite" in has:
            words = (
                "theory of this many servers" if "unconditional" in has else "theory, outages not yet known"
            )
            legend.append((swatch(0, "", "finite s5"), words))
        if "unconditional" in has:
            legend.append((swatch(0, "", "unconditional s5"), "theory of endlessly many servers"))
        if any(cell.is_valid and row["verdict"] == DISAGREES for cell, row in every):
            legend.append((RING, DISAGREES))
        if any(not cell.is_valid for cell, _ in every):
            legend.append((INVALID, NOT_VALID))
        label = "Delivery by " + panel.x_title + ": " + "; ".join(_spoken(line) for line in panel.lines)
        reach = curves.clipped(series, y)
        how = f"{_HOW} {_CLIPPED}" if reach else _HOW
        drawn.append(figure(curves.chart(series, axes, label), "" if drawn else how, legend, panel.heading))
    return drawn


def _styles(lines: Sequence[Line], cells: Cells) -> dict[str, int]:
    """A colour and shape for each line: its family's, as long as no other has it."""
    wanted = cells.family_styles()
    taken: dict[str, int] = {}
    for line in lines:
        style = wanted[line.family]
        free = [style, *range(6)]
        taken[line.name] = next((one for one in free if one not in taken.values()), style)
    return taken


def _series(line: Line, style: int) -> curves.Series:
    points = [
        curves.Point(
            line.x(cell),
            row["share"],
            row["low"],
            row["high"],
            row["conditional"] if cell.is_valid else None,
            row["conditional_low"] if cell.is_valid else None,
            row["conditional_high"] if cell.is_valid else None,
            _title(cell, row),
            cell.is_valid,
            cell.is_valid and row["verdict"] == DISAGREES,
        )
        for cell, row in line.found
    ]
    return curves.Series(style, points, _theory_lines(line))


def _theory_lines(line: Line) -> list[curves.Line]:
    lines = []
    for theory in _THEORIES:
        places = {line.x(cell): row[theory] for cell, row in line.found if row[theory] is not None}
        if len(places) > 1:
            lines.append(curves.Line(sorted(places.items()), theory))
    if len(lines) == 2 and all(
        abs(a - b) <= _CLOSE * (1 - min(a, b))
        for (_, a), (_, b) in zip(lines[0].places, lines[1].places, strict=False)
    ):
        return lines[:1]
    return lines


def _values(row: Row) -> list[float]:
    names = ("share", "low", "high", "finite", "unconditional", "conditional_low", "conditional_high")
    return [row[name] for name in names if row[name] is not None]


def _scale(of: Sequence[Row]) -> Scale:
    """As far as the cell with the most pairs tells apart."""
    return shares((value for row in of for value in _values(row)), max(row["pairs"] for row in of))


def _title(cell: Cell, row: Row) -> str:
    words = f"{cell.name}: {percent(row['share'])}, {interval(row['low'], row['high'])}"
    if not cell.is_valid:
        return f"{words}; {NOT_VALID}"
    if row["conditional"] is not None:
        words += f"; theory {percent(row['conditional'])}"
    return words


def _spoken(line: Line) -> str:
    return f"{line.name}: " + ", ".join(
        f"{percent(row['share'])} at {line.x(cell)}{'' if cell.is_valid else ' (not valid)'}"
        for cell, row in line.found
    )


def drawn_alone(found: Sequence[CellRow], cells: Cells) -> list[str]:
    """Those that are on no curve, in rows."""
    on_curves = {cell.number for panel in panels(found) for line in panel.lines for cell, _ in line.found}
    lone = [(cell, row) for cell, row in found if cell.number not in on_curves]
    if not lone:
        return []
    scale = _scale([row for _, row in lone])
    styles = cells.family_styles()
    drawn = [
        rows.of_cell(cell, styles[cell.family], _marks(cell, row), percent(row["share"]), _title(cell, row))
        for cell, row in lone
    ]
    label = "Delivery: " + "; ".join(_title(cell, row) for cell, row in lone)
    return [
        figure(
            rows.chart(drawn, scale, "pairs delivered", label), _HOW.replace("up the axis", "to the right")
        )
    ]


def _marks(cell: Cell, row: Row) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if cell.is_valid and row["conditional_low"] is not None and row["conditional_high"] is not None:
        marks.append(rows.Band(row["conditional_low"], row["conditional_high"]))
    if cell.is_valid and row["conditional"] is not None:
        marks.append(rows.Tick(row["conditional"]))
    if row["low"] is not None and row["high"] is not None:
        marks.append(rows.Whisker(min(row["low"], row["share"]), max(row["high"], row["share"])))
    if cell.is_valid and row["verdict"] == DISAGREES:
        marks.append(rows.Ring(row["share"]))
    return [*marks, rows.Dot(row["share"])]
