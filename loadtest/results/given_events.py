"""Theory given what happened: the distribution of a scenario's misses, with its events known.

The events are the outages, views, draws and leases as captured. With these, each pair has a known number h of
chances: sendings of its message to a server that was up and held a lease of the subscriber. Only losses are
random, so the pair is missed with probability q^h, where q = 1 - (1 - loss_in)(1 - loss_out). Messages are
independent; the subscribers of one message share what is lost on the way to the servers. So mean, variance
and skewness of the number of misses are sums over messages of small whole numbers: how many of a message's
pairs had how many chances. Their distribution is taken to be Pearson's of type III, a gamma distribution that
is shifted so that these three moments are right: misses come in bunches, of which a run may have few.

Take two pairs of a message whose chances are among the same `up` sendings, of which `came` came in. Each pair
is missed with the probability loss_out^(number of its own sendings that came in); the mean
of that is taken. Subscribers at all of a topic's
servers share all sendings. Where subscribers draw, `up` is not recorded; its distribution follows from the
planned outages.

Each leg loses what the scenario asks for, and of the rest the share that the network was measured to lose
though nobody asked for it. Lines are taken to be lost independently of each other, above all those of one
message by different servers. Where that is refused, copies were lost together, and K' of them help less than
they should. The share that was measured is not the true one: how much the misses vary with it, from one end
of its interval to the other, is added to their variance. A run in which more was lost has more misses, too:
so the test is rather too mild. Where losses came in rows along a leg, messages near each other are missed
together: the variance is multiplied as that of the number of lost lines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import copysign, exp, fsum, lgamma, log, sqrt
from statistics import NormalDist

from kcast.hashring.effective_size import CONFIDENCE
from kcast.hashring.intervals import binomial
from kcast.hashring.model import hypergeometric
from kcast.loadtest.results.loss_estimates import Losses, Rate, with_losses
from kcast.loadtest.results.prediction import draws, servers_per_topic, share_down
from kcast.loadtest.scenario import Scenario

LEVEL = 0.005
"""Probability that a sound run disagrees with this theory."""

ROUNDING = 1e-9
"""By as much a share may be off that theory has exactly."""

SKEW_MIN = 0.005
"""Below this skewness the normal distribution is used: the two cannot be told apart."""

UP_MAX = 64
"""Beyond this number of sendings of a message, the mean number of them to live servers is assumed."""


@dataclass(frozen=True, slots=True)
class Chances:
    """Pairs with `low` chances and pairs of the same messages with `high`: sums over a scenario's messages.

    `products` adds up the products of the two numbers of pairs. The other sums exist where `low` is `high`:
    `pairs`, those `delivered`, those missed by `faults` of the machine that ran the test, and the `cubes` of
    the numbers of pairs.
    """

    low: int
    high: int
    products: int
    pairs: int = 0
    delivered: int = 0
    faults: int = 0
    cubes: int = 0


@dataclass(frozen=True, slots=True)
class Misses:
    """The distribution of a scenario's misses in theory: mean, variance and third central moment.

    `certain` of the misses had no chance at all. `variance` is 0 where nothing is lost.
    """

    mean: float
    certain: int
    variance: float
    third: float

    @property
    def certain_only_probability(self) -> float:
        """The probability that only the certain misses occur, if the number of bunches is Poisson's.

        A bunch is the misses that one lost datagram causes.
        """
        uncertain = self.mean - self.certain
        return exp(-uncertain * uncertain / self.variance) if self.variance > 0 else 1.0

    @property
    def skew(self) -> float:
        """The skewness; 0 where it is too small to matter. `variance` must be above 0."""
        skew = self.third / self.variance**1.5
        return skew if abs(skew) >= SKEW_MIN else 0.0

    def quantile(self, probability: float) -> float:
        """Returns the number of misses that is not exceeded with this probability (above 0, below 1)."""
        if not self.variance:
            return self.mean
        sd, skew = sqrt(self.variance), self.skew
        if not skew:
            return self.mean + sd * NormalDist().inv_cdf(probability)
        shape = 4 / (skew * skew)
        gamma = _gamma_quantile(shape, probability if skew > 0 else 1 - probability)
        return self.mean + copysign(sd, skew) * (gamma - shape) / sqrt(shape)

    def band(self, pairs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Returns the range of shares delivered, of so many pairs, that has 95 % of such runs."""
        tail = (1 - confidence) / 2
        few, many = self.quantile(tail), self.quantile(1 - tail)
        if self.variance and self.certain_only_probability > tail:
            few = self.certain
        # Pairs without a chance are missed in every run, and no run misses more than all pairs.
        most, least = (1 - min(max(count, self.certain), pairs) / pairs for count in (few, many))
        return least, most

    def are_beyond(self, share: float, pairs: int) -> bool:
        """Whether a share delivered, of so many pairs, is refused at LEVEL."""
        least, most = self.band(pairs, 1 - LEVEL)
        return not least - ROUNDING <= share <= most + ROUNDING


def why_none(scenario: Scenario) -> str:
    """The reason why a scenario has no theory given what happened; empty if it has one."""
    if scenario.by == "stall" and scenario.outages != "none":
        return "servers that were halted still deliver what waits for them, so how many chances is not known"
    if scenario.duplicate > 0:
        return "which of a datagram and its extra copy came is not known, so neither is how many chances"
    return ""


def given_events(
    scenario: Scenario, classes: Sequence[Chances], losses: Losses, bunching: float = 1.0
) -> Misses:
    """Returns the misses in theory, where `why_none` has no reason; `bunching` is that of
    `messages_per_lost_datagram`."""
    if not losses.is_there:
        return expected_misses(scenario, classes, bunching)
    with_loss = with_losses(scenario, losses)
    best = expected_misses(with_loss, classes, max(bunching, losses.chain_effect))
    if best.variance == 0:
        return best
    spread = fsum(
        _spread(with_loss, classes, rate) ** 2 for rate in losses.by_leg or (losses.both.rate,) if rate
    )
    return replace(best, variance=best.variance + spread)


def _spread(scenario: Scenario, classes: Sequence[Chances], rate: Rate) -> float:
    """The standard deviation of the misses in theory, by that of a leg's rate."""
    ends = []
    for share in (rate.low, rate.high):
        # What passes by the best estimate, and at this end of the interval.
        passes = (1 - scenario.loss_in) * (1 - scenario.loss_out)
        passes *= (1 - share) / (1 - rate.share) if rate.share < 1 else 1.0
        lost = 1 - min(1.0, passes)
        ends.append(fsum(each.pairs * lost**each.low for each in classes if each.low == each.high))
    return (ends[1] - ends[0]) / (2 * NormalDist().inv_cdf(0.5 + CONFIDENCE / 2))


def expected_misses(scenario: Scenario, classes: Sequence[Chances], bunching: float = 1.0) -> Misses:
    """Returns the misses with the losses that the scenario asks for alone."""
    probability = _MissProbabilities(scenario)
    mean, variance, third, certain = [], [], [], 0
    for each in classes:
        if each.low == each.high:
            n, n2, n3, h = each.pairs, each.products, each.cubes, each.low
            mean.append(n * probability.missed(h))
            if h == 0:
                certain = n
                continue
            p1, p2, p3 = probability.missed(h), probability.both_missed(h, h), probability.three_missed(h)
            # n exchangeable pairs a message; n, n2, n3 are the sums over messages of n, n^2 and n^3.
            variance.append(n * p1 * (1 - p1) + (n2 - n) * (p2 - p1 * p1))
            third.append(
                (n3 - 3 * n2 + 2 * n) * p3
                + 3 * (n2 - n) * p2
                + n * p1
                - 3 * ((n3 - n2) * p2 + n2 * p1) * p1
                + 2 * n3 * p1**3
            )
        elif each.low:
            both = probability.both_missed(each.low, each.high)
            variance.append(
                2 * each.products * (both - probability.missed(each.low) * probability.missed(each.high))
            )
    return Misses(fsum(mean), certain, max(0.0, fsum(variance)) * bunching, fsum(third) * bunching**2)


def messages_per_lost_datagram(lost: Iterable[tuple[int, int]]) -> float:
    """The mean number of messages in a lost datagram, weighted by messages; at least 1.

    `lost` gives, for either direction, the number of lost messages and the sum over lost datagrams of their
    squared number of messages. The larger mean counts. Messages in one datagram are lost together.
    """
    return max(1.0, *(squares / count for count, squares in lost if count), 1.0)


class _MissProbabilities:
    """The probabilities that one, two or three pairs of a message are all missed."""

    def __init__(self, scenario: Scenario) -> None:
        self._loss_in, self._loss_out = scenario.loss_in, scenario.loss_out
        self._miss = 1 - (1 - scenario.loss_in) * (1 - scenario.loss_out)
        self._hosts = servers_per_topic(scenario)
        self._publish, self._subscribe = draws(scenario)
        self._repeat = scenario.repeat
        self._up = 1 - share_down(scenario)
        # Two subscribers who know different servers share fewer; this overestimates their correlation.
        self._have_all = self._subscribe >= self._hosts
        self.both_missed = lru_cache(maxsize=None)(self._both_missed)

    def missed(self, h: int) -> float:
        """The probability for one pair with `h` chances."""
        return float(self._miss**h)

    def _both_missed(self, low: int, high: int) -> float:
        """The probability for two pairs with `low` and `high` chances."""
        return fsum(
            weight * p * self._given_in(up, came, low) * self._given_in(up, came, high)
            for up, weight in self._ups(low, high)
            for came, p in self._came_in(up)
        )

    def three_missed(self, h: int) -> float:
        """The probability for three pairs with `h` chances each."""
        return fsum(
            weight * p * self._given_in(up, came, h) ** 3
            for up, weight in self._ups(h, h)
            for came, p in self._came_in(up)
        )

    def _came_in(self, up: int) -> list[tuple[int, float]]:
        """Distribution of the number of sendings that came in, of `up` to live servers."""
        least, pmf = binomial(up, 1 - self._loss_in)
        return list(enumerate(pmf, least))

    def _given_in(self, up: int, came: int, h: int) -> float:
        """The probability of no copy for a pair with `h` of the `up` sendings, of which `came` came in."""
        least, pmf = hypergeometric(up, came, h)
        return fsum(p * self._loss_out**own for own, p in enumerate(pmf, least))

    def _ups(self, low: int, high: int) -> list[tuple[int, float]]:
        """Distribution of the number of live servers a message was sent to, given that two of its pairs had
        `low` and `high` chances."""
        if self._have_all:
            return [(high, 1.0)]
        sent = self._publish * self._repeat
        if sent > UP_MAX:
            return [(max(high, round(sent * self._up)), 1.0)]
        least, pmf = binomial(sent, self._up)
        weights = [
            (up, p * self._seen(up, low) * self._seen(up, high))
            for up, p in enumerate(pmf, least)
            if up >= high
        ]
        total = fsum(weight for _, weight in weights)
        if not total:
            return [(max(high, round(sent * self._up)), 1.0)]
        return [(up, weight / total) for up, weight in weights if weight > 1e-6 * total]

    def _seen(self, up: int, h: int) -> float:
        """The probability that a subscriber has `h` chances where a message went to `up` live servers.

        Repeated sendings are taken to go to each of them equally often, which is nearly so.
        """
        up, h = -(-up // self._repeat), -(-h // self._repeat)
        least, pmf = hypergeometric(self._hosts, min(up, self._hosts), self._subscribe)
        return pmf[h - least] if 0 <= h - least < len(pmf) else 0.0


def _gamma_quantile(shape: float, probability: float) -> float:
    """The x for which P(X <= x) = `probability` (above 0, below 1), for the gamma distribution of scale 1."""
    low, high = max(0.0, shape - 10 * sqrt(shape)), shape + 10 * sqrt(shape) + 10
    for _ in range(45):
        middle = (low + high) / 2
        if _gamma_cdf(shape, middle) < probability:
            low = middle
        else:
            high = middle
    return high


def _gamma_cdf(shape: float, x: float) -> float:
    """The regularised incomplete gamma function, by its power series (DLMF 8.7.1)."""
    term = total = 1.0
    divisor = shape
    while term > 1e-16 * total:
        divisor += 1
        term *= x / divisor
        total += term
    return exp(shape * log(x) - x - lgamma(shape + 1)) * total
