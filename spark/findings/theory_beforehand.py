"""The share of pairs that theory says is delivered, before it is known which servers are down when.

Two of the three theories: `beforehand` makes the assumptions of the note of 2004, `for_servers` takes the
scenario as it was planned. The third, which knows the outages, is `kcast.spark.findings.theory_given_events`.
"""

from kcast.hashring.model import path
from kcast.loadtest.results.prediction import Prediction, predict, servers_per_topic, share_down
from kcast.loadtest.scenario import Scenario

CLOSE_VIEWS = 1.0
"""The share `known` from which on all clients know the same servers."""


def beforehand(scenario: Scenario) -> float | None:
    """By the note's assumptions: independent outages, endlessly many servers, all know the same ones.

    None where clients leave dead servers alone, or servers are halted: the note's model has neither.
    """
    return predict(noted(scenario)).share


def for_servers(scenario: Scenario) -> Prediction:
    """For this many servers, outages and views as planned."""
    return predict(scenario)


def noted(scenario: Scenario) -> Scenario:
    """The scenario as the note would have it. What the note has no model of stays as it is."""
    if scenario.outages == "none":
        return scenario.with_(known=CLOSE_VIEWS)
    if scenario.avoid_dead or scenario.by == "stall":
        return scenario
    return scenario.with_(
        known=CLOSE_VIEWS, outages="independent", outage=share_down(scenario), by="isolation"
    )


def draws(scenario: Scenario) -> tuple[int, int]:
    """To how many of a topic's servers a message goes each time, and at how many a subscriber is."""
    policy, k = scenario.policy, servers_per_topic(scenario)
    return min(policy.publish, k), min(policy.subscribe, k)


def independent_path(scenario: Scenario) -> float | None:
    """The chance to get through one server, where `kcast.hashring.model` fits the scenario; else None.

    It fits where servers fail independently and are cut off, all are known to all, none is avoided, and
    each message is sent once.
    """
    if scenario.outages not in ("none", "independent"):
        return None
    if scenario.outages != "none" and (scenario.avoid_dead or scenario.by != "isolation"):
        return None
    if scenario.known < 1 or scenario.repeat > 1 or scenario.duplicate > 0:
        return None
    return path(share_down(scenario), scenario.loss_in, scenario.loss_out)
