"""Distributions with known mean, variance and skewness: Pearson's type III.

Misses come in bunches: a message that is lost is lost for all its subscribers. Where a run has only a few
bunches, their number is nearly Poisson distributed, and a normal distribution would raise alarms of one in
ten thousand a hundred times as often. The gamma distribution, shifted so that three moments are right, stays
within a factor of 2 of the Poisson tails even where a twentieth of a bunch is expected.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import scipy  # whose parts are imported when they are used, as `kcast.spark.launch` does

from kcast.loadtest.results.given_events import SKEW_MIN

TAIL_MIN = 1e-200
"""The thinnest tail that is used. Beyond it, distances are counted in plain standard deviations."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """A Pearson III distribution; `variance` is above 0, and `third` is the third central moment."""

    mean: float
    variance: float
    third: float

    @property
    def _parameters(self) -> tuple[float, float, float]:
        skew = self.third / self.variance**1.5
        return skew if abs(skew) >= SKEW_MIN else 0.0, self.mean, sqrt(self.variance)

    def standard(self, value: float) -> float:
        """Returns how many standard deviations a value lies above the mean."""
        return (value - self.mean) / sqrt(self.variance)

    def score(self, value: float) -> float:
        """Returns the standard normal quantile that is exceeded with the same probability."""
        law = scipy.stats.pearson3
        above, below = (float(tail(value, *self._parameters)) for tail in (law.sf, law.cdf))
        # The thinner of the two tails is the more exact.
        if min(above, below) < TAIL_MIN:
            return self.standard(value)
        normal = NormalDist()
        return -normal.inv_cdf(above) if above <= below else normal.inv_cdf(below)

    def quantile(self, probability: float) -> float:
        """Returns the value that is not exceeded with this probability (above 0, below 1)."""
        return float(scipy.stats.pearson3.ppf(probability, *self._parameters))
