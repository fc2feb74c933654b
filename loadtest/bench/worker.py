"""A process of a benchmark, with some of its publishers or some of its subscribers.

It is given a `Job`, and by its connection when to begin and which publishers there are (None: anybody), and
then None, by which it stops. It answers with pairs: `ready`, `progress` again and again, and `figures`; or
`failed`. When its connection ends, whoever started it is gone, and it ends too.

Publishers go as fast as receipts come, or open loop, each message at its time. Open loop means that no
message waits for the outcome of another. Each carries the time at which it was due, so one that leaves late
counts as late: a server that stands still does not stop the clock (coordinated omission).
"""

import asyncio
import errno
import resource
from collections import Counter
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from functools import partial
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

PROGRESS_INTERVAL_S = 0.1
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
    ready_timeout_s: float


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
        connection.send(("failed", why))


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

    def tell_progress() -> None:
        total = Counter[str]()
        for each in clients:
            total.update(each.counts.numbers)
        total["least"] = min(each.counts.numbers["messages"] for each in clients)
        connection.send(("progress", total))

    async def tell() -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            tell_progress()

    async def await_stop() -> None:
        await orders.get()
        for each in clients:
            each.stop()

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
            clients = [Subscriber(client, job.plan) for _, client in opened]
        # Subscribers take what comes before the start, too, so that it does not pile up.
        working = [asyncio.create_task(each.run()) for each in clients]
        held = await asyncio.gather(*(each.ready(job.ready_timeout_s) for each in clients))
        connection.send(("ready", ([client.core.publisher for _, client in opened], held)))
        start_ns, names = await orders.get()
        cpu_begun_ns = process_time_ns()
        for each in clients:
            each.begin(start_ns, names)
        others = [asyncio.create_task(tell()), asyncio.create_task(await_stop())]
        await asyncio.gather(*working)
        for task in others:
            task.cancel()
        tell_progress()
        for each in clients:
            each.end()
        connection.send(("figures", ([each.counts for each in clients], process_time_ns() - cpu_begun_ns)))


class Publisher:
    """Publishes one part of a plan by a client that is open: in `run`, from the time on that `begin` says."""

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
        self._paused_at = 0  # the number of messages at the last pause for that
        self._begins: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()

    async def ready(self, timeout_s: float) -> tuple[int, int]:
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

    def begin(self, start_ns: int, publishers: Collection[str] | None) -> None:
        """Begins at this time of the monotonic clock."""
        self._begins.set_result(start_ns)

    async def run(self) -> None:
        """Publishes until all is published, or `stop` is called, or no server answers any more.

        Returns when the outcome of all is known.
        """
        start_ns = await self._begins
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
                self._is_refused = False
                await asyncio.sleep(REFUSED_PAUSE_S)
                self._paused_at = counts.numbers["attempted"]
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

    def stop(self) -> None:
        """Ends the publishing."""
        self._is_stopped = True
        self._news.set()

    def end(self) -> None:
        """There is nothing more to count."""

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
        outcome.add_done_callback(partial(self._settle, number, time_ns))

    def _settle(self, number: int, time_ns: int, outcome: "asyncio.Future[Published]") -> None:
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
            # What left before the last pause causes no other.
            self._is_refused |= TOO_FAST in published.reasons.values() and number >= self._paused_at
        elif published.receipts:
            counts.until_receipt.add(monotonic_ns() - time_ns)

    async def _watch(self) -> None:
        async for event in self._client.events():
            if isinstance(event, AllServersLost):
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
    """Takes what comes to all topics of a plan by a client that is open, and counts it from `begin` on."""

    def __init__(self, client: Client, plan: BenchPlan) -> None:
        self.counts = Received()
        self._client = client
        self._count = plan.count if plan.kind == "sub" else None
        self._before: Counter[str] = Counter()
        self._events = client.events()
        self._subscription = client.subscribe(plan.topic_names)

    async def ready(self, timeout_s: float) -> tuple[int, int]:
        """Waits until all leases stand, or no server answers, at most this long; returns how many leases do,
        and how many are wanted."""

        async def lost() -> None:
            async for event in self._events:
                if isinstance(event, AllServersLost):
                    return

        waiting = [asyncio.create_task(self._subscription.ready(timeout_s)), asyncio.create_task(lost())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return self._subscription.leases

    def begin(self, start_ns: int, publishers: Collection[str] | None) -> None:
        """Counts from now on what these publish; None: what anybody publishes, whose clock may be another."""
        self.counts = Received(publishers)
        self._before = self._client.counts

    async def run(self) -> None:
        """Takes messages until the plan's count has come, or `stop` is called."""
        async for each in self._subscription:
            self.counts.take(each.topic, each.publisher, each.seq, each.payload, monotonic_ns())
            if self._count is not None and self.counts.numbers["messages"] >= self._count:
                self.stop()
                return

    def stop(self) -> None:
        """Ends the subscription: what has come is still taken."""
        self._subscription.close()

    def end(self) -> None:
        """Adds what the client itself has counted."""
        counts, before, client = self._client.counts, self._before, self._client
        self.counts.forget_numbers()
        self.counts.numbers.update(
            copies=counts["copies_received"] - before["copies_received"],
            deliveries=counts["deliveries"] - before["deliveries"],
            duplicates=counts["duplicates"] - before["duplicates"],
            kernel_drops=client.kernel_drops,
            slow_consumer=client.drops[Drop.SLOW_CONSUMER],
        )
