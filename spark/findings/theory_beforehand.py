"""The share of pairs delivered in theory, before it is known which servers are down and when.

Two of the five theories: `beforehand` makes the assumptions of the note of 2004, `for_servers` takes the
scenario as it was planned. The theory that knows all events is `kcast.spark.findings.theory_given_events`.
"""

from kcast.hashring.model import path
from kcast.loadtest.results.prediction import Prediction, predict, servers_per_topic, share_down
from kcast.loadtest.scenario import Scenario

CLOSE_VIEWS = 1.0
"""The value of `known` with which all clients know the same servers."""


def beforehand(scenario: Scenario) -> float | None:
    """The delivered share by the note's assumptions: independent outages, any number of servers, equal views.

    None where clients avoid dead servers, or servers are halted: the note's model has neither.
    """
    return predict(noted(scenario)).share


def for_servers(scenario: Scenario) -> Prediction:
    """The prediction for this many servers, with outages and views as planned."""
    return predict(scenario)


def noted(scenario: Scenario) -> Scenario:
    """Returns the scenario under the note's assumptions. What the note's model lacks stays as it is."""
    if scenario.outages == "none":
        return scenario.with_(known=CLOSE_VIEWS)
    if scenario.avoid_dead or scenario.by == "stall":
        return scenario
    return scenario.with_(
        known=CLOSE_VIEWS, outages="independent", outage=share_down(scenario), by="isolation"
    )


def draws(scenario: Scenario) -> tuple[int, int]:
    """Returns the number of servers that each sending of a message goes to, and that a subscriber is at."""
    policy, k = scenario.policy, servers_per_topic(scenario)
    return min(policy.publish, k), min(policy.subscribe, k)


def independent_path(scenario: Scenario) -> float | None:
    """The probability of getting through one server, where `kcast.hashring.model` fits; else None.

    The model fits where servers fail independently and are isolated, all clients know all servers and avoid
    none, and each message is sent once.
    """
    if scenario.outages not in ("none", "independent"):
        return None
    if scenario.outages != "none" and (scenario.avoid_dead or scenario.by != "isolation"):
        return None
    if scenario.known < 1 or scenario.repeat > 1 or scenario.duplicate > 0:
        return None
    return path(share_down(scenario), scenario.loss_in, scenario.loss_out)
