"""How far a measured rate may lie from the true one. Without numpy.

Messages are not independent trials for each of their subscribers: with few publish, one that misses all
live hosts is lost for the whole audience. `delivered_pairs` counts that clustering exactly;
`kcast.hashring.effective_size` estimates it from what was seen.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import erfc, exp, fsum, gcd, inf, lgamma, log, log1p, sqrt
from statistics import NormalDist

TRIMMED_MASS = 1e-15
"""The probability that may be cut from each end of a distribution at each convolution."""


def wilson(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval for a probability (Wilson, 1927). `trials` may be an effective count, or 0."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    norm = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / norm
    half = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / norm
    return max(0.0, centre - half), min(1.0, centre + half)


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval that covers the true probability with at least `confidence` (Clopper, Pearson, 1934)."""
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _beta_quantile(successes, trials - successes + 1, tail)
    high = 1.0 if successes == trials else _beta_quantile(successes + 1, trials - successes, 1 - tail)
    return low, high


def binomial_tail(successes: float, trials: float, chance: float) -> float:
    """P(X <= `successes`) of so many trials, whole numbers or not: I(1 - p; n - x, x + 1), DLMF 8.17.5."""
    if successes < 0:
        return 0.0
    return 1.0 if successes >= trials else _beta_cdf(trials - successes, successes + 1, 1 - chance)


def chi_squared_tail(x: float, degrees: int) -> float:
    """P(X > x) for X the sum of so many squared standard normals.

    By the closed forms for whole degrees (Abramowitz and Stegun 26.4.4 and 26.4.5): erfc or exp, and a finite
    sum. Raises ValueError if `degrees` is less than 1.
    """
    if degrees < 1:
        raise ValueError(f"degrees is {degrees}: give at least 1")
    if x <= 0:
        return 1.0
    half = x / 2
    # Terms half^i / Gamma(i + 1) exp(-half), i = 0, 1, ... for even degrees, 1/2, 3/2, ... for odd ones.
    odd = degrees % 2
    terms = [erfc(sqrt(half))] if odd else []
    log_half = log(half)
    for i in range(degrees // 2):
        power = i + odd / 2
        terms.append(exp(power * log_half - half - lgamma(power + 1)))
    return min(1.0, fsum(terms))


def gamma_tail(shape: float, x: float) -> float:
    """P(X > x) for X of the gamma distribution of this shape and scale 1: Q(shape, x), DLMF 8.2.4.

    By the series for the lower part (8.11.4) or the continued fraction for the upper (8.9.2).
    """
    if x <= 0:
        return 1.0
    front = exp(shape * log(x) - x - lgamma(shape + 1))
    if x < shape + 1:
        term = total = 1.0
        n = shape
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1 - front * total)
    tiny = 1e-300
    b = x + 1 - shape
    c, d = 1 / tiny, 1 / b
    fraction = d
    for i in range(1, 100_000):
        b += 2
        a = -i * (i - shape)
        d = a * d + b
        d = 1 / (d if abs(d) > tiny else tiny)
        c = b + a / c
        c = c if abs(c) > tiny else tiny
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * shape * fraction


def student_tail(t: float, degrees: float) -> float:
    """P(|T| > t) for Student's T with so many degrees of freedom (Student, 1908)."""
    if degrees == inf:
        return erfc(abs(t) / sqrt(2))
    return _beta_cdf(degrees / 2, 0.5, degrees / (degrees + t * t))


@cache
def student_quantile(confidence: float, degrees: float) -> float:
    """The t that |T| is not above with this probability; the normal one's with endlessly many degrees."""
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


def icc(down: float, miss_up: float, k_prime: int) -> float:
    """The correlation of two messages' fates at a subscriber of few subscribe that keeps its draw.

    (E2 - E^2) / (E (1 - E)), E = (p + (1 - p) g)^K', E2 = (p + (1 - p) g^2)^K', p = `down`, g = `miss_up`,
    the chance that a message is lost on a path whose host is up.
    """
    once = (down + (1 - down) * miss_up) ** k_prime
    twice = (down + (1 - down) * miss_up * miss_up) ** k_prime
    return float((twice - once * once) / (once * (1 - once)))


def binomial(trials: int, chance: float) -> tuple[int, list[float]]:
    """How many of `trials` succeed: the least count, and the pmf from it on, but for ends of 1e-15."""
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
    """The distribution of a number of delivered (message, subscriber) pairs.

    `pmf[i]` is the probability of `first + i * step`; what lies outside amounts to at most `trimmed`. `least`
    and `most` bound what is possible at all.
    """

    first: int
    step: int
    pmf: tuple[float, ...]
    least: int
    most: int
    total: int
    """Pairs if everything were delivered."""
    mean: float
    sd: float
    trimmed: float

    def at_most(self, pairs: int) -> float:
        """P(delivered <= pairs)."""
        if pairs >= self.most:
            return 1.0
        return min(1.0, fsum(self.pmf[: max(0, (pairs - self.first) // self.step + 1)]))

    def at_least(self, pairs: int) -> float:
        """P(delivered >= pairs)."""
        if pairs <= self.least:
            return 1.0
        return min(1.0, fsum(self.pmf[max(0, -((self.first - pairs) // self.step)) :]))

    def interval(self, confidence: float = 0.9999) -> tuple[int, int]:
        """The narrowest lo .. hi with at most half of 1 - `confidence` below lo, and above hi.

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
    """How many (message, subscriber) pairs are delivered, if each message reaches its whole audience or none.

    `groups` are (messages, probability of delivery, subscribers): the sum over groups of
    subscribers * Binomial(messages, probability), by convolution. A group of probability 0 or 1 adds no
    width. Raises ValueError for a negative count or what is no probability.
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

    # Groups of one weight first, as plain counts, then from the narrowest to the widest: the cost is the
    # product of the two widths.
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
    """The pmf of a sum of two, the second in steps of `stride`."""
    width = len(pmf)
    result = [0.0] * (width + (len(terms) - 1) * stride)
    for start, term in zip(range(0, len(result), stride), terms, strict=False):
        result[start : start + width] = [
            old + term * p for old, p in zip(result[start : start + width], pmf, strict=True)
        ]
    return result


def _trim(first: int, pmf: list[float]) -> tuple[int, list[float], float]:
    """Cut off ends of at most TRIMMED_MASS each. Gives the new first value, the rest, and the mass cut."""
    low, high = _skipped(pmf, TRIMMED_MASS), _skipped(pmf[::-1], TRIMMED_MASS)
    cut = fsum(pmf[:low]) + fsum(pmf[len(pmf) - high :])
    return first + low, pmf[low : len(pmf) - high], cut


def _skipped(pmf: Sequence[float], mass: float) -> int:
    """How many leading values together have at most `mass`; never all."""
    seen = 0.0
    for index, term in enumerate(pmf):
        seen += term
        if seen > mass:
            return index
    return len(pmf) - 1


def _beta_quantile(a: float, b: float, probability: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        if _beta_cdf(a, b, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
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
