"""By what outcomes of a scenario share their luck, and how many independent trials they are worth.

The luck of outages, draws and losses is told by their plan, if theory knows what comes of it (`planned`).
Else all is measured, in clusters; where views differ also by topic, publisher and subscriber, who have the
luck of who knows which servers. `python -m tests.benchmarks.intervals` shows how often the intervals so got
cover the true share.
"""

from collections.abc import Mapping, Sequence
from math import inf

from kcast.hashring.effective_size import ClusterSums, EffectiveSize, effective_size
from kcast.loadtest.results.planned_variance import (
    EPOCH,
    HOLDER,
    MESSAGE,
    TOPIC_EPOCH,
    is_planned,
    outage_variance,
    variance,
)
from kcast.loadtest.results.prediction import hosts
from kcast.loadtest.scenario import Scenario

TOPIC = "topic"
SUBSCRIBER = "subscriber"
PUBLISHER = "publisher"


def clusterings(scenario: Scenario) -> tuple[str, ...]:
    """The names of those that are needed, if there are any outcomes."""
    names = (MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH)
    return (*names, TOPIC, SUBSCRIBER, PUBLISHER) if scenario.known < 1 else names


def of_pairs(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """What pairs are worth, of which these are the sums over clusters by each of `clusterings`."""
    planned = variance(scenario, sums)
    if planned is None:
        return measured(scenario, sums)
    parts = {**planned.outages, **planned.rest}
    return EffectiveSize(planned.trials, inf, max(parts, key=parts.__getitem__))


def given_outages(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """The same among runs with the same outages, if theory tells; else as `of_pairs`."""
    planned = variance(scenario, sums)
    if planned is None:
        return measured(scenario, sums)
    # No more than there are: what is without luck is no better known than that.
    trials = min(planned.trials_given_outages, sums[EPOCH].trials)
    return EffectiveSize(trials, inf, max(planned.rest, key=planned.rest.__getitem__))


def of_messages(
    scenario: Scenario, sums: Mapping[str, ClusterSums], missed: Sequence[float] | None
) -> EffectiveSize:
    """The same of messages that reached all their subscribers; `sums` are by `clusterings` but HOLDER.

    `missed` are the chances not to when 0 .. k of a topic's servers are down, None if they are not known.
    """
    if scenario.outages == "none" or missed is None or not is_planned(scenario) or EPOCH not in sums:
        return measured(scenario, sums)
    # Who drew servers for an epoch makes all of a topic's messages alike.
    names = (MESSAGE, TOPIC_EPOCH) if scenario.policy.subscribe < hosts(scenario) else (MESSAGE,)
    rest = effective_size({name: sums[name] for name in names}, sums[names[-1]].clusters)
    miss, by_outages = outage_variance(scenario, missed, sums[TOPIC_EPOCH], sums[EPOCH])
    if not 0 < miss < 1 or not rest.interval_trials() or rest.single:
        return measured(scenario, sums)
    return EffectiveSize(
        1 / (by_outages / (miss * (1 - miss)) + 1 / rest.interval_trials()), inf, TOPIC_EPOCH
    )


def measured(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> EffectiveSize:
    """What outcomes of either kind are worth, all luck being measured. Clusterings may be missing."""
    of_outages = (HOLDER, TOPIC_EPOCH, EPOCH) if scenario.outages == "none" else ()
    found = {name: sums[name] for name in clusterings(scenario) if name in sums and name not in of_outages}
    return effective_size(found, _apart(scenario, sums))


def not_told(of: EffectiveSize) -> str:
    """What an interval knows nothing of, in words; empty if there is nothing."""
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


def _apart(scenario: Scenario, sums: Mapping[str, ClusterSums]) -> int:
    """How many clusters there are of which one tells nothing of the others."""
    if scenario.outages == "none":
        return sums[MESSAGE].clusters if MESSAGE in sums else 0
    epochs, topics = (sums[name].clusters if name in sums else 0 for name in (EPOCH, TOPIC_EPOCH))
    # Topics have servers in common, and zones have all topics in common.
    of_epoch = 1 if scenario.outages == "zones" else max(1, scenario.servers // hosts(scenario))
    return min(topics, epochs * of_epoch)
