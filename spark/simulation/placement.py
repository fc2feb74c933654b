"""Which servers a topic has, in order: on the real ring, or as if a topic's order of servers were random."""

from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from kcast.hashring.hashing import topic_hash
from kcast.hashring.ring import HashRing
from kcast.spark.simulation.chance import Chance, Flags, Indices, distinct, flags
from kcast.spark.simulation.scene import Scene

Words = npt.NDArray[np.uint64]


def server_keys(servers: int) -> list[str]:
    """Their keys on the real ring: addresses, 10.0.0.0 and on. Raises ValueError beyond 10.255.255.255."""
    if servers > 1 << 24:
        raise ValueError(f"{servers} servers: at most {1 << 24} are simulated")
    return [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(servers)]


def walked(scene: Scene) -> int:
    """How far down a topic's order clients have to look until they know enough servers; next to surely."""
    most = max(scene.k, scene.k_of_subscribers)
    if scene.known == 1:
        return most
    walk = most / scene.known + 10 * sqrt(most * (1 - scene.known)) / scene.known + 20
    return min(scene.servers, ceil(walk))


def positions(scene: Scene, block: int, chance: Chance) -> Words:
    """Where the block's topics are on the ring, of 2**64: real topics' names, or anywhere."""
    if scene.ring == "real":
        names = (f"{scene.name}/{block}/{topic}" for topic in range(scene.size.topics))
        return np.fromiter(map(topic_hash, names), np.uint64, scene.size.topics)
    return chance.integers(1 << 64, size=scene.size.topics, dtype=np.uint64)


def places(scene: Scene, at: Words, ring: HashRing | None, chance: Chance) -> Indices:
    """The servers of topics at these positions, nearest first: (topics, walked). For all schemes but R.

    Raises ValueError for a scene on the real ring without one.
    """
    if scene.scheme == "S":  # by modulo, whatever the ring
        return (at % np.uint64(scene.servers)).astype(np.int64)[:, None]
    if scene.ring == "ideal":
        return distinct(chance, scene.servers, walked(scene), len(at))
    if ring is None or len(ring) != scene.servers:
        raise ValueError(f"{scene.name} needs a ring of {scene.servers} servers")
    return ring.nodes_of_hashes(at, walked(scene)).astype(np.int64)


def without_one(scene: Scene, at: Words, chance: Chance, clients: int) -> Indices:
    """S: the servers of these topics to `clients` whose lists lack one server each: (clients, topics)."""
    place = (at % np.uint64(scene.servers - 1)).astype(np.int64)
    lacking = chance.integers(scene.servers, size=(clients, 1))
    return place + (place >= lacking)


def known_ranks(scene: Scene, chance: Chance, clients: int, k: int) -> tuple[Flags, npt.NDArray[np.int32]]:
    """Which of a topic's order each client uses as its `k`, and how many it has come to: (clients, walked).

    Each knows each server by chance. Raises ValueError if there are too few servers.
    """
    length = walked(scene)
    knows = flags(chance, (clients, length), scene.known)
    ranks = np.cumsum(knows, axis=1, dtype=np.int32)
    if length and int(ranks[:, -1].min()) < k:
        raise ValueError(f"{scene.name}: a client knows fewer than {k} of the first {length} servers")
    return knows & (ranks <= k), ranks
