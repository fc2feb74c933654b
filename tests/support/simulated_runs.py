"""Pairs of runs under any plan, without a capture: repeats, kills, different views, faults nobody planned.

It is written apart from `kcast.loadtest.results.plan_simulator`, which it serves to check: with every pair
and server in one large mask, and with its own order of draws.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.faults.plan import outages
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.prediction import leases_may_end, renewal_interval_s
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import T0, S
from tests.support.handmade_pairs import Columns

Mask = NDArray[np.bool_]


class Run(NamedTuple):
    """The columns of PAIRS, what each server did, and which of a topic's servers each message was sent to.

    `sent` has all sendings: (messages, slots), for messages of `topics` by `publishers`. `places` has
    the server of each topic's slots, `holds` who holds leases: (subscribers, topics, slots).
    """

    pairs: Columns
    received: NDArray[np.int64]
    forwarded: NDArray[np.int64]
    leases: NDArray[np.int64]
    publishers: NDArray[np.int64]
    topics: NDArray[np.int64]
    times_s: NDArray[np.float64]
    sent: Mask
    places: NDArray[np.int64]
    holds: Mask
    listens: Mask
    down: Mask


def simulate_run(scenario: Scenario, seed: int, **faults: Any) -> Columns:
    """Returns the columns of PAIRS; see `simulate_whole_run`."""
    return simulate_whole_run(scenario, seed, **faults).pairs


def simulate_whole_run(
    scenario: Scenario,
    seed: int,
    *,
    cell: int = 0,
    bad_epochs: float = 0.0,
    bad_subscribers: float = 0.0,
    lost_in_bad: float = 0.0,
    first_only: bool = False,
    as_planned: bool = False,
) -> Run:
    """Returns a run. In the share `bad_epochs` of epochs, or at the share `bad_subscribers` of subscribers,
    `lost_in_bad` of the messages' copies are lost.

    With `first_only`, publishers do not draw: they take the first servers of each topic. Cells of one seed
    have places, views and outages in common, as scenarios of one run have. With `as_planned`, outages are
    those that follow from the scenario's own seed.
    """
    rng = np.random.default_rng([seed, 77])
    policy, servers, topics = scenario.policy, scenario.servers, scenario.topics
    pubs, subs = scenario.publishers, scenario.subscribers
    k = servers if policy.placement == "all" else min(policy.k, servers)
    known = max(1, round(scenario.known * servers))
    pool = min(k, known)
    publish, subscribe = min(policy.publish, pool), min(policy.subscribe, pool)

    rank = rng.permuted(np.tile(np.arange(servers), (topics, 1)), axis=1)
    knows = np.zeros((pubs + subs, servers), dtype=np.bool_)
    for client in knows:
        client[rng.permutation(servers)[:known]] = True
    shown = np.where(knows[:, None, :], rank[None], servers + 1)  # (clients, topics, servers)
    if known == servers:  # all use the same, and only these matter
        site = np.argsort(rank, axis=1)[:, :k]
        uses = np.ones((pubs + subs, topics, k), dtype=np.bool_)
    else:
        site = np.tile(np.arange(servers), (topics, 1))
        uses = shown <= np.sort(shown, axis=2)[:, :, pool - 1 : pool]
    slots = site.shape[1]

    epochs = int(np.ceil(scenario.duration_s / scenario.epoch_s))
    if scenario.stratified and not as_planned:
        down = _planned(scenario.with_(seed=seed), epochs)
    else:
        down = _planned(scenario, epochs) if as_planned else _down(scenario, epochs, rng)
    rng = np.random.default_rng([seed, 78, cell])
    up_since = np.full((epochs + 1, servers), -1.0)  # -1: from the start
    down_for = np.zeros((epochs + 1, servers))
    for epoch in range(1, epochs + 1):
        came_back = down[epoch - 1] & ~down[epoch]
        up_since[epoch] = np.where(came_back, epoch * scenario.epoch_s, up_since[epoch - 1])
        length = np.where(down[epoch - 1], down_for[epoch - 1] + scenario.epoch_s, 0.0)
        down_for[epoch] = np.where(came_back, length, np.where(down[epoch], length, down_for[epoch - 1]))

    count = rng.poisson(scenario.rate * scenario.duration_s * pubs)
    pub = rng.integers(0, pubs, count)
    topic = rng.integers(0, topics, count)
    sent_s = rng.random(count) * scenario.duration_s
    own = np.stack([np.isin(np.arange(topics), rng.permutation(topics)[: scenario.topics_per_subscriber])
                    for _ in range(subs)])  # fmt: skip
    of_sub = uses[pubs:]
    keys = np.where(of_sub, rng.random(of_sub.shape), 9.0)
    holds = of_sub & (keys <= np.sort(keys, axis=2)[:, :, subscribe - 1 : subscribe])
    of_message, at = uses[pub, topic], site[topic]  # (messages, slots)
    order = np.take_along_axis(rank[topic], at, axis=1) if first_only else rng.random((count, slots))
    turn = np.argsort(np.argsort(np.where(of_message, order, 99999.0), axis=1), axis=1)

    message, sub = np.nonzero(own.T[topic])
    may = holds[sub, topic[message]]  # (pairs, slots)
    received, forwarded = np.zeros((2, servers), dtype=np.int64)
    bad = rng.random(epochs + 1) < bad_epochs
    copies = np.zeros(may.shape, dtype=np.int64)
    chances = np.zeros(len(message), dtype=np.int64)
    waits = _Waits(scenario, rng, subs)
    for sending in range(scenario.repeat):
        first = sending * publish
        goes = of_message & np.isin(turn, [(first + n) % pool for n in range(publish)])
        at_s = sent_s + sending * scenario.repeat_interval_s
        epoch = np.minimum((at_s / scenario.epoch_s).astype(int), epochs)
        up = goes & np.take_along_axis(~down[epoch] | _resumed(scenario, down, epoch, at_s), at, axis=1)
        came = up & (rng.random(up.shape) >= scenario.loss_in)
        has_lease = waits.stand(sub, at[message], epoch[message], at_s[message], up_since, down_for)
        chance = up[message] & may & has_lease
        chances += chance.sum(axis=1)
        received += np.bincount(at[came], minlength=servers)
        forwarded += np.bincount(at[message][chance & came[message]], minlength=servers)
        passed = rng.random(may.shape) >= scenario.loss_out
        if bad_epochs:
            passed &= ~(bad[epoch[message]] & (rng.random(len(message)) < lost_in_bad))[:, None]
        if bad_subscribers:
            worst = rng.permutation(subs)[: round(bad_subscribers * subs)]
            passed &= ~(np.isin(sub, worst) & (rng.random(len(message)) < lost_in_bad))[:, None]
        copies += chance & came[message] & passed
    got = copies.sum(axis=1)
    cause = np.where(got > 0, Cause.DELIVERED, np.where(chances == 0, Cause.DOWN, Cause.LOSS_OUT))
    heard = (copies > 0).sum(axis=1)
    epoch = np.minimum((sent_s / scenario.epoch_s).astype(int), epochs)
    pairs = {
        "cell": np.full(len(message), cell, dtype=np.int32),
        "msg_id": (pub[message].astype(np.int64) << 32) | message,
        "pub_id": pub[message].astype(np.int32),
        "sub_id": sub.astype(np.int32),
        "topic_id": topic[message].astype(np.int32),
        "t_intended_ns": T0 + (sent_s[message] * S).astype(np.int64),
        "epoch": epoch[message].astype(np.int32),
        "cause": cause.astype(np.int8),
        "copies": got.astype(np.int32),
        "heard": np.where(got > 0, heard, 0).astype(np.int32),
        "chances": chances.astype(np.int32),
    }
    held = holds & own[:, :, None]
    leases = np.bincount(np.broadcast_to(site[None], held.shape)[held], minlength=servers)
    sent = of_message & (turn < min(pool, publish * scenario.repeat))
    return Run(pairs, received, forwarded, leases, pub, topic, sent_s, sent, site, held, own, down)


def _planned(scenario: Scenario, epochs: int) -> Mask:
    down = np.zeros((epochs + 1, scenario.servers), dtype=np.bool_)
    for outage in outages(scenario):
        down[outage.epoch, outage.server] = True
    return down


def _down(scenario: Scenario, epochs: int, rng: np.random.Generator) -> Mask:
    """(epochs + 1, servers); after the last epoch all are up."""
    down = np.zeros((epochs + 1, scenario.servers), dtype=np.bool_)
    zone = np.arange(scenario.servers) % scenario.zones
    for epoch in range(epochs):
        if scenario.outages == "independent":
            down[epoch] = rng.random(scenario.servers) < scenario.outage
        elif scenario.outages == "exact":
            down[epoch, rng.permutation(scenario.servers)[: scenario.down]] = True
        elif scenario.outages == "zones":
            down[epoch] = (rng.random(scenario.zones) < scenario.outage)[zone]
        elif scenario.outages == "rolling":
            down[epoch, epoch % scenario.servers] = True
    return down


def _resumed(scenario: Scenario, down: Mask, epoch: NDArray[Any], at_s: NDArray[Any]) -> Mask:
    """Whether servers that are halted go on before the message's deadline, (messages, servers)."""
    if scenario.by != "stall":
        return np.zeros((len(epoch), down.shape[1]), dtype=np.bool_)
    soon = np.zeros((len(epoch), down.shape[1]), dtype=np.bool_)
    for later in range(1, len(down)):
        begins_s = (epoch + later) * scenario.epoch_s
        in_time = begins_s - at_s <= scenario.deadline_s
        if not in_time.any():
            break
        soon |= in_time[:, None] & ~down[np.minimum(epoch + later, len(down) - 1)]
    return soon


class _Waits:
    """How long subscribers wait for their leases after an outage: drawn once for each, server and outage."""

    def __init__(self, scenario: Scenario, rng: np.random.Generator, subs: int) -> None:
        self._scenario, self._rng, self._subs = scenario, rng, subs
        has = scenario.outages != "none" and scenario.by != "stall"
        self._applies = has and (scenario.by == "kill" or leases_may_end(scenario))
        self._wait_s: NDArray[Any] | None = None

    def stand(self, sub: Any, at: Any, epoch: Any, at_s: Any, up_since: Any, down_for: Any) -> Any:
        scenario, rng = self._scenario, self._rng
        if not self._applies:
            return np.bool_(True)
        if self._wait_s is None:
            interval_s = renewal_interval_s(scenario)
            lost = 1 - (1 - scenario.loss_in) * (1 - scenario.loss_out)
            shape = (self._subs, *up_since.shape)
            tries = rng.geometric(1 - lost, shape) - 1
            wait_s = interval_s * (rng.random(shape) + tries)
            if scenario.by != "kill":
                wait_s *= down_for[None] > scenario.ttl_s - interval_s * rng.random(shape)
            # One draw for each outage: that of the epoch in which the server came back.
            for later in range(1, shape[1]):
                same = (up_since[later] == up_since[later - 1])[None]
                wait_s[:, later] = np.where(same, wait_s[:, later - 1], wait_s[:, later])
            self._wait_s = np.where(up_since[None] < 0, -10.0, wait_s)
        since_s = at_s[:, None] - up_since[epoch[:, None], at]
        return since_s >= self._wait_s[sub[:, None], epoch[:, None], at]
