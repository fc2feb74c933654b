"""Honest traffic, in a process of its own: a publisher and a subscriber, both shipped clients.

    python -m tests.attacks.honest CLUSTER --rate 500 --seconds 10

Says `ready` when the lease stands, then publishes. At the end it says when each message was sent and when it
came, in seconds of the monotonic clock, which all processes of a machine share.
"""

import argparse
import asyncio
import json
from dataclasses import dataclass

from kcast.client.aio import Client
from kcast.client.events import Delivery, LeasesChanged, ServerForgot

LAST_S = 2.0  # for what is still on its way
READY_S = 20.0


@dataclass(frozen=True, slots=True)
class Honest:
    """What became of honest traffic: when each message was sent and came, and when a lease ended."""

    sent: list[float]
    came: list[float | None]
    leases_lost: int

    def within(self, start: float, end: float) -> "Honest":
        """Returns what was sent in this time."""
        chosen = [i for i, at in enumerate(self.sent) if start <= at < end]
        return Honest([self.sent[i] for i in chosen], [self.came[i] for i in chosen], self.leases_lost)

    @property
    def delivered_percent(self) -> float:
        """The share of messages that came; 0 where none was sent."""
        return 100 * sum(at is not None for at in self.came) / max(1, len(self.came))

    @property
    def p50_ms(self) -> float:
        """The median time on the way, of all messages that were sent: those that never came are last."""
        times = sorted(
            float("inf") if came is None else 1000 * (came - sent)
            for sent, came in zip(self.sent, self.came, strict=True)
        )
        return times[(len(times) - 1) // 2] if times else float("inf")


async def run(cluster: str, *, rate: float, seconds: float, topic: str, size_bytes: int) -> Honest:
    """Publishes and subscribes for a time."""
    loop = asyncio.get_running_loop()
    sent: list[float] = []
    came: dict[int, float] = {}

    def take(delivery: Delivery) -> None:
        came.setdefault(int(delivery.payload.split(b" ")[0]), loop.time())

    async with Client(cluster) as subscriber, Client(cluster) as publisher:
        subscription = subscriber.subscribe(topic, on_delivery=take)
        leased, wanted = await subscription.ready(READY_S)
        assert leased == wanted, "no lease stands"
        await publisher.publish(topic, b"-1 hello")
        events = subscriber.events()
        print("ready", flush=True)
        began = loop.time()
        while (number := len(sent)) < rate * seconds:
            delay_s = began + number / rate - loop.time()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            sent.append(loop.time())
            text = b"%d " % number
            publisher.publish_nowait(topic, text.ljust(size_bytes, b"."), confirm=False)
        await asyncio.sleep(LAST_S)
        lost = 0
        while True:
            try:
                event = await events.get(0)
            except TimeoutError:
                break
            if isinstance(event, ServerForgot) or (
                isinstance(event, LeasesChanged) and event.leased < event.wanted
            ):
                lost += 1
        return Honest(sent, [came.get(number) for number in range(len(sent))], lost)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.honest")
    parser.add_argument("cluster")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--topic", default="honest")
    parser.add_argument("--size-bytes", type=int, default=100)
    given = parser.parse_args()
    result = asyncio.run(
        run(
            given.cluster,
            rate=given.rate,
            seconds=given.seconds,
            topic=given.topic,
            size_bytes=given.size_bytes,
        )
    )
    print(
        json.dumps({"sent": result.sent, "came": result.came, "leases_lost": result.leases_lost}), flush=True
    )


if __name__ == "__main__":
    main()
