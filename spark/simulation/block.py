"""One block of one scene, from its random numbers to its counts."""

from hashring.ring import HashRing
from spark.simulation import kernel, scattered
from spark.simulation.chance import chance_of
from spark.simulation.counts import Counts, close_block, no_counts
from spark.simulation.scene import Scene


def simulate_block(scene: Scene, block: int, seed: int, ring: HashRing | None) -> Counts:
    """What the block gives; the same whenever and wherever it is simulated.

    `ring` has the keys of `placement.server_keys`; scenes on an ideal ring need none.
    """
    counts = no_counts()
    chance = chance_of(seed, scene.name, block)
    if scene.scheme == "R":
        scattered.simulate(scene, chance, counts)
    else:
        kernel.simulate(scene, block, ring, chance, counts)
    close_block(counts)
    return counts
