"""Theory beforehand: the share of pairs that a scenario should deliver, before it is known what happens.

It takes the scenario as it was planned, for this many servers. What is known of a run is in
`kcast.loadtest.results.given_events`, the other theory.

It is the model of `kcast.hashring.model`, with the repeats of this client: a message that is sent again goes
first to those of its topic's servers that have not had it yet, so that sends spread evenly over them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import modf

import numpy as np

from kcast.hashring.intervals import binomial
from kcast.hashring.model import hypergeometric, path, restart_gap
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX

K_MAX = 32  # where views differ, K^3 states are followed over all servers

GAP_MAX = 0.25
"""The largest share of a server's time up that may go by until leases stand again after a kill.

The formula is the first term of a series. It is then too large by a seventh, and soon by far more."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """`share` of pairs delivered, 0 .. 1, or None; `note` says why it is None, or what it leaves out."""

    share: float | None
    note: str = ""


_Groups = Sequence[tuple[int, float]]
"""Servers that both sides use: (how many, the chance that a message gets through one that is up)."""


def predict(scenario: Scenario) -> Prediction:
    """Returns the share of pairs that should be delivered, averaged over all outages that the plan allows."""
    policy, down = scenario.policy, share_down(scenario)
    if scenario.avoid_dead and scenario.outages != "none":
        return Prediction(None, "clients that avoid dead servers do better than the model, which has none")
    if scenario.offline:
        return Prediction(None, "clients that are away miss what comes meanwhile")
    if scenario.by == "stall" and scenario.outages != "none":
        return Prediction(None, "servers that were halted still deliver what waits for them")
    known = max(1, round(scenario.known * scenario.servers))
    if (
        known < scenario.servers
        and policy.placement != "all"
        and (policy.placement == "modulo" or known < policy.k or policy.k > K_MAX)
    ):
        return Prediction(None, "there is no formula for views that differ so much")
    live, note = 1.0, ""
    is_kill = scenario.by == "kill"
    if down and (is_kill or leases_may_end(scenario)):
        loss = 1 - (1 - scenario.loss_in) * (1 - scenario.loss_out)
        interval_s = renewal_interval_s(scenario)
        # An outage of one epoch may end before a lease does. One of several is taken to be longer.
        stand = 0.0 if is_kill else max(0.0, (scenario.ttl_s - scenario.epoch_s) / interval_s)
        gap = restart_gap(interval_s, _up_s(scenario, down), min(loss, 0.99)) * (1 - stand * (1 - down))
        if gap > GAP_MAX:
            what = "killed" if is_kill else "down"
            return Prediction(None, f"servers are {what} again before all leases stand again")
        live = 1 - gap
        note = "roughly, as leases end in outages that are long against the ttl"
        if is_kill:
            note = "roughly, as leases stand again within a renewal interval of a restart"
    miss = sum(weight * _miss(scenario, groups) for weight, groups in _common(scenario, known, live))
    return Prediction(min(1.0, max(0.0, 1 - miss)), note)


def leases_may_end(scenario: Scenario) -> bool:
    """Whether an outage may last so long that leases, which cannot be renewed meanwhile, end in it."""
    has_outages = scenario.outages != "none" and scenario.by != "mute"
    return has_outages and scenario.epoch_s > scenario.ttl_s - renewal_interval_s(scenario)


def renewal_interval_s(scenario: Scenario) -> float:
    """Returns the seconds between two renewals of a lease."""
    return min(scenario.ttl_s / scenario.renewals, RENEWAL_INTERVAL_S_MAX)


def miss_by_down(scenario: Scenario, chosen: int) -> list[float]:
    """Returns the chance that a pair is missed when 0, 1 .. `chosen` of `chosen` servers are down.

    These are all servers of the topic, or those that the subscriber uses. For clients that know all servers.
    """
    common = list(_common(scenario, scenario.servers, 1.0))
    return [
        sum(weight * _miss_exactly_down(chosen, down, groups) for weight, groups in common)
        for down in range(chosen + 1)
    ]


def down_pmf(scenario: Scenario) -> list[tuple[int, float]]:
    """Returns the distribution of how many servers are down at any moment, without negligible values."""
    servers = scenario.servers
    match scenario.outages:
        case "none":
            return [(0, 1.0)]
        case "exact":
            return [(min(scenario.down, servers), 1.0)]
        case "rolling":
            return [(1, 1.0)]
        case _:
            pmf = [0.0] * (servers + 1)
            for units, p_units in _units_down(scenario):
                for down, p in servers_of_units(scenario, units):
                    pmf[down] += p_units * p
            return [(down, p) for down, p in enumerate(pmf) if p]


def _units_down(scenario: Scenario) -> list[tuple[int, float]]:
    """The distribution of how many servers, or zones, are drawn to be down in an epoch."""
    units = scenario.outage_units
    if not scenario.stratified:
        return binomial_pmf(units, scenario.outage)
    pmf = [0.0] * (units + 1)
    for planned, weight in planned_outages(scenario):
        for down, p in hypergeometric_pmf(units * scenario.epochs, planned, units):
            pmf[down] += weight * p
    return [(down, p) for down, p in enumerate(pmf) if p]


def planned_outages(scenario: Scenario) -> list[tuple[int, float]]:
    """Returns how many outages of servers (or zones) a stratified plan has, with the probability of each."""
    fraction, least = modf(scenario.outage * scenario.outage_units * scenario.epochs)
    return [(int(least) + more, p) for more, p in ((0, 1 - fraction), (1, fraction)) if p]


def servers_of_units(scenario: Scenario, units: int) -> list[tuple[int, float]]:
    """Returns the distribution of how many servers are down, if so many servers (or zones) are."""
    if scenario.outages != "zones":
        return [(units, 1.0)]
    # Server i is in zone i modulo zones, so the first few have one more.
    size, more = divmod(scenario.servers, scenario.zones)
    return [(units * size + large, p) for large, p in hypergeometric_pmf(scenario.zones, more, units)]


def servers_per_topic(scenario: Scenario) -> int:
    """Returns the number of servers per topic, for clients that know the whole cluster."""
    policy = scenario.policy
    return scenario.servers if policy.placement == "all" else min(policy.k, scenario.servers)


def share_down(scenario: Scenario) -> float:
    """Returns the share of servers down at any moment, by plan (0 .. 1)."""
    match scenario.outages:
        case "none":
            return 0.0
        case "exact":
            return min(scenario.down, scenario.servers) / scenario.servers
        case "rolling":
            return 1 / scenario.servers
        case _:
            return scenario.outage


def draws(scenario: Scenario) -> tuple[int, int]:
    """Returns the number of servers that each sending of a message goes to, and that a subscriber is at."""
    policy, k = scenario.policy, servers_per_topic(scenario)
    return min(policy.publish, k), min(policy.subscribe, k)


def independent_path(scenario: Scenario) -> float | None:
    """Returns the chance of getting through one server, where `kcast.hashring.model` fits; else None.

    The model fits where servers fail independently and are isolated, all clients know all servers and avoid
    none, and each message is sent once.
    """
    if scenario.outages not in ("none", "independent") or scenario.stratified:
        return None
    if scenario.outages != "none" and (scenario.avoid_dead or scenario.by != "isolation"):
        return None
    if scenario.known < 1 or scenario.repeat > 1 or scenario.duplicate > 0:
        return None
    return path(share_down(scenario), scenario.loss_in, scenario.loss_out)


def _up_s(scenario: Scenario, down: float) -> float:
    """The mean time in seconds that a server is up between two outages."""
    if scenario.outages == "rolling":
        return scenario.epoch_s * max(1, scenario.servers - 1)
    return scenario.epoch_s / down


def _common(scenario: Scenario, known: int, live: float) -> Iterator[tuple[float, _Groups]]:
    """Which servers both sides may have in common, with the probability of each case."""
    policy = scenario.policy
    k = servers_per_topic(scenario)
    publish, subscribe = min(policy.publish, known), min(policy.subscribe, known)
    pool = min(k, known)  # the servers that a publisher draws from
    rounds, more = divmod(publish * scenario.repeat, pool)
    paths = [
        path(0.0, scenario.loss_in, scenario.loss_out, live, sends) if sends else 0.0
        for sends in (rounds + 1, rounds)
    ]
    overlaps = [0.0] * pool + [1.0]  # how many of these a subscriber may draw too
    if known < scenario.servers and policy.placement != "all":
        overlaps = overlap_pmf(scenario.servers, known, k)
    for overlap, weight in enumerate(overlaps):
        if not weight:
            continue
        for often, p_often in hypergeometric_pmf(pool, overlap, more):
            for a, p_a in hypergeometric_pmf(k, often, subscribe):
                for b, p_b in hypergeometric_pmf(k - often, overlap - often, subscribe - a):
                    yield weight * p_often * p_a * p_b, ((a, paths[0]), (b, paths[1]))


def overlap_pmf(servers: int, known: int, k: int) -> list[float]:
    """Returns P(H = h), h = 0 .. k: the number of a topic's `k` servers that two clients have in common.

    Each knows `known` random servers of all, at least `k`, and uses the first `k` of them in the topic's
    order. For `servers` much larger than `k` it is `kcast.hashring.model.overlap_pmf`.
    """
    # By state, going down the topic's order: [servers of the first client, of the second, of both].
    probabilities = np.zeros((k + 1, k + 1, k + 1))
    probabilities[0, 0, 0] = 1
    for left in range(servers, 0, -1):
        takes = np.clip((known - np.arange(k)) / left, 0, 1)
        first, second = takes[:, None, None], takes[None, :, None]
        walking = probabilities[:k, :k].copy()
        probabilities[:k, :k] = walking * (1 - first) * (1 - second)
        probabilities[1:, :k] += walking * first * (1 - second)
        probabilities[:k, 1:] += walking * (1 - first) * second
        probabilities[1:, 1:, 1:] += walking[:, :, :k] * first * second
    pmf: list[float] = probabilities.sum(axis=(0, 1)).tolist()
    return pmf


def binomial_pmf(trials: int, chance: float) -> list[tuple[int, float]]:
    """Returns the binomial distribution as (successes, probability), without negligible values."""
    least, pmf = binomial(trials, chance)
    return list(enumerate(pmf, least))


def hypergeometric_pmf(population: int, marked: int, drawn: int) -> list[tuple[int, float]]:
    """Returns the distribution of the number of marked ones among `drawn`, as (number, probability)."""
    least, pmf = hypergeometric(population, marked, drawn)
    return list(enumerate(pmf, least))


def _miss(scenario: Scenario, groups: _Groups) -> float:
    """The probability that a message gets through none of these servers."""
    if scenario.outages == "none" or (scenario.outages == "independent" and not scenario.stratified):
        up = 1 - share_down(scenario)
        miss = 1.0
        for count, chance in groups:
            miss *= (1 - up * chance) ** count
        return miss
    return sum(p * _miss_exactly_down(scenario.servers, down, groups) for down, p in down_pmf(scenario))


def _miss_exactly_down(servers: int, down: int, groups: _Groups) -> float:
    (a, path_a), (b, path_b) = groups
    return sum(
        p_down * p_a * (1 - path_a) ** (a - down_a) * (1 - path_b) ** (b - (down_all - down_a))
        for down_all, p_down in hypergeometric_pmf(servers, down, a + b)
        for down_a, p_a in hypergeometric_pmf(a + b, a, down_all)
    )
