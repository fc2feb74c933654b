"""How much the share delivered varies from run to run of a scenario, as it was planned.

Pairs share their luck: of a message its publisher's draw and what was lost on the way in, of a subscriber the
servers that it drew, of a topic its servers that are down, of an epoch all that are. What a run has seen of
that tells little: one whose few epochs took down no topic's servers together has seen nothing of the losses
that theory counts on, and seems not to vary. But drawn is by plan, so what two pairs have in common by being
of one message, one holder (topic, subscriber and epoch), one topic and epoch, or one epoch follows from it:
the covariance of their misses. Topics, and subscribers, have their servers each by chance.
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
    hosts,
    hypergeometric_pmf,
    miss_by_down,
    predict,
)
from kcast.loadtest.scenario import Scenario

MESSAGE = "message"
HOLDER = "topic, subscriber and epoch"
TOPIC_EPOCH = "topic and epoch"
EPOCH = "epoch"
PAIR = "pair"
"""By what pairs share their luck; by PAIR each has its own."""

HOSTS_MAX = 128
"""Of a topic; with more theory takes a while, in scheme R minutes."""


class Variance(NamedTuple):
    """Of a share: by the luck of outages, and by that of draws and losses, each by what shares it.

    `miss` is the chance that a pair is missed.
    """

    miss: float
    outages: Mapping[str, float]
    rest: Mapping[str, float]

    @property
    def trials(self) -> float:
        """As many independent trials vary as much."""
        return self.miss * (1 - self.miss) / fsum((*self.outages.values(), *self.rest.values()))

    @property
    def trials_given_outages(self) -> float:
        """The same of runs with the same outages. inf where all luck is that of outages."""
        rest = fsum(self.rest.values())
        return self.miss * (1 - self.miss) / rest if rest else float("inf")


def variance(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> Variance | None:
    """Of the share of pairs that have these sums over clusters: by MESSAGE, HOLDER, TOPIC_EPOCH and EPOCH.

    None where theory does not tell exactly what comes of the plan: for views that differ, outages that leases
    do not outlive, servers that are killed or halted, clients that avoid dead ones, messages that are sent
    to a server twice, more than HOSTS_MAX servers a topic; and where nothing, or everything, must be missed.
    """
    if any(name not in sums or not sums[name].trials for name in (MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH)):
        return None
    found = _covariances(scenario.with_(name="", seed=0))
    if found is None:
        return None
    miss, of_message, of_holder, of_topic, of_epoch = found
    pairs = sums[EPOCH].trials
    shared = {name: sums[name].squares / pairs**2 for name in (MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH)}
    return Variance(
        miss,
        {
            TOPIC_EPOCH: shared[TOPIC_EPOCH] * max(0.0, of_topic - of_epoch),
            EPOCH: shared[EPOCH] * of_epoch,
        },
        {
            PAIR: max(0.0, miss * (1 - miss) - of_message - of_holder + of_topic) / pairs,
            MESSAGE: shared[MESSAGE] * (of_message - of_topic),
            HOLDER: shared[HOLDER] * (of_holder - of_topic),
        },
    )


def outage_variance(
    scenario: Scenario, missed: Sequence[float], topic_epochs: ClusterSums, epochs: ClusterSums
) -> tuple[float, float]:
    """Of outcomes of any kind: how likely one is a miss, and the variance of their share with the outages.

    `missed` are the chances of a miss when 0 .. k of a topic's servers are down.
    """
    miss, of_topic, of_epoch = _of_outages(scenario, missed)
    own, epoch = topic_epochs.squares * (of_topic - of_epoch), epochs.squares * of_epoch
    return miss, (own + epoch) / epochs.trials**2


def is_planned(scenario: Scenario) -> bool:
    """Whether theory tells exactly what comes of outages."""
    if scenario.known < 1:
        return False
    prediction = predict(scenario)
    return prediction.share is not None and not prediction.note


class _Covariances(NamedTuple):
    """How likely a pair is missed, and the covariances of two that share a message, and so on."""

    miss: float
    of_message: float
    of_holder: float
    of_topic: float
    of_epoch: float


@cache
def _covariances(scenario: Scenario) -> _Covariances | None:
    policy, k = scenario.policy, hosts(scenario)
    sent, held = min(policy.publish, k) * scenario.repeat, min(policy.subscribe, k)
    if sent > k or k > HOSTS_MAX or not is_planned(scenario):
        return None
    miss, of_topic, of_epoch = _of_outages(scenario, miss_by_down(scenario, k))
    if not 0 < miss < 1:
        return None
    second_of_holder = fsum(
        p * missed**2
        for (_, p), missed in zip(_down_of(scenario, held), miss_by_down(scenario, held), strict=True)
    )
    # Given how many servers took a message in, subscribers have their luck each for itself.
    second_of_message = fsum(
        p_down * p_taken * hyp_miss(k, taken, held, 1 - scenario.loss_out) ** 2
        for down, p_down in _down_of(scenario, sent)
        for taken, p_taken in binomial_pmf(sent - down, 1 - scenario.loss_in)
    )
    of_holder, of_message = (second - miss * miss for second in (second_of_holder, second_of_message))
    # Who shares more has no less in common, but for rounding.
    return _Covariances(miss, max(of_topic, of_message), max(of_topic, of_holder), of_topic, of_epoch)


def _of_outages(scenario: Scenario, missed: Sequence[float]) -> tuple[float, float, float]:
    """How likely a miss is, the covariance of two of one topic and epoch, and that of two of one epoch."""
    k = len(missed) - 1
    of_topic = [(p, missed[down]) for down, p in _down_of(scenario, k)]
    # Given how many servers are down in all, each topic has as many of these as chance has it.
    of_epoch = [
        (p, fsum(q * missed[own] for own, q in hypergeometric_pmf(scenario.servers, down, k)))
        for down, p in down_pmf(scenario)
    ]
    return fsum(p * chance for p, chance in of_topic), _spread(of_topic), _spread(of_epoch)


def _spread(values: Iterable[tuple[float, float]]) -> float:
    """The variance of values with these probabilities."""
    found = list(values)
    mean = fsum(p * value for p, value in found)
    return fsum(p * (value - mean) ** 2 for p, value in found)


def _down_of(scenario: Scenario, chosen: int) -> list[tuple[int, float]]:
    """How many of servers chosen by chance are down: for 0 .. chosen, with the probability of each."""
    pmf = [0.0] * (chosen + 1)
    if scenario.outages == "independent":
        for own, p in binomial_pmf(chosen, scenario.outage):
            pmf[own] = p
    else:
        for down, p in down_pmf(scenario):
            for own, q in hypergeometric_pmf(scenario.servers, down, chosen):
                pmf[own] += p * q
    return list(enumerate(pmf))
