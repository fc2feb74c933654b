"""A distribution of which mean, variance and skewness are known: Pearson's type III.

Misses come in bunches: a message that is lost is lost for all its subscribers. Where a run has only a few
such bunches their number is nearly a Poisson variable, and the normal distribution would raise alarms of one
in ten thousand a hundred times as often. The gamma distribution, moved so that three moments are right, is
within a factor of 2 of the Poisson's tails even where a twentieth of a bunch is expected.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from kcast.hashring.intervals import gamma_tail

_NORMAL = NormalDist()
_SKEW_MIN = 0.005
"""Below, a normal distribution cannot be told from it."""
TAIL_MIN = 1e-200
"""Where tails are too thin to be told, distances are counted in plain standard deviations."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """By its first three cumulants; `variance` is above 0, and `third` the third central moment."""

    mean: float
    variance: float
    third: float

    @property
    def sd(self) -> float:
        """Its standard deviation."""
        return sqrt(self.variance)

    def standard(self, value: float) -> float:
        """How many standard deviations a value is above the mean."""
        return (value - self.mean) / self.sd

    def tail(self, value: float) -> float:
        """P(X > value)."""
        standard = self.standard(value)
        skew = self.third / self.variance**1.5
        return _upper(standard, skew) if skew >= 0 else _lower(-standard, -skew)

    def score(self, value: float) -> float:
        """The standard normal quantile that is as likely to be exceeded."""
        standard = self.standard(value)
        skew = self.third / self.variance**1.5
        # Of both tails the thinner, which is known more exactly.
        above, below = (
            (_upper(standard, skew), _lower(standard, skew))
            if skew >= 0
            else (_lower(-standard, -skew), _upper(-standard, -skew))
        )
        if min(above, below) < TAIL_MIN:
            return standard
        return -_NORMAL.inv_cdf(above) if above <= below else _NORMAL.inv_cdf(below)

    def quantile(self, probability: float) -> float:
        """The value that is not exceeded with this probability, above 0 and below 1."""
        low, high = self.mean - 40 * self.sd, self.mean + 40 * self.sd
        for _ in range(100):
            middle = (low + high) / 2
            if 1 - self.tail(middle) < probability:
                low = middle
            else:
                high = middle
        return (low + high) / 2


def _upper(standard: float, skew: float) -> float:
    """P(Z > standard) for a variable of mean 0, variance 1 and this skewness, at least 0."""
    if skew < _SKEW_MIN:
        return _NORMAL.cdf(-standard)
    shape = 4 / (skew * skew)
    return gamma_tail(shape, shape + standard * sqrt(shape))


def _lower(standard: float, skew: float) -> float:
    """P(Z < standard)."""
    if skew < _SKEW_MIN:
        return _NORMAL.cdf(standard)
    return max(0.0, 1 - _upper(standard, skew))
