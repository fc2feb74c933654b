"""One subscriber of a benchmark: takes what comes to its topics, and counts it."""

import asyncio
from collections import Counter
from collections.abc import Collection
from time import monotonic_ns
from typing import Any

from kcast.client.aio import AllServersLost, Client, Drop
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.received import Received


class Subscriber:
    """Subscribes to all topics of a plan by a client that is open. First `ready`, then `run`."""

    def __init__(self, client: Client, plan: BenchPlan) -> None:
        self.received = Received()
        self._client = client
        self._plan = plan
        self._before: Counter[str] = Counter()
        self._events = client.events()
        self._subscription = client.subscribe(plan.topic_names)

    async def ready(self, timeout_s: float) -> tuple[int, int]:
        """Waits until all leases stand, or no server answers, at most this long; returns how many leases do,
        and how many are wanted."""
        waiting = [
            asyncio.create_task(self._subscription.ready(timeout_s)),
            asyncio.create_task(self._all_servers_are_lost()),
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return self._subscription.leases

    async def _all_servers_are_lost(self) -> None:
        async for event in self._events:
            if isinstance(event, AllServersLost):
                return

    def begin(self, publishers: Collection[str] | None) -> None:
        """Counts from now on what these publish; None: what anybody publishes, whose clock may be another."""
        self.received = Received(publishers, wants_latencies=publishers is not None)
        self._before = self._client.counts

    async def run(self) -> None:
        """Takes messages until the plan's count has come, or `stop` is called."""
        count = self._plan.count if self._plan.kind == "sub" else None
        async for delivery in self._subscription:
            self.received.take(
                delivery.topic, delivery.publisher, delivery.seq, delivery.payload, monotonic_ns()
            )
            if count is not None and self.received.delivered >= count:
                self.stop()
                return

    def stop(self) -> None:
        """Ends the subscription: what has come is still taken."""
        self._subscription.close()

    def figures(self) -> dict[str, Any]:
        """Returns what has come of it, as JSON takes it."""
        received, counts = self.received, self._client.counts
        return {
            "delivered": received.delivered,
            "bytes": received.bytes,
            "missing": received.missing,
            "twice": received.twice,
            "foreign": received.foreign,
            "copies": counts["copies_received"] - self._before["copies_received"],
            "deliveries": counts["deliveries"] - self._before["deliveries"],
            "duplicates": counts["duplicates"] - self._before["duplicates"],
            "kernel_drops": self._client.kernel_drops,
            "slow_consumer": self._client.drops[Drop.SLOW_CONSUMER],
            "first_ns": received.first_ns,
            "last_ns": received.last_ns,
            "latencies": received.latencies.as_json(),
        }
