"""How many messages of one publisher come out of order, and what `hold_s` does about it at what delay.

    python -m tests.benchmarks.order

One publisher sends 1,000 messages a second to one topic, with receipts or without, over loopback; in the last
rows each datagram takes 10 ms more to arrive on average, 0 to 20. One subscriber in another process takes
them with several hold times. A message is inverted if one with a higher number was delivered before it. The
delay of a message is the time from when it came to when the program gets it.
"""

import asyncio
import multiprocessing
import time
from functools import partial
from multiprocessing.connection import Connection
from random import Random

import numpy as np

from kcast.client.aio import Client
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.client_paths import Rough

SERVERS = 5
RATE = 1000.0  # messages a second
MESSAGES = 5000
JITTER_S = 0.02
HOLDS_S = (0.0, 0.005, 0.02, 0.05, 0.1)
TOPIC = "order"


def main() -> None:
    """Prints a table: inversions, and the delay that holding adds."""
    print(f"{'':34}{'hold_s':>8}{'inverted':>10}{'p50 ms':>9}{'p99 ms':>9}   of {MESSAGES:,} messages")
    with ProcessCluster(SERVERS, ttl_s=60) as processes:
        cluster = processes.cluster(Policy(5, 3, 5))
        for confirm, jitter_s, name in (
            (True, 0.0, "with receipts"),
            (False, 0.0, "without receipts (confirm=False)"),
            (True, JITTER_S, "with receipts, 0 to 20 ms of jitter"),
        ):
            for hold_s in HOLDS_S:
                seqs, delays_s = deliveries(cluster, confirm, jitter_s, hold_s)
                p50_ms, p99_ms = np.percentile(delays_s, (50, 99)) * 1000
                print(f"{name:34}{hold_s:8}{inversions(seqs):10,}{p50_ms:9.2f}{p99_ms:9.2f}", flush=True)


def inversions(seqs: list[int]) -> int:
    """Number of messages that came after one with a higher number."""
    highest = np.maximum.accumulate(seqs)
    return int(np.count_nonzero(np.asarray(seqs) < highest))


def deliveries(
    cluster: Cluster, confirm: bool, jitter_s: float, hold_s: float
) -> tuple[list[int], list[float]]:
    """Numbers and delays of all deliveries, in the order in which the program gets them."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=subscribe, args=(cluster, jitter_s, hold_s, there))
    process.start()
    assert here.recv() == "leased"
    asyncio.run(publish(cluster, confirm))
    found: tuple[list[int], list[float]] = here.recv()
    process.join()
    return found


def subscribe(cluster: Cluster, jitter_s: float, hold_s: float, pipe: Connection) -> None:
    """Takes all messages, then tells their numbers and delays."""
    asyncio.run(take(cluster, jitter_s, hold_s, pipe))


async def take(cluster: Cluster, jitter_s: float, hold_s: float, pipe: Connection) -> None:
    """As `subscribe`."""
    path = partial(Rough, rng=Random(1), delay_s=jitter_s, jitters=True) if jitter_s else None
    seqs: list[int] = []
    delays_s: list[float] = []
    async with Client(cluster, path=path) as client:
        stream = client.subscribe(TOPIC, hold_s=hold_s)
        leased, wanted = await stream.ready(30.0)
        assert leased == wanted
        pipe.send("leased")
        while len(seqs) < MESSAGES:
            delivery = await stream.get(30.0)
            assert delivery is not None and delivery.seq is not None
            seqs.append(delivery.seq)
            delays_s.append(time.time() - delivery.received_at_s)
    pipe.send((seqs, delays_s))


async def publish(cluster: Cluster, confirm: bool) -> None:
    """Sends the messages, evenly in time."""
    async with Client(cluster) as client:
        began_at = time.monotonic()
        for number in range(MESSAGES):
            client.publish_nowait(TOPIC, b"x" * 100, confirm=confirm)
            wait_s = began_at + number / RATE - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)


if __name__ == "__main__":
    main()
