"""What becomes of the messages of a block with R, where both sides draw from all servers.

Each server has a bit for every subscriber. A message reaches those that any of its servers has.
"""

from math import ceil, sqrt

import numpy as np

from kcast.spark.simulation.chance import Chance, Indices, flags
from kcast.spark.simulation.counts import Counts, count_delivered
from kcast.spark.simulation.outages import servers_up
from kcast.spark.simulation.scene import Scene

_WORD = 64


def simulate(scene: Scene, chance: Chance, counts: Counts) -> None:
    """Adds what a block gives to `counts`."""
    messages, subscribers = scene.size.draws, scene.size.partners
    for _ in range(scene.size.epochs):
        up = servers_up(scene, chance)
        counts["servers"] += scene.servers
        counts["up"] += int(np.count_nonzero(up))
        up[chance.choice(scene.servers, scene.blocked, replace=False)] = False
        held = np.zeros((scene.servers, -(-subscribers // _WORD)), np.dtype("<u8"))
        leases = np.zeros(scene.servers, np.int64)
        for subscriber in range(subscribers):
            servers = _drawn(scene, scene.subscribe, chance)
            held[servers, subscriber // _WORD] |= np.uint64(1 << subscriber % _WORD)
            leases[servers] += 1
        reached = np.empty((messages, held.shape[1]), held.dtype)
        for message in range(messages):
            servers = _drawn(scene, scene.publish, chance)
            taken = servers[up[servers]]
            np.bitwise_or.reduce(held[taken], axis=0, out=reached[message])
            counts["taken"] += len(taken)
            counts["forwarded"] += int(leases[taken].sum())
        bits = np.unpackbits(reached.view(np.uint8), axis=1, bitorder="little")[:, :subscribers]
        counts["messages"] += messages
        counts["subscribers"] += subscribers
        counts["sendings"] += messages * scene.publish
        counts["leases"] += subscribers * scene.subscribe
        count_delivered(counts, bits.T.astype(np.bool_)[:, None, :])
    counts["copies"] = counts["forwarded"]  # no packet is lost


def _drawn(scene: Scene, count: int, chance: Chance) -> Indices:
    """`count` random ones of the servers that a client knows, each by chance."""
    if scene.known == 1:
        return chance.choice(scene.servers, count, replace=False, shuffle=False)
    # All servers in a random order, of which the known ones are drawn: only its beginning is needed.
    spare = 10 * sqrt(count * (1 - scene.known)) / scene.known + 20
    order = chance.choice(scene.servers, min(scene.servers, ceil(count / scene.known + spare)), replace=False)
    known = order[flags(chance, (len(order),), scene.known)]
    if len(known) < count:
        raise ValueError(f"{scene.name}: a client knows fewer than {count} servers")
    return known[:count]
