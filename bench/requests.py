"""What a request costs beside a bare ping-pong of two messages, on the same three servers.

    python -m bench.requests                  # 9 rounds, which take turns
    python -m bench.requests --threads        # with the blocking client; one at a time

A process asks, another one answers. In each round it is 1,000 times one after the other, and then 4,000 times
with 64 outstanding. Printed are the medians of the rounds, and how many times a ping-pong's they are.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from kcast.client import blocking
from kcast.client.aio import Client
from kcast.client.clusters.cluster import format_cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster

SINGLE, MANY, OUTSTANDING = 1000, 4000, 64
TOPIC, PING, PONG = "bench", "bench/ping", "bench/pong"
Ask = Callable[[int], Awaitable[object]]


async def answer(cluster: str) -> None:
    """Answers pings and requests until it is killed."""

    async def cpu(request: Any) -> str:
        return str(process_time())

    async def echo(request: Any) -> Any:
        return request.payload

    async with Client(cluster) as client, client.service(TOPIC, {"cpu": cpu, "echo": echo}):
        async for delivery in client.subscribe(PING):
            client.publish_nowait(PONG, delivery.payload, confirm=False)


class Pinging:
    """A client that pings, and waits for each pong."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self.pongs = client.subscribe(PONG, on_delivery=self._came)

    async def ask(self, number: int) -> None:
        """Pings, and waits for the pong."""
        payload = b"%d" % number
        came = self._waiting[payload] = asyncio.get_running_loop().create_future()
        self._client.publish_nowait(PING, payload, confirm=False)
        async with asyncio.timeout(5.0):
            await came

    def _came(self, delivery: Any) -> None:
        waiting = self._waiting.pop(delivery.payload, None)
        if waiting is not None:
            waiting.set_result(None)


async def measured(client: Client, ask: Ask, start: int) -> list[float]:
    """Returns p50 and p99 of a round in us, its rate a second, and us of CPU here and there for each."""
    times = []
    for number in range(start, start + SINGLE):
        begun = perf_counter()
        await ask(number)
        times.append(perf_counter() - begun)
    places = asyncio.Semaphore(OUTSTANDING)

    async def one(number: int) -> None:
        async with places:
            await ask(number)

    there = float((await client.request(TOPIC, "", "cpu")).payload)
    here, begun = process_time(), perf_counter()
    await asyncio.gather(*(one(start + SINGLE + number) for number in range(MANY)))
    took_s, here_s = perf_counter() - begun, process_time() - here
    there_s = float((await client.request(TOPIC, "", "cpu")).payload) - there
    p50, p99 = np.percentile(times, (50, 99)) * 1e6
    return [p50, p99, MANY / took_s, here_s / MANY * 1e6, there_s / MANY * 1e6]


async def with_asyncio(cluster: str, rounds: int) -> dict[str, list[list[float]]]:
    """Returns the figures of all rounds."""
    found: dict[str, list[list[float]]] = {"ping-pong": [], "request": []}
    async with Client(cluster) as client:
        pinging = Pinging(client)
        await pinging.pongs.ready(10.0)
        asks: dict[str, Ask] = {
            "ping-pong": pinging.ask,
            "request": lambda number: client.request(TOPIC, b"%d" % number, "echo"),
        }
        await client.members(TOPIC).get(20.0)  # the worker is there
        await measured(client, asks["request"], 0)
        for number in range(rounds):
            for name, ask in asks.items():
                found[name].append(await measured(client, ask, number * (SINGLE + MANY)))
    return found


def with_threads(cluster: str, rounds: int) -> dict[str, list[list[float]]]:
    """Returns the rate of all rounds, one at a time, with the blocking client."""
    found: dict[str, list[list[float]]] = {"ping-pong": [], "request": []}
    with blocking.Client(cluster) as client:
        pongs = client.subscribe(PONG)
        pongs.ready(10.0)
        client.members(TOPIC).get(20.0)  # the worker is there

        def ping(number: int) -> None:
            client.publish_nowait(PING, b"%d" % number, confirm=False)
            pongs.get(5.0)

        asks: dict[str, Callable[[int], object]] = {
            "ping-pong": ping,
            "request": lambda number: client.request(TOPIC, b"%d" % number, "echo"),
        }
        for _ in range(rounds):
            for name, ask in asks.items():
                begun = perf_counter()
                for number in range(SINGLE):
                    ask(number)
                found[name].append([SINGLE / (perf_counter() - begun)])
    return found


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        asyncio.run(answer(options.answer))
        return
    with tempfile.TemporaryDirectory() as folder, ProcessCluster(3, ttl_s=60) as servers:
        file = Path(folder) / "bench.cluster"
        file.write_text(format_cluster(servers.cluster(Policy(3, 2, 3))))
        worker = subprocess.Popen((sys.executable, "-m", "bench.requests", "--answer", str(file)))
        try:
            found = (
                with_threads(str(file), options.rounds)
                if options.threads
                else asyncio.run(with_asyncio(str(file), options.rounds))
            )
        finally:
            worker.kill()
            worker.wait()
    figures = ("rate",) if options.threads else ("p50 us", "p99 us", "rate", "CPU us here", "there")
    print(f"{'':12}{'ping-pong':>11}{'request':>11}{'times':>7}")
    for index, name in enumerate(figures):
        bare, asked = (median(each[index] for each in found[kind]) for kind in ("ping-pong", "request"))
        print(f"{name:12}{bare:11.0f}{asked:11.0f}{asked / bare:7.2f}")


if __name__ == "__main__":
    main()
