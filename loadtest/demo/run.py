"""Runs the demo's phases: real servers, real clients, one event loop.

The same servers are used under three policies at once: 5/1/5, 5/2/5 and 5/3/5, each with clients and topics
of its own. So every phase shows all three under the same failures.
"""

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import chain, count, repeat
from random import Random

from kcast.client.aio import Client, Subscription
from kcast.client.cluster import Cluster
from kcast.client.clusters.view import View
from kcast.client.events import Drop, Outcome
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.demo.plan import K_PRIMES, DemoPlan, DemoResult, K
from kcast.loadtest.demo.tally import Phase, Tally, Topic
from kcast.loadtest.demo.view import Progress
from kcast.pubsub.errors import KcastError

# The more messages, the narrower the range that theory allows: with this many, 1.5 % of pairs either way at
# K' = 3.
DOWN_MESSAGES_MIN = 1500
OUTSTANDING_MAX = 512
READY_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 5.0
SETTLE_POLL_S = 0.05
QUIET_POLLS = 10  # with nothing new in so many polls, what is missing will not come
LATE_S = 0.2  # what takes longer between two messages is a stop of this process
PROGRESS_INTERVAL_S = 0.1
PACE_SLACK_S = 0.02  # an event loop's timers are only exact to some milliseconds


class DemoFailed(KcastError, RuntimeError):
    """The demo could not be run to its end; the message says why."""


def make_topics(plan: DemoPlan, servers: ProcessCluster, rng: Random) -> list[Topic]:
    """Draws the topics of every K', each with a quarter to three quarters of the subscribers."""
    view = View(servers.cluster(Policy(K, K, K)))
    topics = []
    for k_prime in K_PRIMES:
        for number in range(1, plan.topics + 1):
            name = b"demo/%d/%d" % (k_prime, number)
            size = rng.randint(-(-plan.subscribers // 4), -(-plan.subscribers * 3 // 4))
            audience = frozenset(rng.sample(range(plan.subscribers), size))
            hosts = frozenset(server.name for server in view.servers(name))
            topics.append(Topic(name, k_prime, hosts, audience))
    return topics


async def run(plan: DemoPlan, texts: Sequence[bytes], progress: Progress) -> DemoResult:
    """Runs the demo with these texts. Raises ServerFailed and DemoFailed."""
    began = time.monotonic()
    with ProcessCluster(plan.servers, ttl_s=plan.ttl_s) as servers:
        progress.say(
            f"{plan.servers} servers started in {time.monotonic() - began:.1f} s, ttl {plan.ttl_s} s"
        )
        async with AsyncExitStack() as stack:
            return await _Demo(plan, texts, progress, servers, stack).run()


class _Demo:
    def __init__(
        self,
        plan: DemoPlan,
        texts: Sequence[bytes],
        progress: Progress,
        servers: ProcessCluster,
        stack: AsyncExitStack,
    ) -> None:
        self._plan = plan
        self._texts = texts
        self._progress = progress
        self._servers = servers
        self._stack = stack
        self._topics = make_topics(plan, servers, Random(f"{plan.seed}/topics"))
        self._topics_of = {k: [topic for topic in self._topics if topic.k_prime == k] for k in K_PRIMES}
        self._tally = Tally(self._topics, K)
        self._result = DemoResult()
        self._dead: frozenset[str] = frozenset()
        self._subscribers: dict[tuple[int, int], Client] = {}
        self._publishers: dict[int, list[Client]] = {}
        self._subscriptions: list[Subscription] = []
        self._duplicates: Counter[int] = Counter()
        self._subscriptions_of: dict[Topic, list[Subscription]] = {topic: [] for topic in self._topics}
        self._patience_s = 0.0
        self._room = asyncio.Semaphore(OUTSTANDING_MAX)

    async def run(self) -> DemoResult:
        plan, result = self._plan, self._result
        async with asyncio.TaskGroup() as readers:
            watching = readers.create_task(self._watch_stops())
            await self._open_clients(readers)
            await self._warm_up()

            await self._judged_phase(Phase.UP, 1)

            indexes = sorted(Random(f"{plan.seed}/kill").sample(range(plan.servers), plan.kill))
            result.killed = tuple(self._servers.keys[index] for index in indexes)
            self._servers.kill(*indexes)
            forgotten_at = time.monotonic() + plan.ttl_s
            self._dead = frozenset(self._servers.names[index] for index in indexes)
            result.dead_of_topic = {
                topic.name.decode(): len(topic.servers & self._dead) for topic in self._topics
            }
            self._progress.say(
                f"killed {', '.join(result.killed)} with SIGKILL; publishers do not avoid them"
            )
            await self._judged_phase(Phase.DOWN, -(-DOWN_MESSAGES_MIN // len(self._texts)))

            # Until then a subscriber may count leases as standing that a killed server has forgotten.
            await asyncio.sleep(forgotten_at - time.monotonic())
            # In a thread, because leases at the other servers must be renewed meanwhile.
            await asyncio.to_thread(self._servers.restart, *indexes)
            self._dead = frozenset()
            for publisher in chain(*self._publishers.values()):
                publisher.core.avoid_dead = True
            self._progress.say(f"restarted {', '.join(result.killed)}; publishers avoid dead servers")
            await self._recover()
            await self._judged_phase(Phase.RECOVERED, 1)

            result.faults = self._tally.faults
            everyone = chain(self._subscribers.values(), *self._publishers.values())
            for client in everyone:
                result.kernel_drops += client.kernel_drops
                result.slow_drops += client.drops[Drop.SLOW_CONSUMER]
            result.phase_results = self._tally.phase_results({Phase.DOWN: plan.kill})
            for subscription in self._subscriptions:
                subscription.close()
            watching.cancel()
        return result

    async def _watch_stops(self) -> None:
        """Notes for how long this process was stopped at most; for ever."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(SETTLE_POLL_S)
            self._result.stopped_s = max(self._result.stopped_s, time.monotonic() - began - SETTLE_POLL_S)

    async def _open_clients(self, readers: asyncio.TaskGroup) -> None:
        for k_prime in K_PRIMES:
            cluster = self._servers.cluster(Policy(K, k_prime, K))
            for number in range(self._plan.subscribers):
                self._subscribers[k_prime, number] = await self._client(
                    cluster, f"subscriber/{k_prime}/{number}"
                )
            self._publishers[k_prime] = [
                await self._client(cluster, f"publisher/{k_prime}/{number}")
                for number in range(self._plan.publishers)
            ]
        for topic in self._topics:
            for number in sorted(topic.audience):
                subscription = self._subscribers[topic.k_prime, number].subscribe(topic.name)
                self._subscriptions.append(subscription)
                self._subscriptions_of[topic].append(subscription)
                readers.create_task(self._read(subscription, number))
        deadline = time.monotonic() + READY_TIMEOUT_S
        for subscription in self._subscriptions:
            held, wanted = await subscription.ready(max(0.0, deadline - time.monotonic()))
            if held < wanted:
                name = subscription.topics[0].decode()
                raise DemoFailed(
                    f"only {held} of {wanted} servers have leased {name} after {READY_TIMEOUT_S:g} s; "
                    "is this machine very busy?"
                )
        self._result.subscriptions = len(self._subscriptions)
        self._progress.say(
            f"{len(self._subscribers)} subscribers leased {len(self._subscriptions)} subscriptions of "
            f"{len(self._topics)} topics at {K} of {K} servers each"
        )

    async def _client(self, cluster: Cluster, name: str) -> Client:
        client = Client(cluster, avoid_dead=False, rng=Random(f"{self._plan.seed}/{name}"))
        return await self._stack.enter_async_context(client)

    async def _read(self, subscription: Subscription, number: int) -> None:
        async for delivery in subscription:
            self._tally.deliver(delivery.topic, number, delivery.payload)

    async def _warm_up(self) -> None:
        """Lets every publisher publish to each server once, so that none awaits a cookie later.

        Nobody subscribes to the topics of these messages.
        """
        view = View(self._servers.cluster(Policy(K, K, K)))
        missing = set(self._servers.names)
        async with asyncio.TaskGroup() as group:
            for number in count():
                name = b"demo/warm-up/%d" % number
                hosts = {server.name for server in view.servers(name)}
                if hosts & missing:
                    for k_prime, publishers in self._publishers.items():
                        for publisher in publishers:
                            group.create_task(self._warm_up_topic(publisher, name, k_prime))
                missing -= hosts
                if not missing:
                    return

    async def _warm_up_topic(self, publisher: Client, topic: bytes, k_prime: int) -> None:
        # Repeats go to servers that have not been sent the message yet.
        repeats = -(-K // k_prime)
        published = await publisher.publish_nowait(topic, b"", repeat=repeats, repeat_interval_s=0.05)
        if published.receipts < K:
            silent = [name for name, outcome in published.servers.items() if outcome is not Outcome.RECEIPT]
            raise DemoFailed(f"no receipt from {', '.join(silent)}; is this machine very busy?")

    # --- Phases --------------------------------------------------------------------------------------

    def _work(self, passes: int) -> Iterator[tuple[int, bytes]]:
        """Yields every text under every policy, `passes` times, as (K', text)."""
        return ((k, text) for text in chain.from_iterable(repeat(self._texts, passes)) for k in K_PRIMES)

    async def _judged_phase(self, phase: Phase, passes: int) -> None:
        self._progress.begin(phase, passes * len(self._texts) * len(K_PRIMES))
        self._patience_s = self._plan.ttl_s
        await self._publish_all(phase, self._work(passes))
        await self._settle(phase)

    async def _recover(self) -> None:
        """Publishes for one ttl from the moment when all servers are up again."""
        self._progress.begin(Phase.RECOVERING, None)
        until = time.monotonic() + self._plan.ttl_s
        leases = asyncio.create_task(self._await_leases(until))
        await self._publish_all(Phase.RECOVERING, self._work(sys.maxsize), until)
        self._result.leases_after_s = await leases
        await self._settle(Phase.RECOVERING)
        self._result.last_loss_s = self._tally.last_loss_s(Phase.RECOVERING)

    async def _await_leases(self, until: float) -> float | None:
        began = time.monotonic()
        while any(held < wanted for held, wanted in (s.leases for s in self._subscriptions)):
            if time.monotonic() > until:
                return None
            await asyncio.sleep(SETTLE_POLL_S)
        return time.monotonic() - began

    async def _publish_all(
        self, phase: Phase, work: Iterable[tuple[int, bytes]], until: float = math.inf
    ) -> None:
        """Publishes at the plan's rate: each text on a random topic of its policy, by a random publisher."""
        # Each phase draws for itself, since one of them lasts for a time and not for a number of messages.
        rng = Random(f"{self._plan.seed}/{phase}")
        began = next_at = last_at = time.monotonic()
        shown_at = -math.inf
        async with asyncio.TaskGroup() as group:
            for published, (k_prime, text) in enumerate(work, 1):
                # Lost time is not made up for: a burst could overflow a receive buffer.
                now = time.monotonic()
                if now >= until:
                    break
                if next_at > now:
                    await asyncio.sleep(next_at - now)
                next_at = max(next_at, now - PACE_SLACK_S) + 1 / self._plan.rate
                await self._room.acquire()
                topic = rng.choice(self._topics_of[k_prime])
                if phase is not Phase.RECOVERING:
                    is_late = time.monotonic() > last_at + 1 / self._plan.rate + LATE_S
                    await self._await_leases_of(topic, is_late=is_late)
                publisher = rng.choice(self._publishers[k_prime])
                last_at = time.monotonic()
                number, payload = self._tally.publish(phase, topic, text, self._dead, last_at - began)
                group.create_task(self._publish(publisher, topic.name, number, payload, phase))
                if now > shown_at + PROGRESS_INTERVAL_S:
                    shown_at = now
                    self._progress.show(phase, published, self._tally)

    async def _await_leases_of(self, topic: Topic, *, is_late: bool) -> None:
        """Waits until the topic's leases at live servers stand, for at most a ttl a phase.

        They end where this machine is too busy to renew them in time, which says nothing about K'. After a
        stop (`is_late`) clients first have to see what has come, and what has ended.
        """
        if is_late:
            await asyncio.sleep(SETTLE_POLL_S)
        live = len(topic.servers - self._dead)
        while self._patience_s > 0 and any(each.leases[0] < live for each in self._subscriptions_of[topic]):
            self._patience_s -= SETTLE_POLL_S
            await asyncio.sleep(SETTLE_POLL_S)

    async def _publish(
        self, publisher: Client, topic: bytes, number: int, payload: bytes, phase: Phase
    ) -> None:
        try:
            published = await publisher.publish_nowait(topic, payload)
        finally:
            self._room.release()
        self._tally.sent(number, published.servers)
        if phase is not Phase.RECOVERING:
            self._result.unanswered += sum(
                outcome is not Outcome.RECEIPT and name not in self._dead
                for name, outcome in published.servers.items()
            )

    async def _settle(self, phase: Phase) -> None:
        """Waits until all has been delivered, or nothing more comes."""
        seen, quiet_polls = -1, 0
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while (
            not self._tally.is_complete(phase) and quiet_polls < QUIET_POLLS and time.monotonic() < deadline
        ):
            delivered = self._tally.delivered.total()
            quiet_polls = quiet_polls + 1 if delivered == seen else 0
            seen = delivered
            await asyncio.sleep(SETTLE_POLL_S)
        # Duplicates may still be on their way; they are counted too.
        await asyncio.sleep(SETTLE_POLL_S)
        for k_prime in K_PRIMES:
            clients = [client for (k, _), client in self._subscribers.items() if k == k_prime]
            duplicates = sum(client.counts["duplicates"] for client in clients)
            self._tally.duplicates[phase, k_prime] = duplicates - self._duplicates[k_prime]
            self._duplicates[k_prime] = duplicates
        self._progress.end(phase, self._tally)
