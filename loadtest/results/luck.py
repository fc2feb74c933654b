"""By what pairs of a scenario share their luck, and how many independent trials they are worth.

Subscribers of one message share that of its publisher's draw, and a subscriber that drew its servers meets
the same ones all through an epoch. Messages of one topic in one epoch share that of the servers which are
down, and all topics of an epoch that of servers they have in common. Where views differ topics, publishers
and subscribers have the luck of who knows which servers.

The luck of outages is told by the plan of them, if theory knows what comes of it (`outages`), and all else is
measured. `python -m tests.bench_intervals` shows how often the intervals so got cover the true share.
"""

from collections.abc import Mapping, Sequence
from math import inf

from hashring.clusters import Clusters, Effective, effective
from loadtest.results.outages import is_planned, planned_trials
from loadtest.results.prediction import delivery_by_down, hosts
from loadtest.scenario import Scenario

MESSAGE = "message"
HOLDER = "topic, subscriber and epoch"
TOPIC_EPOCH = "topic and epoch"
EPOCH = "epoch"
TOPIC = "topic"
SUBSCRIBER = "subscriber"
PUBLISHER = "publisher"
OUTAGES = "outages"
"""Not counted, but as planned."""


def clusterings(scenario: Scenario) -> tuple[str, ...]:
    """The names of what pairs of a scenario share their luck in, and more than one of which is needed."""
    names = [MESSAGE] if scenario.outages == "none" else [MESSAGE, HOLDER, TOPIC_EPOCH, EPOCH]
    return (*names, TOPIC, SUBSCRIBER, PUBLISHER) if scenario.known < 1 else tuple(names)


def of_pairs(scenario: Scenario, sums: Mapping[str, Clusters]) -> Effective:
    """What pairs are worth, of which these are the sums over clusters by each of `clusterings`."""
    if not is_planned(scenario):
        return measured(scenario, sums)
    return _planned(scenario, sums, delivery_by_down(scenario), (MESSAGE, HOLDER))


def of_messages(
    scenario: Scenario, sums: Mapping[str, Clusters], reached: Sequence[float] | None
) -> Effective:
    """The same of messages that reached all their subscribers; `sums` are by `clusterings` but HOLDER.

    `reached` are the chances to when 0 .. k of a topic's servers are down, None if they are not known.
    """
    if reached is None or not is_planned(scenario):
        return measured(scenario, sums)
    # Who drew servers for an epoch makes all of a topic's messages alike.
    return _planned(scenario, sums, reached, (MESSAGE, TOPIC_EPOCH))


def _planned(
    scenario: Scenario, sums: Mapping[str, Clusters], chances: Sequence[float], rest: Sequence[str]
) -> Effective:
    if not sums[EPOCH].trials:
        return Effective(0.0, inf, "")
    others = effective({name: sums[name] for name in rest}, sums[MESSAGE].clusters)
    planned, other = planned_trials(scenario, chances, sums[TOPIC_EPOCH], sums[EPOCH]), others.worth()
    trials = 1 / (1 / planned + 1 / other) if other else 0.0
    return Effective(trials, inf, OUTAGES if planned < other else others.name)


def measured(scenario: Scenario, sums: Mapping[str, Clusters]) -> Effective:
    """What outcomes of either kind are worth, all luck being measured. Clusterings may be missing."""
    found = {name: sums[name] for name in clusterings(scenario) if name in sums}
    return effective(found, _apart(scenario, found))


def not_told(of: Effective) -> str:
    """What an interval knows nothing of, in words; empty if there is nothing."""
    names = [_SINGLE[name] for name in of.single if name in _SINGLE]
    if not names:
        return ""
    which = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"there was one {which} only: the interval is for that one, and theory beforehand is not tested"


_SINGLE = {
    EPOCH: "epoch of outages",
    TOPIC: "topic",
    SUBSCRIBER: "subscriber",
    PUBLISHER: "publisher",
}


def _apart(scenario: Scenario, sums: Mapping[str, Clusters]) -> int:
    """How many clusters there are of which one tells nothing of the others."""
    if scenario.outages == "none":
        return sums[MESSAGE].clusters if MESSAGE in sums else 0
    epochs, topics = (sums[name].clusters if name in sums else 0 for name in (EPOCH, TOPIC_EPOCH))
    # Topics have servers in common, and zones have all topics in common.
    of_epoch = 1 if scenario.outages == "zones" else max(1, scenario.servers // hosts(scenario))
    return min(topics, epochs * of_epoch)
