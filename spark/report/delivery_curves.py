"""Delivery, drawn: the curves against K and K', and the scenarios that are on no curve. Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kcast.loadtest.charts import curves
from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import Scale, nines_words, shares, whole_numbers
from kcast.loadtest.charts.svg import EXPECTED, INVALID, RING, THEORY, swatch
from kcast.loadtest.charts.words import interval, percent
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import DISAGREES, THEORIES
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCell, NamedCells, groups
from kcast.spark.report.markup import NOT_VALID, figure

CellRow = tuple[NamedCell, Row]

_JUDGING = "given_events"
"""The theory on which a scenario's verdict rests."""

_EXPECTED = "expected"
"""The class of a line of theory, which has the colour of theory in all drawings."""

_NOTED_MAX = 8
"""Most points of a drawing that have their shares beside them."""

_BAND = "The grey bar has 95 % of the runs that this theory allows."
_CLIPPED = "What theory has closer to 100 % than this number of pairs can tell is drawn in the gap below it."


@dataclass(frozen=True, slots=True)
class Curve:
    """The scenarios of one curve, in the order of x; `letter` is K or K′."""

    name: str
    family: str
    letter: str
    x: Callable[[NamedCell], int]
    found: Sequence[CellRow]


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves on common axes."""

    heading: str
    x_title: str
    lines: Sequence[Curve]


def panels(found: Sequence[CellRow]) -> list[Panel]:
    """Returns, for each condition, the curves along K' and those along K."""
    rows_of = {cell.number: row for cell, row in found}
    made = []
    for heading, members in groups([cell for cell, _ in found]):
        of_family: dict[tuple[str, int], list[CellRow]] = defaultdict(list)
        along_k: dict[tuple[str, int], list[CellRow]] = defaultdict(list)
        for cell in members:
            own = (cell, rows_of[cell.number])
            is_rch = cell.family.startswith("RCH")
            of_family[(cell.family, cell.k if is_rch else 0)].append(own)
            if is_rch:
                along_k[(cell.family, cell.k_prime)].append(own)
        # A curve needs two points; where there is one, others may stand beside it.
        lines = [
            _curve(own[0][0].policy(str(k)), "K" if family in ("CH", "S") else "K′", _k_prime, own)
            for (family, k), own in of_family.items()
        ]
        if any(is_curve(line) for line in lines):
            made.append(Panel(heading, _along(lines), lines))
        lines = [
            _curve(own[0][0].policy(k_prime=str(k_prime)), "K", _k, own)
            for (_, k_prime), own in along_k.items()
        ]
        lines = [line for line in lines if is_curve(line)]
        if lines:
            made.append(Panel(heading, "K: servers of a topic", lines))
    return made


def _k(cell: NamedCell) -> int:
    return cell.k


def _k_prime(cell: NamedCell) -> int:
    return cell.k_prime


def _curve(name: str, letter: str, x: Callable[[NamedCell], int], own: Sequence[CellRow]) -> Curve:
    found = sorted(own, key=lambda one: (x(one[0]), one[0].number))
    return Curve(name, own[0][0].family, letter, x, found)


def is_curve(line: Curve) -> bool:
    """Whether a curve has at least two points."""
    return length(line) > 1


def length(line: Curve) -> int:
    """The number of places with a scenario."""
    return len({line.x(cell) for cell, _ in line.found})


def _along(lines: Sequence[Curve]) -> str:
    """The title of the x axis."""
    match sorted({line.family for line in lines}):
        case ["RCH publish"]:
            return "K′: servers that a message goes to, of K"
        case ["RCH subscribe"]:
            return "K′: servers that a subscriber is at, of K"
        case ["RCH publish", "RCH subscribe"]:
            return "K′: servers that one side uses, of K"
        case ["R"]:
            return "K′: servers that each side uses, of all"
        case _ if all(line.letter == "K" for line in lines):
            return "K: servers that each side uses"
        case _:
            return "K′, or K where both sides use all"


# --- Figures ----------------------------------------------------------------------------------------


def drawn_curves(found: Sequence[CellRow], cells: NamedCells) -> list[Html]:
    """Returns a figure for each panel."""
    drawn: list[Html] = []
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
        has_room = len(panel.lines) == 1 and len(every) <= _NOTED_MAX
        series = [_series(line, styles[line.name], is_noted=has_room) for line in panel.lines]
        legend = [(swatch(styles[line.name], f"dot s{styles[line.name]}"), line.name) for line in panel.lines]
        legend += _theory_legend([row for _, row in every])
        if any(cell.is_valid and row["verdict"] == DISAGREES for cell, row in every):
            legend.append((RING, DISAGREES))
        if any(not cell.is_valid for cell, _ in every):
            legend.append((INVALID, NOT_VALID))
        label = "Delivery by " + panel.x_title + ": " + "; ".join(_spoken(line) for line in panel.lines)
        how = _how(y, "above", [row for _, row in every])
        if curves.clipped(series, y):
            how += f" {_CLIPPED}"
        drawn.append(figure(curves.chart(series, axes, label), "" if drawn else how, legend, panel.heading))
    return drawn


def _how(scale: Scale, further: str, of: Sequence[Row]) -> str:
    """How to read a drawing with this scale of shares."""
    parts = [nines_words(scale, further), "Whiskers are 95 % intervals."]
    if any(_band(row) is not None for row in of):
        parts.append(_BAND)
    return " ".join(filter(None, parts))


def _theory(of: Sequence[Row]) -> str | None:
    """The theory that is drawn for these scenarios; None where there is none."""
    return next((name for name in THEORIES if any(row[name] is not None for row in of)), None)


def _band(row: Row) -> tuple[float, float] | None:
    """The shares that 95 % of runs have by the theory on which the verdict rests."""
    low, high = row["given_events_low"], row["given_events_high"]
    return None if low is None or high is None else (low, high)


def _theory_legend(of: Sequence[Row]) -> list[tuple[Html, str]]:
    name = _theory(of)
    if name is None:
        return []
    if name != _JUDGING:
        return [(THEORY, f"theory {THEORIES[name]}")]
    return [(EXPECTED, f"theory {THEORIES[name]}")]


def _styles(lines: Sequence[Curve], cells: NamedCells) -> dict[str, int]:
    """Returns a colour and shape for each curve: those of its kind, unless another curve has them."""
    wanted = cells.family_styles()
    taken: dict[str, int] = {}
    for line in lines:
        style = wanted[line.family]
        free = [style, *range(6)]
        taken[line.name] = next((one for one in free if one not in taken.values()), style)
    return taken


def _series(line: Curve, style: int, *, is_noted: bool) -> curves.Series:
    """Returns a curve's points; where they are noted, with their shares in digits."""
    points = []
    for cell, row in line.found:
        low, high = (_band(row) if cell.is_valid else None) or (None, None)
        points.append(
            curves.MeasuredPoint(
                line.x(cell),
                row["share"],
                row["low"],
                row["high"],
                row[_JUDGING] if cell.is_valid else None,
                low,
                high,
                _title(cell, row),
                cell.is_valid,
                cell.is_valid and row["verdict"] == DISAGREES,
                percent(row["share"]) if is_noted else "",
            )
        )
    return curves.Series(style, points, _theory_lines(line))


def _theory_lines(line: Curve) -> list[curves.TheoryLine]:
    name = _theory([row for _, row in line.found])
    if name is None:
        return []
    places = {
        line.x(cell): share for cell, row in line.found if (share := row[name]) is not None and cell.is_valid
    }
    return [curves.TheoryLine(sorted(places.items()), _EXPECTED)] if len(places) > 1 else []


def _values(row: Row) -> list[float]:
    values = [row[name] for name in ("share", "low", "high") if row[name] is not None]
    values += _band(row) or ()
    expected = _drawn_theory(row)
    return values if expected is None else [*values, expected]


def _drawn_theory(row: Row) -> float | None:
    """The share by the theory that is drawn for a scenario by itself."""
    theory = _theory([row])
    return None if theory is None else row[theory]


def _scale(of: Sequence[Row]) -> Scale:
    """A scale as fine as the number of pairs allows."""
    return shares((value for row in of for value in _values(row)), max(row["pairs"] for row in of))


def _title(cell: NamedCell, row: Row) -> str:
    words = f"{cell.name}: {percent(row['share'])}, {interval(row['low'], row['high'])}"
    if not cell.is_valid:
        return f"{words}; {NOT_VALID}"
    if (expected := row[_JUDGING]) is not None:
        words += f"; theory {THEORIES[_JUDGING]} {percent(expected)}"
    return words


def _spoken(line: Curve) -> str:
    return f"{line.name}: " + ", ".join(
        f"{percent(row['share'])} at {line.x(cell)}{'' if cell.is_valid else ' (not valid)'}"
        for cell, row in line.found
    )


def drawn_alone(found: Sequence[CellRow], cells: NamedCells) -> list[Html]:
    """Returns rows of the scenarios that are on no curve."""
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
    of = [row for _, row in lone]
    legend = [(swatch(0, "dot s0"), "measured"), *_theory_legend(of)]
    how = _how(scale, "to the right of", of)
    return [figure(rows.chart(drawn, scale, "pairs delivered", label), how, legend)]


def _marks(cell: NamedCell, row: Row) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if cell.is_valid and (band := _band(row)) is not None:
        marks.append(rows.Band(*band))
    if cell.is_valid and (expected := _drawn_theory(row)) is not None:
        marks.append(rows.Tick(expected))
    if row["low"] is not None and row["high"] is not None:
        marks.append(rows.Whisker(min(row["low"], row["share"]), max(row["high"], row["share"])))
    if cell.is_valid and row["verdict"] == DISAGREES:
        marks.append(rows.Ring(row["share"]))
    return [*marks, rows.Dot(row["share"])]
