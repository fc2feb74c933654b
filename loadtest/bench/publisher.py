"""One publisher of a benchmark: as fast as its receipts come, or open loop, each message at its time.

Open loop means that no message waits for the outcome of another. Each carries the time at which it was due,
so one that leaves late counts as late: a server that stands still does not stop the clock (coordinated
omission).
"""

import asyncio
from collections import Counter, deque
from functools import partial
from time import monotonic_ns
from typing import Any

from kcast.client.aio import AllServersLost, Client, Outcome, Published
from kcast.loadtest.bench.latencies import Latencies
from kcast.loadtest.bench.plan import TOO_FAST, WARM_UP_NS, BenchPlan, message
from kcast.loadtest.timerfd import TimerFd

OUTSTANDING_MAX = 256  # messages whose outcome is awaited, as fast as receipts come
OPEN_OUTSTANDING_MAX = 32_768  # the same open loop; the client itself takes twice as many
TURN_MESSAGES_MAX = 64  # after which the client gets a turn to send
WARM_UP_INTERVAL_S = 0.05
REFUSED_PAUSE_S = 0.1  # after a server has refused a message for the publisher's rate

_ROOM_POLL_S = 0.001

# What becomes of a message without a receipt: the first of these that happened to it anywhere.
_UNHEARD = (Outcome.SENT, Outcome.NO_ANSWER, Outcome.REFUSED, Outcome.QUEUE_FULL)


class Publisher:
    """Publishes one part of a plan by a client that is open. First `warm_up`, then `run`."""

    def __init__(self, client: Client, plan: BenchPlan, number: int) -> None:
        self.attempted = 0  # messages that were published, whatever became of them
        self.outcomes: Counter[Outcome] = Counter()  # of messages: a receipt by any server counts
        self.reasons: Counter[str] = Counter()  # of refusals, by servers
        self.receipts: Counter[int] = Counter()  # number of servers with a receipt -> messages
        self.behind = Latencies()  # how much later than due messages were published
        self.receipt_times = Latencies()  # from when a message was due until its outcome was known
        self.begun_ns = 0  # when the publishing began
        self.ended_ns = 0  # when the last receipt came; with a rate, when anybody's next is due
        self.are_servers_lost = False
        self._client = client
        self._plan = plan
        self._number = number
        self._part = plan.part(number)
        self._awaited = 0
        self._is_stopped = False
        self._timer = _Timer()

    async def warm_up(self) -> bool:
        """Makes this publisher known to all servers of its topics; returns whether any of them answers.

        Otherwise the first messages would wait for cookies.
        """
        policy = self._client.cluster.policy
        repeat = -(-policy.k // policy.publish) if policy.placement == "ring" else 1
        payload = message(WARM_UP_NS, self._plan.size_bytes)
        outcomes = []
        topics = self._plan.topic_names
        for start in range(0, len(topics), TURN_MESSAGES_MAX):
            publishing = [
                self._client.publish_nowait(
                    topic, payload, repeat=repeat, repeat_interval_s=WARM_UP_INTERVAL_S
                )
                for topic in topics[start : start + TURN_MESSAGES_MAX]
            ]
            outcomes += await asyncio.gather(*publishing)
            if not any(outcome.receipts for outcome in outcomes):
                return False
        return True

    async def run(self, start_ns: int) -> None:
        """Publishes from `start_ns` of the monotonic clock on until all is published, or `stop` is called.

        Returns when the outcome of all is known. It also ends where no server answers any more.
        """
        watching = asyncio.create_task(self._watch())
        await asyncio.sleep(max(0, start_ns - monotonic_ns()) / 1e9)
        self.begun_ns = self.ended_ns = start_ns
        try:
            if self._plan.rate is None:
                await self._as_fast_as_outcomes_come(start_ns)
            else:
                await self._at_its_rate(start_ns)
        finally:
            watching.cancel()
            self._timer.close()

    def stop(self) -> None:
        """Ends the publishing."""
        self._is_stopped = True
        self._timer.wake()

    def figures(self) -> dict[str, Any]:
        """Returns what has come of it, as JSON takes it."""
        return {
            "attempted": self.attempted,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "reasons": dict(self.reasons),
            "receipts": {str(servers): count for servers, count in self.receipts.items()},
            "behind": self.behind.as_json(),
            "receipt_times": self.receipt_times.as_json(),
            "begun_ns": self.begun_ns,
            "ended_ns": self.ended_ns,
            "are_servers_lost": self.are_servers_lost,
        }

    # --- The two ways --------------------------------------------------------------------------------

    async def _as_fast_as_outcomes_come(self, start_ns: int) -> None:
        outstanding: deque[asyncio.Future[Published]] = deque()
        paused_at = 0  # the number of messages at the last pause: what left before it causes no other
        while self._goes_on(now_ns := monotonic_ns(), start_ns):
            outstanding.append(self._publish(now_ns))
            if len(outstanding) >= OUTSTANDING_MAX:
                published = await outstanding.popleft()
                self._settle(published)
                number = self.attempted - len(outstanding)
                if TOO_FAST in published.reasons.values() and number > paused_at:
                    await asyncio.sleep(REFUSED_PAUSE_S)
                    paused_at = self.attempted
        while outstanding:
            self._settle(await outstanding.popleft())

    async def _at_its_rate(self, start_ns: int) -> None:
        due_ns = start_ns + self._part.due_ns(0)
        while self._goes_on(due_ns, start_ns):
            now_ns = monotonic_ns()
            if now_ns < due_ns:
                await self._timer.until(due_ns)
                continue
            if self._awaited >= OPEN_OUTSTANDING_MAX:
                await asyncio.sleep(_ROOM_POLL_S)
                continue
            self.behind.add(now_ns - due_ns)
            self._awaited += 1
            self._publish(due_ns).add_done_callback(partial(self._settle_open, due_ns))
            self.ended_ns = max(now_ns, due_ns + self._part.interval_ns)
            due_ns = start_ns + self._part.due_ns(self.attempted)
            if self.attempted % TURN_MESSAGES_MAX == 0:
                await asyncio.sleep(0)
        while self._awaited:
            await asyncio.sleep(_ROOM_POLL_S)

    def _goes_on(self, at_ns: int, start_ns: int) -> bool:
        """Returns whether another message is to be published, at this time."""
        if self._is_stopped or self.are_servers_lost:
            return False
        if self._part.messages is not None and self.attempted >= self._part.messages:
            return False
        duration_s = self._plan.duration_s
        return duration_s is None or at_ns - start_ns < duration_s * 1e9

    def _publish(self, time_ns: int) -> "asyncio.Future[Published]":
        topic = self._part.topic(self.attempted)
        self.attempted += 1
        payload = message(time_ns, self._plan.size_bytes)
        return self._client.publish_nowait(topic, payload, confirm=self._plan.confirm)

    # --- Outcomes ------------------------------------------------------------------------------------

    def _settle(self, published: Published) -> None:
        """Counts what became of a message that went as fast as outcomes come."""
        self._count(published)
        if published.receipts or published.sent:
            self.ended_ns = monotonic_ns()

    def _count(self, published: Published) -> None:
        receipts = published.receipts
        self.receipts[receipts] += 1
        if receipts:
            self.outcomes[Outcome.RECEIPT] += 1
        else:
            found = set(published.servers.values())
            self.outcomes[next((each for each in _UNHEARD if each in found), Outcome.NO_ANSWER)] += 1
        if published.reasons:
            self.reasons.update(published.reasons.values())

    def _settle_open(self, due_ns: int, outcome: "asyncio.Future[Published]") -> None:
        """Counts what became of a message that was published at its time."""
        self._awaited -= 1
        if outcome.cancelled() or outcome.exception() is not None:
            return  # the client was closed
        published = outcome.result()
        self._count(published)
        if published.receipts:
            self.receipt_times.add(monotonic_ns() - due_ns)

    async def _watch(self) -> None:
        async for event in self._client.events():
            if isinstance(event, AllServersLost):
                self.are_servers_lost = True
                self._timer.wake()


class _Timer:
    """Waits until times of the monotonic clock on the event loop: exact ones, where the system can."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fired = asyncio.Event()
        self._timer = TimerFd.open()
        if self._timer is not None:
            self._loop.add_reader(self._timer.fileno(), self._fire, self._timer)

    async def until(self, at_ns: int) -> None:
        """Returns at this time, about then, or when it is woken."""
        self._fired.clear()
        if self._timer is not None:
            self._timer.set(at_ns)
        else:
            self._loop.call_later(max(0, at_ns - monotonic_ns()) / 1e9, self._fired.set)
        await self._fired.wait()

    def wake(self) -> None:
        """Ends the waiting early."""
        self._fired.set()

    def close(self) -> None:
        """Closes the timer."""
        if self._timer is not None:
            self._loop.remove_reader(self._timer.fileno())
            self._timer.close()
            self._timer = None

    def _fire(self, timer: TimerFd) -> None:
        timer.clear()
        self._fired.set()
