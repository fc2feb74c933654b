"""A distribution with known mean, variance and skewness: Pearson's type III.

Misses come in bunches: a message that is lost is lost for all its subscribers. Where a run has only a few
bunches, their number is nearly Poisson distributed, and a normal distribution would raise alarms of one in
ten thousand a hundred times as often. The gamma distribution, shifted so that three moments are right, stays
within a factor of 2 of the Poisson tails even where a twentieth of a bunch is expected.
"""

from dataclasses import dataclass
from math import copysign, sqrt
from statistics import NormalDist

import scipy  # whose parts are imported when they are used, as `kcast.spark.launch` does

_NORMAL = NormalDist()
_SKEW_MIN = 0.005
"""Below this skewness the normal distribution is used: the two cannot be told apart."""
TAIL_MIN = 1e-200
"""The thinnest tail that is used. Beyond it, distances are counted in plain standard deviations."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """A Pearson III distribution; `variance` is above 0, and `third` is the third central moment."""

    mean: float
    variance: float
    third: float

    @property
    def sd(self) -> float:
        """The standard deviation."""
        return sqrt(self.variance)

    @property
    def _skew(self) -> float:
        return self.third / (self.variance * self.sd)

    def standard(self, value: float) -> float:
        """Returns how many standard deviations a value lies above the mean."""
        return (value - self.mean) / self.sd

    def above(self, value: float) -> float:
        """P(X > value)."""
        return self._tail(value, 1)

    def score(self, value: float) -> float:
        """Returns the standard normal quantile that is exceeded with the same probability."""
        above, below = self._tail(value, 1), self._tail(value, -1)
        # The thinner of the two tails is the more exact.
        if min(above, below) < TAIL_MIN:
            return self.standard(value)
        return -_NORMAL.inv_cdf(above) if above <= below else _NORMAL.inv_cdf(below)

    def quantile(self, probability: float) -> float:
        """Returns the value that is not exceeded with this probability (above 0, below 1)."""
        skew = self._skew
        if abs(skew) < _SKEW_MIN:
            return self.mean + self.sd * _NORMAL.inv_cdf(probability)
        shape = 4 / (skew * skew)
        inverse = scipy.special.gammaincinv if skew > 0 else scipy.special.gammainccinv
        gamma = inverse(shape, probability)
        return self.mean + copysign(self.sd, skew) * float(gamma - shape) / sqrt(shape)

    def _tail(self, value: float, side: int) -> float:
        """P(X > value) with `side` 1, P(X < value) with -1."""
        standard, skew = self.standard(value), self._skew
        if abs(skew) < _SKEW_MIN:
            return _NORMAL.cdf(-side * standard)
        shape = 4 / (skew * skew)
        gamma = max(0.0, shape + copysign(1, skew) * standard * sqrt(shape))
        tail = scipy.special.gammaincc if side * skew > 0 else scipy.special.gammainc
        return float(tail(shape, gamma))
