"""How many independent trials are worth as much as outcomes that share their luck. Without numpy.

Outcomes come in clusters, within which they are more alike than chance would have them: subscribers of one
message, messages while the same servers are down. From how much clusters differ follows by how much more the
whole varies than as many independent trials would (the design effect: Kish, Survey Sampling, 1965). That is
itself an estimate, and a poor one of few clusters: so intervals are as wide as Student's t with a degree of
freedom fewer than clusters makes them (Korn and Graubard, Confidence intervals for proportions with small
expected number of positive counts estimated from survey data, 1998).

Sums over clusters are whole numbers of any size, so that the order in which they were added changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from kcast.hashring.intervals import student_quantile, wilson

CONFIDENCE = 0.95


class Clusters(NamedTuple):
    """Sums over clusters of n trials with x successes each: of 1, n, x, n^2, n x, x^2."""

    clusters: int
    trials: int
    successes: int
    squares: int
    products: int
    hits: int


@dataclass(frozen=True, slots=True)
class Effective:
    """As many independent `trials` vary as much, which is known from a spread with so many `degrees` of
    freedom; inf where it is known otherwise.

    `name` is of the clusters by which trials were counted. `single` are those clusterings in which there is
    one cluster only, so that nothing tells how such clusters vary: what is said holds for that one.
    """

    trials: float
    degrees: float
    name: str
    single: tuple[str, ...] = ()

    def worth(self, confidence: float = CONFIDENCE) -> float:
        """So many trials with a spread that is known would have as wide an interval."""
        ratio = student_quantile(confidence, inf) / student_quantile(confidence, self.degrees)
        return self.trials * ratio * ratio

    def interval(self, share: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Wilson's, of a share of the outcomes."""
        worth = self.worth(confidence)
        low, high = wilson(share * worth, worth, confidence)
        # Which rounding may miss.
        return 0.0 if share == 0 else low, 1.0 if share == 1 and worth else high

    def half_width(self, share: float) -> float:
        """Of the interval."""
        low, high = self.interval(share)
        return (high - low) / 2


def clusters_of(outcomes: Iterable[tuple[int, int]]) -> Clusters:
    """The sums over clusters of (trials, successes), without those that have no trials."""
    seen = [(n, x) for n, x in outcomes if n]
    columns = zip(*((1, n, x, n * n, n * x, x * x) for n, x in seen), strict=True)
    return Clusters(*map(sum, columns)) if seen else Clusters(0, 0, 0, 0, 0, 0)


def effective(sums: Mapping[str, Clusters], alike: float) -> Effective:
    """By that of these clusterings of the same outcomes, by name, which makes the interval widest.

    Where nothing, or everything, succeeded nothing is known of the spread, and it is `alike` trials.
    """
    found = {name: of for name, of in sums.items() if of.trials}
    if not found:
        return Effective(0.0, inf, "")
    single = tuple(name for name, of in found.items() if of.clusters == 1)
    name, whole = next(iter(found.items()))
    if whole.successes in (0, whole.trials):
        return Effective(alike, inf, name, single)
    several = [(name, of) for name, of in found.items() if of.clusters > 1]
    if not several:
        return Effective(0.0, inf, name, single)
    return min((_of_one(name, of, single) for name, of in several), key=Effective.worth)


def _of_one(name: str, of: Clusters, single: tuple[str, ...]) -> Effective:
    if of.clusters == of.trials:  # no two have anything to share
        return Effective(of.trials, inf, name, single)
    return Effective(independent(of), of.clusters - 1, name, single)


def independent(of: Clusters) -> float:
    """Independent trials that vary as much as these clusters: n / DEFF.

    DEFF = m / (m - 1) sum (x - n p)^2 / (N p (1 - p)) of m clusters, here N^2 times both sides of the
    fraction, so that all are whole numbers. Clusters that do not differ are worth all trials. There must be
    two clusters, and neither nothing nor everything may have succeeded.
    """
    n, x, m = of.trials, of.successes, of.clusters
    spread = of.hits * n * n - 2 * x * n * of.products + x * x * of.squares
    return float(n) if spread == 0 else x * (n - x) * n * n * (m - 1) / (spread * m)
