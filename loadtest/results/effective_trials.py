"""Which outcomes are correlated, and how many independent trials a run is equivalent to.

Outcomes come in clusters (sets of correlated outcomes): those of one message, one topic and epoch, and so on.
Where theory is exact, the variance of the share follows from the plan (`planned_variance`). Elsewhere it is
estimated from the differences between clusters (`kcast.hashring.effective_size`); where clients know
different servers, also by topic, publisher and subscriber. `python -m tests.benchmarks.intervals` measures
how often the intervals cover the true share.
"""

from collections.abc import Mapping, Sequence
from math import inf

from kcast.hashring.effective_size import ClusterSums, EffectiveSize, effective_size
from kcast.loadtest.results.planned_variance import (
    EPOCH,
    HOLDER,
    MESSAGE,
    TOPIC_EPOCH,
    has_exact_theory,
    outage_variance,
    planned_variance,
)
from kcast.loadtest.results.prediction import servers_per_topic
from kcast.loadtest.scenario import Scenario

TOPIC = "topic"
SUBSCRIBER = "subscriber"
PUBLISHER = "publisher"


def clusterings(scenario: Scenario) -> tuple[str, ...]:
    """Returns the names of the clusterings whose sums the functions here need."""
    names = (MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH)
    return (*names, TOPIC, SUBSCRIBER, PUBLISHER) if scenario.known < 1 else names


def pair_trials(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """Returns the effective sample size of pairs, from their sums over clusters by each of `clusterings`."""
    planned = planned_variance(scenario, sums)
    if planned is None:
        return trials_from_clusters(scenario, sums)
    parts = {**planned.outages, **planned.rest}
    return EffectiveSize(planned.trials, inf, max(parts, key=parts.__getitem__))


def pair_trials_given_outages(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """Returns the effective sample size of pairs among runs with the same outages.

    Where theory is not exact, it is what `pair_trials` returns.
    """
    planned = planned_variance(scenario, sums)
    if planned is None:
        return trials_from_clusters(scenario, sums)
    # No more than there are pairs: what does not vary at all is no better known than that.
    trials = min(planned.trials_given_outages, sums[EPOCH].trials)
    return EffectiveSize(trials, inf, max(planned.rest, key=planned.rest.__getitem__))


def message_trials(
    scenario: Scenario, sums: Mapping[str, ClusterSums], missed: Sequence[float] | None
) -> EffectiveSize:
    """Returns the effective sample size of messages; a success is one that reached all its subscribers.

    `sums` are over messages, by `clusterings` without HOLDER. `missed` are the probabilities of a failure
    when 0 .. k of a topic's servers are down, None if they are not known.
    """
    if scenario.outages == "none" or missed is None or not has_exact_theory(scenario) or EPOCH not in sums:
        return trials_from_clusters(scenario, sums)
    # A subscriber that draws its servers keeps them for an epoch: so all messages of a topic are correlated.
    names = (MESSAGE, TOPIC_EPOCH) if scenario.policy.subscribe < servers_per_topic(scenario) else (MESSAGE,)
    rest = effective_size({name: sums[name] for name in names}, sums[names[-1]].clusters)
    miss, by_outages = outage_variance(scenario, missed, sums[TOPIC_EPOCH], sums[EPOCH])
    if not 0 < miss < 1 or not rest.interval_trials() or rest.single:
        return trials_from_clusters(scenario, sums)
    return EffectiveSize(
        1 / (by_outages / (miss * (1 - miss)) + 1 / rest.interval_trials()), inf, TOPIC_EPOCH
    )


def trials_from_clusters(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """Returns the effective sample size by the spread between clusters. Clusterings may be missing."""
    of_outages = (HOLDER, TOPIC_EPOCH, EPOCH) if scenario.outages == "none" else ()
    found = {name: sums[name] for name in clusterings(scenario) if name in sums and name not in of_outages}
    return effective_size(found, _independent_clusters(scenario, sums))


def interval_note(of: EffectiveSize) -> str:
    """Returns which source of variation an interval leaves out, in words; empty if there is none."""
    names = [_SINGLE[name] for name in of.single if name in _SINGLE]
    if not names:
        return ""
    which = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"there was one {which} only: the interval is for that one, and theory beforehand is not tested"


_SINGLE = {
    MESSAGE: "message",
    EPOCH: "epoch of outages",
    TOPIC: "topic",
    SUBSCRIBER: "subscriber",
    PUBLISHER: "publisher",
}


def _independent_clusters(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> int:
    """The number of clusters that are independent of each other."""
    if scenario.outages == "none":
        return sums[MESSAGE].clusters if MESSAGE in sums else 0
    epochs, topics = (sums[name].clusters if name in sums else 0 for name in (EPOCH, TOPIC_EPOCH))
    # Topics that share a server are correlated, and a zone takes servers of all topics down.
    of_epoch = 1 if scenario.outages == "zones" else max(1, scenario.servers // servers_per_topic(scenario))
    return min(topics, epochs * of_epoch)
