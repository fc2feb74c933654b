"""Pairs without a capture: what became of the messages of runs without trouble, by the model's rules.

And the sums that the jobs make of them, in numpy, so that findings are tested without Spark.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.causes import SHORTCOMINGS, Cause
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell
from tests.support.handmade_capture import T0, S

Columns = Mapping[str, NDArray[Any]]
Row = dict[str, Any]


def cell_of(scenario: Scenario, number: int = 0, status: str = "complete") -> Cell:
    """Returns a cell whose load began at T0."""
    return Cell(number, "run", scenario, status, T0)


def simulate_pairs(
    scenario: Scenario, seed: int, *, cell: int = 0, lost_more: float = 0.0, late: int = 0
) -> Columns:
    """Returns the columns of PAIRS for a run with isolation and losses as planned, where views are complete.

    `lost_more` is a fault of the system: the share of forwarded copies that are lost beyond the plan. `late`
    is a fault of the machine: the number of pairs that would have been delivered but came too late.
    """
    rng = np.random.default_rng(seed)
    policy, servers, topics = scenario.policy, scenario.servers, scenario.topics
    k = servers if policy.placement == "all" else policy.k
    places = np.argsort(rng.random((topics, servers)), axis=1)[:, :k]
    epochs = int(np.ceil(scenario.duration_s / scenario.epoch_s))
    down = np.zeros((epochs, servers), dtype=np.bool_)
    if scenario.outages == "independent":
        down = rng.random((epochs, servers)) < scenario.outage
    elif scenario.outages == "exact":
        down = np.argsort(rng.random((epochs, servers)), axis=1) < scenario.down

    per_pub = int(scenario.rate * scenario.duration_s)
    pub = np.repeat(np.arange(scenario.publishers), per_pub)
    msg = (pub.astype(np.int64) << 32) | np.tile(np.arange(per_pub), scenario.publishers)
    count = len(msg)
    intended = T0 + rng.integers(0, round(scenario.duration_s * S), count)
    epoch = (intended - T0) // round(scenario.epoch_s * S)
    topic = rng.integers(0, topics, count)
    sent = np.argsort(rng.random((count, k)), axis=1) < policy.publish
    up = sent & ~down[epoch[:, None], places[topic]]
    came_in = up & (rng.random((count, k)) >= scenario.loss_in)

    subs = scenario.subscribers
    own = np.argsort(rng.random((subs, topics)), axis=1) < scenario.topics_per_subscriber
    held = np.argsort(rng.random((topics, subs, k)), axis=2) < policy.subscribe
    message, sub = np.nonzero(own.T[topic])
    of_pair = held[topic[message], sub]
    came_out = rng.random((len(message), k)) >= scenario.loss_out
    came_out &= rng.random((len(message), k)) >= lost_more
    copies = (came_in[message] & of_pair & came_out).sum(axis=1)
    cause = np.where(copies > 0, Cause.DELIVERED, Cause.LOSS_OUT).astype(np.int8)
    chances = (up[message] & of_pair).sum(axis=1)
    cause[(chances == 0) & (copies == 0)] = Cause.DOWN
    was_late = rng.permutation(np.flatnonzero(copies > 0))[:late]
    cause[was_late] = Cause.LATE
    is_delivered = cause == Cause.DELIVERED
    return {
        "cell": np.full(len(message), cell, dtype=np.int32),
        "msg_id": msg[message],
        "pub_id": pub[message].astype(np.int32),
        "sub_id": sub.astype(np.int32),
        "topic_id": topic[message].astype(np.int32),
        "t_intended_ns": intended[message],
        "epoch": epoch[message].astype(np.int32),
        "cause": cause,
        "latency_ns": np.where(is_delivered, rng.integers(10**5, 10**9, len(message)), -1),
        "copies": copies.astype(np.int32),
        "heard": np.where(is_delivered, copies, 0).astype(np.int32),
        "chances": chances.astype(np.int32),
    }


def cluster_rows(pairs: Columns) -> list[Row]:
    """Returns the sums `clusterings` of `kcast.spark.jobs.reliability` for one cell."""
    cell = int(pairs["cell"][0])
    delivered = pairs["cause"] == Cause.DELIVERED
    topics, subs, epochs = (pairs[name].astype(np.int64) for name in ("topic_id", "sub_id", "epoch"))
    width = 1 + int(subs.max()), 1 + int(epochs.max())
    keys = {
        "message": np.unique(pairs["msg_id"], return_inverse=True)[1],  # the others are small numbers
        "topic, subscriber and epoch": (topics * width[0] + subs) * width[1] + epochs,
        "topic and epoch": topics * width[1] + epochs,
        "epoch": epochs,
        "topic": topics,
        "subscriber": subs,
        "publisher": pairs["pub_id"],
    }
    pair_count, delivered_count = len(delivered), int(np.count_nonzero(delivered))
    rows = []
    for name, numbers in keys.items():
        # Numbers without a pair are no clusters, and add nothing to the sums.
        n = np.bincount(numbers)
        x = np.bincount(numbers[delivered], minlength=len(n))
        rows.append(
            {
                "cell": cell,
                "clustering": name,
                "clusters": int(np.count_nonzero(n)),
                "pairs": pair_count,
                "delivered": delivered_count,
                "squares": int(n @ n),
                "products": int(n @ x),
                "success_squares": int(x @ x),
            }
        )
    return rows


def reliability_sums(pairs: Columns) -> dict[str, list[Row]]:
    """Returns the sums of `kcast.spark.jobs.reliability` for one cell; each message had its own datagram."""
    cell = int(pairs["cell"][0])
    delivered = pairs["cause"] == Cause.DELIVERED
    numbers = np.unique(pairs["msg_id"], return_inverse=True)[1]
    most = 1 + int(pairs["chances"].max())
    counts = np.bincount(numbers * most + pairs["chances"], minlength=(int(numbers.max()) + 1) * most)
    counts = counts.reshape(-1, most)
    is_fault = np.isin(pairs["cause"], [int(cause) for cause in SHORTCOMINGS])
    chances = []
    for low in range(most):
        mine = pairs["chances"] == low
        for high in range(low, most):
            products = int((counts[:, low] * counts[:, high]).sum())
            if products:
                same = low == high
                chances.append(
                    {
                        "cell": cell,
                        "low": low,
                        "high": high,
                        "products": products,
                        "pairs": int(mine.sum()) if same else 0,
                        "delivered": int((mine & delivered).sum()) if same else 0,
                        "faults": int((mine & is_fault).sum()) if same else 0,
                        "cubes": int((counts[:, low] ** 3).sum()) if same else 0,
                    }
                )
    return {"clusterings": cluster_rows(pairs), "chances": chances, "lost": []}
