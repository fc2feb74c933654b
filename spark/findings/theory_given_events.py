"""What theory says of a cell, its outages, views, draws and leases being known.

With these as they were captured, each pair had a known number h of chances: sendings of its message to a
server that was up and held a lease of the subscriber. Only the losses that the scenario asks for are left to
luck, so the pair is missed with probability q^h, q = 1 - (1 - loss_in)(1 - loss_out). Messages have their
luck each for itself; the subscribers of one message share what is lost on the way to the servers. That makes
mean, variance and skewness of the number of misses sums over the messages, of small whole numbers: how many
of a message's pairs had how many chances.

Of two pairs of a message, both having chances by the same `up` sendings of which some came in, each misses
with the mean of loss_out^(its own that came in). Subscribers at all of a topic's servers have all of these
sendings. Where subscribers draw, `up` is not recorded, and is taken as likely as the outages planned make it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, fsum
from statistics import NormalDist

from kcast.hashring.intervals import binomial
from kcast.hashring.model import hypergeometric
from kcast.loadtest.results.prediction import servers_per_topic, share_down
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.pearson3 import TAIL_MIN, Skewed
from kcast.spark.findings.theory_beforehand import draws

UP_MAX = 64
"""With more sendings of a message than this, that many up are assumed as are on average."""


@dataclass(frozen=True, slots=True)
class Chances:
    """Pairs of a cell with `low` chances beside pairs of the same messages with `high`, sums over messages.

    `products` is the sum of how many of each there are, multiplied. Where `low` is `high`: `pairs`, those
    `delivered`, those missed by the `faults` of the machine that ran the test, and `cubes` of how many.
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
    """The number of misses that theory expects of a cell, and its luck.

    `certain` of `mean` had no chance at all. `variance` is 0 where there is no luck: where nothing is lost.
    """

    mean: float
    certain: int
    variance: float
    third: float

    @property
    def distribution(self) -> Skewed | None:
        """None where there is no luck."""
        return Skewed(self.mean, self.variance, self.third) if self.variance > 0 else None

    @property
    def likely_certain(self) -> float:
        """The chance that no more than the certain ones are missed, if bunches of misses are a Poisson's."""
        lucky = self.mean - self.certain
        return exp(-lucky * lucky / self.variance) if self.variance > 0 else 1.0

    def score(self, missed: int) -> float:
        """How far so many are off, as a standard normal: above 0 for too many. `variance` must be above 0."""
        distribution = Skewed(self.mean, self.variance, self.third)
        if missed > self.certain:
            return distribution.score(missed)
        # No bunch came, which where few are expected is likely, and half of what is likely lies below.
        below = self.likely_certain / 2
        return NormalDist().inv_cdf(below) if below > TAIL_MIN else distribution.standard(missed)


def why_none(scenario: Scenario) -> str:
    """Why there is no such theory for a scenario, in words; empty if there is."""
    if scenario.by == "stall" and scenario.outages != "none":
        return "servers that were halted still deliver what waits for them, so how many chances is not known"
    if scenario.duplicate > 0:
        return "which of a datagram and its extra copy came is not known, so neither is how many chances"
    return ""


def expected_misses(scenario: Scenario, classes: Sequence[Chances], bunching: float = 1.0) -> Misses:
    """What theory expects. `bunching`: of how many messages a lost datagram was, on average (`lines`)."""
    lot = _Lot(scenario)
    mean, variance, third, certain = [], [], [], 0
    for each in classes:
        if each.low == each.high:
            n, n2, n3, h = each.pairs, each.products, each.cubes, each.low
            mean.append(n * lot.missed(h))
            if h == 0:
                certain = n
                continue
            p1, p2, p3 = lot.missed(h), lot.both_missed(h, h), lot.three_missed(h)
            # Of n exchangeable pairs, with sums over the messages of n, n^2 and n^3.
            variance.append(n * p1 * (1 - p1) + (n2 - n) * (p2 - p1 * p1))
            third.append(
                (n3 - 3 * n2 + 2 * n) * p3
                + 3 * (n2 - n) * p2
                + n * p1
                - 3 * ((n3 - n2) * p2 + n2 * p1) * p1
                + 2 * n3 * p1**3
            )
        elif each.low:
            both = lot.both_missed(each.low, each.high)
            variance.append(2 * each.products * (both - lot.missed(each.low) * lot.missed(each.high)))
    return Misses(fsum(mean), certain, max(0.0, fsum(variance)) * bunching, fsum(third) * bunching**2)


def lines(lost: Iterable[tuple[int, int]]) -> float:
    """Of how many messages lost datagrams were, by the messages: at least 1.

    From (messages, sum of squares of messages by datagram) of both ways; the larger counts. Messages that
    were in one datagram share its luck.
    """
    return max(1.0, *(squares / count for count, squares in lost if count), 1.0)


class _Lot:
    """The chances that one, two or three pairs of a message are all missed."""

    def __init__(self, scenario: Scenario) -> None:
        self._loss_in, self._loss_out = scenario.loss_in, scenario.loss_out
        self._miss = 1 - (1 - scenario.loss_in) * (1 - scenario.loss_out)
        self._hosts = servers_per_topic(scenario)
        self._publish, self._subscribe = draws(scenario)
        self._repeat = scenario.repeat
        self._up = 1 - share_down(scenario)
        # Two who know different servers have fewer in common, so this takes their luck for too much alike.
        self._have_all = self._subscribe >= self._hosts
        self.both_missed = lru_cache(maxsize=None)(self._both_missed)

    def missed(self, h: int) -> float:
        """One pair, with `h` chances."""
        return float(self._miss**h)

    def _both_missed(self, low: int, high: int) -> float:
        """Two pairs."""
        return fsum(
            weight * p * self._given_in(up, came, low) * self._given_in(up, came, high)
            for up, weight in self._ups(low, high)
            for came, p in self._came_in(up)
        )

    def three_missed(self, h: int) -> float:
        """Three pairs, with `h` chances each."""
        return fsum(
            weight * p * self._given_in(up, came, h) ** 3
            for up, weight in self._ups(h, h)
            for came, p in self._came_in(up)
        )

    def _came_in(self, up: int) -> list[tuple[int, float]]:
        """How many of the sendings to servers that were up came in."""
        least, pmf = binomial(up, 1 - self._loss_in)
        return list(enumerate(pmf, least))

    def _given_in(self, up: int, came: int, h: int) -> float:
        """A pair with `h` of `up` sendings, of which so many came in: none of its own came out."""
        least, pmf = hypergeometric(up, came, h)
        return fsum(p * self._loss_out**own for own, p in enumerate(pmf, least))

    def _ups(self, low: int, high: int) -> list[tuple[int, float]]:
        """How many sendings were to servers that were up, of a message of which pairs had so many chances."""
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
        """How likely a subscriber has `h` chances where so many servers were up that a message went to.

        Messages that are sent again go there as often, nearly.
        """
        up, h = -(-up // self._repeat), -(-h // self._repeat)
        least, pmf = hypergeometric(self._hosts, min(up, self._hosts), self._subscribe)
        return pmf[h - least] if 0 <= h - least < len(pmf) else 0.0
