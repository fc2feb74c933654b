"""What a message costs a client that sends it to itself, by the way in which that is done.

    python -m tests.benchmarks.ways

Each way takes its turn in each round. The cost is the CPU time of this process, by way of one server; the
figures are medians of the rounds, and the ratios are to the first way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median
from time import process_time

from kcast.client.aio import Client, Subscription
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster

ROUNDS = 20
BURSTS = 40  # of a round
BURST = 100  # messages
TOPIC = "ways"
PAYLOADS = [(b"%08d" % number).ljust(100, b".") for number in range(BURST)]

Publish = Callable[[Client], Awaitable[object]]
Take = Callable[[Subscription], Awaitable[object]]


async def one_by_one(client: Client) -> None:
    for payload in PAYLOADS:
        client.publish_nowait(TOPIC, payload, confirm=False)


async def one_by_one_with_receipts(client: Client) -> None:
    for payload in PAYLOADS:
        client.publish_nowait(TOPIC, payload)


async def one_at_a_time(client: Client) -> None:
    for payload in PAYLOADS:
        client.publish_nowait(TOPIC, payload, confirm=False)
        await asyncio.sleep(0)


async def with_a_flush(client: Client) -> None:
    await one_by_one(client)
    await client.flush()


async def together(client: Client) -> None:
    client.publish_many_nowait(TOPIC, PAYLOADS, confirm=False)


async def together_with_receipts(client: Client) -> None:
    client.publish_many_nowait(TOPIC, PAYLOADS)


async def each(subscription: Subscription) -> None:
    for _ in range(BURST):
        await anext(subscription)


async def batches(subscription: Subscription) -> None:
    missing = BURST
    async for batch in subscription.batches():
        missing -= len(batch)
        if not missing:
            return


WAYS: list[tuple[str, Publish, Take]] = [
    ("publish_nowait without receipts, async for", one_by_one, each),
    ("... with receipts", one_by_one_with_receipts, each),
    ("... and a flush after 100", with_a_flush, each),
    ("... each in a turn of its own", one_at_a_time, each),
    ("... batches() in place of async for", one_by_one, batches),
    ("publish_many of 100 without receipts, async for", together, each),
    ("... batches() in place of async for", together, batches),
    ("... with receipts, batches()", together_with_receipts, batches),
]


def main() -> None:
    """Prints a table."""
    options = ("--publish-rate=0", "--copy-rate=0", "--egress-rate=0")
    with ProcessCluster(1, ttl_s=60, options=options) as servers:
        costs = asyncio.run(measured(servers.cluster(Policy(1, 1, 1))))
    (first, *_) = costs
    for (name, _, _), found in zip(WAYS, costs, strict=True):
        ratio = median([mine / its for mine, its in zip(found, first, strict=True)])
        print(f"{name:50}{median(found) * 1e6:6.1f} us{ratio:7.2f}")


async def measured(cluster: Cluster) -> list[list[float]]:
    """Returns the CPU seconds of a message in each round, for each way."""
    costs: list[list[float]] = [[] for _ in WAYS]
    async with Client(cluster) as client:
        subscription = client.subscribe(TOPIC)
        await subscription.ready(10.0)
        for number in range(ROUNDS + 1):
            for found, (_, publish, take) in zip(costs, WAYS, strict=True):
                start_s = process_time()
                for _ in range(BURSTS):
                    await publish(client)
                    await take(subscription)
                if number:  # the first round warms up
                    found.append((process_time() - start_s) / (BURST * BURSTS))
    return costs


if __name__ == "__main__":
    main()
