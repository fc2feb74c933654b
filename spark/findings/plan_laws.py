"""Figures beside the law that the plan gives them: bands, and verdicts at levels that add up. No Spark.

A fixed limit, such as 5 %, raises alarms where chance moves a figure by more, and sees nothing where it moves
it by less. So every figure is tested against its own law between runs of the plan (`plan_simulator`), by a
distribution with the same mean, variance and skewness (`skewed`).

Of a hundred sound analyses at most two raise any alarm: each table has a level, and these add up
(Bonferroni). Within a table the level is divided by the number of its tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.effective_size import CONFIDENCE
from kcast.loadtest.results.plan_simulator import Runs, can_simulate, simulated
from kcast.loadtest.results.prediction import leases_may_end
from kcast.loadtest.results.simulated_law import Law, law_of
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.skewed import Skewed
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED

LEVEL = 0.001
"""Probability that a sound analysis has a figure that disagrees, for each table, and for the joint test of
theory beforehand."""

POWER = 0.9
"""Probability with which a difference that "could have been seen" is seen."""

RUNS_THAT_DIFFER_MIN = 50
"""Simulated runs in which a figure is not what it mostly is: with fewer, its law is not known."""

Figure = Callable[[Runs], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Beside:
    """A figure beside its law: the band that has 95 % of runs, and the deviation as a standard normal.

    `is_farthest` says that no simulated run is as far from the mean. Some laws have tails that three moments
    do not tell, such as those of zones that fail together.
    """

    law: Law
    z: float
    is_farthest: bool = True

    @property
    def band(self) -> tuple[float, float]:
        """The range that has 95 % of runs."""
        tail = (1 - CONFIDENCE) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def quantile(self, probability: float) -> float:
        """Returns what a run does not exceed with this probability."""
        return _skewed(self.law).quantile(probability)

    def seen(self, level: float) -> float:
        """The smallest difference from the mean that a test at `level` sees in nine of ten runs."""
        return detectable(self.law.variance, level)


def detectable(variance: float, level: float) -> float:
    """The difference that a two-sided test at `level` sees with the probability POWER."""
    normal = NormalDist()
    return float(variance**0.5 * (normal.inv_cdf(1 - level / 2) + normal.inv_cdf(POWER)))


def has_law(scenario: Scenario) -> bool:
    """Whether simulated runs of the plan have the means of real ones, and not only about their spread.

    They do not where it matters how soon clients notice something: that servers were killed, halted or cut
    off until leases ended, or that they should be avoided.
    """
    if not can_simulate(scenario):
        return False
    has_outages = scenario.outages != "none"
    return not has_outages or not (
        scenario.by != "isolation" or scenario.avoid_dead or leases_may_end(scenario)
    )


def simulate_ahead(scenario: Scenario) -> None:
    """Simulates the runs of a plan that figures will be held against: they are remembered."""
    if has_law(scenario):
        simulated(scenario)


def beside(scenario: Scenario, figure: Figure, value: float | None) -> Beside | None:
    """Returns the test of a figure (a function that can be hashed); None where its law is not known."""
    if value is None or not has_law(scenario):
        return None
    law = _law(scenario.with_(name="", seed=0), figure)
    if law.differing < RUNS_THAT_DIFFER_MIN or not law.variance:
        return None
    return Beside(law, _skewed(law).score(value), abs(value - law.mean) > law.farthest)


@lru_cache(maxsize=4096)
def _law(scenario: Scenario, figure: Figure) -> Law:
    return law_of(figure, simulated(scenario))


def _skewed(law: Law) -> Skewed:
    return Skewed(law.mean, law.variance, law.third)


def verdict(found: Beside | None, tests: int, enough: float, *, only_above: bool = False) -> str:
    """The verdict on one of `tests` figures of a table.

    It agrees if a difference of `enough` would have been seen; else it is not refuted. It disagrees only if
    it is farther from the mean than in any simulated run.
    """
    if found is None:
        return NO_THEORY
    level = LEVEL / max(1, tests)
    tail = level if only_above else level / 2
    far = found.z if only_above else abs(found.z)
    if NormalDist().cdf(-far) < tail and found.is_farthest:
        return DISAGREES
    return AGREES if found.seen(level) <= enough else NOT_REFUTED
