"""Confidence intervals and distributions: how far a measured share may lie from the true one. Without numpy.

A message and its subscribers are not independent trials: with few publish, a message that misses all live
hosts is lost for the whole audience. `delivered_pairs` computes the effect of that clustering exactly;
`kcast.hashring.effective_size` estimates it from observed outcomes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import erfc, exp, fsum, gcd, inf, lgamma, log, log1p, sqrt
from statistics import NormalDist

TRIMMED_MASS = 1e-15
"""Probability mass that each convolution may cut from each end of a distribution."""


def wilson(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval for a probability (Wilson, 1927); (0, 1) without trials.

    `trials` may be an effective sample size, so neither count need be whole.

    >>> low, high = wilson(successes=999, trials=1000)
    >>> f"{low:.4f} to {high:.4f}"
    '0.9944 to 0.9998'
    """
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    norm = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / norm
    half = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / norm
    return max(0.0, centre - half), min(1.0, centre + half)


def student_tail(t: float, degrees: float) -> float:
    """P(|T| > t) for Student's T with `degrees` degrees of freedom (Student, 1908); normal if it is inf."""
    if degrees == inf:
        return erfc(abs(t) / sqrt(2))
    return _beta_cdf(degrees / 2, 0.5, degrees / (degrees + t * t))


@cache
def student_quantile(confidence: float, degrees: float) -> float:
    """The t for which P(|T| <= t) = `confidence`, for Student's T; the normal quantile if `degrees` is inf.

    >>> f"{student_quantile(0.95, 9):.3f}"
    '2.262'
    """
    if degrees == inf:
        return NormalDist().inv_cdf(0.5 + confidence / 2)
    low, high = 0.0, 1.0
    while student_tail(high, degrees) > 1 - confidence:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if student_tail(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def binomial(trials: int, chance: float) -> tuple[int, list[float]]:
    """The binomial distribution: its first count and the pmf from there on, without ends of 1e-15."""
    if chance in (0, 1):
        return trials * int(chance), [1.0]
    log_all = lgamma(trials + 1)
    pmf = [
        exp(
            log_all - lgamma(x + 1) - lgamma(trials - x + 1) + x * log(chance) + (trials - x) * log1p(-chance)
        )
        for x in range(trials + 1)
    ]
    total = fsum(pmf)
    first, kept, _ = _trim(0, [term / total for term in pmf])
    return first, kept


@dataclass(frozen=True, slots=True)
class PairDistribution:
    """The distribution of the number of delivered (message, subscriber) pairs.

    `pmf[i]` is the probability of `first + i * step`. All other values together have at most the probability
    `trimmed`. `least` and `most` are the extremes that are possible at all.
    """

    first: int
    step: int
    pmf: tuple[float, ...]
    least: int
    most: int
    total: int
    """The number of pairs if everything were delivered."""
    mean: float
    sd: float
    trimmed: float

    def interval(self, confidence: float = 0.9999) -> tuple[int, int]:
        """The narrowest low and high with at most (1 - `confidence`) / 2 below low, and as much above high.

        Raises ValueError if `confidence` is not between 0 and 1.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence is {confidence}: give a share such as 0.9999")
        tail = (1 - confidence) / 2 - self.trimmed
        if tail <= 0:
            return self.least, self.most
        last = self.first + (len(self.pmf) - 1) * self.step
        return (
            self.first + self.step * _skipped(self.pmf, tail),
            last - self.step * _skipped(self.pmf[::-1], tail),
        )


def delivered_pairs(groups: Iterable[tuple[int, float, int]]) -> PairDistribution:
    """The distribution of delivered pairs, if each message reaches its whole audience or nobody.

    Each group is (messages, probability of delivery, subscribers). The result is the distribution of the sum
    over groups of subscribers * Binomial(messages, probability), by convolution. A group of probability 0 or
    1 adds no width. Raises ValueError for a negative count, or a probability outside of 0 to 1.

    >>> delivered_pairs([(200, 0.95, 30)]).interval(0.99)
    (5430, 5910)
    """
    by_weight: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for messages, chance, subscribers in groups:
        if messages < 0 or subscribers < 0 or not 0 <= chance <= 1:
            raise ValueError(
                f"{messages} messages, probability {chance}, {subscribers} subscribers: no such group"
            )
        if messages and subscribers:
            by_weight[subscribers].append((messages, chance))
    step = gcd(*by_weight) or 1

    def variance(weight: int) -> float:
        return fsum(weight * weight * n * p * (1 - p) for n, p in by_weight[weight])

    # Groups with equally many subscribers are added as plain counts, then the sums from the narrowest to the
    # widest: a convolution costs the product of the two widths.
    first, pmf, trimmed = 0, [1.0], 0.0
    for weight in sorted(by_weight, key=variance):
        count_first, counts = 0, [1.0]
        for messages, chance in by_weight[weight]:
            low, terms = binomial(messages, chance)
            count_first, counts, cut = _trim(count_first + low, _convolve(counts, terms, 1))
            trimmed += cut
        shift, pmf, cut = _trim(0, _convolve(pmf, counts, weight // step))
        first += count_first * (weight // step) + shift
        trimmed += cut
    sums = [(n, p, weight) for weight, members in by_weight.items() for n, p in members]
    return PairDistribution(
        first=first * step,
        step=step,
        pmf=tuple(pmf),
        least=sum(n * w for n, p, w in sums if p == 1),
        most=sum(n * w for n, p, w in sums if p > 0),
        total=sum(n * w for n, _, w in sums),
        mean=fsum(n * p * w for n, p, w in sums),
        sd=sqrt(fsum(n * p * (1 - p) * w * w for n, p, w in sums)),
        trimmed=trimmed,
    )


def _convolve(pmf: Sequence[float], terms: Sequence[float], stride: int) -> list[float]:
    """The pmf of the sum of two variables; the values of the second are multiples of `stride`."""
    width = len(pmf)
    result = [0.0] * (width + (len(terms) - 1) * stride)
    for start, term in zip(range(0, len(result), stride), terms, strict=False):
        result[start : start + width] = [
            old + term * p for old, p in zip(result[start : start + width], pmf, strict=True)
        ]
    return result


def _trim(first: int, pmf: list[float]) -> tuple[int, list[float], float]:
    """Cuts ends of at most TRIMMED_MASS each. Returns the new first value, the rest and the mass cut."""
    low, high = _skipped(pmf, TRIMMED_MASS), _skipped(pmf[::-1], TRIMMED_MASS)
    cut = fsum(pmf[:low]) + fsum(pmf[len(pmf) - high :])
    return first + low, pmf[low : len(pmf) - high], cut


def _skipped(pmf: Sequence[float], mass: float) -> int:
    """The number of leading values that together have at most `mass`; never all of them."""
    seen = 0.0
    for index, term in enumerate(pmf):
        seen += term
        if seen > mass:
            return index
    return len(pmf) - 1


def _beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on one side only
        return 1 - _beta_fraction(b, a, 1 - x)
    return _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 500):
        change = 1.0
        for term in (
            m * (b - m) * x / ((a - 1 + 2 * m) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 1 + 2 * m)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            change = c * d
            fraction *= change
        if abs(change - 1) < 1e-14:
            break
    return exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) * fraction / a
