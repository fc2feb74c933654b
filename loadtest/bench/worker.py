"""A process of a benchmark, with some of its publishers or some of its subscribers.

It is given a `Job`, and answers on its connection when its clients are ready. Then it is told when to begin,
and which publishers there are (None: anybody), and answers with its figures at the end. Subscribers of
publishers here are told, when these are done, how many messages to expect; None stops anybody at once. In
place of an answer it may send a `BenchFailed`. When its connection ends, whoever started it is gone, and it
ends too.

Publishers go as fast as receipts come, or open loop, each message at its time. Open loop means that no
message waits for the outcome of another. Each carries the time at which it was due, so one that leaves late
counts as late: a server that stands still does not stop the clock (coordinated omission).
"""

import asyncio
import errno
import resource
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic_ns, process_time_ns
from typing import Any, NamedTuple

import uvloop

from kcast.client.aio import AllServersLost, Client, Drop, Outcome, Published
from kcast.client.cluster import Cluster
from kcast.loadtest.bench.counts import Counts, Received
from kcast.loadtest.bench.plan import WARM_UP_NS, BenchPlan
from kcast.loadtest.scenario import payload
from kcast.loadtest.timerfd import TimerFd
from kcast.pubsub.errors import KcastError

READY_TIMEOUT_S = 10.0
LOOK_INTERVAL_S = 0.1
# A subscriber that has looked so often, and nothing more had come, has nothing more to wait for. Time alone
# would not tell: one with much to read looks late.
QUIET_LOOKS = 15
OUTSTANDING_MAX = 256  # messages whose outcome is awaited, as fast as receipts come
OPEN_OUTSTANDING_MAX = 32_768  # the same open loop; the client itself takes twice as many
TURN_MESSAGES_MAX = 64  # after which the client gets a turn to send
WARM_UP_INTERVAL_S = 0.05
TOO_FAST = "rate"  # why a server refuses a publisher's messages that are too many (PROTOCOL §5.8)
REFUSED_PAUSE_S = 0.1  # after that

# What becomes of a message, and its name among the figures: the first of these that happened to it anywhere.
_OUTCOMES = {
    Outcome.RECEIPT: "with_receipt",
    Outcome.SENT: "sent",
    Outcome.NO_ANSWER: "no_answer",
    Outcome.REFUSED: "refused",
    Outcome.QUEUE_FULL: "queue_full",
}


class Job(NamedTuple):
    """Who runs here, by their numbers, and what their clients are opened with."""

    plan: BenchPlan
    publishers: list[int]
    subscribers: list[int]
    cluster: Cluster | Path | str
    wait_s: float  # for the first message, where nobody publishes here


class BenchFailed(KcastError, RuntimeError):
    """A benchmark could not be carried out; the message says why."""


def work(connection: Connection, job: Job) -> None:
    """Does a job: the whole of a process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # each client takes two
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        uvloop.run(_work(connection, job))
        return
    except asyncio.CancelledError:
        return
    except KcastError as error:
        why = str(error)
    except OSError as error:
        advice = ": raise 'ulimit -Hn', or take fewer clients" if error.errno == errno.EMFILE else ""
        why = f"{error.strerror or error}{advice}"
    with suppress(OSError):
        connection.send(BenchFailed(why))


async def _work(connection: Connection, job: Job) -> None:
    """Raises KcastError, OSError, and CancelledError where nobody gives orders any more."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    orders: asyncio.Queue[Any] = asyncio.Queue()

    def take() -> None:
        try:
            orders.put_nowait(connection.recv())
        except (EOFError, OSError):
            loop.remove_reader(connection.fileno())
            assert this is not None
            this.cancel()

    async def obey() -> None:
        while True:
            order = await orders.get()
            for each in clients:
                each.stop(order)

    async with AsyncExitStack() as stack:
        loop.add_reader(connection.fileno(), take)
        stack.callback(loop.remove_reader, connection.fileno())
        opened = [
            (number, await stack.enter_async_context(Client(job.cluster)))
            for number in (*job.publishers, *job.subscribers)
        ]
        clients: list[Publisher] | list[Subscriber]
        if job.publishers:
            clients = [Publisher(client, job.plan, number) for number, client in opened]
        else:
            clients = [Subscriber(client, job.plan, job.wait_s) for _, client in opened]
        held = await asyncio.gather(*(each.ready() for each in clients))
        connection.send(([client.core.publisher for _, client in opened], held))
        start_ns, names = await orders.get()
        cpu_begun_ns = process_time_ns()
        obeying = asyncio.create_task(obey())
        counts = await asyncio.gather(*(each.run(start_ns, names) for each in clients))
        obeying.cancel()
        connection.send((counts, process_time_ns() - cpu_begun_ns))


async def _all_lost(client: Client) -> None:
    """Waits until no server answers."""
    async for event in client.events():
        if isinstance(event, AllServersLost):
            return


class Publisher:
    """Publishes one part of a plan by a client that is open."""

    def __init__(self, client: Client, plan: BenchPlan, number: int) -> None:
        self.counts = Counts()
        self._client = client
        self._plan = plan
        self._number = number
        self._topics = plan.topic_names
        self._messages = plan.messages_of(number)
        self._awaited = 0
        self._is_stopped = False
        self._is_refused = False  # for its rate
        self._news = asyncio.Event()

    async def ready(self) -> tuple[int, int]:
        """Makes this publisher known to all servers of its topics; returns whether any of them answers.

        Otherwise the first messages would wait for cookies.
        """
        policy = self._client.cluster.policy
        repeat = -(-policy.k // policy.publish) if policy.placement == "ring" else 1
        data = payload(WARM_UP_NS, self._plan.size_bytes)
        answered = 0
        for start in range(0, len(self._topics), TURN_MESSAGES_MAX):
            publishing = [
                self._client.publish_nowait(topic, data, repeat=repeat, repeat_interval_s=WARM_UP_INTERVAL_S)
                for topic in self._topics[start : start + TURN_MESSAGES_MAX]
            ]
            answered |= any(outcome.receipts for outcome in await asyncio.gather(*publishing))
            if not answered:
                break
        return answered, answered

    async def run(self, start_ns: int, publishers: Collection[str] | None = None) -> Counts:
        """Publishes from this time of the monotonic clock on, until all is published, or `stop` is called, or
        no server answers any more.

        Returns what it counted, when the outcome of all is known.
        """
        counts, plan, loop = self.counts, self._plan, asyncio.get_running_loop()
        watching = asyncio.create_task(self._watch())
        timer = TimerFd.open()
        if timer is not None:
            loop.add_reader(timer.fileno(), self._fire, timer)
        await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
        counts.began_ns = counts.ended_ns = start_ns
        outstanding_max = OUTSTANDING_MAX if plan.rate is None else OPEN_OUTSTANDING_MAX
        while self._goes_on(start_ns, at_ns := self._due_ns(start_ns)):
            if self._awaited >= outstanding_max:
                await self._news_by(None, timer)
            elif self._is_refused:
                await asyncio.sleep(REFUSED_PAUSE_S)
                self._is_refused = False  # what left before the pause causes no other
            elif at_ns > (now_ns := monotonic_ns()):
                await self._news_by(at_ns, timer)
            else:
                if plan.rate is not None:
                    counts.behind.add(now_ns - at_ns)
                    counts.ended_ns = max(now_ns, at_ns + plan.interval_ns)
                self._publish(at_ns)
                if counts.numbers["attempted"] % TURN_MESSAGES_MAX == 0:
                    await asyncio.sleep(0)
        while self._awaited:
            await self._news_by(None, timer)
        watching.cancel()
        if timer is not None:
            loop.remove_reader(timer.fileno())
            timer.close()
        return counts

    def stop(self, order: int | None = None) -> None:
        """Ends the publishing."""
        self._is_stopped = True
        self._news.set()

    def _due_ns(self, start_ns: int) -> int:
        if self._plan.rate is None:
            return monotonic_ns()
        return start_ns + self._plan.due_ns(self._number, self.counts.numbers["attempted"])

    def _goes_on(self, start_ns: int, at_ns: int) -> bool:
        """Returns whether another message is to be published, at this time."""
        if self._is_stopped or self.counts.numbers["servers_lost"]:
            return False
        if self._messages is not None and self.counts.numbers["attempted"] >= self._messages:
            return False
        return self._plan.duration_s is None or at_ns - start_ns < self._plan.duration_s * 1e9

    def _publish(self, time_ns: int) -> None:
        number = self.counts.numbers["attempted"]
        self.counts.numbers["attempted"] += 1
        self._awaited += 1
        topic, data = (
            self._topics[(self._number + number) % len(self._topics)],
            payload(time_ns, self._plan.size_bytes),
        )
        outcome = self._client.publish_nowait(topic, data, confirm=self._plan.confirm)
        outcome.add_done_callback(lambda settled: self._settle(time_ns, settled))

    def _settle(self, time_ns: int, outcome: "asyncio.Future[Published]") -> None:
        """Counts what became of a message."""
        self._awaited -= 1
        self._news.set()
        if outcome.cancelled() or outcome.exception() is not None:
            return  # the client was closed
        published, counts = outcome.result(), self.counts
        counts.receipts[published.receipts] += 1
        found = published.servers.values()
        what = next((each for each in _OUTCOMES if each in found), Outcome.NO_ANSWER)
        counts.numbers[_OUTCOMES[what]] += 1
        counts.reasons.update(published.reasons.values())
        if self._plan.rate is None:
            if published.receipts or published.sent:
                counts.ended_ns = monotonic_ns()
            self._is_refused |= TOO_FAST in published.reasons.values()
        elif published.receipts:
            counts.until_receipt.add(monotonic_ns() - time_ns)

    async def _watch(self) -> None:
        await _all_lost(self._client)
        self.counts.numbers["servers_lost"] = 1
        self._news.set()

    async def _news_by(self, at_ns: int | None, timer: TimerFd | None) -> None:
        """Waits until something is news, or until this time: an exact one, where the system can."""
        self._news.clear()
        if at_ns is not None and timer is not None:
            timer.set(at_ns)
        elif at_ns is not None:
            asyncio.get_running_loop().call_later(max(0, at_ns - monotonic_ns()) / 1e9, self._news.set)
        await self._news.wait()

    def _fire(self, timer: TimerFd) -> None:
        timer.clear()
        self._news.set()


class Subscriber:
    """Takes what comes to all topics of a plan by a client that is open, and counts it while it runs."""

    def __init__(self, client: Client, plan: BenchPlan, wait_s: float) -> None:
        self.counts = Received()
        self._client = client
        self._plan = plan
        self._wait_s = wait_s
        self._expected: float = inf if plan.publishes or plan.count is None else plan.count
        self._are_all_published = False
        self._still = 0  # how often it looked since more had come
        self._subscription = client.subscribe(plan.topic_names)
        # It takes what comes before the start, too, so that it does not pile up.
        self._taking = asyncio.create_task(self._take())

    async def ready(self) -> tuple[int, int]:
        """Waits until all leases stand, or no server answers; returns how many leases do, and how many are
        wanted."""
        waiting = [
            asyncio.create_task(self._subscription.ready(READY_TIMEOUT_S)),
            asyncio.create_task(_all_lost(self._client)),
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return self._subscription.leases

    async def run(self, start_ns: int, publishers: Collection[str] | None) -> Counts:
        """Counts from now on what these publish, or, with None, anybody, whose clock may be another one.

        Returns what it and its client counted, when there is nothing more to wait for, or `stop` was called.
        """
        counts = self.counts = Received(publishers)
        before, seen = self._client.counts, 0
        while not self._taking.done() and not self.is_over(monotonic_ns() - start_ns):
            await asyncio.wait([self._taking], timeout=LOOK_INTERVAL_S)
            self._still = self._still + 1 if counts.numbers["messages"] == seen else 0
            seen = counts.numbers["messages"]
        self._subscription.close()  # what has come is still taken
        await self._taking
        after, client = self._client.counts, self._client
        counts.forget_numbers()
        counts.numbers.update(
            copies=after["copies_received"] - before["copies_received"],
            deliveries=after["deliveries"] - before["deliveries"],
            duplicates=after["duplicates"] - before["duplicates"],
            kernel_drops=client.kernel_drops,
            slow_consumer=client.drops[Drop.SLOW_CONSUMER],
        )
        return counts

    def stop(self, order: int | None) -> None:
        """Ends it: at once, or when this number of messages has come, or no more do."""
        self._are_all_published, self._still = True, 0
        self._expected = 0 if order is None else order
        if self.counts.numbers["messages"] >= self._expected:
            self._subscription.close()

    def is_over(self, ran_ns: int) -> bool:
        """Returns whether there is nothing more to wait for, after this time."""
        first_ns, duration_s = self.counts.began_ns, self._plan.duration_s
        if self._plan.publishes:
            return self._are_all_published and self._still >= QUIET_LOOKS
        if first_ns is None:
            return ran_ns >= self._wait_s * 1e9
        if duration_s is None:
            return self._still >= QUIET_LOOKS
        return monotonic_ns() - first_ns >= duration_s * 1e9

    async def _take(self) -> None:
        async for each in self._subscription:
            self.counts.take(each.topic, each.publisher, each.seq, each.payload, monotonic_ns())
            if self.counts.numbers["messages"] >= self._expected:
                return
