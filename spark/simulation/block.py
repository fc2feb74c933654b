"""One block of one scene, from its random numbers to its counts."""

from kcast.hashring.ring import HashRing
from kcast.spark.simulation import kernel, scheme_r
from kcast.spark.simulation.chance import chance_of
from kcast.spark.simulation.counts import Counts, close_block, no_counts
from kcast.spark.simulation.scene import Scene


def simulate_block(scene: Scene, block: int, seed: int, ring: HashRing | None) -> Counts:
    """What the block gives; the same whenever and wherever it is simulated.

    `ring` has the keys of `placement.server_keys`; scenes on an ideal ring need none.
    """
    counts = no_counts()
    chance = chance_of(seed, scene.name, block)
    if scene.scheme == "R":
        scheme_r.simulate(scene, chance, counts)
    else:
        kernel.simulate(scene, block, ring, chance, counts)
    close_block(counts)
    return counts
