"""Where the time goes from a publish to its delivery, by stages.

    python -m bench.latency                   # 2,000 messages a second, in Python
    python -m bench.latency --rate 200 --receipts

A client publishes to itself by way of one server, each message when it is due. Stages are told by what stands
between socket and core, and by the time at which the kernel received each copy:

- *leaves*: from the call of `publish_nowait` to the datagram that is handed to the kernel
- *away*: until the copy is in the client's socket: two ways through the kernel, and the server
- *unread*: until the client has been woken, and has read it
- *told*: until the program has the delivery
"""

import argparse
import asyncio
import re
import time
from collections.abc import Iterator

import numpy as np

from bench.peers.programs.client_load import Timer
from kcast.client.aio import Client
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.pubsub.endpoint import Burst, Endpoint, Transmit
from tests.support.client_paths import Through

STAGES = ("leaves", "away", "unread", "told")
TOPIC = "latency"
PAYLOAD_BYTES = 100
WARM_UP = 500  # messages that do not count
_NUMBER = re.compile(rb" (\d{8})\.+\n")


class Staged(Through):
    """Notes when each message leaves and when its copy comes, in ns since 1970, by its number."""

    def __init__(self, core: Endpoint) -> None:
        super().__init__(core)
        self.left_ns: dict[int, int] = {}
        self.arrived_ns: dict[int, int] = {}
        self.read_ns: dict[int, int] = {}

    def receive(self, burst: Burst, now: float) -> None:
        read_ns = time.time_ns()
        for number in _numbers(burst.data):
            self.arrived_ns[number] = burst.kernel_ns
            self.read_ns[number] = read_ns
        self.core.receive(burst, now)

    def flush(self, now: float) -> list[Transmit]:
        transmits = self.core.flush(now)
        left_ns = time.time_ns()
        for transmit in transmits:
            for number in _numbers(transmit.data):
                self.left_ns[number] = left_ns
        return transmits


def _numbers(data: bytes) -> Iterator[int]:
    return map(int, _NUMBER.findall(data))


def main() -> None:
    """Prints a table: percentiles of each stage, and of the whole."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=2000.0, help="messages a second")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--receipts", action="store_true")
    options = parser.parse_args()
    # Without limits, since the server would take the client for one that publishes too much.
    with ProcessCluster(1, ttl_s=60) as servers:
        cluster = servers.cluster(Policy(1, 1, 1))
        times = asyncio.run(measured(cluster, options.rate, options.seconds, options.receipts))
    print(f"{len(times):,} messages, {options.rate:g} a second")
    print(f"{'':8}{'p50 us':>9}{'p90 us':>9}{'p99 us':>9}")
    stages = np.diff(times, axis=1) / 1000
    for name, values in (*zip(STAGES, stages.T, strict=True), ("in all", stages.sum(axis=1))):
        print(f"{name:8}" + "".join(f"{value:9.0f}" for value in np.percentile(values, (50, 90, 99))))


async def measured(cluster: Cluster, rate: float, seconds: float, receipts: bool) -> np.ndarray:
    """Returns the times of each message at the ends of all stages, in ns since 1970."""
    paths: list[Staged] = []

    def path(core: Endpoint) -> Staged:
        paths.append(Staged(core))
        return paths[-1]

    published_ns: dict[int, int] = {}
    told_ns: dict[int, int] = {}
    async with Client(cluster, path=path, kernel_times=True) as client:
        subscription = client.subscribe(TOPIC)
        await subscription.ready(10.0)

        async def take() -> None:
            async for delivery in subscription:
                told_ns[int(delivery.payload[:8])] = time.time_ns()

        task = asyncio.create_task(take())
        timer, due = Timer(1 / rate), asyncio.Event()
        asyncio.get_running_loop().add_reader(timer.descriptor, due.set)
        number = 0
        while number < WARM_UP + rate * seconds:
            await due.wait()
            due.clear()
            for _ in range(timer.passed()):
                published_ns[number] = time.time_ns()
                payload = (b"%08d" % number).ljust(PAYLOAD_BYTES, b".")
                client.publish_nowait(TOPIC, payload, confirm=receipts)
                number += 1
        asyncio.get_running_loop().remove_reader(timer.descriptor)
        timer.close()
        await client.flush(5.0)
        await asyncio.sleep(0.1)
        task.cancel()
    ends = published_ns, paths[0].left_ns, paths[0].arrived_ns, paths[0].read_ns, told_ns
    return np.array([[times[each] for times in ends] for each in range(WARM_UP, number) if each in told_ns])


if __name__ == "__main__":
    main()
