"""loadtest/bench/worker.py: publishers, with a client that answers when the test says so, and subscribers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest

from kcast.client.aio import AllServersLost, Drop, Outcome, Published
from kcast.hashring.policy import Policy
from kcast.loadtest.bench import worker as module
from kcast.loadtest.bench.counts import percentiles
from kcast.loadtest.bench.plan import BenchPlan, time_of
from kcast.loadtest.bench.worker import OUTSTANDING_MAX, QUIET_LOOKS, TURN_MESSAGES_MAX, Publisher, Subscriber
from kcast.loadtest.scenario import payload
from kcast.loadtest.timerfd import TimerFd

S = 1_000_000_000
RECEIPT = {"a:1": Outcome.RECEIPT, "b:1": Outcome.RECEIPT}


class FakeClient:
    """Notes what is published; `answer` settles what waits, the oldest first."""

    def __init__(self) -> None:
        self.cluster = SimpleNamespace(policy=Policy(5, 3, 5))
        self.messages: list[tuple[bytes, bytes]] = []
        self.options: list[dict[str, Any]] = []
        self.waiting: list[asyncio.Future[Published]] = []
        self.most_waiting = 0
        self.news: asyncio.Queue[object] = asyncio.Queue()
        self.is_answering: Callable[[int], dict[str, Outcome] | None] = lambda number: None

    def publish_nowait(self, topic: bytes, payload: bytes, **options: Any) -> "asyncio.Future[Published]":
        future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        self.messages.append((topic, payload))
        self.options.append(options)
        outcome = self.is_answering(len(self.messages))
        if outcome is not None:
            future.set_result(self.published(outcome))
            return future
        self.waiting.append(future)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return future

    def answer(self, count: int, outcome: dict[str, Outcome] | None = None) -> None:
        for future in self.waiting[:count]:
            future.set_result(self.published(outcome or RECEIPT))
        del self.waiting[:count]

    @staticmethod
    def published(outcome: dict[str, Outcome]) -> Published:
        reasons = {server: "rate" for server, each in outcome.items() if each is Outcome.REFUSED}
        return Published(1, b"t", 1, outcome, None, reasons)

    async def events(self) -> AsyncIterator[object]:
        while True:
            yield await self.news.get()


def publisher(client: FakeClient, **given: Any) -> Publisher:
    plan = BenchPlan(**{"kind": "pubsub", **given})
    return Publisher(client, plan, 0)  # type: ignore[arg-type]  # a stand-in


async def run(one: Publisher, start_ns: int) -> None:
    await one.run(start_ns)


async def settled() -> None:
    """Lets all tasks go on until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_as_fast_as_receipts_come_so_many_wait_and_no_more() -> None:
    async def test() -> None:
        client = FakeClient()
        one = publisher(client, count=3 * OUTSTANDING_MAX)
        running = asyncio.create_task(run(one, monotonic_ns()))
        await settled()
        assert one.counts.numbers["attempted"] == len(client.messages) == OUTSTANDING_MAX
        while not running.done():
            client.answer(10)
            await settled()
        assert client.most_waiting == OUTSTANDING_MAX
        assert (
            one.counts.numbers["attempted"]
            == one.counts.numbers["with_receipt"]
            == one.counts.receipts[2]
            == 3 * OUTSTANDING_MAX
        )
        assert all(options == {"confirm": True} for options in client.options)

    asyncio.run(test())


def test_at_a_rate_no_message_waits_for_another() -> None:
    async def test() -> None:
        client = FakeClient()
        one = publisher(client, count=1000, rate=500.0)
        start_ns = monotonic_ns() - 10 * S  # all is overdue
        running = asyncio.create_task(run(one, start_ns))
        while len(client.messages) < 1000:
            await settled()
        assert client.most_waiting == 1000
        times_ns = [time_of(payload) for _, payload in client.messages]
        assert times_ns == [start_ns + number * S // 500 for number in range(1000)]
        client.answer(1000)
        await running
        late, until_receipt = percentiles([one.counts.behind]), percentiles([one.counts.until_receipt])
        assert (late.count, until_receipt.count) == (1000, 1000)
        assert late.p50_ms > 8000 and until_receipt.p50_ms >= late.p50_ms

    asyncio.run(test())


def test_at_a_rate_the_client_gets_its_turns() -> None:
    async def test() -> None:
        client = FakeClient()
        one = publisher(client, count=1000, rate=500.0)
        running = asyncio.create_task(run(one, monotonic_ns() - 10 * S))
        before = 0
        while len(client.messages) < 1000:
            await asyncio.sleep(0)
            assert len(client.messages) - before <= TURN_MESSAGES_MAX
            before = len(client.messages)
        client.answer(1000)
        await running

    asyncio.run(test())


def test_no_message_leaves_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_timerfd in (True, False):
        if not has_timerfd:
            monkeypatch.setattr(TimerFd, "open", lambda: None)

        async def test() -> None:
            client = FakeClient()
            client.is_answering = lambda number: RECEIPT
            left_ns: list[int] = []
            one = publisher(client, count=5, rate=100.0)
            publish = client.publish_nowait

            def noting(*args: Any, **options: Any) -> "asyncio.Future[Published]":
                left_ns.append(monotonic_ns())
                return publish(*args, **options)

            client.publish_nowait = noting  # type: ignore[method-assign]
            start_ns = monotonic_ns()
            await run(one, start_ns)
            assert all(at_ns >= start_ns + number * S // 100 for number, at_ns in enumerate(left_ns))
            assert len(left_ns) == 5

        asyncio.run(test())


def test_the_duration_ends_it() -> None:
    async def test() -> None:
        client = FakeClient()
        client.is_answering = lambda number: RECEIPT
        one = publisher(client, duration_s=1.0)
        await run(one, monotonic_ns() - S)  # it is over
        assert one.counts.numbers["attempted"] == 0
        at_a_rate = publisher(client, duration_s=1.0, rate=100.0)
        await run(at_a_rate, monotonic_ns() - 2 * S)
        assert at_a_rate.counts.numbers["attempted"] == 100  # all that were due in it

    asyncio.run(test())


def test_what_became_of_messages_is_told_apart() -> None:
    async def test() -> None:
        client = FakeClient()
        outcomes: list[dict[str, Outcome]] = [
            {"a": Outcome.NO_ANSWER, "b": Outcome.RECEIPT},
            {"a": Outcome.NO_ANSWER, "b": Outcome.REFUSED},
            {"a": Outcome.REFUSED, "b": Outcome.REFUSED},
            {"a": Outcome.QUEUE_FULL},
            {"a": Outcome.SENT, "b": Outcome.SENT},
            {},
        ]
        client.is_answering = lambda number: outcomes[number - 1]
        one = publisher(client, count=len(outcomes))
        await run(one, monotonic_ns())
        assert one.counts.numbers == {
            **{"attempted": 6, "with_receipt": 1, "no_answer": 2},
            **{"refused": 1, "queue_full": 1, "sent": 1},
        }
        assert one.counts.receipts == {1: 1, 0: 5}
        assert one.counts.reasons == {"rate": 3}

    asyncio.run(test())


def test_who_is_refused_for_his_rate_pauses_once_for_what_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[int] = []

    async def test() -> None:
        client = FakeClient()
        one = publisher(client, count=4 * OUTSTANDING_MAX)
        sleep = asyncio.sleep

        async def noting(delay_s: float) -> None:
            if delay_s == module.REFUSED_PAUSE_S:
                pauses.append(one.counts.numbers["attempted"])
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", noting)
        running = asyncio.create_task(run(one, monotonic_ns()))
        while not running.done():
            client.answer(
                OUTSTANDING_MAX, {"a": Outcome.REFUSED} if one.counts.numbers["attempted"] < 600 else RECEIPT
            )
            for _ in range(OUTSTANDING_MAX):
                await sleep(0)

    asyncio.run(test())
    assert len(pauses) == 2, pauses


@pytest.mark.parametrize("rate", [None, 0.01])
@pytest.mark.parametrize("how", ["stop", "lost"])
def test_it_ends_when_it_is_stopped_and_when_no_server_answers(rate: float | None, how: str) -> None:
    async def test() -> None:
        client = FakeClient()
        one = publisher(client, count=10_000, rate=rate)
        running = asyncio.create_task(run(one, monotonic_ns()))
        await settled()
        assert client.messages  # and, at this rate, the next would come in 100 s
        if how == "stop":
            one.stop()
        else:
            client.news.put_nowait(AllServersLost(5))
        await settled()
        client.answer(len(client.waiting), {"a": Outcome.NO_ANSWER})
        await asyncio.wait_for(running, 30)
        assert bool(one.counts.numbers["servers_lost"]) == (how == "lost")
        assert one.counts.numbers["attempted"] <= OUTSTANDING_MAX + 1

    asyncio.run(test())


def test_a_warm_up_reaches_all_servers_of_all_topics_and_tells_whether_any_answers() -> None:
    async def test() -> None:
        client = FakeClient()
        client.is_answering = lambda number: RECEIPT
        one = publisher(client, topics=100, count=1)
        assert (await one.ready())[0]
        assert {topic for topic, _ in client.messages} == {b"bench/%d" % number for number in range(100)}
        assert {time_of(payload) for _, payload in client.messages} == {0}
        assert all(options["repeat"] == 2 for options in client.options)  # of 5 servers, 3 each time
        assert one.counts.numbers["attempted"] == 0

        client.is_answering = lambda number: {"a": Outcome.NO_ANSWER}
        assert not (await one.ready())[0]

    asyncio.run(test())


# --- Subscribers -------------------------------------------------------------------------------------


class FakeSubscription:
    """Gives messages that `come` has put into it, until it is closed."""

    def __init__(self) -> None:
        self._coming: asyncio.Queue[object] = asyncio.Queue()
        self._seq = 0

    def come(self, count: int) -> None:
        for _ in range(count):
            self._seq += 1
            message = {"topic": b"bench", "publisher": "p", "seq": self._seq, "payload": payload(1, 16)}
            self._coming.put_nowait(SimpleNamespace(**message))

    def close(self) -> None:
        self._coming.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[object]:
        while (each := await self._coming.get()) is not None:
            yield each


def subscriber(**given: Any) -> tuple[Subscriber, FakeSubscription]:
    subscription = FakeSubscription()
    client = SimpleNamespace(
        subscribe=lambda topics: subscription,
        counts=dict.fromkeys(("copies_received", "deliveries", "duplicates"), 0),
        kernel_drops=0,
        drops={Drop.SLOW_CONSUMER: 0},
    )
    return Subscriber(client, BenchPlan(**given), 60.0), subscription  # type: ignore[arg-type]  # a stand-in


def test_a_subscriber_ends_when_all_has_come_or_nothing_more_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.001)

    async def got(plan: dict[str, Any], before: int, orders: Sequence[int | None], after: int) -> int:
        one, subscription = subscriber(**plan)
        running = asyncio.create_task(one.run(monotonic_ns(), None))
        await settled()
        subscription.come(before)
        await settled()
        for order in orders:
            assert not running.done()
            one.stop(order)
        subscription.come(after)
        return (await asyncio.wait_for(running, 30)).numbers["messages"]

    pubsub: dict[str, Any] = {"kind": "pubsub", "count": 10}
    for plan, before, orders, after, messages in (
        (pubsub, 10, [10], 0, 10),
        (pubsub, 9, [10], 1, 10),
        (pubsub, 9, [10], 0, 9),  # the last is lost
        (pubsub, 0, [10], 0, 0),
        (pubsub, 9, [None], 0, 9),
        ({"kind": "sub", "count": 3}, 5, [], 0, 3),
        ({"kind": "sub"}, 5, [], 0, 5),
        ({"kind": "sub", "duration_s": 60.0}, 5, [None], 0, 5),
    ):
        assert asyncio.run(got(plan, before, orders, after)) == messages, plan


def test_how_long_a_subscriber_waits() -> None:
    async def test() -> None:
        for plan, first_s_ago, ran_s, quiet, is_over in (
            ({"kind": "pubsub"}, 1, 900, True, False),  # there is a publisher
            ({"kind": "sub"}, None, 59, True, False),
            ({"kind": "sub"}, None, 60, False, True),
            ({"kind": "sub"}, 1, 900, False, False),  # too busy to look
            ({"kind": "sub"}, 1, 900, True, True),
            ({"kind": "sub", "duration_s": 10.0}, 9, 900, True, False),
            ({"kind": "sub", "duration_s": 10.0}, 10, 900, False, True),
        ):
            one, _ = subscriber(**plan)
            one._still = QUIET_LOOKS if quiet else QUIET_LOOKS - 1
            one.counts.began_ns = None if first_s_ago is None else monotonic_ns() - first_s_ago * S
            assert one.is_over(ran_s * S) == is_over, (plan, first_s_ago, ran_s)

    asyncio.run(test())
