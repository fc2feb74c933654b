"""What becomes of the messages of one block of one scene, from its random numbers to its counts.

With S, CH and RCH the servers of a topic, in order, are its slots. One side draws a few slots
for each of its users; the other side uses all slots of its K. A copy gets through a drawn slot if the other
side uses it too, its server is up, and neither leg loses it. Where partners do not differ, because all views
are equal and no packet is lost, one row stands for all of them.

With R both sides draw from all servers. Each server has a bit for every subscriber, and a message reaches
those whose bit is set at any of its servers.
"""

from math import ceil, sqrt

import numpy as np

from kcast.hashring.ring import HashRing
from kcast.spark.simulation.counts import Counts, close_block, count_delivered, no_counts
from kcast.spark.simulation.placement import first_known, known, places, positions, walked, without_one
from kcast.spark.simulation.random_draws import Flags, Indices, Rng, block_rng, distinct, flags
from kcast.spark.simulation.scenes import Scene

_CLIENTS_AT_ONCE = 256  # clients whose views are drawn together: they fit into the processor's cache
_WORD_BITS = 64


def simulate_block(scene: Scene, block: int, seed: int, ring: HashRing | None) -> Counts:
    """Returns the counts of a block, the same whenever and wherever it is simulated.

    `ring` has the keys of `placement.server_keys`; scenes on an ideal ring need none.
    """
    counts = no_counts()
    rng = block_rng(seed, scene.name, block)
    if scene.scheme == "R":
        _simulate_r(scene, rng, counts)
    else:
        _simulate_slots(scene, block, ring, rng, counts)
    close_block(counts)
    return counts


def states(scene: Scene, servers: Indices, rng: Rng) -> Flags:
    """Returns which of these servers are up in an outage epoch, drawn anew at each call: shaped as they are.

    A server that stands there several times is up at all of these places, or at none.
    """
    match scene.outages:
        case "exact":
            up = np.ones(scene.servers, np.bool_)
            up[rng.choice(scene.servers, round(scene.down * scene.servers), replace=False)] = False
            return up[servers]
        case "zones":
            # Server numbers are unrelated to positions on the ring, so any even partition will do.
            return flags(rng, (scene.zones,), 1 - scene.down)[servers % scene.zones]
        case "shared":
            # Beta-binomial: given this epoch's availability, servers are independent.
            spread = (1 - scene.correlation) / scene.correlation
            available = rng.beta((1 - scene.down) * spread, scene.down * spread)
        case _:
            available = 1 - scene.down
    up = np.empty(scene.servers, np.bool_)  # only what is written is read
    up[servers] = flags(rng, servers.shape, available)
    return up[servers]


# --- S, CH and RCH -----------------------------------------------------------------------------------


def _simulate_slots(scene: Scene, block: int, ring: HashRing | None, rng: Rng, counts: Counts) -> None:
    """Adds a block of S, CH or RCH to `counts`."""
    at = positions(scene, block, rng)
    servers = places(scene, at, ring, rng)
    for _ in range(scene.size.epochs):
        alive = states(scene, servers, rng)
        counts["states"] += alive.size
        counts["up"] += int(np.count_nonzero(alive))
        partners = _partners(scene, rng)
        if scene.lacks_one:
            partners = without_one(scene, at, rng, scene.size.partners) == servers[:, 0]
        _epoch(scene, alive, partners, rng, counts)


def _epoch(scene: Scene, alive: Flags, partners: Flags, rng: Rng, counts: Counts) -> None:
    """Adds one epoch. `alive` are the slots that are up, (topics, slots); `partners` is from `_partners`."""
    size = scene.size
    slots = _slots_drawn(scene, rng)
    if scene.blocked:
        topics = np.arange(size.topics)[:, None]
        alive[topics, distinct(rng, scene.k, scene.blocked, size.topics)] = False
    up = alive.reshape(-1)
    if scene.draws_known:
        up[slots] = False
    rows = size.partners // len(partners)  # number of partners that one row stands for
    drawers, others = size.topics * size.draws, size.topics * size.partners
    if scene.publishers_draw:
        counts["messages"] += drawers
        counts["subscribers"] += others
        counts["sendings"] += slots.size
        counts["leases"] += int(partners.sum()) * rows
        taken = up[slots]
        if scene.loss:
            taken &= flags(rng, taken.shape, 1 - scene.loss)
        counts["taken"] += int(taken.sum())
    else:
        counts["messages"] += others
        counts["subscribers"] += drawers
        counts["sendings"] += int(partners.sum()) * rows
        counts["leases"] += slots.size
        taken = np.ones((len(slots), 1), np.bool_)
        partners = partners & up
        if scene.loss:
            partners = partners & flags(rng, (size.partners, len(up)), 1 - scene.loss)
            rows = 1
        counts["taken"] += int(partners.sum()) * rows
    copies = np.zeros((1, drawers), np.uint8)
    for slot, of_slot in zip(slots, taken, strict=True):
        through = partners[:, slot] & of_slot
        counts["forwarded"] += int(np.count_nonzero(through)) * rows
        if scene.loss:
            through = through & flags(rng, (size.partners, drawers), 1 - scene.loss)
        copies = copies + through
    counts["copies"] += int(copies.sum(dtype=np.int64)) * (size.partners // len(copies))
    delivered = (copies > 0).reshape(-1, size.topics, size.draws)
    count_delivered(counts, np.broadcast_to(delivered, (size.partners, *delivered.shape[1:])))


def _slots_drawn(scene: Scene, rng: Rng) -> Indices:
    """Draws the slots of the side that draws: (drawn, topics * draws), numbered through all topics."""
    size, length = scene.size, walked(scene)
    k, count = scene.k, scene.publish
    if not scene.publishers_draw:
        k, count = scene.k_of_subscribers, scene.subscribe
    drawers = size.topics * size.draws
    offsets = np.repeat(np.arange(size.topics) * length, size.draws)
    ranks = _ranks(k, count, drawers, rng)
    if scene.known == 1:
        return np.ascontiguousarray(ranks.T) + offsets
    slots = np.empty((count, drawers), np.int64)
    for start in range(0, drawers, _CLIENTS_AT_ONCE):
        some = ranks[start : start + _CLIENTS_AT_ONCE]
        knows = known(scene, rng, len(some), k)
        known_of_all = np.flatnonzero(knows)
        of_each = np.count_nonzero(knows, axis=1)
        before = np.cumsum(of_each) - of_each
        drawn = known_of_all[before[:, None] + some] - np.arange(0, knows.size, length)[:, None]
        slots[:, start : start + len(some)] = drawn.T
    return slots + offsets


def _ranks(k: int, count: int, drawers: int, rng: Rng) -> Indices:
    """Draws ranks among the first `k` servers that a client knows: (drawers, count), from 0."""
    if count == k:
        return np.broadcast_to(np.arange(k), (drawers, k))
    return distinct(rng, k, count, drawers)


def _partners(scene: Scene, rng: Rng) -> Flags:
    """Slots that the other side uses: (partners, topics * slots), or one row if all use the same."""
    size, length = scene.size, walked(scene)
    k = scene.k_of_subscribers if scene.publishers_draw else scene.k
    if scene.known == 1:
        return np.tile(np.arange(length) < k, size.topics)[None]
    uses = np.empty((size.partners, size.topics, length), np.bool_)
    for topic in range(size.topics):
        uses[:, topic] = first_known(known(scene, rng, size.partners, k), k)
    return uses.reshape(size.partners, -1)


# --- R -----------------------------------------------------------------------------------------------


def _simulate_r(scene: Scene, rng: Rng, counts: Counts) -> None:
    """Adds a block of R to `counts`."""
    messages, subscribers = scene.size.draws, scene.size.partners
    for _ in range(scene.size.epochs):
        up = states(scene, np.arange(scene.servers), rng)
        counts["states"] += scene.servers
        counts["up"] += int(np.count_nonzero(up))
        up[rng.choice(scene.servers, scene.blocked, replace=False)] = False
        # Word after word, so that those of some servers are gathered and joined in one go each.
        held = np.zeros((-(-subscribers // _WORD_BITS), scene.servers), np.dtype("<u8"))
        leases = np.zeros(scene.servers, np.int64)
        for subscriber in range(subscribers):
            servers = _servers_drawn(scene, scene.subscribe, rng)
            held[subscriber // _WORD_BITS][servers] |= np.uint64(1 << subscriber % _WORD_BITS)
            leases[servers] += 1
        reached = np.empty((messages, len(held)), held.dtype)
        for message in range(messages):
            servers = _servers_drawn(scene, scene.publish, rng)
            taken = servers[up[servers]]
            reached[message] = [np.bitwise_or.reduce(of_word[taken]) for of_word in held]
            counts["taken"] += len(taken)
            counts["forwarded"] += int(leases[taken].sum())
        bits = np.unpackbits(reached.view(np.uint8), axis=1, bitorder="little")[:, :subscribers]
        counts["messages"] += messages
        counts["subscribers"] += subscribers
        counts["sendings"] += messages * scene.publish
        counts["leases"] += subscribers * scene.subscribe
        count_delivered(counts, bits.T.astype(np.bool_)[:, None, :])
    counts["copies"] = counts["forwarded"]  # no packet is lost


def _servers_drawn(scene: Scene, count: int, rng: Rng) -> Indices:
    """Draws `count` of the servers that a client knows; it knows each server with probability `known`."""
    if scene.known == 1:
        return rng.choice(scene.servers, count, replace=False, shuffle=False)
    # The first known servers in a random order of all: only the beginning of that order is needed.
    spare = 10 * sqrt(count * (1 - scene.known)) / scene.known + 20
    order = rng.choice(scene.servers, min(scene.servers, ceil(count / scene.known + spare)), replace=False)
    found = order[flags(rng, (len(order),), scene.known)]
    if len(found) < count:
        raise ValueError(f"{scene.name}: a client knows fewer than {count} servers")
    return found[:count]
