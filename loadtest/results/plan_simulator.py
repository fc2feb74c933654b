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

A long run is simulated with fewer messages. `Runs.as_long` makes up for it where there is a closed form of
what a run's messages come to on average, once its places, draws of subscribers and outages are drawn. Where
there is none, the run is taken to be as short as it was simulated, so what is made of it varies by too much.
"""

from functools import lru_cache
from math import comb, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.prediction import (
    binomial_pmf,
    hypergeometric_pmf,
    leases_may_end,
    renewal_interval_s,
    servers_per_topic,
)
from kcast.loadtest.scenario import Scenario

RUNS = 1000
"""Simulated runs of a plan: these tell a standard deviation to 2 %."""

COPIES_MAX = 24_000
"""Above this number of copies to send, a run is simulated with fewer messages."""

COPIES_MAX_ALONE = 120_000
"""The same where no closed form helps: the law is then that of a run of so many copies."""

CLOSED_MAX = 2**20
"""Most numbers of an array that has all subsets of a topic's servers: for the closed form."""
_SEED = 20_040_101

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]
Times = NDArray[np.float64]


class Runs(NamedTuple):
    """Sums of simulated runs: arrays of a number for each run, or of (runs, servers) where servers are told
    apart.

    `kept` is the share of the messages that were simulated. `means` are what the sums are on average over
    messages and losses, given all else that a run has drawn; None where there is no closed form.
    """

    kept: float
    means: "Runs | None"
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

    def as_long(self) -> "Runs":
        """Returns sums that vary as if all messages had been simulated.

        What all messages of a run have in common stays, and the rest is as much smaller as it is on average
        over so many more (Rao and Blackwell's idea). The sums are still of the messages that were simulated.
        """
        if self.means is None:
            return self
        sums = zip(self[2:], self.means[2:], strict=True)
        return Runs(1.0, None, *(mean + sqrt(self.kept) * (own - mean) for own, mean in sums))


def can_simulate(scenario: Scenario) -> bool:
    """Whether the plan says who publishes and subscribes. Where locust decides, it does not. Clients that
    are away are not simulated."""
    return scenario.publishing_users > 0 and scenario.subscribing_users > 0 and not scenario.offline


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
    sums, means = (
        [np.array(column) for column in zip(*each, strict=True)] for each in zip(*found, strict=True)
    )
    return Runs(plan.kept, Runs(plan.kept, None, *means) if means else None, *sums)


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
        self.epochs = scenario.epochs
        self.interval_s = renewal_interval_s(scenario)
        has_outages = scenario.outages != "none"
        self.is_kill = has_outages and scenario.by == "kill"
        self.is_stall = has_outages and scenario.by == "stall"
        self.leases_end = self.is_kill or (has_outages and not self.is_stall and leases_may_end(scenario))
        self.messages = scenario.rate * scenario.duration_s * self.publishers
        copies = self.messages * self.publish * scenario.repeat * self.subscribers
        subsets = 2**self.k
        self.is_closed = subsets * max(subsets, self.topics * self.subscribers) <= CLOSED_MAX and not (
            self.leases_end or self.is_stall or scenario.repeat > 1 or self.known < self.servers
        )
        most = COPIES_MAX if self.is_closed else COPIES_MAX_ALONE
        self.kept = min(1.0, most / copies) if copies else 1.0
        self.is_closed &= self.kept < 1  # else nothing is to be made up for
        if self.is_closed:
            self.subsets = (np.arange(subsets)[:, None] >> np.arange(self.k) & 1).astype(np.float32)
            self.came_in = _came_in(self)


def _came_in(plan: _Plan) -> Times:
    """The probability that a message is taken in by exactly some of its topic's servers, if some are up.

    (subset that is up, subset that takes it in): how large they are is all that matters.
    """
    sizes, takes = plan.subsets.sum(axis=1).astype(np.int64), 1 - plan.scenario.loss_in
    by_size = np.zeros((plan.k + 1, plan.k + 1))
    for up in range(plan.k + 1):
        for sent, p_sent in hypergeometric_pmf(plan.k, up, plan.publish):
            for came, p_came in binomial_pmf(sent, takes):
                by_size[up, came] += p_sent * p_came / comb(up, came)
    is_within = (plan.subsets @ (1 - plan.subsets).T).T == 0
    found: Times = by_size[sizes[:, None], sizes] * is_within
    return found


def _run(plan: _Plan, rng: np.random.Generator) -> tuple[list[NDArray[np.generic]], list[Times]]:
    """One run: the sums of `Runs` without a first axis, and their means, if these have a closed form."""
    scenario, subs = plan.scenario, plan.subscribers
    # Servers stand in the topic's order.
    order, may_publish, may_hold = _places(plan, rng)
    down = _down(plan, rng)
    clock = _Clock(plan, down, rng)

    listens = _chosen(rng, (subs, plan.topics), scenario.topics_per_subscriber).T
    holds = _chosen_among(rng, may_hold, plan.subscribe, plan.pool) & listens[:, :, None]
    count, times = _times(plan, rng)
    topics = rng.integers(0, plan.topics, count)
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
    audience = wanted.sum(axis=1)
    reached = ((copies > 0) & wanted).sum(axis=1)
    all_reached = (audience > 0) & (reached == audience)
    columns = (audience, reached, audience > 0, all_reached, copies)
    leases = np.bincount(order.ravel(), holds.sum(axis=1).ravel(), plan.servers).astype(np.int64)
    sums = [*(np.asarray(column.sum()) for column in columns), received, forwarded, leases]
    return sums, _means(plan, order, down, listens, holds) if plan.is_closed else []


def _means(plan: _Plan, order: Array, down: Mask, listens: Mask, holds: Mask) -> list[Times]:
    """The sums of a run on average over its messages and their losses."""
    scenario, topics = plan.scenario, np.arange(plan.topics)
    ends_s = np.minimum(np.arange(1, plan.epochs + 1) * scenario.epoch_s, scenario.duration_s)
    lasts = np.diff(ends_s, prepend=0) / scenario.duration_s
    up = (~down[:, order]) @ (1 << np.arange(plan.k))  # which subset; (epochs, topics)
    at = (topics * len(plan.subsets) + up).ravel()
    is_up = np.bincount(at, np.repeat(lasts, plan.topics), plan.topics * len(plan.subsets))
    # How many messages of a topic exactly such a subset of its servers takes in.
    # (Not by `@`, whose threads cost more than such small arrays take.)
    came = np.einsum("tu,us->ts", is_up.reshape(plan.topics, -1), plan.came_in)
    came *= plan.messages * plan.kept / plan.topics
    # The chance that a subscriber misses what a subset takes in, (subscribers, topics, subsets).
    missed = np.ones((plan.subscribers, plan.topics, 1))
    for server in range(plan.k):
        lost = np.where(holds[:, :, server].T, scenario.loss_out, 1.0)[:, :, None]
        missed = np.concatenate((missed, missed * lost), axis=2)
    audience, count, of_subs = listens.sum(axis=1), came.sum(axis=1), holds.sum(axis=1)
    delivered = (came * (audience[:, None] - (missed * listens.T[:, :, None]).sum(axis=0))).sum()
    missed[~listens.T] = 0
    all_reached = (came * (1 - missed).prod(axis=0))[audience > 0].sum()
    received = came @ plan.subsets
    forwarded = received * of_subs
    of_servers = (
        np.bincount(order.ravel(), each.ravel(), plan.servers) for each in (received, forwarded, of_subs)
    )
    copies = forwarded.sum() * (1 - scenario.loss_out)
    return [count @ audience, delivered, count @ (audience > 0), all_reached, copies, *of_servers]


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
        case "rolling":
            turns: Mask = np.arange(plan.epochs)[:, None] % plan.servers == np.arange(plan.servers)
            return turns
        case _:
            drawn = rng.random((plan.epochs, scenario.outage_units))
            least = scenario.outage
            if scenario.stratified:  # as many of the smallest as are planned
                planned = int(drawn.size * scenario.outage + rng.random())
                least = np.sort(drawn, axis=None)[planned] if planned < drawn.size else 1.0
            of_servers: Mask = (drawn < least)[:, np.arange(plan.servers) % scenario.outage_units]
            return of_servers


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
