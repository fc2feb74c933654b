"""The delivered share of a scene in theory, by `kcast.hashring.model`."""

from functools import cache

from kcast.hashring.model import (
    betabin_miss,
    delivery,
    delivery_divergent,
    delivery_given_down,
    miss_exactly_down,
    path,
    zone_miss,
)
from kcast.spark.simulation.scenes import Scene

_divergent = cache(delivery_divergent)  # takes a second with K = 1000, and several scenes need the same


def theory(scene: Scene) -> float:
    """Returns the share of outcomes delivered. What differs from the note's example is one thing only."""
    path_up, reach = path(0.0, scene.loss, scene.loss), path(scene.down, scene.loss, scene.loss)
    common = min(scene.publish, scene.subscribe)
    # With unequal K the larger one is the population, which holds both.
    of_all = max(scene.k, scene.k_of_subscribers), scene.publish, scene.subscribe
    if scene.lacks_one:
        # Positions in lists of C and of C - 1 servers are practically independent: they hold the same
        # server once in C times.
        return reach / scene.servers
    if scene.draws_known:
        return 0.0  # no drawn server is left
    if scene.blocked:
        return delivery_given_down(*of_all, scene.blocked, reach)
    if scene.known < 1 and scene.scheme != "R":  # with R all servers are equally likely, whatever the views
        jaccard = scene.known / (2 - scene.known)  # of two views that each have a server with chance `known`
        return _divergent(scene.k, common, jaccard, reach)
    match scene.outages:
        case "exact":
            down = round(scene.down * scene.servers)
            return 1 - miss_exactly_down(scene.servers, down, common, path_up)
        case "zones":
            return 1 - zone_miss(scene.zones, scene.down, path_up, common)
        case "shared":
            return 1 - betabin_miss(1 - scene.down, scene.correlation, common, path_up)
        case _:
            return delivery(*of_all, reach)
