"""Which outcomes are correlated, and how many independent trials a run is equivalent to.

Outcomes come in clusters (sets of correlated outcomes): those of one message, one topic and epoch, and so on.
Where theory is exact, the variance of the share follows from the plan in closed form (`planned_variance`).
Elsewhere the plan is simulated (`plan_simulator`). Where there is no plan, or what came contradicts it, the
variance is estimated from the differences between clusters (`kcast.hashring.effective_size`).
`python -m bench.intervals` measures how often the intervals cover the true share.
"""

from collections.abc import Callable, Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.effective_size import ClusterSums, EffectiveSize, effective_size
from kcast.loadtest.results.plan_simulator import Runs, can_simulate, simulated
from kcast.loadtest.results.planned_variance import (
    EPOCH,
    HOLDER,
    MESSAGE,
    TOPIC_EPOCH,
    planned_variance,
)
from kcast.loadtest.results.prediction import servers_per_topic
from kcast.loadtest.results.simulated_law import delivered_share, law_of, ratio
from kcast.loadtest.scenario import Scenario

TOPIC = "topic"
SUBSCRIBER = "subscriber"
PUBLISHER = "publisher"
PLAN = "plan"
"""The name of an effective sample size that comes from simulated runs of the plan."""


_OF_OUTAGES = (HOLDER, TOPIC_EPOCH, EPOCH)
_OF_VIEWS = (TOPIC, SUBSCRIBER, PUBLISHER)
CLUSTERINGS = (MESSAGE, *_OF_OUTAGES, *_OF_VIEWS)
"""The names of the clusterings whose sums the functions here need."""


def pair_trials(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """Returns the effective sample size of pairs, from their sums over clusters by each of CLUSTERINGS."""
    planned = planned_variance(scenario, sums)
    if planned is None:
        return _simulated_trials(scenario, sums, delivered_share)
    parts = {**planned.outages, **planned.rest}
    return EffectiveSize(planned.trials, inf, max(parts, key=parts.__getitem__))


def pair_trials_given_outages(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """Returns the effective sample size of pairs among runs with the same outages.

    Where theory is not exact, it is estimated from the clusters of the run, those of outages included: so it
    is rather too small.
    """
    planned = planned_variance(scenario, sums)
    if planned is None:
        return trials_from_clusters(scenario, sums)
    # No more than there are pairs: what does not vary at all is no better known than that.
    trials = min(planned.trials_given_outages, sums[EPOCH].trials)
    return EffectiveSize(trials, inf, max(planned.rest, key=planned.rest.__getitem__))


def message_trials(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """Returns the effective sample size of messages; a success is one that reached all its subscribers.

    `sums` are over messages, by CLUSTERINGS without HOLDER.
    """
    return _simulated_trials(scenario, sums, lambda runs: ratio(runs.all_reached, runs.messages))


def trials_from_clusters(
    scenario: Scenario, sums: Mapping[str, ClusterSums], *, as_planned: bool = True
) -> EffectiveSize:
    """Returns the effective sample size by the spread between clusters. Clusterings may be missing.

    As planned, epochs are clusters where there are outages, and topics, subscribers and publishers where
    views differ. Else they always are: something that nobody planned may belong to any of them.
    """
    left_out: tuple[str, ...] = ()
    if as_planned:
        left_out += _OF_OUTAGES if scenario.outages == "none" else ()
        left_out += _OF_VIEWS if scenario.known == 1 else ()
    found = {name: sums[name] for name in CLUSTERINGS if name in sums and name not in left_out}
    return effective_size(found, _independent_clusters(scenario, sums))


def wider(scenario: Scenario, sums: Mapping[str, ClusterSums], by_plan: EffectiveSize) -> EffectiveSize:
    """Returns the smaller of two effective sizes: that by the plan, and that by the clusters of the run.

    It serves where theory is refused: what nobody planned may vary by more than the plan does.
    """
    by_clusters = trials_from_clusters(scenario, sums, as_planned=False)
    if not by_clusters.interval_trials():
        return by_plan
    return min(by_plan, by_clusters, key=EffectiveSize.interval_trials)


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


def _simulated_trials(
    scenario: Scenario, sums: Mapping[str, ClusterSums], share: Callable[[Runs], NDArray[np.float64]]
) -> EffectiveSize:
    """The effective sample size of a share, by its variance between simulated runs of the plan."""
    there = {name: of for name, of in sums.items() if of.trials}
    if not there:
        return EffectiveSize(0.0, inf, "")
    if not can_simulate(scenario):
        return trials_from_clusters(scenario, sums)
    law = law_of(share, simulated(as_long_as_run(scenario, sums)))
    if not law.variance or not 0 < law.mean < 1:
        # What no simulated run has seen is too rare to tell how it varies. If it came, only the run can tell.
        return trials_from_clusters(scenario, sums)
    trials = min(law.mean * (1 - law.mean) / law.variance, max(of.trials for of in there.values()))
    return EffectiveSize(trials, inf, PLAN)


def as_long_as_run(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> Scenario:
    """Returns the scenario with only as many epochs as the run had: one may have been stopped."""
    epochs = sums[EPOCH].clusters if EPOCH in sums else 0
    if not epochs or epochs * scenario.epoch_s >= scenario.duration_s:
        return scenario
    return scenario.with_(duration_s=epochs * scenario.epoch_s)


def _independent_clusters(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> int:
    """The number of clusters that are independent of each other."""
    if scenario.outages == "none":
        return sums[MESSAGE].clusters if MESSAGE in sums else 0
    epochs, topics = (sums[name].clusters if name in sums else 0 for name in (EPOCH, TOPIC_EPOCH))
    # Topics that share a server are correlated, and a zone takes servers of all topics down.
    of_epoch = 1 if scenario.outages == "zones" else max(1, scenario.servers // servers_per_topic(scenario))
    return min(topics, epochs * of_epoch)
