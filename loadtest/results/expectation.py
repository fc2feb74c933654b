"""Theory given what happened: the share of pairs to be delivered, given which servers were down when.

A run has few outages, and each hits all messages of a topic at once. So the share of a run of ten epochs
varies with its outages by far more than a fault of servers or clients would change it, and theory beforehand
is a blunt test. Given the outages, only draws and losses are random, and of these there are as many as
messages: this is the sharp test. In simulations of short runs the range was 2 to 15 times narrower than the
interval of the measured share, and held 85 to 97 % of runs.
"""

from typing import NamedTuple

import numpy as np

from kcast.loadtest.results.attribution import Attribution
from kcast.loadtest.results.joins import Groups, Spans, expanded
from kcast.loadtest.results.loss_estimates import Losses, with_losses
from kcast.loadtest.results.prediction import delivery_by_down, leases_may_end
from kcast.loadtest.results.tables import Array, Capture, columns

Z_95 = 1.96
TOPIC_SERVERS_MAX = 64  # with more servers per topic, looking them up costs more than it tells


class Expectation(NamedTuple):
    """The expected `share` of pairs delivered, 0 .. 1; 95 % of runs with these outages are in low .. high."""

    share: float
    low: float
    high: float


def expect(capture: Capture, attribution: Attribution, losses: Losses | None = None) -> Expectation | None:
    """Returns the expectation for a capture and its attribution, or None where theory has no answer.

    `losses` are those that the network lost though nobody asked for it: the expectation includes them.

    That is so without pairs, for views that differ, clients that avoid dead servers, messages that are sent
    again, and servers that are really killed or cut off for so long that leases end: after such an outage it
    takes a while until leases stand again. Raises CaptureError.
    """
    scenario = capture.scenario if losses is None else with_losses(capture.scenario, losses)
    has_outages = scenario.outages != "none"
    if not len(attribution) or scenario.known < 1 or scenario.repeat > 1:
        return None
    if has_outages and (scenario.avoid_dead or scenario.by != "isolation" or leases_may_end(scenario)):
        return None
    by_down = delivery_by_down(scenario) if scenario.policy.k <= TOPIC_SERVERS_MAX else []
    if not by_down:
        return None
    _, first, of_pair = np.unique(attribution.msg_ids, return_index=True, return_inverse=True)
    topics, times = attribution.topics[first], attribution.t_intended_ns[first]
    down = _down_counts(capture, topics.astype(np.int64), times, len(by_down) - 1)
    if down is None:
        return None
    chance = np.array(by_down)[down][of_pair]
    # Clusters: by message where publishers draw for each, else by holder, who keeps the servers it drew.
    keeps_draw = scenario.policy.subscribe < scenario.policy.k
    holders = attribution.topics.astype(np.int64) << 32 | attribution.sub_ids
    clusters = Groups(holders if keeps_draw else of_pair.astype(np.int64))
    residuals = np.add.reduceat((attribution.delivered - chance)[clusters.rows], clusters.starts)
    variance = max(float((residuals**2).sum()), float((chance * (1 - chance)).sum()))
    share, half = float(chance.mean()), Z_95 * float(np.sqrt(variance)) / len(attribution)
    return Expectation(share, max(0.0, share - half), min(1.0, share + half))


def _down_counts(capture: Capture, topics: Array, times: Array, hosts: int) -> Array | None:
    """The number of its topic's servers that were down when each message was published.

    None where sends and lease requests do not name all servers of each topic.
    """
    publish = columns(capture, "publish", "msg_id", "topic_id")
    sent = columns(capture, "pub_tx", "msg_id", "server_id")
    asked = columns(capture, "subscribe", "topic_id", "server_id")
    ids, first = np.unique(publish["msg_id"], return_index=True)
    found = np.searchsorted(ids, sent["msg_id"])
    found[found == len(ids)] = 0
    is_known = (ids[found] == sent["msg_id"]) if len(ids) else np.zeros(len(found), dtype=np.bool_)
    of_sent = publish["topic_id"][first][found[is_known]]
    width = 1 + int(max(sent["server_id"].max(initial=0), asked["server_id"].max(initial=0)))
    keys = np.unique(
        np.concatenate(
            (
                of_sent.astype(np.int64) * width + sent["server_id"][is_known],
                asked["topic_id"].astype(np.int64) * width + asked["server_id"],
            )
        )
    )
    low = np.searchsorted(keys, topics * width)
    counts = np.searchsorted(keys, (topics + 1) * width) - low
    if (counts != hosts).any():
        return None
    messages, numbers = expanded(counts)
    servers = keys[low[messages] + numbers] % width
    outage = columns(capture, "outage", "server_id", "t_down_ns", "t_up_ns")
    # One ns less: at the end of an outage the server is up.
    spans = Spans(outage["server_id"].astype(np.int64), outage["t_down_ns"], outage["t_up_ns"] - 1)
    is_down = spans.contain(servers, times[messages])
    return np.bincount(messages[is_down], minlength=len(topics))
