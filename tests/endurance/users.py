"""Users of a server for minutes of real time, in a process of its own: shipped clients that come and go.

    python -m tests.endurance.users CLUSTER --seconds 1200 --report-s 15

One publisher and one subscriber stay. Topics are subscribed to and left again, clients come for some seconds,
and plain sockets take a lease and vanish. Reports how many messages were sent and came, as a line of JSON.
"""

import argparse
import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable

from kcast.client.aio import Client
from kcast.pubsub.endpoint import Address
from tests.attacks.wire_peer import WirePeer

RATE_PER_S = 50
TOPIC = "steady"
READY_S = 20.0
LAST_S = 2.0  # for what is still on its way
CHURN_S = 1.0  # between topics that are subscribed to
GUESTS_S = 3.0  # between clients that come
LEAVERS_S = 10.0  # between sockets that vanish


class Users:
    """What they have done so far."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.sent = self.came = self.guests = self.leavers = self.topics = 0
        self._chance = random.Random(8)

    def told(self) -> str:
        """Returns a report."""
        counts = ("sent", "came", "guests", "leavers", "topics")
        return json.dumps({name: getattr(self, name) for name in counts})

    async def run(self, seconds: float, report_s: float) -> None:
        """Does what users do, for so long. The end is a last report. Errors are raised."""
        async with Client(self.cluster) as subscriber, Client(self.cluster) as publisher:
            leased, wanted = await subscriber.subscribe(TOPIC, on_delivery=self._take).ready(READY_S)
            assert leased == wanted, "no lease stands"
            (server,) = (entry.addresses[0] for entry in subscriber.cluster.servers)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(each)
                    for each in (
                        self._publish(publisher),
                        _every(report_s, self._report),
                        _every(CHURN_S, lambda: self._follow_for_a_while(subscriber)),
                        _every(GUESTS_S, self._be_a_guest),
                        _every(LEAVERS_S, lambda: asyncio.to_thread(self._vanish, server)),
                    )
                ]
                await asyncio.sleep(seconds)
                for task in running:
                    task.cancel()
            await asyncio.sleep(LAST_S)
        await self._report()

    async def _publish(self, publisher: Client) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, began + number / RATE_PER_S - loop.time()))
            publisher.publish_nowait(TOPIC, b"%d" % number, confirm=number % 10 == 0)
            self.sent += 1

    def _take(self, _: object) -> None:
        self.came += 1

    async def _report(self) -> None:
        print(self.told(), flush=True)

    async def _follow_for_a_while(self, subscriber: Client) -> None:
        """Subscribes to a topic of its own."""
        self.topics += 1
        subscription = subscriber.subscribe(f"topic{self.topics}", on_delivery=lambda _: None)
        await subscription.ready(READY_S)
        await asyncio.sleep(self._chance.uniform(1, 10))
        subscription.close()

    async def _be_a_guest(self) -> None:
        """Comes as another client, which subscribes and publishes."""
        async with Client(self.cluster) as guest:
            await guest.subscribe("guests", on_delivery=lambda _: None).ready(READY_S)
            await guest.publish("guests", b"hello")
            await asyncio.sleep(self._chance.uniform(1, 10))
        self.guests += 1

    def _vanish(self, server: Address) -> None:
        """Takes a lease from an address of its own, and is gone."""
        self.leavers += 1
        with WirePeer(server, f"127.5.{self.leavers // 250 % 250}.{1 + self.leavers % 250}") as peer:
            peer.lease(TOPIC.encode())


async def _every(interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Begins something again and again, whether or not it has ended."""
    async with asyncio.TaskGroup() as tasks:
        while True:
            await asyncio.sleep(interval_s)
            tasks.create_task(_awaited(act))


async def _awaited(act: Callable[[], Awaitable[None]]) -> None:
    await act()


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance.users")
    parser.add_argument("cluster")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--report-s", type=float, required=True)
    given = parser.parse_args()
    asyncio.run(Users(given.cluster).run(given.seconds, given.report_s))


if __name__ == "__main__":
    main()
