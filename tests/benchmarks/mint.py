"""How late an event loop is while a client of ours looks for stamps, beside a thread that does the same.

    python -m tests.benchmarks.mint [--bits 18] [--topics 4]

A real server asks for work, and a real client wants leases there. Meanwhile a task sleeps for 1 ms, again and
again, and notes by how much too long each sleep was. `thread` looks for as many stamps in a thread instead.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import uvloop

from kcast.client.aio import Client
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.pubsub.stamp import Mint

SLEEP_S = 0.001
SLICE_TRIES = 2000
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


async def lags_during(work: Awaitable[None]) -> list[float]:
    """How much later than asked for each sleep returned, in seconds, until the work is done."""
    lags = []
    task = asyncio.ensure_future(work)
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(SLEEP_S)
        lags.append(time.perf_counter() - start - SLEEP_S)
    await task
    return lags


async def lease(servers: ProcessCluster, topics: int) -> None:
    """Leases so many topics, as a client does."""
    async with Client(servers.cluster(Policy(1, 1, 1))) as client:
        subscriptions = [client.subscribe(f"topic/{number}") for number in range(topics)]
        for subscription in subscriptions:
            leased, wanted = await subscription.ready(timeout_s=60)
            assert leased == wanted, "the leases did not come within a minute"


def mint_all(bits: int, topics: int) -> None:
    """Looks for as many stamps, with nothing in between."""
    for number in range(topics):
        mint = Mint(os.urandom(32), [b"topic/%d" % number], bits)
        while mint.work(SLICE_TRIES) is None:
            pass


def report(name: str, lags: list[float], elapsed_s: float) -> None:
    """One row."""
    ms = sorted(1000 * lag for lag in lags)
    p50, p99 = ms[len(ms) // 2], ms[int(0.99 * (len(ms) - 1))]
    print(f"{name:24s} {elapsed_s:6.2f} {p50:8.2f} {p99:8.2f} {ms[-1]:8.2f}", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bits", type=int, default=18)
    parser.add_argument("--topics", type=int, default=4)
    given = parser.parse_args()
    options = ("--work-bits", str(given.bits))
    print(f"{'':24s} {'s':>6s} {'p50 ms':>8s} {'p99 ms':>8s} {'max ms':>8s}")
    with ProcessCluster(1, ttl_s=600, options=options) as servers:
        ways: dict[str, Callable[[], Awaitable[None]]] = {
            "idle": lambda: asyncio.sleep(0.5),
            "slices (the client)": lambda: lease(servers, given.topics),
            "thread": lambda: asyncio.to_thread(mint_all, given.bits, given.topics),
        }
        for loop_name, new_loop in LOOPS.items():
            for way, work in ways.items():
                start = time.perf_counter()
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    lags = runner.run(lags_during(work()))
                report(f"{loop_name}, {way}", lags, time.perf_counter() - start)


if __name__ == "__main__":
    main()
