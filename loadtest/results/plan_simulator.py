"""Simulated runs of a scenario's plan: how far chance alone moves each figure of a run.

Theory has the mean of most figures, and the variance of few of them. Where messages are sent again, servers
are killed, or clients know different servers, the covariances have no closed form. But all that is random in
a run is drawn as planned, so the plan can be drawn again: as often as is wanted, and in numpy. What comes of
it is the law of every figure that is made of sums over pairs, whatever the plan (a parametric bootstrap;
Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 6.5).

One run draws, in this order and each by the rules of `kcast.loadtest`:

    places      a topic has its servers in a random order of all (the ring gives such an order)
    views       a client knows a random part of all servers, and uses the first k of a topic's that it knows
    outages     which servers are down in each epoch: independent, exact, zones, rolling
    load        who listens to what; when messages come, and on which topic
    draws       a message goes to `publish` random ones of these k; when it is sent again, it goes on around
                the same random order, so first to those that have not had it. A subscriber keeps its draw
    losses      each sending is lost with `loss_in`, each copy with `loss_out`
    leases      after a kill, or an outage that outlasts the lease, there is none until a renewal comes
                through: these are an interval apart, from a random phase, and each may be lost

Left out: how long clients take to notice that a server was restarted, and that clients may avoid dead
servers. So for kills the figures are rough, and with `avoid_dead` more is missed here than in the run.

A long run is simulated with fewer messages, in two halves: `simulated_law` makes up for it.
"""

from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.prediction import leases_may_end, renewal_interval_s, servers_per_topic
from kcast.loadtest.scenario import Scenario

RUNS = 400
"""Simulated runs of a plan: these tell a standard deviation to 4 %."""

COPIES_MAX = 60_000
"""Above this number of copies to send, a run is simulated with fewer messages."""

HALVES = 2
"""Parts of the messages of a run that are counted apart."""
_SEED = 20_040_101

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]
Times = NDArray[np.float64]


class Runs(NamedTuple):
    """Sums of simulated runs. Arrays have one row for each run, and in it two halves of the messages.

    `kept` is the share of the messages that were simulated. Shapes: (runs, 2), for `received`, `forwarded`
    and `leases` (runs, servers).
    """

    kept: float
    pairs: Array
    delivered: Array
    messages: Array
    """Messages with a subscriber."""
    all_reached: Array
    """Messages that reached all their subscribers."""
    copies: Array
    received: Array
    """Lines of messages that each server took in."""
    forwarded: Array
    """Copies that it sent."""
    leases: Array


def can_simulate(scenario: Scenario) -> bool:
    """Whether the plan says who publishes and subscribes. Where locust decides, it does not."""
    return scenario.publishing_users > 0 and scenario.subscribing_users > 0


def simulated(scenario: Scenario) -> Runs:
    """Returns RUNS runs of a plan, always the same: name and seed of the scenario make no difference."""
    return _simulated(scenario.with_(name="", seed=0), RUNS)


@lru_cache(maxsize=64)
def _simulated(scenario: Scenario, runs: int) -> Runs:
    return simulate(scenario, runs, np.random.Generator(np.random.PCG64(_SEED)))


def simulate(scenario: Scenario, runs: int, rng: np.random.Generator) -> Runs:
    """Returns `runs` runs of a plan for which `can_simulate` holds."""
    plan = _Plan(scenario)
    found = [_run(plan, rng) for _ in range(runs)]
    return Runs(plan.kept, *(np.array(column) for column in zip(*found, strict=True)))


# --- A plan ------------------------------------------------------------------------------------------


class _Plan:
    """What does not change from run to run. Times are in seconds from the start of the load."""

    def __init__(self, scenario: Scenario) -> None:
        policy = scenario.policy
        self.scenario = scenario
        self.servers, self.topics = scenario.servers, scenario.topics
        self.k = servers_per_topic(scenario)
        self.known = max(1, round(scenario.known * scenario.servers))
        self.pool = min(self.k, self.known)
        self.publish, self.subscribe = min(policy.publish, self.pool), min(policy.subscribe, self.pool)
        self.publishers, self.subscribers = scenario.publishing_users, scenario.subscribing_users
        self.epochs = max(1, ceil(scenario.duration_s / scenario.epoch_s))
        self.interval_s = renewal_interval_s(scenario)
        has_outages = scenario.outages != "none"
        self.is_kill = has_outages and scenario.by == "kill"
        self.is_stall = has_outages and scenario.by == "stall"
        self.leases_end = self.is_kill or (has_outages and not self.is_stall and leases_may_end(scenario))
        self.messages = scenario.rate * scenario.duration_s * self.publishers
        copies = self.messages * self.publish * scenario.repeat * self.subscribers
        self.kept = min(1.0, COPIES_MAX / copies) if copies else 1.0


def _run(plan: _Plan, rng: np.random.Generator) -> tuple[NDArray[np.generic], ...]:
    """One run: the sums of `Runs`, without a first axis."""
    scenario, subs = plan.scenario, plan.subscribers
    # Servers stand in the topic's order.
    order, may_publish, may_hold = _places(plan, rng)
    down = _down(plan, rng)
    clock = _Clock(plan, down, rng)

    listens = _chosen(rng, (subs, plan.topics), scenario.topics_per_subscriber).T
    holds = _chosen_among(rng, may_hold, plan.subscribe, plan.pool) & listens[:, :, None]
    count, times = _times(plan, rng)
    topics = rng.integers(0, plan.topics, count)
    half = rng.integers(0, HALVES, count)
    # With equal views all publishers have the same candidates.
    publisher = rng.integers(0, len(may_publish), count)
    candidates = _candidates(rng, may_publish[publisher, topics], plan.publish, scenario.repeat, plan.pool)

    copies = np.zeros((count, subs), dtype=np.int64)
    received, forwarded = np.zeros((2, plan.servers), dtype=np.int64)
    holders = np.ascontiguousarray(holds.transpose(0, 2, 1))  # (topics, depth, subscribers)
    for sending in range(scenario.repeat):
        turns = np.arange(sending * plan.publish, (sending + 1) * plan.publish) % candidates.shape[1]
        at = np.sort(candidates[:, turns], axis=1).ravel()
        message = np.repeat(np.arange(count), plan.publish)
        when = times[message] + sending * scenario.repeat_interval_s
        server = order[topics[message], at]
        came = clock.takes(when, server)
        came &= rng.random(len(came)) >= scenario.loss_in
        message, at, when, server = message[came], at[came], when[came], server[came]
        received += np.bincount(server, minlength=plan.servers)
        # A lease of a subscriber where a line came; far faster than `nonzero` with two axes.
        lease = np.flatnonzero(holders[topics[message], at])
        line = lease // subs
        if plan.leases_end:
            stands = clock.has_lease(when[line], server[line], lease % subs)
            lease, line = lease[stands], line[stands]
        forwarded += np.bincount(server[line], minlength=plan.servers)
        if scenario.loss_out:
            passed = rng.random(len(line)) >= scenario.loss_out
            lease, line = lease[passed], line[passed]
        pair = lease + subs * (message - np.arange(len(message)))[line]
        copies += np.bincount(pair, minlength=count * subs).reshape(count, subs)

    wanted = listens[topics]
    return (
        *_sums(wanted, copies, half),
        received,
        forwarded,
        _added(order.ravel(), holds.sum(axis=1).ravel(), plan.servers),
    )


def _sums(wanted: Mask, copies: Array, half: Array) -> list[NDArray[np.generic]]:
    """Returns pairs, delivered, messages, all_reached and copies of each half."""
    audience = wanted.sum(axis=1)
    reached = ((copies > 0) & wanted).sum(axis=1)
    has_audience = audience > 0
    all_reached = has_audience & (reached == audience)
    columns = (audience, reached, has_audience, all_reached, copies.sum(axis=1))
    return [_added(half, column, HALVES) for column in columns]


def _added(places: Array, amounts: Array | Mask, size: int) -> Array:
    """What is added up at each of `size` places."""
    return np.bincount(places, amounts, size).astype(np.int64)


# --- What is drawn -----------------------------------------------------------------------------------


def _chosen(rng: np.random.Generator, shape: tuple[int, int], count: int) -> Mask:
    """Marks `count` random columns in each row."""
    found = np.zeros(shape, dtype=np.bool_)
    columns = np.argpartition(rng.random(shape), min(count, shape[1]) - 1, axis=1)[:, :count]
    np.put_along_axis(found, columns, values=True, axis=1)
    return found


def _chosen_among(rng: np.random.Generator, among: Mask, count: int, pool: int) -> Mask:
    """Along the last axis, `count` random ones of those that are true, of which there are `pool`."""
    if count >= pool:
        return among
    keys = np.where(among, rng.random(among.shape), 2.0)
    chosen: Mask = keys <= np.partition(keys, count - 1, axis=-1)[..., count - 1 : count]
    return chosen & among


def _candidates(rng: np.random.Generator, among: Mask, count: int, repeat: int, pool: int) -> Array:
    """The columns of each message's (row's) candidates: as many as `repeat` sendings to `count` of them take,
    or all, of which there are `pool`. They are in a random order, unless each sending goes to all of them."""
    if count >= pool:
        return np.nonzero(among)[1].reshape(-1, pool)  # all of them, with each sending
    keys = np.where(among, rng.random(among.shape), 2.0)
    wanted = min(pool, count * repeat)
    found = np.argpartition(keys, wanted - 1, axis=1)[:, :wanted]
    if wanted == count:
        return found
    order = np.argsort(np.take_along_axis(keys, found, axis=1), axis=1)
    return np.take_along_axis(found, order, axis=1)


def _places(plan: _Plan, rng: np.random.Generator) -> tuple[Array, Mask, Mask]:
    """The servers of each topic in its order, (topics, depth), and who may use which.

    That is (publishers, topics, depth), or 1 for all publishers, and (topics, subscribers, depth).
    """
    topics, servers = plan.topics, plan.servers
    if plan.known == servers:
        keys = rng.random((topics, servers))
        near = np.argpartition(keys, plan.k - 1, axis=1)[:, : plan.k]
        everyone = np.ones((1, topics, plan.k), dtype=np.bool_)
        return near, everyone, np.broadcast_to(everyone[0, :, None], (topics, plan.subscribers, plan.k))
    clients = plan.publishers + plan.subscribers - plan.scenario.mixed
    knows = _chosen(rng, (clients, servers), plan.known)
    if plan.scenario.policy.placement == "modulo":  # the topic's number, modulo the length of one's own list
        order = np.broadcast_to(np.arange(servers), (topics, servers))
        lists = np.nonzero(knows)[1].reshape(clients, plan.known)
        uses = np.zeros((clients, topics, servers), dtype=np.bool_)
        own = lists[:, rng.integers(0, plan.known * servers, topics) % plan.known]
        np.put_along_axis(uses, own[:, :, None], values=True, axis=2)
    else:
        order = np.argsort(rng.random((topics, servers)), axis=1)
        uses = knows[:, order]
        uses &= np.cumsum(uses, axis=2) <= plan.k
        deepest = 1 + int(np.flatnonzero(uses.any(axis=(0, 1)))[-1])
        order, uses = order[:, :deepest], uses[:, :, :deepest]
    return order, uses[: plan.publishers], uses[clients - plan.subscribers :].transpose(1, 0, 2)


def _down(plan: _Plan, rng: np.random.Generator) -> Mask:
    """Which servers are down in each epoch, (epochs, servers)."""
    scenario, shape = plan.scenario, (plan.epochs, plan.servers)
    match scenario.outages:
        case "none":
            return np.zeros(shape, dtype=np.bool_)
        case "exact":
            return _chosen(rng, shape, scenario.down) if scenario.down else np.zeros(shape, dtype=np.bool_)
        case "zones":
            zones = rng.random((plan.epochs, scenario.zones)) < scenario.outage
            of_servers: Mask = zones[:, np.arange(plan.servers) % scenario.zones]
            return of_servers
        case "rolling":
            turns: Mask = np.arange(plan.epochs)[:, None] % plan.servers == np.arange(plan.servers)
            return turns
        case _:
            return rng.random(shape) < scenario.outage


def _times(plan: _Plan, rng: np.random.Generator) -> tuple[int, Times]:
    """The number of messages, and when each comes."""
    expected = plan.messages * plan.kept
    is_constant = plan.scenario.arrivals == "constant"
    count = max(1, round(expected) if is_constant else int(rng.poisson(expected)))
    return count, rng.random(count) * plan.scenario.duration_s


class _Clock:
    """Which servers take a message in when, and which subscribers have leases there then."""

    def __init__(self, plan: _Plan, down: Mask, rng: np.random.Generator) -> None:
        scenario = plan.scenario
        self._epoch_s = scenario.epoch_s
        self._deadline_s = scenario.deadline_s if plan.is_stall else 0.0
        # After the last epoch all servers are up.
        self._down = np.concatenate((down, np.zeros((1, plan.servers), dtype=np.bool_)))
        self._last = len(self._down) - 1
        if plan.is_stall:
            self._up_s = self._next_up_s()
        if plan.leases_end:
            self._stands_s = self._lease_times_s(plan, rng)

    def _epochs(self, when: Times) -> Array:
        return np.minimum((when / self._epoch_s).astype(np.int64), self._last)

    def takes(self, when: Times, server: Array) -> Mask:
        """Whether a server takes in, soon enough, what is sent to it then."""
        epoch = self._epochs(when)
        is_up = ~self._down[epoch, server]
        if self._deadline_s:
            is_up |= self._up_s[epoch, server] - when <= self._deadline_s
        return is_up

    def has_lease(self, when: Times, server: Array, sub: Array) -> Mask:
        """Whether a subscriber has its leases at a server that is up."""
        return when >= self._stands_s[self._epochs(when), server, sub]

    def _next_up_s(self) -> Times:
        up_s = np.empty(self._down.shape)
        up_s[self._last] = 0.0
        for epoch in range(self._last - 1, -1, -1):
            end_s = (epoch + 1) * self._epoch_s
            up_s[epoch] = np.where(self._down[epoch + 1], up_s[epoch + 1], end_s)
        return up_s

    def _lease_times_s(self, plan: _Plan, rng: np.random.Generator) -> Times:
        """The time from which a subscriber's leases stand, by epoch: (epochs, servers, subscribers)."""
        scenario, shape = plan.scenario, (plan.servers, plan.subscribers)
        lost = min(0.99, 1 - (1 - scenario.loss_in) * (1 - scenario.loss_out))
        found = np.zeros((len(self._down), *shape))
        down_s = np.zeros(plan.servers)
        for epoch, is_down in enumerate(self._down):
            begins_s = epoch * self._epoch_s
            if epoch:
                found[epoch] = found[epoch - 1]
                returns = np.flatnonzero(~is_down & self._down[epoch - 1])
                if len(returns):
                    size = (len(returns), plan.subscribers)
                    wait_s = plan.interval_s * (rng.random(size) + rng.geometric(1 - lost, size) - 1)
                    if not plan.is_kill:  # the last renewal before the outage may still hold
                        left_s = scenario.ttl_s - plan.interval_s * rng.random(size)
                        wait_s *= down_s[returns, None] > left_s
                    found[epoch, returns] = begins_s + wait_s
            down_s = np.where(is_down, down_s + self._epoch_s, 0.0)
        return found
