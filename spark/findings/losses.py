"""What the network lost though nobody asked for it, leg by leg, and which figures that touches. No Spark."""

from collections.abc import Mapping, Sequence

from kcast.hashring.effective_size import ClusterSums
from kcast.loadtest.results import loss_words
from kcast.loadtest.results.causes import SHORTCOMINGS
from kcast.loadtest.results.leg_lines import BOTH, IN, LEGS, OUT
from kcast.loadtest.results.loss_estimates import LegLoss, Losses, Rate, estimated
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell, by_cell
from kcast.spark.findings.cost import Fates, fates
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import NO_THEORY

_SUMS = ("clusters", "lines", "lost", "squares", "products", "success_squares")
_BY_PLAN = ("audience", "cost")
"""Tables whose verdicts are on what the plan gives, which does not have this loss."""


def losses_of(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[int, Losses]:
    """Returns what the network lost in each scenario, from the sums `losses` and `loss_audiences`."""
    of_legs, audiences = by_cell(sums.get("losses", ())), by_cell(sums.get("loss_audiences", ()))
    return {
        cell.number: estimated(
            {
                (row["leg"], row["what"]): ClusterSums(*(int(row[name]) for name in _SUMS))
                for row in of_legs[cell.number]
            },
            cell.scenario.publishing_users,
            [(row["audience"], int(row["messages"]), int(row["silent"])) for row in audiences[cell.number]],
        )
        for cell in cells
    }


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the tables `losses` and `touched`."""
    found, of_pairs = losses_of(cells, sums), fates(sums)
    by_copies = {row["cell"] for row in sums.get("loss_audiences", ())}
    losses: list[Row] = []
    touched: list[Row] = []
    for cell in cells:
        own = found[cell.number]
        for leg in LEGS:
            losses.append(_row(cell, leg, own.legs[leg], cell.number in by_copies))
        reasons = _touched(own, of_pairs.get(cell.number, Fates()))
        touched += [{"cell": cell.number, "figure": figure, "by": by} for figure, by in reasons]
    return {"losses": losses, "touched": touched}


def without_verdicts(found: Mapping[str, list[Row]], losses: Mapping[int, Losses]) -> None:
    """Takes the verdicts on what the plan gives from scenarios in which a loss that it has not matters."""
    for name in _BY_PLAN:
        for row in found.get(name, ()):
            if losses[row["cell"]].matters:
                row["verdict"] = NO_THEORY


def _row(cell: Cell, leg: int, of: LegLoss, is_by_copies: bool) -> Row:
    rate = of.rate
    return {
        "cell": cell.number,
        "leg": LEGS[leg],
        "known_by": None if rate is None else "copies" if is_by_copies else "taps",
        "asked": _asked(cell.scenario, leg),
        "lines": 0 if rate is None else rate.lines,
        "lost": 0 if rate is None else rate.lost,
        **_of_rate("", rate),
        "trials": None if rate is None else rate.trials,
        **_counts("after", of.after),
        **_of_rate("after_", of.after),
        "in_a_row": _in_a_row(of.after),
        **_counts("others", of.together),
        **_of_rate("others_", of.together),
        "bunches": _bunches(of),
    }


def _asked(scenario: Scenario, leg: int) -> float:
    both = 1 - (1 - scenario.loss_in) * (1 - scenario.loss_out)
    return {IN: scenario.loss_in, OUT: scenario.loss_out, BOTH: both}[leg]


def _counts(name: str, rate: Rate | None) -> Row:
    return {name: 0 if rate is None else rate.lines, f"{name}_lost": 0 if rate is None else rate.lost}


def _of_rate(prefix: str, rate: Rate | None) -> Row:
    names = ("share", "low", "high")
    return {f"{prefix}{name}": None if rate is None else getattr(rate, name) for name in names}


def _in_a_row(after: Rate | None) -> float | None:
    return None if after is None or after.share == 1 else 1 / (1 - after.share)


def _bunches(of: LegLoss) -> str:
    if of.rate is None or not of.rate.lost:
        return ""
    told = [name for name, is_so in (("in a row", of.is_in_rows), ("together", of.is_together)) if is_so]
    return ", ".join(told) or "none seen"


def _touched(losses: Losses, found: Fates) -> list[tuple[str, str]]:
    """The figures that something touches which does not make them invalid, and what it is."""
    told = []
    rates = loss_words.measured(losses)
    if rates:
        by = f"loss nobody asked for: {rates}"
        told = [
            ("delivered, audience, copies", f"{by}: these include it"),
            ("latency", f"{by}: what was lost has no latency"),
            (
                "theory given what happened",
                f"{by}: included, as if each line were lost by itself",
            ),
        ]
        if losses.matters:
            told.append(
                ("theory beforehand, and bands of the plan", f"{by}: not included, and so not tested")
            )
        if bunches := loss_words.bunches(losses):
            told.append(("theory given what happened", bunches))
    own = sum(found.misses.get(cause, 0) for cause in SHORTCOMINGS)
    if own:
        told.append(
            ("delivered", f"{own:,} missed by the fault of the machine that ran the test count as missed")
        )
    return told
