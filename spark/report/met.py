"""What copies met on their way, by the paths of all pairs: servers that were down, and losses. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kcast.loadtest.results.causes import Cause
from kcast.spark.findings.findings import Findings, Row

_NEVER_SENT = frozenset({Cause.UNSENT.label, Cause.VIEW.label, Cause.DRAW.label, Cause.UNASKED.label})
_LEFT = (Cause.LOSS_OUT, Cause.DELIVERED, Cause.LATE, Cause.HALTED)


class Met(NamedTuple):
    """Shares of copies: those that met a server that was down; of the others, those lost on the way to it; of
    those that left it, those lost on the way back.

    Unless `is_apart`, it is not known on which way the network lost some, and these are in `loss_in`.
    """

    down: float
    loss_in: float
    loss_out: float
    is_apart: bool = True

    @property
    def lost(self) -> tuple[tuple[float, str], ...]:
        """The shares that were lost, each with words that say where."""
        if self.is_apart:
            back = "on the way back" if self.loss_in else "were lost on the way back"
            return (self.loss_in, "were lost on the way to servers"), (self.loss_out, back)
        return ((_either(self.loss_in, self.loss_out), "were lost on the way to servers or back"),)


def met(findings: Findings, cells: Collection[int]) -> Met | None:
    """Returns what the copies of these scenarios met; None where too little was sent to say."""
    paths = Counter[str]()
    for row in findings.table("attribution"):
        if row["cell"] in cells:
            paths[row["cause"]] += row["paths"]
    by_plan = of_paths(paths)
    if by_plan is None:
        return None
    return _with_network(by_plan, (row for row in findings.table("losses") if row["cell"] in cells))


def of_paths(paths: Mapping[str, int]) -> Met | None:
    """Returns the same from numbers of paths, by the label of the cause that ended them: only losses that the
    scenario asked for."""
    sent = sum(number for label, number in paths.items() if label not in _NEVER_SENT)
    up = sent - paths.get(Cause.DOWN.label, 0)
    left = sum(paths.get(cause.label, 0) for cause in _LEFT)
    if not up or not left:
        return None
    losses = paths.get(Cause.LOSS_IN.label, 0) / up, paths.get(Cause.LOSS_OUT.label, 0) / left
    return Met(1 - up / sent, *losses)


def _with_network(by_plan: Met, losses: Iterable[Row]) -> Met:
    """What copies met if the network lost some, too: of the lines that passed the faults of the test, those
    that rows of the table `losses` tell. Each scenario weighs as much as it has lines."""
    known = {(row["cell"], row["leg"]): row for row in losses if row["share"] is not None}
    lines, into, out, is_apart = 0, 0.0, 0.0, True
    for (cell, leg), both in known.items():
        if leg != "both":
            continue
        legs = [known[cell, each]["share"] for each in ("in", "out") if (cell, each) in known]
        if len(legs) < 2:  # as `loss_estimates.with_losses` takes it
            legs, is_apart = [both["share"], 0.0], is_apart and not both["share"]
        lines += both["lines"]
        into += legs[0] * both["lines"]
        out += legs[1] * both["lines"]
    if not lines:
        return by_plan
    in_all = _either(by_plan.loss_in, into / lines), _either(by_plan.loss_out, out / lines)
    return Met(by_plan.down, *in_all, is_apart)


def _either(one: float, other: float) -> float:
    return 1 - (1 - one) * (1 - other)
