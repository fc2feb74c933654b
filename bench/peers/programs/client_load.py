"""One process that publishes on a topic and receives from it, by a client of kcast or of NATS.

    python client_load.py CLIENT SERVERS LOAD SECONDS

It prints a JSON object. It imports nothing of the project but the client, so that it can be run with that of
another version. CLIENT is one of CLIENTS below. LOAD is `saturated` (bursts, with a bounded number of
messages on their way), or messages a second, each due at its time, whatever became of the one before.
"""

import asyncio
import ctypes
import json
import os
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Any

TOPIC = "benchmark"
SATURATED = "saturated"
SIZE_BYTES = 100
BURST = 100
ON_THEIR_WAY_MAX = 400
LOST_S = 0.3  # without any message: those on their way are lost
WARM_UP_S = 0.3
UNSUPPORTED = 3  # exit code

CLOCK_MONOTONIC, TFD_NONBLOCK = 1, 0o4000
NUMBER = struct.Struct("=Q")


class Unsupported(Exception):
    """The client has no such verb."""


class Tally:
    """What came, and how late. `due_s` has when each message was due."""

    def __init__(self) -> None:
        self.received = 0
        self.due_s: list[float] = []
        self.latencies_us: list[int] = []
        self.changed = asyncio.Event()

    def take(self, payload: bytes) -> None:
        """Counts a message, and its latency if it was due at a time."""
        self.received += 1
        if self.due_s:
            self.latencies_us.append(int((time.monotonic() - self.due_s[int(payload[:8])]) * 1e6))
        self.changed.set()


class Client(ABC):
    """A client under load."""

    waits_for_receipts = False
    unconfirmed = 0  # messages without a receipt, of those that ask for one

    @abstractmethod
    async def open(self, servers: str, tally: Tally) -> None:
        """Opens it, and has it tell the tally of what comes from now on. Raises Unsupported."""

    @abstractmethod
    async def publish(self, payloads: list[bytes]) -> None:
        """Publishes messages, in one go where it can."""

    @abstractmethod
    async def close(self) -> None:
        """Closes it."""


class Kcast(Client):
    """kcast's asyncio client: messages one by one, without receipts, and iterated over."""

    async def open(self, servers: str, tally: Tally) -> None:
        from kcast.client.aio import Client as KcastClient

        self.client: Any = await KcastClient(servers).__aenter__()
        subscription = self.subscribe(tally)
        await subscription.ready(10)
        self._task = asyncio.create_task(self.receive(subscription, tally))

    def subscribe(self, tally: Tally) -> Any:
        return self.client.subscribe(TOPIC)

    async def receive(self, subscription: Any, tally: Tally) -> None:
        async for delivery in subscription:
            tally.take(delivery.payload)

    async def publish(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.client.publish_nowait(TOPIC, payload, confirm=False)

    async def close(self) -> None:
        self._task.cancel()
        await self.client.__aexit__(None, None, None)


class KcastConfirm(Kcast):
    """The same with receipts, which are awaited."""

    waits_for_receipts = True

    async def open(self, servers: str, tally: Tally) -> None:
        self._on_their_way: deque[asyncio.Future[Any]] = deque()
        await super().open(servers, tally)

    async def publish(self, payloads: list[bytes]) -> None:
        self._on_their_way.extend([self.client.publish_nowait(TOPIC, payload) for payload in payloads])
        while len(self._on_their_way) > ON_THEIR_WAY_MAX - BURST:
            await self._take()

    async def close(self) -> None:
        while self._on_their_way:
            await self._take()
        await super().close()

    async def _take(self) -> None:
        self.unconfirmed += not (await self._on_their_way.popleft()).receipts


class KcastCallback(Kcast):
    """Without receipts; deliveries go to a function."""

    def subscribe(self, tally: Tally) -> Any:
        return self.client.subscribe(TOPIC, on_delivery=lambda delivery: tally.take(delivery.payload))


class KcastBatches(Kcast):
    """Many messages with a call, and many deliveries at a time, without receipts."""

    def subscribe(self, tally: Tally) -> Any:
        subscription = super().subscribe(tally)
        if not (hasattr(self.client, "publish_many") and hasattr(subscription, "batches")):
            raise Unsupported("this version of kcast has no publish_many and batches")
        return subscription

    async def receive(self, subscription: Any, tally: Tally) -> None:
        async for batch in subscription.batches(max=1000):
            for delivery in batch:
                tally.take(delivery.payload)

    async def publish(self, payloads: list[bytes]) -> None:
        self.client.publish_many_nowait(TOPIC, payloads, confirm=False)


class KcastBatchesConfirm(KcastBatches):
    """The same with receipts. Some bursts are on their way at a time, as many as without."""

    waits_for_receipts = True

    async def open(self, servers: str, tally: Tally) -> None:
        self._on_their_way: deque[asyncio.Future[Any]] = deque()
        await super().open(servers, tally)

    async def publish(self, payloads: list[bytes]) -> None:
        self._on_their_way.append(self.client.publish_many_nowait(TOPIC, payloads))
        if len(self._on_their_way) > (ON_THEIR_WAY_MAX - BURST) // BURST:
            await self._take()

    async def close(self) -> None:
        while self._on_their_way:
            await self._take()
        await super().close()

    async def _take(self) -> None:
        self.unconfirmed += len((await self._on_their_way.popleft()).without_receipt)


class Nats(Client):
    """nats-py: messages one by one, and iterated over."""

    async def open(self, servers: str, tally: Tally) -> None:
        try:
            import nats
        except ImportError:
            raise Unsupported("nats-py is not installed") from None
        self.client: Any = await nats.connect(servers)
        self._task = await self.subscribe(tally)
        await self.client.flush()

    async def subscribe(self, tally: Tally) -> "asyncio.Task[None] | None":
        subscription = await self.client.subscribe(TOPIC)

        async def receive() -> None:
            async for message in subscription.messages:
                tally.take(message.data)

        return asyncio.create_task(receive())

    async def publish(self, payloads: list[bytes]) -> None:
        publish = self.client.publish
        for payload in payloads:
            await publish(TOPIC, payload)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await self.client.close()


class NatsCallback(Nats):
    """Messages go to a function, which costs nats-py much less than the iteration does."""

    async def subscribe(self, tally: Tally) -> None:
        async def take(message: Any) -> None:
            tally.take(message.data)

        await self.client.subscribe(TOPIC, cb=take)


CLIENTS: dict[str, type[Client]] = {
    "kcast": Kcast,
    "kcast-confirm": KcastConfirm,
    "kcast-callback": KcastCallback,
    "kcast-batches": KcastBatches,
    "kcast-batches-confirm": KcastBatchesConfirm,
    "nats-py": Nats,
    "nats-py-callback": NatsCallback,
}


def payload(number: int) -> bytes:
    return (b"%08d" % number).ljust(SIZE_BYTES, b".")


@dataclass
class Load:
    """What was published, what of it came, and how long that took."""

    published: int
    received: int
    elapsed_s: float


async def saturate(client: Client, tally: Tally, seconds: float) -> Load:
    """Publishes as fast as messages come back."""
    payloads = [payload(number) for number in range(BURST)]
    start_s, before, published = time.monotonic(), tally.received, 0
    while time.monotonic() - start_s < seconds:
        await client.publish(payloads)
        published += BURST
        if not await come_back(tally, before + published - ON_THEIR_WAY_MAX):
            break
        await asyncio.sleep(0)
    is_whole = await come_back(tally, before + published)
    elapsed_s = time.monotonic() - start_s - (0 if is_whole else LOST_S)
    return Load(published, tally.received - before, elapsed_s)


async def come_back(tally: Tally, count: int) -> bool:
    """Waits until `count` messages have come in all; False where none comes any more."""
    while tally.received < count:
        tally.changed.clear()
        try:
            await asyncio.wait_for(tally.changed.wait(), LOST_S)
        except TimeoutError:
            return False
    return True


class Timer:
    """Says how many ticks have passed. The loop's own timers are exact to milliseconds only."""

    def __init__(self, tick_s: float) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)
        tick_ns = int(tick_s * 1e9)
        setting = struct.pack("=4q", *divmod(tick_ns, 10**9), *divmod(tick_ns, 10**9))
        if self.descriptor < 0 or libc.timerfd_settime(self.descriptor, 0, setting, None):
            raise OSError(ctypes.get_errno(), "no timer")

    def passed(self) -> int:
        try:
            return int(NUMBER.unpack(os.read(self.descriptor, NUMBER.size))[0])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.descriptor)


async def pace(client: Client, tally: Tally, rate: float, seconds: float) -> Load:
    """Publishes each message when it is due."""
    loop, before, count = asyncio.get_running_loop(), tally.received, int(rate * seconds)
    timer, due, tasks, published = Timer(1 / rate), asyncio.Event(), set(), 0
    start_s = time.monotonic()
    tally.due_s = [start_s + (number + 1) / rate for number in range(count)]
    loop.add_reader(timer.descriptor, due.set)
    while published < count:
        await due.wait()
        due.clear()
        for _ in range(min(timer.passed(), count - published)):
            if client.waits_for_receipts:  # which must not hold up the next message
                task = asyncio.create_task(client.publish([payload(published)]))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                await client.publish([payload(published)])
            published += 1
    loop.remove_reader(timer.descriptor)
    timer.close()
    await come_back(tally, before + count)
    return Load(published, tally.received - before, seconds)


async def main(way: str, servers: str, load: str, seconds: float) -> dict[str, float | None]:
    """Runs a load; returns its figures."""
    tally, client = Tally(), CLIENTS[way]()
    await client.open(servers, tally)
    await saturate(client, tally, WARM_UP_S)
    start_cpu_s = time.process_time()
    if load == SATURATED:
        done = await saturate(client, tally, seconds)
    else:
        done = await pace(client, tally, float(load), seconds)
    cpu_s = time.process_time() - start_cpu_s
    await client.close()
    ordered = sorted(tally.latencies_us)
    return {
        "messages_per_s": done.received / done.elapsed_s,
        "client_us": cpu_s / done.received * 1e6 if done.received else None,
        "share": done.received / done.published if done.published else None,
        "unconfirmed": client.unconfirmed,
        "p50_us": median(ordered) if ordered else None,
        "p99_us": ordered[len(ordered) * 99 // 100] if len(ordered) >= 100 else None,
    }


if __name__ == "__main__":
    chosen, at, offered, duration = sys.argv[1:]
    try:
        print(json.dumps(asyncio.run(main(chosen, at, offered, float(duration)))))
    except Unsupported as error:
        print(error, file=sys.stderr)
        sys.exit(UNSUPPORTED)
