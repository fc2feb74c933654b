"""A cell: one scenario of one run, as the analysis numbers them."""

from dataclasses import dataclass

from kcast.loadtest.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Cell:
    """`number` is what the column `cell` has; `t0_ns` is when the load began, 0 if nothing was to be sent."""

    number: int
    run: str
    scenario: Scenario
    status: str
    t0_ns: int
