"""What placement costs. Run `python -m bench.ring`.

The cold look-up is set against one numpy pass that mixes all bases, timed in turn with it, so that the
ratio means the same on a slow or busy machine.
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np

from kcast.hashring.mixing import mix_in_place
from kcast.hashring.ring import HashRing

HOSTS = 100_000


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def keys() -> list[bytes]:
    return [b"10.%d.%d.%d" % (i >> 16, i >> 8 & 255, i & 255) for i in range(HOSTS)]


def bench_build() -> HashRing:
    names = keys()
    times = [seconds(lambda: HashRing(names, b"salt")) for _ in range(15)]
    gc.collect()
    tracemalloc.start()
    ring = HashRing(names, b"salt")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"build from {HOSTS} keys     {statistics.median(times) * 1e3:8.1f} ms (worst {max(times) * 1e3:.1f})"
    )
    print(f"memory held, keys apart     {held / 1e6:8.2f} MB (tracemalloc: bases, tuple of references)")
    print(f"memory at its peak          {peak / 1e6:8.2f} MB (and temporaries of the build)")
    return ring


def bench_cold(ring: HashRing, k: int, rounds: int = 400) -> None:
    bases = np.arange(HOSTS, dtype=np.uint64)
    words, scratch = np.empty_like(bases), np.empty_like(bases)

    def one_pass() -> None:
        np.add(bases, np.uint64(12345), out=words)
        mix_in_place(words, scratch)

    passes, look_ups = [], []
    for i in range(rounds):
        passes.append(seconds(one_pass))
        topic = b"cold-%d-%d" % (k, i)
        look_ups.append(seconds(partial(ring.nodes, topic, k)))
    one, cold = statistics.median(passes), statistics.median(look_ups)
    print(
        f"cold look-up, K={k:<4}        {cold * 1e6:8.0f} us = {cold / one:.2f} passes of {one * 1e6:.0f} us"
    )


def bench_cached(ring: HashRing, k: int, repeats: int = 100_000) -> None:
    def repeat() -> None:
        for _ in range(repeats):
            ring.nodes(b"some/topic", k)

    best = statistics.median(seconds(repeat) for _ in range(7)) / repeats
    print(f"cached look-up, K={k:<4}      {best * 1e6:8.2f} us")


def bench_many(hosts: int, k: int, topics: int) -> None:
    ring = HashRing(keys()[:hosts])
    names = [b"topic-%d" % i for i in range(topics)]
    many = statistics.median(seconds(lambda: ring.nodes_many(names, k)) for _ in range(5)) / topics
    one = seconds(lambda: [ring.nodes(name, k) for name in names]) / topics
    print(
        f"{hosts:>6} hosts, K={k:<4}  nodes_many {many * 1e6:8.2f} us a topic, nodes {one * 1e6:8.2f} us cold"
    )


if __name__ == "__main__":
    big = bench_build()
    for count in (3, 1000):
        bench_cold(big, count)
        bench_cached(big, count)
    for hosts, k, topics in (
        (20, 5, 20_000),
        (300, 5, 5_000),
        (1000, 5, 2_000),
        (3000, 20, 1_000),
        (HOSTS, 1000, 300),
    ):
        bench_many(hosts, k, topics)
