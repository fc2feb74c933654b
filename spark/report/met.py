"""What copies met on their way, by the paths of all pairs: servers that were down, and losses. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kcast.loadtest.results.causes import Cause
from kcast.spark.findings.findings import Findings

_NEVER_SENT = frozenset({Cause.UNSENT.label, Cause.VIEW.label, Cause.DRAW.label, Cause.UNASKED.label})
_LEFT = (Cause.LOSS_OUT, Cause.DELIVERED, Cause.LATE, Cause.HALTED)


class Met(NamedTuple):
    """Shares of copies: those that met a server that was down; of the others, those lost on the way to it; of
    those that left it, those lost on the way back."""

    down: float
    loss_in: float
    loss_out: float


def met(findings: Findings, cells: Collection[int]) -> Met | None:
    """Returns what the copies of these scenarios met; None where too little was sent to say."""
    paths = Counter[str]()
    for row in findings.table("attribution"):
        if row["cell"] in cells:
            paths[row["cause"]] += row["paths"]
    return of_paths(paths)


def of_paths(paths: Mapping[str, int]) -> Met | None:
    """Returns the same from numbers of paths, by the label of the cause that ended them."""
    sent = sum(number for label, number in paths.items() if label not in _NEVER_SENT)
    up = sent - paths.get(Cause.DOWN.label, 0)
    left = sum(paths.get(cause.label, 0) for cause in _LEFT)
    if not up or not left:
        return None
    losses = paths.get(Cause.LOSS_IN.label, 0) / up, paths.get(Cause.LOSS_OUT.label, 0) / left
    return Met(1 - up / sent, *losses)
