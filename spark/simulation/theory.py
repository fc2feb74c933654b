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
from kcast.spark.simulation.scene import Scene

_divergent = cache(delivery_divergent)  # takes a second with K = 1000, and several scenes need the same


def theory(scene: Scene) -> float | None:
    """Returns the share of outcomes delivered; None where there is no formula."""
    path_up = path(0.0, scene.loss, scene.loss)
    reach = path(scene.down, scene.loss, scene.loss)
    if scene.lacks_one:
        # Positions in lists of C and of C - 1 servers are practically independent: they hold the same
        # server once in C times.
        return reach / scene.servers
    if scene.draws_known:
        return 0.0  # no drawn server is left
    if scene.blocked:
        return _only(scene.outages == "independent", _blocked(scene, reach))
    if scene.known < 1:
        return _only(scene.outages == "independent", _unequal_views(scene, reach))
    if scene.outages == "independent":
        return delivery(*_sizes(scene), reach)
    common = min(scene.publish, scene.subscribe)
    if scene.scheme == "R" or scene.subscriber_k is not None:
        return None
    match scene.outages:
        case "exact":
            down = round(scene.down * scene.servers)
            return 1 - miss_exactly_down(scene.servers, down, common, path_up)
        case "zones":
            return 1 - zone_miss(scene.zones, scene.down, path_up, common)
        case "shared":
            return 1 - betabin_miss(1 - scene.down, scene.correlation, common, path_up)


def _only(known: bool, share: float | None) -> float | None:
    return share if known else None


def _sizes(scene: Scene) -> tuple[int, int, int]:
    """`k`, `m`, `n` of the model. With unequal K the larger one is the population, which holds both."""
    return max(scene.k, scene.k_of_subscribers), scene.publish, scene.subscribe


def _blocked(scene: Scene, reach: float) -> float | None:
    if scene.subscriber_k is not None:
        return None
    return delivery_given_down(scene.k, scene.publish, scene.subscribe, scene.blocked, reach)


def _unequal_views(scene: Scene, reach: float) -> float | None:
    if scene.subscriber_k is not None:
        return None
    if scene.scheme == "R":  # all servers are equally likely to be drawn, whatever the views
        return delivery(scene.k, scene.publish, scene.subscribe, reach)
    jaccard = scene.known / (2 - scene.known)  # of two views that each have a server with chance `known`
    return _divergent(scene.k, min(scene.publish, scene.subscribe), jaccard, reach)
