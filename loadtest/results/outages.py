"""How many independent trials outcomes are worth, for the luck of which servers are down when.

Of messages and draws a run has many, and what they vary by is measured. Of outages it has few: one in which
the servers of no topic were down together has seen nothing of the losses that theory counts on, and its
epochs look all alike. But it is by plan that servers are down, so how the share varies with them is known:
D of n are down in an epoch, of which those of a topic are k at random; and two topics have as many servers in
common as chance has it.
"""

from collections.abc import Sequence
from functools import cache
from math import fsum, inf

from hashring.clusters import Clusters
from hashring.intervals import binomial
from hashring.model import hypergeometric
from loadtest.results.prediction import hosts, predict
from loadtest.scenario import Scenario

HOSTS_MAX = 32
"""Of a topic; with more, adding up takes more than it tells."""
_RARE = 1e-6
"""How likely it is that two topics have so many servers in common, for it not to count."""


def is_planned(scenario: Scenario) -> bool:
    """Whether theory tells exactly what comes of the outages, so that measuring need not."""
    if scenario.outages == "none" or scenario.known < 1 or hosts(scenario) > HOSTS_MAX:
        return False
    prediction = predict(scenario)
    return prediction.share is not None and not prediction.note


def planned_trials(
    scenario: Scenario, chances: Sequence[float], topic_epochs: Clusters, epochs: Clusters
) -> float:
    """Outcomes that have these sums over clusters by topic and epoch, and by epoch: p (1 - p) / variance.

    `chances` are to succeed when 0 .. k of a topic's servers are down. There must be outcomes; inf where
    outages change nothing.
    """
    missed = tuple(1 - chance for chance in chances)
    mean, alone, together = _moments(tuple(_down(scenario)), scenario.servers, missed)
    # In an epoch there are the squares of its topics, and the products of any two.
    variance = topic_epochs.squares * alone + (epochs.squares - topic_epochs.squares) * together
    return mean * (1 - mean) * epochs.trials**2 / variance if variance > 0 else inf


def _down(scenario: Scenario) -> list[tuple[int, float]]:
    """How many servers are down in an epoch, with the probability of each."""
    servers = scenario.servers
    match scenario.outages:
        case "exact":
            return [(min(scenario.down, servers), 1.0)]
        case "rolling":
            return [(1, 1.0)]
        case "zones":
            zones = _enumerated(*binomial(scenario.zones, scenario.outage))
            return [(round(number * servers / scenario.zones), p) for number, p in zones]
        case _:
            return _enumerated(*binomial(servers, scenario.outage))


@cache
def _moments(
    down: tuple[tuple[int, float], ...], servers: int, missed: tuple[float, ...]
) -> tuple[float, float, float]:
    """The mean of a topic's chance in an epoch, its variance, and the covariance of two topics'.

    `missed` are the chances to be missed when 0 .. k of a topic's servers are down.
    """
    k = len(missed) - 1
    mean = fsum(p * fsum(q * missed[own] for own, q in _marked(servers, d, k)) for d, p in down)

    def product(shared: int) -> float:
        return fsum(p * _product(k, servers, shared, d, missed) for d, p in down)

    common = [(shared, p) for shared, p in _marked(servers, k, k) if p > _RARE]
    together = fsum(p * product(shared) for shared, p in common) / fsum(p for _, p in common)
    return mean, max(0.0, product(k) - mean * mean), max(0.0, together - mean * mean)


def _product(k: int, servers: int, shared: int, down: int, missed: Sequence[float]) -> float:
    """The mean product of the chances of two topics that have so many servers in common."""
    return fsum(
        p_both * p_first * p_second * missed[both + first] * missed[both + second]
        for both, p_both in _marked(servers, down, shared)
        for first, p_first in _marked(servers - shared, down - both, k - shared)
        for second, p_second in _marked(servers - k, down - both - first, k - shared)
    )


@cache
def _marked(population: int, marked: int, drawn: int) -> list[tuple[int, float]]:
    return _enumerated(*hypergeometric(population, marked, drawn))


def _enumerated(least: int, pmf: Sequence[float]) -> list[tuple[int, float]]:
    return list(enumerate(pmf, least))
