"""The phases of the demo: real servers, real clients, one event loop.

The same people use three clusters at once that differ in policy only, on the same servers: K' = 1, 2 and 3
of K = 5, few publish. So each phase shows all three under the same failures.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from random import Random
from typing import Protocol

from client.aio import Client, Subscription
from client.events import Drop, Outcome
from client.view import View
from hashring.policy import Policy
from loadtest.processes import ProcessCluster
from loadtest.tally import Cell, Phase, Tally, Topic

K = 5
K_PRIMES = (1, 2, 3)

# The less a message's fate is left to chance the narrower the range that the model allows: with this many
# messages, 1.5 % of pairs either way at K' = 3.
DOWN_MESSAGES_MIN = 1500
OUTSTANDING_MAX = 512
READY_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 5.0
SETTLE_POLL_S = 0.05
QUIET_S = 0.5  # with nothing new for so long, what is missing will not come
PROGRESS_INTERVAL_S = 0.1


class DemoFailed(RuntimeError):
    """The demo could not be run to its end; the message says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. Topics, subscribers and publishers are numbers for each K'; `rate` is messages a second."""

    servers: int = 12
    kill: int = 4
    ttl_s: int = 4
    topics: int = 24
    subscribers: int = 16
    publishers: int = 4
    seed: int = 1
    rate: float = 400.0


@dataclass(slots=True)
class Result:
    """What came of it. Servers go by their keys. Times are seconds after the servers had restarted."""

    cells: list[Cell] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    kernel_drops: int = 0
    killed: tuple[str, ...] = ()
    dead_of_topic: dict[str, int] = field(default_factory=dict)
    subscriptions: int = 0
    unanswered: int = 0
    """Publishes that a live server was sent in a judged phase, and gave no receipt for."""
    leases_after_s: float | None = None
    """When all leases stood again."""
    last_loss_s: float | None = None
    """When the last message was published that did not reach all of its audience."""


class Watcher(Protocol):
    """Whom a run tells how it goes."""

    def say(self, text: str) -> None:
        """Something has been done."""

    def begin(self, phase: Phase, messages: int | None) -> None:
        """A phase begins, with so many messages, or None where its time is what is set."""

    def update(self, phase: Phase, published: int, tally: Tally) -> None:
        """So far; several times a second."""

    def end(self, phase: Phase, tally: Tally) -> None:
        """All of the phase's messages have arrived, or will not."""


def make_topics(plan: Plan, servers: ProcessCluster, rng: Random) -> list[Topic]:
    """The topics of every K', each with an audience of a quarter to three quarters of the subscribers."""
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


async def run(plan: Plan, texts: Sequence[bytes], watcher: Watcher) -> Result:
    """Runs the demo with these texts. Raises ServerFailed and DemoFailed."""
    loop_servers = ProcessCluster(plan.servers, ttl_s=plan.ttl_s)
    began = time.monotonic()
    with loop_servers as servers:
        watcher.say(f"{plan.servers} servers started in {time.monotonic() - began:.1f} s, ttl {plan.ttl_s} s")
        async with AsyncExitStack() as stack:
            return await _Demo(plan, texts, watcher, servers, stack).run()


class _Demo:
    def __init__(
        self,
        plan: Plan,
        texts: Sequence[bytes],
        watcher: Watcher,
        servers: ProcessCluster,
        stack: AsyncExitStack,
    ) -> None:
        self._plan = plan
        self._texts = texts
        self._watcher = watcher
        self._servers = servers
        self._stack = stack
        self._rng = Random(f"{plan.seed}/draws")
        self._topics = make_topics(plan, servers, Random(f"{plan.seed}/topics"))
        self._topics_of = {k: [topic for topic in self._topics if topic.k_prime == k] for k in K_PRIMES}
        self._tally = Tally(self._topics, K)
        self._result = Result()
        self._dead: frozenset[str] = frozenset()
        self._subscribers: dict[tuple[int, int], Client] = {}
        self._publishers: dict[int, list[Client]] = {}
        self._subscriptions: list[Subscription] = []
        self._duplicates: Counter[int] = Counter()
        self._room = asyncio.Semaphore(OUTSTANDING_MAX)

    async def run(self) -> Result:
        plan, result = self._plan, self._result
        async with asyncio.TaskGroup() as readers:
            await self._open_clients(readers)
            await self._warm_up()

            await self._phase(Phase.UP, self._judged(1))

            indexes = sorted(Random(f"{plan.seed}/kill").sample(range(plan.servers), plan.kill))
            result.killed = tuple(self._servers.keys[index] for index in indexes)
            self._servers.kill(*indexes)
            self._dead = frozenset(self._servers.names[index] for index in indexes)
            result.dead_of_topic = {
                topic.name.decode(): len(topic.servers & self._dead) for topic in self._topics
            }
            self._watcher.say(f"killed {', '.join(result.killed)} with SIGKILL; publishers do not avoid them")
            await self._phase(Phase.DOWN, self._judged(-(-DOWN_MESSAGES_MIN // len(self._texts))))

            # In a thread, since the leases at the other servers have to be renewed meanwhile.
            await asyncio.to_thread(self._servers.restart, *indexes)
            self._dead = frozenset()
            for publisher in chain(*self._publishers.values()):
                publisher.core.avoid_dead = True
            self._watcher.say(f"restarted {', '.join(result.killed)}; publishers avoid the dead")
            await self._recover()
            await self._phase(Phase.RECOVERED, self._judged(1))

            result.faults = self._tally.faults
            result.cells = self._tally.cells({Phase.DOWN: plan.kill})
            for subscription in self._subscriptions:
                subscription.close()
        return result

    async def _open_clients(self, readers: asyncio.TaskGroup) -> None:
        for k_prime in K_PRIMES:
            cluster = self._servers.cluster(Policy(K, k_prime, K))
            for number in range(self._plan.subscribers):
                rng = Random(f"{self._plan.seed}/subscriber/{k_prime}/{number}")
                client = await self._stack.enter_async_context(Client(cluster, avoid_dead=False, rng=rng))
                self._subscribers[k_prime, number] = client
            self._publishers[k_prime] = [
                await self._stack.enter_async_context(
                    Client(cluster, avoid_dead=False, rng=Random(f"{self._plan.seed}/publisher/{k_prime}/{n}"))
                )
                for n in range(self._plan.publishers)
            ]
        for topic in self._topics:
            for number in sorted(topic.audience):
                subscription = self._subscribers[topic.k_prime, number].subscribe(topic.name)
                self._subscriptions.append(subscription)
                readers.create_task(self._read(subscription, number))
        deadline = time.monotonic() + READY_TIMEOUT_S
        for subscription in self._subscriptions:
            held, wanted = await subscription.ready(max(0.0, deadline - time.monotonic()))
            if held < wanted:
                name = subscription.topic.decode()
                raise DemoFailed(
                    f"only {held} of {wanted} servers have leased {name} after {READY_TIMEOUT_S:g} s; "
                    "is this machine very busy?"
                )
        self._result.subscriptions = len(self._subscriptions)
        self._watcher.say(
            f"{len(self._subscribers)} subscribers leased {len(self._subscriptions)} subscriptions of "
            f"{len(self._topics)} topics at {K} of {K} servers each"
        )

    async def _read(self, subscription: Subscription, number: int) -> None:
        async for delivery in subscription:
            if delivery.payload != _WARM_UP:
                self._tally.deliver(delivery.topic, number, delivery.payload)

    async def _warm_up(self) -> None:
        """Every publisher talks once to each server of its topics, so that no cookie is awaited later."""
        async with asyncio.TaskGroup() as group:
            for k_prime, publishers in self._publishers.items():
                for topic in self._topics_of[k_prime]:
                    for publisher in publishers:
                        # Repeats go to servers that do not have the message yet.
                        group.create_task(
                            publisher.publish(topic.name, _WARM_UP, repeat=-(-K // k_prime), repeat_interval_s=0.05)
                        )
        await asyncio.sleep(QUIET_S)

    def _judged(self, passes: int) -> Iterator[tuple[int, bytes]]:
        """Every text under every policy, so many times: (K', text)."""
        return ((k, text) for text in chain.from_iterable(repeat(self._texts, passes)) for k in K_PRIMES)
