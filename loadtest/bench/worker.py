"""A process of a benchmark, with some of its publishers or some of its subscribers.

    python -m kcast.loadtest.bench.worker

It takes orders from standard input, a JSON object a line: `Job`, then `Go`, then perhaps any further one, by
which it stops. It answers likewise on standard output: `ready`, `progress` again and again, and `figures`; or
`failed`. When its input ends, whoever started it is gone, and it ends too.
"""

import asyncio
import errno
import json
import os
import resource
import sys
from contextlib import AsyncExitStack, suppress
from time import process_time_ns
from typing import Any

import uvloop

from kcast.client import cluster as clusters
from kcast.client.aio import Client
from kcast.client.cluster import Cluster
from kcast.loadtest.bench.orders import Go, Job
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.publisher import Publisher
from kcast.loadtest.bench.subscriber import Subscriber
from kcast.pubsub.errors import KcastError

PROGRESS_INTERVAL_S = 0.1
_LINE_BYTES_MAX = 1 << 20
_OUTPUT = 1


class _Worker:
    """Either publishers or subscribers, each with a client of its own."""

    def __init__(self, job: Job, orders: "asyncio.Queue[bytes]") -> None:
        self._job = job
        self._orders = orders
        self._plan = BenchPlan.from_json(job["plan"])
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self._cpu_begun_ns = 0

    async def run(self) -> None:
        """Does the job, from opening clients to telling the figures. Raises KcastError, OSError."""
        async with AsyncExitStack() as stack:
            names = []
            for number in self._job["publishers"]:
                client = await stack.enter_async_context(Client(self._cluster()))
                names.append(client.core.publisher)
                self._publishers.append(Publisher(client, self._plan, number))
            for _ in self._job["subscribers"]:
                client = await stack.enter_async_context(Client(self._cluster()))
                self._subscribers.append(Subscriber(client, self._plan))
            # They take what comes before the start, too, so that it does not pile up.
            working = [asyncio.create_task(each.run()) for each in self._subscribers]
            _say({"is": "ready", "names": names, **await self._ready()})
            go: Go = json.loads(await self._orders.get())
            self._begin(go)
            working += [asyncio.create_task(each.run(go["go_ns"])) for each in self._publishers]
            others = [asyncio.create_task(self._tell()), asyncio.create_task(self._await_stop())]
            await asyncio.gather(*working)
            for task in others:
                task.cancel()
            self._tell_progress()
            _say(self._figures())

    def _cluster(self) -> Cluster | str:
        text = self._job["text"]
        return self._job["name"] if text is None else clusters.parse(text, self._job["name"])

    async def _ready(self) -> dict[str, Any]:
        """Waits until leases stand, and servers know the publishers; returns how many do."""
        timeout_s = self._job["ready_timeout_s"]
        leases = await asyncio.gather(*(each.ready(timeout_s) for each in self._subscribers))
        answered = await asyncio.gather(*(each.warm_up() for each in self._publishers))
        return {
            "leased": sum(held for held, _ in leases),
            "wanted": sum(wanted for _, wanted in leases),
            "without_lease": sum(not held for held, _ in leases),
            "without_receipt": answered.count(False),
        }

    def _begin(self, go: Go) -> None:
        self._cpu_begun_ns = process_time_ns()
        for each in self._subscribers:
            each.begin(go["names"])

    async def _await_stop(self) -> None:
        await self._orders.get()
        for publisher in self._publishers:
            publisher.stop()
        for subscriber in self._subscribers:
            subscriber.stop()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            self._tell_progress()

    def _tell_progress(self) -> None:
        delivered = [each.received.delivered for each in self._subscribers]
        _say(
            {
                "is": "progress",
                "attempted": sum(each.attempted for each in self._publishers),
                "unheard": sum(each.receipts[0] for each in self._publishers) if self._plan.confirm else 0,
                "delivered": sum(delivered),
                "least": min(delivered, default=0),  # of a subscriber
                "missing": sum(each.received.missing for each in self._subscribers),
            }
        )

    def _figures(self) -> dict[str, Any]:
        return {
            "is": "figures",
            "publishers": [each.figures() for each in self._publishers],
            "subscribers": [each.figures() for each in self._subscribers],
            "cpu_ns": process_time_ns() - self._cpu_begun_ns,
        }


def _say(told: dict[str, Any]) -> None:
    data = json.dumps(told).encode() + b"\n"
    while data:
        data = data[os.write(_OUTPUT, data) :]


async def _work() -> None:
    """Runs the worker until it is done, or nobody gives orders any more."""
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    orders: asyncio.Queue[bytes] = asyncio.Queue()
    work = asyncio.current_task()
    assert work is not None
    taking = asyncio.create_task(_take(reader, orders, work))
    try:
        await _Worker(json.loads(await orders.get()), orders).run()
    finally:
        taking.cancel()
        transport.close()


async def _take(
    reader: asyncio.StreamReader, orders: "asyncio.Queue[bytes]", work: "asyncio.Task[None]"
) -> None:
    """Hands orders on; cancels the work when there will be no more."""
    while line := await reader.readline():
        orders.put_nowait(line)
    work.cancel()


def main() -> int:
    """Works; returns the exit code."""
    _allow_files()
    try:
        uvloop.run(_work())
    except asyncio.CancelledError:
        return 0
    except KcastError as error:
        return _fail(str(error))
    except OSError as error:
        advice = ": raise 'ulimit -Hn', or take fewer clients" if error.errno == errno.EMFILE else ""
        return _fail(f"{error.strerror or error}{advice}")
    return 0


def _fail(why: str) -> int:
    with suppress(OSError):
        _say({"is": "failed", "why": why})
    return 1


def _allow_files() -> None:
    """Allows this process as many open files as it may have: each client takes two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
