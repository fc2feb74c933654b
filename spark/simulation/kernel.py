"""What becomes of the messages of a block, with S, CH and RCH.

Servers of a topic are numbered by their order, its slots. One side draws a few slots for each of its users;
the other side uses all slots of its K. A copy gets through a drawn slot if the other side uses it too, its
server is up, and neither leg loses it. Where nothing differs between partners, all views being equal and no
packet lost, one row stands for all of them.
"""

import numpy as np

from kcast.hashring.ring import HashRing
from kcast.spark.simulation.chance import Chance, Flags, Indices, distinct, flags
from kcast.spark.simulation.counts import Counts, count_delivered
from kcast.spark.simulation.outages import servers_up
from kcast.spark.simulation.placement import known_ranks, places, positions, walked, without_one
from kcast.spark.simulation.scene import Scene

_CLIENTS_AT_ONCE = 256  # whose views are drawn: what they take stays in the processor's cache


def simulate(scene: Scene, block: int, ring: HashRing | None, chance: Chance, counts: Counts) -> None:
    """Adds what a block gives to `counts`."""
    at = positions(scene, block, chance)
    servers = places(scene, at, ring, chance)
    for _ in range(scene.size.epochs):
        up = servers_up(scene, chance)
        counts["servers"] += scene.servers
        counts["up"] += int(np.count_nonzero(up))
        partners = _partners(scene, chance)
        if scene.lacks_one:
            partners = without_one(scene, at, chance, scene.size.partners) == servers[:, 0]
        _epoch(scene, up[servers], partners, chance, counts)


def _epoch(scene: Scene, alive: Flags, partners: Flags, chance: Chance, counts: Counts) -> None:
    """One epoch: `alive` are the topics' slots, (topics, slots), `partners` as `_partners` gives them."""
    size = scene.size
    slots = _drawn(scene, chance)
    if scene.blocked:
        topics = np.arange(size.topics)[:, None]
        alive[topics, distinct(chance, scene.k, scene.blocked, size.topics)] = False
    up = alive.reshape(-1)
    if scene.draws_known:
        up[slots] = False
    rows = size.partners // len(partners)  # partners that one row stands for
    drawers, others = size.topics * size.draws, size.topics * size.partners
    if scene.publishers_draw:
        counts["messages"] += drawers
        counts["subscribers"] += others
        counts["sendings"] += slots.size
        counts["leases"] += int(partners.sum()) * rows
        taken = up[slots]
        if scene.loss:
            taken &= flags(chance, taken.shape, 1 - scene.loss)
        counts["taken"] += int(taken.sum())
    else:
        counts["messages"] += others
        counts["subscribers"] += drawers
        counts["sendings"] += int(partners.sum()) * rows
        counts["leases"] += slots.size
        taken = np.ones((len(slots), 1), np.bool_)
        partners = partners & up
        if scene.loss:
            partners = partners & flags(chance, (size.partners, len(up)), 1 - scene.loss)
            rows = 1
        counts["taken"] += int(partners.sum()) * rows
    copies = np.zeros((1, drawers), np.uint8)
    for slot, of_slot in zip(slots, taken, strict=True):
        through = partners[:, slot] & of_slot
        counts["forwarded"] += int(np.count_nonzero(through)) * rows
        if scene.loss:
            through = through & flags(chance, (size.partners, drawers), 1 - scene.loss)
        copies = copies + through
    counts["copies"] += int(copies.sum(dtype=np.int64)) * (size.partners // len(copies))
    delivered = (copies > 0).reshape(-1, size.topics, size.draws)
    count_delivered(counts, np.broadcast_to(delivered, (size.partners, *delivered.shape[1:])))


def _drawn(scene: Scene, chance: Chance) -> Indices:
    """The slots that those who draw use: (drawn, topics * draws), numbered through all topics."""
    size, length = scene.size, walked(scene)
    k, count = scene.k, scene.publish
    if not scene.publishers_draw:
        k, count = scene.k_of_subscribers, scene.subscribe
    drawers = size.topics * size.draws
    offsets = np.repeat(np.arange(size.topics) * length, size.draws)
    ranks = _ranks(k, count, drawers, chance)
    if scene.known == 1:
        return np.ascontiguousarray(ranks.T) + offsets
    slots = np.empty((count, drawers), np.int64)
    for start in range(0, drawers, _CLIENTS_AT_ONCE):
        some = ranks[start : start + _CLIENTS_AT_ONCE]
        _, seen = known_ranks(scene, chance, len(some), k)
        for drawn in range(count):
            slots[drawn, start : start + len(some)] = (seen <= some[:, drawn, None]).sum(axis=1)
    return slots + offsets


def _ranks(k: int, count: int, drawers: int, chance: Chance) -> Indices:
    """Which of the first `k` servers that they know: (drawers, count), from 0."""
    if count == k:
        return np.broadcast_to(np.arange(k), (drawers, k))
    return distinct(chance, k, count, drawers)


def _partners(scene: Scene, chance: Chance) -> Flags:
    """Which slots the other side uses: (partners, topics * slots), or one row if all use the same."""
    size, length = scene.size, walked(scene)
    k = scene.k_of_subscribers if scene.publishers_draw else scene.k
    if scene.known == 1:
        return np.tile(np.arange(length) < k, size.topics)[None]
    uses = np.empty((size.partners, size.topics, length), np.bool_)
    for topic in range(size.topics):
        uses[:, topic] = known_ranks(scene, chance, size.partners, k)[0]
    return uses.reshape(size.partners, -1)
