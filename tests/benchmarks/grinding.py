"""What it takes to own a topic. Run `python -m tests.benchmarks.grinding`.

Whoever owns all servers of a topic can drop or watch what is published on it. With a salt that he knows, an
attacker tries networks of his own until enough of them lie beside the topic of his choice. Where the salt is
made only after all addresses are public (PROTOCOL §10.9), he owns what falls to him by chance: with m of n
hosts about (m/n)^k of all topics, and none that he can choose.
"""

import time

import numpy as np

from kcast.hashring.hashing import U64_MAX, host_base, point_before, topic_hash
from kcast.hashring.ring import HashRing

K = 5
HOSTS = 1000
TOPICS = 200_000
CHOSEN = 100  # topics that the attacker chooses, one after the other
SALT = b"known"
NETWORKS = 65_536  # /64s of one IPv6 /48
OWNED = (5, 100, 200, 330)
SEEDS = range(3)


def honest(count: int) -> list[bytes]:
    """Returns the keys of hosts of as many IPv4 networks."""
    return [b"20.%d.%d.7" % (index // 256, index % 256) for index in range(count)]


def grind(topic: bytes, ring: HashRing, bases: list[int]) -> int | None:
    """Tries the networks in turn until K of them are nearest before the topic; returns how many it took."""
    position = topic_hash(topic)
    nearest = ring.explain(topic, 1).hosts[0].distance
    found = 0
    for tries, base in enumerate(bases, 1):
        if position - point_before(base, position) & U64_MAX < nearest:
            found += 1
            if found == K:
                return tries
    return None


def share_captured(owned: int, seed: int) -> float:
    """Returns the share of topics all of whose hosts are the attacker's, where chance has placed them."""
    ring = HashRing(honest(HOSTS), b"salt %d" % seed)
    mine = np.zeros(HOSTS, np.bool_)
    mine[np.random.default_rng(seed).permutation(HOSTS)[:owned]] = True
    topics = (b"topic-%d" % number for number in range(TOPICS))
    hits = mine[ring.nodes_many(topics, K)].all(axis=1)
    return float(hits.mean())


def main() -> None:
    ring = HashRing(honest(HOSTS), SALT)
    start = time.perf_counter()
    bases = [host_base(b"2001:db8:0:%x::/64" % number, SALT) for number in range(1, NETWORKS)]
    found = [grind(b"topic-%d" % number, ring, bases) for number in range(CHOSEN)]
    each_s = (time.perf_counter() - start) / CHOSEN
    tries = sorted(each for each in found if each is not None)
    print(f"salt known beforehand: {HOSTS} honest hosts, and the /64s of one IPv6 /48")
    print(
        f"  {len(tries)} of {CHOSEN} topics were taken whole, each in {each_s:.2f} s: all {K} hosts; tries:"
    )
    print(f"  median {tries[len(tries) // 2]}, most {tries[-1]}\n")
    print(f"salt made after all addresses are public: share of {TOPICS} topics whose {K} hosts are all his")
    print(f"  {'m of ' + str(HOSTS):>10} {'measured, median of ' + str(len(SEEDS)):>24} {'(m/n)^k':>10}")
    for owned in OWNED:
        measured = float(np.median([share_captured(owned, seed) for seed in SEEDS]))
        print(f"  {owned:>10} {measured:>24.2g} {(owned / HOSTS) ** K:>10.2g}")


if __name__ == "__main__":
    main()
