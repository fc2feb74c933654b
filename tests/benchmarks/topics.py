"""What many topics in one stream cost a client, beside one topic with the same traffic.

    python -m tests.benchmarks.topics

A publisher sends the same number of messages at the same rate, to one topic or to each of 1,000 in turn. One
subscriber has them all in one stream, in a process of its own, whose CPU time counts from when all leases
stand. They are renewed once meanwhile, or twice. Both runs alternate; the ratio is that of the medians.
"""

import asyncio
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

from kcast.client.aio import Client
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster

SERVERS = 5
TTL_S = 60
RATE = 2000.0  # messages a second
DURATION_S = 30.0  # one and a half times from one renewal to the next
TURNS = 3
TOPICS_MANY = 1000


def main() -> None:
    """Prints the CPU time of both, and their ratio."""
    found: dict[int, list[float]] = {1: [], TOPICS_MANY: []}
    with ProcessCluster(SERVERS, ttl_s=TTL_S) as processes:
        cluster = processes.cluster(Policy(5, 3, 5))
        for turn in range(TURNS):
            for count, seconds in found.items():
                seconds.append(cpu_s(cluster, [f"topic/{number}" for number in range(count)]))
                print(f"turn {turn + 1} of {TURNS}: {count:5} topics {seconds[-1]:7.3f} s of CPU", flush=True)
    one, many = (statistics.median(seconds) for seconds in found.values())
    print(f"one topic {one:.3f} s, {TOPICS_MANY} topics {many:.3f} s: {many / one:.2f} times")


def cpu_s(cluster: Cluster, topics: list[str]) -> float:
    """CPU seconds of a subscriber of these topics, from when its leases stand to the last message."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=subscribe, args=(cluster, topics, there))
    process.start()
    assert here.recv() == "leased"
    asyncio.run(publish(cluster, topics))
    used_s: float = here.recv()
    process.join()
    return used_s


def subscribe(cluster: Cluster, topics: list[str], pipe: Connection) -> None:
    """Takes all messages, then tells the CPU time that it has used since its leases stood."""
    asyncio.run(take(cluster, topics, pipe))


async def take(cluster: Cluster, topics: list[str], pipe: Connection) -> None:
    """As `subscribe`."""
    async with Client(cluster) as client:
        stream = client.subscribe(topics)
        leased, wanted = await stream.ready(30.0)
        assert leased == wanted
        pipe.send("leased")
        began_s = time.process_time()
        for _ in range(int(RATE * DURATION_S)):
            assert await stream.get(30.0)
        pipe.send(time.process_time() - began_s)


async def publish(cluster: Cluster, topics: list[str]) -> None:
    """Sends the messages, evenly in time, to each topic in turn."""
    async with Client(cluster) as client:
        began_at = time.monotonic()
        for number in range(int(RATE * DURATION_S)):
            client.publish_nowait(topics[number % len(topics)], b"x" * 100, confirm=False)
            wait_s = began_at + number / RATE - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)


if __name__ == "__main__":
    main()
