"""The law of a figure between simulated runs of a plan: mean, variance and skewness.

A long run is simulated with fewer messages. Its variance has a part that all messages have in common, which
is the covariance of the two halves of the messages, and a part that falls as their number grows. The second
part is made smaller accordingly.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.plan_simulator import HALVES, Runs


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
    """Returns the law of a figure, by what it is in each run.

    `figure` is evaluated for all messages, and for each half of them. Runs without it (nan) are left out.
    """
    whole = figure(of._replace(**{name: getattr(of, name).sum(axis=1) for name in _BY_HALF}))
    there = ~np.isnan(whole)
    values = whole[there]
    if len(values) < 2:
        return Law(float("nan"), 0.0, 0.0, 0)
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    third = float(((values - mean) ** 3).mean())
    if of.kept < 1 and variance > 0:
        first, second = (
            figure(of._replace(**{name: getattr(of, name)[:, half] for name in _BY_HALF}))[there]
            for half in range(HALVES)
        )
        common = min(max(float(np.nanmean((first - mean) * (second - mean))), 0.0), variance)
        all_messages = common + of.kept * (variance - common)
        third *= (all_messages / variance) ** 1.5
        variance = all_messages
    differing = len(values) - int(np.unique(values, return_counts=True)[1].max())
    farthest = (
        float(np.abs(values - mean).max())
        * (variance / float(values.var(ddof=1)) if variance else 0.0) ** 0.5
    )
    return Law(mean, variance, third, differing, farthest)


_BY_HALF = ("pairs", "delivered", "messages", "all_reached", "copies")


def delivered_share(of: Runs) -> NDArray[np.float64]:
    """A figure: the share of pairs that are delivered."""
    return ratio(of.delivered, of.pairs)


def ratio(part: NDArray[np.generic], whole: NDArray[np.generic]) -> NDArray[np.float64]:
    """Returns part / whole, nan where there is no whole."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = np.true_divide(part, whole)
    return found
