"""How long a test must be: for an interval of a given width, or to show a difference. Theory; nothing is run.

The variance of the share delivered follows from the plan (`planned_variance`), and falls as one over the
number of epochs. So the effective sample size of one epoch says how many epochs a test needs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil, inf, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

from kcast.hashring.effective_size import ClusterSums
from kcast.hashring.intervals import wilson
from kcast.hashring.policy import Policy
from kcast.loadtest.results.planned_variance import EPOCH, HOLDER, MESSAGE, TOPIC_EPOCH, planned_variance
from kcast.loadtest.scenario import Scenario

LEVEL, POWER = 0.05, 0.8
"""A two-sided test: how often it sees a difference that is none, and one that is there."""

EPOCHS_MAX = 10**9


class Load(NamedTuple):
    """The load of one epoch: topics, subscribers of each, and messages on each."""

    topics: int
    audience: int
    messages: int

    @property
    def pairs(self) -> int:
        """Pairs in one epoch."""
        return self.topics * self.audience * self.messages


class Planned(NamedTuple):
    """The share that should be delivered, and the effective sample sizes of one epoch.

    `trials_given_outages` is that among runs with the same servers down, as runs of one seed are.
    """

    share: float
    trials: float
    trials_given_outages: float


@dataclass(frozen=True, slots=True)
class Detection:
    """What it takes to see a difference between two runs of one length, each with `epochs` epochs.

    `epochs` is for runs of different seeds, `epochs_same_seed` for runs of one. `pairs_per_epoch` are all the
    pairs of an epoch, and `share` is what theory expects (0 .. 1).
    """

    difference: float
    share: float
    epoch_s: float
    pairs_per_epoch: int
    epochs: int
    epochs_same_seed: int

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, and the lengths in seconds and pairs."""
        return asdict(self) | {
            "duration_s": self.epochs * self.epoch_s,
            "pairs": self.epochs * self.pairs_per_epoch,
            "duration_same_seed_s": self.epochs_same_seed * self.epoch_s,
            "pairs_same_seed": self.epochs_same_seed * self.pairs_per_epoch,
        }


def load_of(scenario: Scenario) -> Load:
    """Returns the mean load of a scenario's epochs, in whole numbers."""
    messages = scenario.publishing_users * scenario.rate * scenario.epoch_s / scenario.topics
    audience = scenario.subscribing_users * scenario.topics_per_subscriber / scenario.topics
    return Load(scenario.topics, max(1, round(audience)), max(1, round(messages)))


def planned(scenario: Scenario, load: Load) -> Planned | None:
    """Returns what the plan says of one epoch; None where `planned_variance` has no exact theory."""
    sums = _sums(load)
    found = planned_variance(scenario, sums)
    if found is None:
        return None
    given = min(found.trials_given_outages, load.pairs)
    return Planned(1 - found.miss, min(found.trials, load.pairs), given)


def _sums(load: Load) -> Mapping[str, ClusterSums]:
    """The sums over clusters of an epoch in which all topics have the same load."""
    topics, audience, messages = load
    clusters = {
        MESSAGE: (topics * messages, audience),
        HOLDER: (topics * audience, messages),
        TOPIC_EPOCH: (topics, audience * messages),
        EPOCH: (1, load.pairs),
    }
    return {
        name: ClusterSums(count, load.pairs, load.pairs, count * size * size, 0, 0)
        for name, (count, size) in clusters.items()
    }


def detection(
    policy: Policy, difference: float, load: Load, *, epoch_s: float, **settings: Any
) -> Detection | None:
    """Returns what it takes to see that the share delivered is lower by `difference` (0 .. 1).

    `settings` are fields of `Scenario`. By the sample size for two proportions of Fleiss, Levin and Paik,
    Statistical methods for rates and proportions, 2003, 4.3, in effective trials. None where the plan has no
    exact theory. Raises ScenarioError for settings that make no load test.
    """
    if max(policy.publish, policy.subscribe) < policy.k and policy.placement == "ring":
        return None  # both sides draw: there is no such load test
    scenario = Scenario(
        **_policy_fields(policy), topics=load.topics, topics_per_subscriber=1, epoch_s=epoch_s, **settings
    )
    found = planned(scenario, load)
    if found is None:
        return None
    needed = trials_for_difference(found.share, max(0.0, found.share - difference))
    return Detection(
        difference,
        found.share,
        epoch_s,
        load.pairs,
        _whole(needed / found.trials),
        _whole(needed / found.trials_given_outages),
    )


def _policy_fields(policy: Policy) -> dict[str, Any]:
    if policy.placement != "ring":
        return {"scheme": policy.scheme}
    if policy.publish == policy.subscribe == policy.k:
        return {"scheme": "CH", "k": policy.k}
    side = "publish" if policy.publish < policy.subscribe else "subscribe"
    return {"scheme": "RCH", "k": policy.k, "k_prime": min(policy.publish, policy.subscribe), "side": side}


def trials_for_difference(first: float, second: float) -> float:
    """Returns the trials of each of two samples that show the difference of these shares with POWER."""
    if first == second:
        return inf
    normal = NormalDist()
    of_level, of_power = normal.inv_cdf(1 - LEVEL / 2), normal.inv_cdf(POWER)
    mean = (first + second) / 2
    reach = of_level * sqrt(2 * mean * (1 - mean)) + of_power * sqrt(
        first * (1 - first) + second * (1 - second)
    )
    return (reach / (first - second)) ** 2


def duration_for_width(scenario: Scenario, width: float) -> float | None:
    """Returns the seconds of load after which the interval of the share should be no wider than `width`.

    It is a whole number of epochs. None where the plan has no exact theory.
    """
    found = planned(scenario, load_of(scenario))
    if found is None:
        return None
    low, high = 1, EPOCHS_MAX
    while low < high:
        middle = (low + high) // 2
        ends = wilson(found.share * found.trials * middle, found.trials * middle)
        low, high = (low, middle) if ends[1] - ends[0] <= width else (middle + 1, high)
    return low * scenario.epoch_s


def _whole(epochs: float) -> int:
    return EPOCHS_MAX if epochs > EPOCHS_MAX else max(1, ceil(epochs))
