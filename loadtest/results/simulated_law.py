"""The law of a figure between simulated runs of a plan: mean, variance and skewness."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.plan_simulator import Runs


class Law(NamedTuple):
    """Mean, variance and third central moment of a figure between runs.

    `differing` is the number of runs in which the figure is not what it is in most, and `farthest` its
    largest deviation from the mean in any run.
    """

    mean: float
    variance: float
    third: float
    differing: int
    farthest: float = 0.0


def law_of(figure: Callable[[Runs], NDArray[np.float64]], of: Runs) -> Law:
    """Returns the law of a figure, by what it is in each run. Runs without it (nan) are left out."""
    values, counted = (found[~np.isnan(found)] for found in (figure(of.as_long()), figure(of)))
    if len(values) < 2:
        return Law(float("nan"), 0.0, 0.0, 0)
    mean = float(values.mean())
    return Law(
        mean,
        float(values.var(ddof=1)),
        float(((values - mean) ** 3).mean()),
        len(counted) - int(np.unique(counted, return_counts=True)[1].max(initial=0)),
        float(np.abs(values - mean).max()),
    )


def delivered_share(of: Runs) -> NDArray[np.float64]:
    """A figure: the share of pairs that are delivered."""
    return ratio(of.delivered, of.pairs)


def ratio(part: NDArray[np.generic], whole: NDArray[np.generic]) -> NDArray[np.float64]:
    """Returns part / whole, nan where there is no whole."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = np.true_divide(part, whole)
    return found
