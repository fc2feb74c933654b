"""The variance of the delivered share between runs of one scenario, computed from its plan.

The misses of two pairs are correlated when the pairs share something random:

    one message                     the publisher's draw of servers, and the losses on its way to them
    one topic, subscriber, epoch    the subscriber's draw of servers (such a group is a holder)
    one topic and epoch             which of the topic's servers are down
    one epoch                       how many servers are down in all

Estimating these covariances from a short run fails: a run whose few epochs never took down several servers of
one topic has seen none of the losses that theory counts on, and seems not to vary. But everything is drawn as
planned, so the covariances follow from the scenario. The variance of the share is then the sum over all pairs
of pairs of their covariance, by the largest thing that they share. Each topic has its servers by chance, and
so has each subscriber that draws its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import fsum
from typing import NamedTuple

from kcast.hashring.effective_size import ClusterSums
from kcast.hashring.model import hyp_miss
from kcast.loadtest.results.prediction import (
    binomial_pmf,
    down_pmf,
    hypergeometric_pmf,
    miss_by_down,
    planned_outages,
    predict,
    servers_of_units,
    servers_per_topic,
)
from kcast.loadtest.scenario import Scenario

MESSAGE = "message"
HOLDER = "topic, subscriber and epoch"
TOPIC_EPOCH = "topic and epoch"
EPOCH = "epoch"
PAIR = "pair"
"""What the misses of two pairs may be correlated by; PAIR is the part that each pair has alone."""

TOPIC_SERVERS_MAX = 128
"""The largest number of servers per topic for which the variance is computed.

Above it this would take minutes (scheme R).
"""


class Variance(NamedTuple):
    """The variance of the delivered share, split by source: outages, and the rest, which is draws and losses.

    Both are split again by what correlates the pairs. `miss` is the probability that a pair is missed.
    """

    miss: float
    outages: Mapping[str, float]
    rest: Mapping[str, float]

    @property
    def trials(self) -> float:
        """The effective sample size: the number of independent pairs whose share has the same variance."""
        return self.miss * (1 - self.miss) / fsum((*self.outages.values(), *self.rest.values()))

    @property
    def trials_given_outages(self) -> float:
        """The effective sample size among runs with the same outages; inf if nothing else is random."""
        rest = fsum(self.rest.values())
        return self.miss * (1 - self.miss) / rest if rest else float("inf")


def planned_variance(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> Variance | None:
    """Returns the variance of the delivered share of pairs that have these `sums` over clusters.

    `sums` are by MESSAGE, HOLDER, TOPIC_EPOCH and EPOCH. Returns None where there are no pairs, where all or
    none must be missed, and where this theory is not exact: for views that differ, outages that outlast
    leases or come one after the other, servers that are killed or halted, clients that avoid dead ones,
    messages that are sent again, and more than TOPIC_SERVERS_MAX servers per topic. There
    `kcast.loadtest.results.plan_simulator` has it.
    """
    if any(name not in sums or not sums[name].trials for name in (MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH)):
        return None
    found = _covariances(scenario.with_(name="", seed=0))
    if found is None:
        return None
    miss, of_message, of_holder, of_topic, of_epoch, between = found
    pairs = sums[EPOCH].trials
    shared = {name: sums[name].squares / pairs**2 for name in (MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH)}
    return Variance(
        miss,
        {
            TOPIC_EPOCH: shared[TOPIC_EPOCH] * max(0.0, of_topic - of_epoch),
            EPOCH: max(0.0, shared[EPOCH] * (of_epoch - between) + between),
        },
        {
            PAIR: max(0.0, miss * (1 - miss) - of_message - of_holder + of_topic) / pairs,
            MESSAGE: shared[MESSAGE] * (of_message - of_topic),
            HOLDER: shared[HOLDER] * (of_holder - of_topic),
        },
    )


def _has_exact_theory(scenario: Scenario) -> bool:
    """Whether theory beforehand is exact, epochs are independent, and a message has one epoch."""
    if scenario.known < 1 or scenario.outages == "rolling" or scenario.repeat > 1:
        return False
    prediction = predict(scenario)
    return prediction.share is not None and not prediction.note


class _Covariances(NamedTuple):
    """The probability that a pair is missed, and the covariance of the misses of two that share something."""

    miss: float
    of_message: float
    of_holder: float
    of_topic: float
    of_epoch: float
    between_epochs: float


@cache
def _covariances(scenario: Scenario) -> _Covariances | None:
    policy, k = scenario.policy, servers_per_topic(scenario)
    sent, held = min(policy.publish, k), min(policy.subscribe, k)
    if k > TOPIC_SERVERS_MAX or not _has_exact_theory(scenario):
        return None
    missed = miss_by_down(scenario, k)
    miss, of_topic, of_epoch = _outage_covariances(scenario, missed)
    if not 0 < miss < 1:
        return None
    second_of_holder = fsum(
        p * missed**2
        for (_, p), missed in zip(_down_among(scenario, held), miss_by_down(scenario, held), strict=True)
    )
    # Given the number of servers that took a message in, its subscribers' outcomes are independent.
    second_of_message = fsum(
        p_down * p_taken * hyp_miss(k, taken, held, 1 - scenario.loss_out) ** 2
        for down, p_down in _down_among(scenario, sent)
        for taken, p_taken in binomial_pmf(sent - down, 1 - scenario.loss_in)
    )
    of_holder, of_message = (second - miss * miss for second in (second_of_holder, second_of_message))
    # Two pairs that share more have no smaller covariance; rounding could say otherwise.
    of_message, of_holder = max(of_topic, of_message), max(of_topic, of_holder)
    return _Covariances(
        miss, of_message, of_holder, of_topic, of_epoch, _between_epochs(scenario, missed, miss)
    )


def _outage_covariances(scenario: Scenario, missed: Sequence[float]) -> tuple[float, float, float]:
    """The probability of a miss, and the covariances of two of one topic and epoch, and of one epoch."""
    k = len(missed) - 1
    of_topic = [(p, missed[down]) for down, p in _down_among(scenario, k)]
    # Given how many servers are down in all, the number of a topic's among them is hypergeometric.
    of_epoch = [
        (p, fsum(q * missed[own] for own, q in hypergeometric_pmf(scenario.servers, down, k)))
        for down, p in down_pmf(scenario)
    ]
    return fsum(p * chance for p, chance in of_topic), _variance(of_topic), _variance(of_epoch)


def _between_epochs(scenario: Scenario, missed: Sequence[float], miss: float) -> float:
    """The covariance of two misses in different epochs: stratified outages leave fewer for others."""
    if not scenario.stratified or scenario.outages not in ("independent", "zones") or scenario.epochs == 1:
        return 0.0
    k, units, epochs = len(missed) - 1, scenario.outage_units, scenario.epochs
    of_units = {
        down: fsum(
            p * q * missed[own]
            for servers, p in servers_of_units(scenario, down)
            for own, q in hypergeometric_pmf(scenario.servers, servers, k)
        )
        for down in range(units + 1)
    }
    both = fsum(
        weight * p * q * of_units[down] * of_units[other]
        for planned, weight in planned_outages(scenario)
        for down, p in hypergeometric_pmf(units * epochs, planned, units)
        for other, q in hypergeometric_pmf(units * (epochs - 1), planned - down, units)
    )
    return both - miss * miss


def _variance(values: Iterable[tuple[float, float]]) -> float:
    """The variance of a distribution, given as (probability, value)."""
    found = list(values)
    mean = fsum(p * value for p, value in found)
    return fsum(p * (value - mean) ** 2 for p, value in found)


def _down_among(scenario: Scenario, chosen: int) -> list[tuple[int, float]]:
    """The distribution of how many of `chosen` random servers are down, as (0 .. chosen, probability)."""
    pmf = [0.0] * (chosen + 1)
    if scenario.outages == "independent" and not scenario.stratified:
        for own, p in binomial_pmf(chosen, scenario.outage):
            pmf[own] = p
    else:
        for down, p in down_pmf(scenario):
            for own, q in hypergeometric_pmf(scenario.servers, down, chosen):
                pmf[own] += p * q
    return list(enumerate(pmf))
