"""Which servers are up in an outage epoch."""

import numpy as np

from kcast.spark.simulation.chance import Chance, Flags, flags
from kcast.spark.simulation.scene import Scene


def servers_up(scene: Scene, chance: Chance) -> Flags:
    """Shape (servers,). One draw is one epoch."""
    servers, down = scene.servers, scene.down
    match scene.outages:
        case "exact":
            up = np.ones(servers, np.bool_)
            up[chance.choice(servers, round(down * servers), replace=False)] = False
            return up
        case "zones":
            zones_up = flags(chance, (scene.zones,), 1 - down)
            # Servers' numbers say nothing of where they are on the ring, so any even partition will do.
            return np.tile(zones_up, -(-servers // scene.zones))[:servers]
        case "shared":
            # A beta-binomial: given the availability of this epoch servers are independent.
            spread = (1 - scene.correlation) / scene.correlation
            available = chance.beta((1 - down) * spread, down * spread)
            return flags(chance, (servers,), available)
        case _:
            return flags(chance, (servers,), 1 - down)
