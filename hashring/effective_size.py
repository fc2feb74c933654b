"""The effective sample size of clustered outcomes, and intervals that use it. Without numpy.

Outcomes come in clusters whose members are more alike than chance makes them: subscribers of one message,
messages sent while the same servers are down. The design effect (Kish, Survey Sampling, 1965) is the factor
by which clustering raises the variance of the share; the number of trials divided by it is the effective
sample size. It is estimated from how much the clusters differ. With few clusters that estimate is poor, so
intervals use Student's t with one degree of freedom less than there are clusters (Korn and Graubard,
Confidence intervals for proportions with small expected number of positive counts estimated from survey
data, 1998).

Sums over clusters are whole numbers of any size, so the order in which they are added changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from kcast.hashring.intervals import student_quantile, wilson

CONFIDENCE = 0.95


class ClusterSums(NamedTuple):
    """Sums over clusters, each of n trials with x successes: of 1, n, x, n^2, n x and x^2, in this order."""

    clusters: int
    trials: int
    successes: int
    squares: int
    products: int
    success_squares: int


@dataclass(frozen=True, slots=True)
class EffectiveSize:
    """An effective sample size: `variance_trials` independent trials would have the same variance.

    `degrees` is the degrees of freedom of that estimate; inf if it is known from theory. `name` says by which
    clusters the trials were counted. `single` names the clusterings that have only one cluster: nothing tells
    how such clusters vary, so the result holds for that one alone.
    """

    variance_trials: float
    degrees: float
    name: str
    single: tuple[str, ...] = ()

    def interval_trials(self, confidence: float = CONFIDENCE) -> float:
        """The number of independent trials that would give an interval of the same width. It is at most
        `variance_trials`, since an estimated variance makes intervals wider than a known one does."""
        ratio = student_quantile(confidence, inf) / student_quantile(confidence, self.degrees)
        return self.variance_trials * ratio * ratio

    def interval(self, share: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Wilson's interval for a `share` (0 to 1) of these outcomes.

        >>> low, high = EffectiveSize(variance_trials=400, degrees=9, name="epoch").interval(0.9)
        >>> f"{low:.3f} to {high:.3f}"
        '0.861 to 0.929'
        """
        trials = self.interval_trials(confidence)
        low, high = wilson(share * trials, trials, confidence)
        # Rounding may miss the ends.
        return 0.0 if share == 0 else low, 1.0 if share == 1 and trials else high

    def half_width(self, share: float) -> float:
        """Half the width of the interval for a `share`."""
        low, high = self.interval(share)
        return (high - low) / 2


def cluster_sums(outcomes: Iterable[tuple[int, int]]) -> ClusterSums:
    """The sums over clusters given as (trials, successes). Clusters without trials are left out."""
    seen = [(n, x) for n, x in outcomes if n]
    columns = zip(*((1, n, x, n * n, n * x, x * x) for n, x in seen), strict=True)
    return ClusterSums(*map(sum, columns)) if seen else ClusterSums(0, 0, 0, 0, 0, 0)


def effective_size(sums: Mapping[str, ClusterSums], trials_if_alike: float) -> EffectiveSize:
    """The effective size by the clustering that gives the widest interval.

    `sums` has the same outcomes clustered in several ways, by name. If all trials succeeded, or all failed,
    the outcomes do not tell how clusters vary; then `trials_if_alike` is taken.

    >>> halves = cluster_sums([(10, 10), (10, 0)] * 5)  # in each cluster all succeed or all fail
    >>> effective_size({"message": halves}, trials_if_alike=10).variance_trials
    9.0
    """
    found = {name: of for name, of in sums.items() if of.trials}
    if not found:
        return EffectiveSize(0.0, inf, "")
    single = tuple(name for name, of in found.items() if of.clusters == 1)
    name, whole = next(iter(found.items()))
    if whole.successes in (0, whole.trials):
        return EffectiveSize(trials_if_alike, inf, name, single)
    several = [(name, of) for name, of in found.items() if of.clusters > 1]
    if not several:
        return EffectiveSize(0.0, inf, name, single)
    return min((_size_of(name, of, single) for name, of in several), key=EffectiveSize.interval_trials)


def _size_of(name: str, of: ClusterSums, single: tuple[str, ...]) -> EffectiveSize:
    if of.clusters == of.trials:  # each trial is a cluster of its own
        return EffectiveSize(of.trials, inf, name, single)
    return EffectiveSize(independent_trials(of), of.clusters - 1, name, single)


def independent_trials(of: ClusterSums) -> float:
    """The number of independent trials with the variance of these clusters: N / DEFF, with N trials in all.

    DEFF = m / (m - 1) sum (x - n p)^2 / (N p (1 - p)) for m clusters. Both sides of the fraction are
    multiplied by N^2, so that all terms are whole numbers. If the clusters do not differ at all, every trial
    counts. Needs at least two clusters, one success and one failure.
    """
    n, x, m = of.trials, of.successes, of.clusters
    spread = of.success_squares * n * n - 2 * x * n * of.products + x * x * of.squares
    return float(n) if spread == 0 else x * (n - x) * n * n * (m - 1) / (spread * m)
