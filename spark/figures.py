"""The findings as figures of matplotlib, for notebooks and for files. The page has drawings of its own.

Figures are made without pyplot: so they need no screen, and none of them stays behind in its list.
"""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil, nan
from typing import TYPE_CHECKING, Any

from kcast.loadtest.charts.scales import Scale, decades, shares, shares_near
from kcast.loadtest.charts.svg import STYLE
from kcast.loadtest.charts.words import brief_milliseconds
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.report.cells import NamedCell, NamedCells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCENARIOS_MAX = 12
"""Most scenarios in the figure over time; the report has all of them."""

_COLOURS = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", STYLE.partition("@media")[0]))
"""The page's colours by name: c0, c1, ... of kinds of policy, q0 .. q3 greys."""
_GREY = _COLOURS["soft"]
_WIDE_IN, _ROW_IN = 8.2, 0.34
_NS_PER_MS = 1_000_000


def figure(findings: Findings, name: str) -> "Figure":
    """Returns one of the `FIGURES`, for a light background; its size is in inches.

    Raises KeyError, with the names that there are, ValueError where the findings have no rows for it, and
    ModuleNotFoundError, with what to install, without matplotlib.
    """
    if name not in FIGURES:
        raise KeyError(f"there is no figure {name}, only {', '.join(FIGURES)}")
    cells = NamedCells.of(findings)
    table, draw = FIGURES[name]
    rows = cells.rows(findings, table)
    if not rows:
        raise ValueError(f"there is nothing to draw: the table {table} has no rows")
    return draw(rows, cells)


def png(of: "Figure") -> bytes:
    """Returns a figure as PNG, at 150 dots an inch, without the time at which it was made."""
    image = io.BytesIO()
    of.savefig(image, format="png", dpi=150, metadata={"Software": None})
    return image.getvalue()


def pngs(findings: Findings) -> Iterator[tuple[str, bytes]]:
    """Returns each figure for which there is anything to draw, by its name, as PNG."""
    for name in FIGURES:
        with suppress(ValueError):
            yield name, png(figure(findings, name))


Rows = Sequence[tuple[NamedCell, Row]]


def _new(height_in: float, rows: int = 1, columns: int = 1) -> tuple["Figure", Any]:
    """A figure with a grid of axes, as an array of rows and columns."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        from kcast.client.cli.common import how_to_install

        library = (error.name or "").partition(".")[0]
        words = f"{library} is missing: {how_to_install('notebook')} brings it"
        raise ModuleNotFoundError(words, name=library) from None

    class Shown(Figure):
        """A figure that notebooks show, whatever backend they have chosen."""

        def _repr_png_(self) -> bytes:
            return png(self)

    made = Shown(figsize=(_WIDE_IN, height_in), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False, sharex=rows > 1 and columns == 1)


def _colour(cell: NamedCell, cells: NamedCells, *, is_valid: bool) -> str:
    return str(_COLOURS[f"c{cells.family_styles()[cell.family]}"] if is_valid else _GREY)


def _plain(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_COLOURS["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_GREY, labelsize=9)


def _by_scenario(axes: "Axes", rows: Rows) -> None:
    """Marks the scenarios along the axis upwards, the first on top."""
    axes.set_yticks(range(len(rows)), [cell.name for cell, _ in rows], color=_COLOURS["ink"])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _mark(scale: Scale, mark: Callable[..., object]) -> None:
    """Marks an axis on which values stand at their places on this scale, as on the page."""
    mark([scale.at(value) for value, _ in scale.ticks], [words for _, words in scale.ticks])


def _delivery(rows: Rows, cells: NamedCells) -> "Figure":
    """The share delivered of each scenario with its interval, and the theory that it is judged by."""
    rows = [(cell, row) for cell, row in rows if row["share"] is not None]
    if not rows:
        raise ValueError("there is nothing to draw: no scenario has a pair")
    values = [row[name] for _, row in rows for name in ("share", "low", "high") if row[name] is not None]
    scale = shares(values, max(row["pairs"] for _, row in rows))
    made, ((axes,),) = _new(1.1 + _ROW_IN * len(rows))
    for place, (cell, row) in enumerate(rows):
        colour = _colour(cell, cells, is_valid=cell.is_valid)
        if row["low"] is not None and row["high"] is not None:
            axes.plot([scale.at(row["low"]), scale.at(row["high"])], [place, place], color=colour)
        face = colour if cell.is_valid else "white"
        axes.plot(scale.at(row["share"]), place, "o", color=colour, markerfacecolor=face)
        expected = row["given_events"]
        if cell.is_valid and expected is not None:
            axes.plot(scale.at(expected), place, "|", color=_COLOURS["ink"], markersize=13)
    _mark(scale, axes.set_xticks)
    _by_scenario(axes, rows)
    axes.set_xlabel("pairs delivered, with 95 % intervals; upright: theory given what happened")
    axes.set_xlim(-0.02, 1.02)
    _plain(axes)
    return made


def _latency(rows: Rows, cells: NamedCells) -> "Figure":
    """The share of first copies that came within each time since their message was due."""
    of_cell: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for cell, row in rows:
        if row["since"] == "intended":
            of_cell[cell.number].append((row["value_ns"], row["count"]))
    counts = [sum(count for _, count in found) for found in of_cell.values()]
    scale = shares([0.0, 1 - 1 / max([*counts, 2])], max(counts, default=1))
    every_ns = [value_ns for found in of_cell.values() for value_ns, _ in found]
    times = decades((value_ns / _NS_PER_MS for value_ns in every_ns), brief_milliseconds)
    made, ((axes,),) = _new(4.2)
    for cell in (cell for cell in cells.all if of_cell[cell.number]):
        is_valid = bool(cell.row["latency_valid"])
        times_ms, places, came = [], [], 0
        found = sorted(of_cell[cell.number])
        total = sum(count for _, count in found)
        for value_ns, count in found:
            came += count
            times_ms.append(times.at(value_ns / _NS_PER_MS))
            places.append(scale.at(came / total))
        label = cell.name if is_valid else f"{cell.name} (not valid)"
        axes.plot(
            times_ms, places, "-" if is_valid else ":", drawstyle="steps-post", label=label, linewidth=1.3
        )
    _mark(scale, axes.set_yticks)
    _mark(times, axes.set_xticks)
    axes.set_xlabel("time since the message was due")
    axes.set_ylabel("first copies that had come")
    axes.legend(frameon=False, fontsize=9)
    _plain(axes)
    return made


def _causes(rows: Rows, cells: NamedCells) -> "Figure":
    """The misses of each scenario by cause."""
    misses: dict[int, dict[str, int]] = defaultdict(dict)
    for cell, row in rows:
        if row["misses"]:
            misses[cell.number][row["cause"]] = row["misses"]
    every = dict.fromkeys(cause for found in misses.values() for cause in found)
    scenarios: Rows = [(cell, cell.row) for cell in cells.all]
    made, ((axes,),) = _new(1.3 + _ROW_IN * len(scenarios))
    left = [0] * len(scenarios)
    for number, cause in enumerate(every):
        widths = [misses[cell.number].get(cause, 0) for cell, _ in scenarios]
        places = range(len(scenarios))
        axes.barh(places, widths, left=left, label=cause, color=f"C{number % 10}", edgecolor="white")
        left = [start + width for start, width in zip(left, widths, strict=True)]
    _by_scenario(axes, scenarios)
    axes.set_xlabel("pairs missed, by cause")
    if every:
        axes.legend(frameon=False, fontsize=9)
    _plain(axes)
    return made


def _over_time(rows: Rows, cells: NamedCells) -> "Figure":
    """What arrived, servers down and latency over time, a row of three drawings for each scenario."""
    of_cell: dict[int, list[Row]] = defaultdict(list)
    for cell, row in rows:
        if row["share"] is not None:
            of_cell[cell.number].append(row)
    shown = [cell for cell in cells.all if of_cell[cell.number]][:SCENARIOS_MAX]
    if not shown:
        raise ValueError("there is nothing to draw: no scenario has a pair")
    every = [row for cell in shown for row in of_cell[cell.number]]
    scale = shares_near([row["share"] for row in every], max(row["pairs"] for row in every))
    most_down = max(1, ceil(max(row["servers_down"] or 0 for row in every)))
    both = [row[column] for row in every for column in ("p50_ms", "p99_ms") if row[column] is not None]
    times = decades(both, brief_milliseconds)
    made, grid = _new(0.6 + 1.5 * len(shown), len(shown), 3)
    for cell, (share, down, latency) in zip(shown, grid, strict=True):
        found = of_cell[cell.number]
        colour = _colour(cell, cells, is_valid=cell.is_valid)
        share.stairs(*_steps(found, "share", scale.at), baseline=None, color=colour)
        share.set_ylabel(cell.name, color=_COLOURS["ink"])
        share.set_ylim(-0.03, 1.03)
        _mark(scale, share.set_yticks)
        down.stairs(*_steps(found, "servers_down", float), fill=True, color=_COLOURS["q2"])
        down.set_ylim(0, most_down * 1.05)
        down.set_yticks([0, most_down])
        colour = _colour(cell, cells, is_valid=bool(cell.row["latency_valid"]))
        for column, width in (("p50_ms", 1.6), ("p99_ms", 0.8)):
            steps = _steps(found, column, times.at)
            latency.stairs(*steps, baseline=None, color=colour, linewidth=width)
        latency.set_ylim(0, 1)
        _mark(times, latency.set_yticks)
        for axes in (share, down, latency):
            _plain(axes)
    for axes, title in zip(grid[0], ("delivered", "servers down", "latency: median, 99 %"), strict=True):
        axes.set_title(title, fontsize=10, loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("s since the load began", fontsize=9)
    return made


def _steps(
    found: Sequence[Row], column: str, place: Callable[[float], float]
) -> tuple[list[float], list[float]]:
    """The places of a column's values, and the edges of the steps; not a number where nothing is known."""
    values, edges = list[float](), list[float]()
    for row in found:
        if edges and row["from_s"] > edges[-1] + 1e-6:  # nothing was due in between
            values.append(nan)
            edges.append(row["from_s"])
        edges = edges or [row["from_s"]]
        values.append(nan if row[column] is None else place(row[column]))
        edges.append(row["to_s"])
    return values, edges


FIGURES: Mapping[str, tuple[str, Callable[[Rows, NamedCells], "Figure"]]] = {
    "delivery": ("reliability", _delivery),
    "latency": ("latency_buckets", _latency),
    "causes": ("attribution", _causes),
    "over_time": ("over_time", _over_time),
}
"""The table that each figure is made of, and what draws it."""
