"""The servers of a topic, in order: on the real ring, or in random order (the ideal ring)."""

from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from kcast.hashring.hashing import topic_hash
from kcast.hashring.ring import HashRing
from kcast.spark.simulation.random_draws import Flags, Indices, Rng, distinct, flags
from kcast.spark.simulation.scenes import Scene

Words = npt.NDArray[np.uint64]


def server_keys(servers: int) -> list[str]:
    """Returns keys for the real ring: addresses from 10.0.0.0, at most to 10.255.255.255."""
    return [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(servers)]


def walked(scene: Scene) -> int:
    """The number of servers that a client looks at, in a topic's order, to find enough that it knows."""
    most = max(scene.k, scene.k_of_subscribers)
    if scene.known == 1:
        return most
    walk = most / scene.known + 10 * sqrt(most * (1 - scene.known)) / scene.known + 20
    return min(scene.servers, ceil(walk))


def positions(scene: Scene, block: int, rng: Rng) -> Words:
    """Positions of the block's topics on the ring, 0 .. 2**64 - 1: hashes of names, or random numbers."""
    if scene.ring == "real":
        names = (f"{scene.name}/{block}/{topic}" for topic in range(scene.size.topics))
        return np.fromiter(map(topic_hash, names), np.uint64, scene.size.topics)
    return rng.integers(1 << 64, size=scene.size.topics, dtype=np.uint64)


def places(scene: Scene, at: Words, ring: HashRing | None, rng: Rng) -> Indices:
    """Returns the servers of topics at these positions, nearest first: (topics, walked). Not for R.

    A scene on the real ring needs a `ring` of its size.
    """
    if scene.scheme == "S":  # by modulo, on either ring
        return (at % np.uint64(scene.servers)).astype(np.int64)[:, None]
    if scene.ring == "ideal":
        return distinct(rng, scene.servers, walked(scene), len(at))
    assert ring is not None
    return ring.nodes_of_hashes(at, walked(scene)).astype(np.int64)


def without_one(scene: Scene, at: Words, rng: Rng, clients: int) -> Indices:
    """S: the servers of these topics for clients whose lists each lack one server: (clients, topics)."""
    place = (at % np.uint64(scene.servers - 1)).astype(np.int64)
    lacking = rng.integers(scene.servers, size=(clients, 1))
    return place + (place >= lacking)


def known(scene: Scene, rng: Rng, clients: int, k: int) -> Flags:
    """Returns which of a topic's servers each client knows, each with probability `known`: (clients, walked).

    Raises ValueError if a client knows fewer than `k`.
    """
    length = walked(scene)
    knows = flags(rng, (clients, length), scene.known)
    if length and int(np.count_nonzero(knows, axis=1).min()) < k:
        raise ValueError(f"{scene.name}: a client knows fewer than {k} of the first {length} servers")
    return knows


def first_known(knows: Flags, k: int) -> Flags:
    """Returns the servers that each client uses as its `k`, of those that it `knows`: shaped alike."""
    return knows & (np.cumsum(knows, axis=1, dtype=np.int32) <= k)
