"""Delivery against K and K': what the whole analysis is for. Pure."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark.findings.findings import Findings, Row
from spark.findings.tables import AGREES, DISAGREES, NO_THEORY
from spark.report import curves, rows
from spark.report.cells import Cell, Cells, groups
from spark.report.markup import NOT_VALID, Head, Verdict, badge, name_cell, table, text
from spark.report.numbers import folded
from spark.report.scales import Scale, shares, whole_numbers
from spark.report.section import Section, figure
from spark.report.svg import INVALID, RING, swatch
from spark.report.words import NOTHING, count, interval, listed, percent, probability, signed

_THEORIES = ("finite", "unconditional")
_CLOSE = 0.02
"""Of what is missed: theories that differ by less than this share of it are one line."""

_HOW = (
    "Each step up the axis is ten times less missed. Whiskers are 95 % intervals; the pale bar is where "
    "theory, given the outages, draws and leases that the capture tells of, has 95 % of runs, with its "
    "middle as a dash."
)

_CLIPPED = "What is nearer to 100 % than so many pairs can tell is drawn in the gap below it."

CellRow = tuple[Cell, Row]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of all cells that can be judged."""

    cells: int
    invalid: Sequence[str]
    disagreeing: Sequence[str]
    judged: int
    joint: Row | None

    @property
    def verdict(self) -> Verdict:
        """Of all together."""
        if self.cells and len(self.invalid) == self.cells:
            return Verdict.of(NOT_VALID)
        if self.disagreeing or (self.joint is not None and self.joint["verdict"] == DISAGREES):
            return Verdict.of(DISAGREES)
        return Verdict.of(AGREES if self.judged else NO_THEORY)


def outcome(findings: Findings, cells: Cells) -> Outcome:
    """From the tables `reliability` and `joint`."""
    found = cells.rows(findings, "reliability")
    valid = [(cell, row) for cell, row in found if cell.is_valid]
    joint = next((row for row in findings.table("joint") if row["theory"] == "conditional"), None)
    return Outcome(
        cells=len(found),
        invalid=[cell.name for cell, _ in found if not cell.is_valid],
        disagreeing=[cell.name for cell, row in valid if row["verdict"] == DISAGREES],
        judged=sum(row["verdict"] in (AGREES, DISAGREES) for _, row in valid),
        joint=joint,
    )


def section(findings: Findings, cells: Cells) -> Section | None:
    """The curves, and every cell in a table."""
    found = [(cell, row) for cell, row in cells.rows(findings, "reliability") if row["share"] is not None]
    if not found:
        return None
    came = outcome(findings, cells)
    body = [*_curves(found, cells), *_lone(found, cells), _table(found, findings)]
    body.append(folded("reliability", [row for _, row in found], cells, summary="All numbers of every cell"))
    return Section("delivery", "Delivery against K", _says(found, came), came.verdict, "".join(body))


# --- Words -----------------------------------------------------------------------------------------------


def _says(found: Sequence[CellRow], came: Outcome) -> str:
    valid = [(cell, row) for cell, row in found if cell.is_valid]
    if not valid:
        return "No cell's delivery can be trusted: see above why."
    sentences = [*_rises(valid), _judgement(came)]
    return " ".join(sentence for sentence in sentences if sentence)


def _rises(valid: Sequence[CellRow]) -> list[str]:
    """How delivery changes along the longest curves."""
    lines = [(panel.heading, line) for panel in _panels(valid) for line in panel.lines]
    if not lines:
        low, high = (pick(valid, key=_share) for pick in (min, max))
        if len(valid) == 1:
            return [f"{percent(_share(low))} of {low[1]['pairs']:,} pairs arrived in {low[0].name}."]
        return [
            f"Delivery goes from {percent(_share(low))} ({low[0].name}) "
            f"to {percent(_share(high))} ({high[0].name})."
        ]
    # The two longest, as they stand on the page.
    lengths = sorted((_length(line) for _, line in lines), reverse=True)
    longest = [(heading, line) for heading, line in lines if _length(line) >= lengths[:2][-1]][:2]
    told: list[str] = []
    for heading, line in longest:
        first, last = line.found[0], line.found[-1]
        which = line.name.replace(", K", " and K") + (f" ({heading})" if heading else "")
        told.append(
            f"With {which}, {'it' if told else 'delivery'} goes from {percent(_share(first))} at "
            f"{line.letter} = {line.x(first[0]):,} to {percent(_share(last))} at {line.x(last[0]):,}."
        )
    return told


def _judgement(came: Outcome) -> str:
    joint = came.joint
    words = ""
    if came.judged == 1 and not came.disagreeing:
        words = "Theory, given what the capture tells of, has it as measured."
    elif came.judged:
        fine = came.judged - len(came.disagreeing)
        words = f"Theory, given what the captures tell of, has {fine} of {count(came.judged, 'cell')}"
        words += f" as measured; not {listed(came.disagreeing)}" if came.disagreeing else " as measured"
        if joint is not None and joint["p_value"] is not None:
            words += f" (all together: p {_equals(joint['p_value'])})"
        words += "."
    if came.invalid:
        words += (
            f" {count(len(came.invalid), 'cell')} cannot be trusted and is not judged."
            if len(came.invalid) == 1
            else f" {count(len(came.invalid), 'cell')} cannot be trusted and are not judged."
        )
    return words.strip()


def _equals(p_value: float) -> str:
    told = probability(p_value)
    return told if told.startswith("<") else f"= {told}"


def _share(found: CellRow) -> float:
    return float(found[1]["share"])


# --- Curves ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """Cells of one curve, in the order of what it runs along."""

    name: str
    family: str
    letter: str
    x: Callable[[Cell], int]
    found: Sequence[CellRow]


@dataclass(frozen=True, slots=True)
class _Panel:
    """Curves on the same axes."""

    heading: str
    x_title: str
    lines: Sequence[_Line]


def _panels(found: Sequence[CellRow]) -> list[_Panel]:
    """For each condition the curves along K', and those along K."""
    rows_of = {cell.number: row for cell, row in found}
    panels = []
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
        if any(_is_curve(line) for line in lines):
            panels.append(_Panel(heading, _along(lines), lines))
        lines = [
            _line(family, f"K′ = {k_prime}", "K", lambda cell: cell.k, own)
            for (family, k_prime), own in along_k.items()
        ]
        lines = [line for line in lines if _is_curve(line)]
        if lines:
            panels.append(_Panel(heading, "K: servers of a topic", lines))
    return panels


def _line(family: str, which: str, letter: str, x: Callable[[Cell], int], own: Sequence[CellRow]) -> _Line:
    name = ", ".join(filter(None, (family, which)))
    return _Line(name, family, letter, x, sorted(own, key=lambda found: (x(found[0]), found[0].number)))


def _is_curve(line: _Line) -> bool:
    return _length(line) > 1


def _length(line: _Line) -> int:
    return len({line.x(cell) for cell, _ in line.found})


def _along(lines: Sequence[_Line]) -> str:
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


def _curves(found: Sequence[CellRow], cells: Cells) -> list[str]:
    drawn: list[str] = []
    for panel in _panels(found):
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


def _styles(lines: Sequence[_Line], cells: Cells) -> dict[str, int]:
    """A colour and shape for each line: its family's, as long as no other has it."""
    wanted = cells.family_styles()
    taken: dict[str, int] = {}
    for line in lines:
        style = wanted[line.family]
        free = [style, *range(6)]
        taken[line.name] = next((one for one in free if one not in taken.values()), style)
    return taken


def _series(line: _Line, style: int) -> curves.Series:
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


def _theory_lines(line: _Line) -> list[curves.Line]:
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


def _spoken(line: _Line) -> str:
    return f"{line.name}: " + ", ".join(
        f"{percent(row['share'])} at {line.x(cell)}{'' if cell.is_valid else ' (not valid)'}"
        for cell, row in line.found
    )


# --- Cells that stand alone --------------------------------------------------------------------------------


def _lone(found: Sequence[CellRow], cells: Cells) -> list[str]:
    """Those that are on no curve, in rows."""
    on_curves = {cell.number for panel in _panels(found) for line in panel.lines for cell, _ in line.found}
    lone = [(cell, row) for cell, row in found if cell.number not in on_curves]
    if not lone:
        return []
    scale = _scale([row for _, row in lone])
    styles = cells.family_styles()
    drawn = [
        rows.Row(
            cell.name,
            _marks(cell, row),
            percent(row["share"]),
            _title(cell, row),
            "",
            styles[cell.family],
            cell.is_valid,
        )
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


# --- The table -----------------------------------------------------------------------------------------


def _table(found: Sequence[CellRow], findings: Findings) -> str:
    heads = [
        Head("scenario", "and its pairs: messages times subscribers that should have received them"),
        Head("delivered", "in time, with its 95 % interval on the effective sample size"),
        Head("verdict", "on theory given what happened; z: standard deviations between the two"),
        Head("given what happened", "theory: outages, views, draws, leases as captured; 95 % of such runs"),
        Head("this many servers", "theory: outages and views as planned"),
        Head("endlessly many", "theory: independent outages, endlessly many servers, equal views"),
    ]
    body = [
        [
            name_cell(cell.name, count(row["pairs"], "pair")),
            f"{percent(row['share'])}<span class='sub'>{interval(row['low'], row['high'])}</span>",
            _judged(row, is_valid=cell.is_valid),
            *_theories(row, is_valid=cell.is_valid),
        ]
        for cell, row in found
    ]
    notes = _notes(found, findings)
    return table(heads, body, "Delivery in every cell, beside three theories") + notes


def _theories(row: Row, *, is_valid: bool) -> list[str]:
    if not is_valid:
        return [NOTHING] * 3
    given = NOTHING
    if row["conditional"] is not None:
        given = percent(row["conditional"])
        given += f"<span class='sub'>{interval(row['conditional_low'], row['conditional_high'])}</span>"
    return [given, percent(row["finite"]), percent(row["unconditional"])]


def _judged(row: Row, *, is_valid: bool) -> str:
    if not is_valid:
        return badge(Verdict.of(NOT_VALID))
    z = "" if row["z"] is None else f"<span class='sub'>z {signed(row['z'])}</span>"
    return badge(Verdict.of(row["verdict"])) + z


def _notes(found: Sequence[CellRow], findings: Findings) -> str:
    notes: Mapping[str, list[str]] = defaultdict(list)
    for cell, row in found:
        for note in row["note"].split("; ") if row["note"] and cell.is_valid else ():
            notes[note].append(cell.name)
    told = [
        f"{'' if len(names) == len(found) else listed(names) + ': '}{note}." for note, names in notes.items()
    ]
    names = {
        "conditional": "given what happened",
        "finite": "this many servers",
        "unconditional": "endlessly many",
    }
    joint = [
        f"{names[row['theory']]}: p {_equals(row['p_value'])} ({row['verdict']})"
        for row in findings.table("joint")
        if row["p_value"] is not None and row["theory"] in names
    ]
    if joint:
        told.append(
            "All valid cells together, by the sum of squared z, against theory "
            f"{'; '.join(joint)}. p is the chance of deviating so much, or more, if theory is right."
        )
    return "".join(f'<p class="quiet">{text(note)}</p>' for note in told)
