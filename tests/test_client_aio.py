"""client.aio: the asyncio driver on loopback, with servers in the same loop; under asyncio and uvloop."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from client.aio import Client, ClientClosed
from client.cluster import Cluster, ClusterError, format_cluster, lab
from client.core import MessageTooLarge
from client.events import Delivery, Drop, LeasesChanged, Outcome, Published, ServerLost, ServerReturned
from hashring.policy import Policy
from pubsub.endpoint import Address
from pubsub.server import Server
from pubsub.udp import UdpPort, open_socket
from pubsub.wire import TopicError

WAIT_S = 10.0
ALL = Policy(3, 3, 3)

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine; one that hangs fails."""

    def run(test: Coroutine[Any, Any, None]) -> None:
        async def timed() -> None:
            async with asyncio.timeout(WAIT_S):
                await test

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.SelectorEventLoop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(timed())

    return run


class Host:
    """A server core on a socket of its own, in the running loop."""

    def __init__(self, bind: Address = ("127.0.0.1", 0), **options: Any) -> None:
        self.options = options
        self.boots = 0
        self.address = bind
        self.start()

    def start(self) -> None:
        self.boots += 1
        self.core = Server(secret=bytes([self.boots]) * 32, **self.options)
        self.port = UdpPort(open_socket(*self.address))
        self.address = self.port.address
        asyncio.get_running_loop().add_reader(self.port.fileno(), self.turn)

    def turn(self) -> None:
        now = time.monotonic()
        for burst in self.port.receive():
            self.core.receive(burst, now)
        self.core.handle_timeout(now)
        self.port.send(self.core.flush(now))

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self.port.fileno())
        self.port.close()


@asynccontextmanager
async def hosts(
    count: int = 3, policy: Policy = ALL, **options: Any
) -> AsyncIterator[tuple[list[Host], Cluster]]:
    started = [Host(**options) for _ in range(count)]
    try:
        yield started, lab([host.address for host in started], policy)
    finally:
        for host in started:
            host.stop()


@asynccontextmanager
async def two_clients(**options: Any) -> AsyncIterator[tuple[Client, Client]]:
    """A publisher and a subscriber of three servers."""
    async with hosts(**options) as (_, cluster), Client(cluster) as publisher, Client(cluster) as subscriber:
        yield publisher, subscriber


# --- Publishing ---------------------------------------------------------------------------------------


def test_publish_tells_what_became_of_it_at_each_server(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (started, cluster), Client(cluster) as client:
            outcome = await client.publish("weather/oslo", "-3.5")
            names = {f"127.0.0.1:{host.address[1]}" for host in started}
            assert outcome.servers == dict.fromkeys(names, Outcome.RECEIPT)
            assert (outcome.topic, outcome.seq, outcome.receipts) == (b"weather/oslo", 1, 3)
            outcome = await client.publish("weather/oslo", b"-3.5", confirm=False)
            assert (outcome.seq, outcome.sent) == (2, 3)
            outcome = await client.publish(b"other", b"", raw=True)
            assert (outcome.seq, outcome.receipts) == (None, 3)

    run(test())


def test_many_publishes_at_a_time(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as client:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.publish("t", str(number))) for number in range(500)]
            assert {task.result().receipts for task in tasks} == {3}
            assert [task.result().seq for task in tasks] == list(range(1, 501))

    run(test())


def test_dead_server_costs_no_message(run: Run) -> None:
    """Another of the K takes its place, as soon as the network says that nobody listens."""

    async def test() -> None:
        async with hosts(4, Policy(4, 2, 4)) as (started, cluster), Client(cluster, rng=Random(1)) as client:
            started[0].stop()
            for _ in range(10):
                assert (await client.publish("t", "x")).receipts == 2
            started[0].start()

    run(test())


def test_what_callers_get_wrong_is_told_at_once(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as client:
            with pytest.raises(MessageTooLarge, match="2000 bytes of payload"):
                await client.publish("t", "x" * 2000)
            with pytest.raises(TopicError, match="must not be empty"):
                await client.publish("", "x")
            with pytest.raises(TopicError, match="topic too long"):
                client.subscribe("t" * 256)
            with pytest.raises(ValueError, match="at least once"):
                await client.publish("t", "x", repeat=0)

    run(test())


def test_cancelled_publish_is_sent_and_nothing_breaks(run: Run) -> None:
    async def test() -> None:
        async with two_clients() as (publisher, subscriber):
            subscription = subscriber.subscribe("t")
            await subscription.ready()
            task = asyncio.create_task(publisher.publish("t", "cancelled"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await publisher.publish("t", "next")).receipts == 3
            got = [(await anext(subscription)).payload for _ in range(2)]
            assert got == [b"cancelled", b"next"]
            assert not publisher._publishes

    run(test())


# --- Subscribing --------------------------------------------------------------------------------------


def test_subscription_is_ready_and_brings_each_message_once(run: Run) -> None:
    async def test() -> None:
        async with two_clients() as (publisher, subscriber):
            subscription = subscriber.subscribe("Tromsø")
            assert subscription.leases == (0, 3)
            assert await subscription.ready() == subscription.leases == (3, 3)
            payloads = [f"{number}\nø".encode() for number in range(100)]
            for payload in payloads:
                await publisher.publish("Tromsø", payload)
            got: list[Delivery] = []
            async for delivery in subscription:
                got.append(delivery)
                if len(got) == 100:
                    break
            assert [delivery.payload for delivery in got] == payloads
            assert [delivery.seq for delivery in got] == list(range(1, 101))
            assert got[0].topic == "Tromsø".encode()
            assert set(subscriber.drops) <= {Drop.DUPLICATE}
            assert (subscriber.kernel_drops, publisher.kernel_drops) == (0, 0)

    run(test())


def test_ready_gives_up_after_its_time(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as client:
            assert await client.subscribe("t").ready(timeout_s=0.0) == (0, 3)

    run(test())


@pytest.mark.parametrize("by", ["subscription", "client"])
def test_closing_ends_the_wait_for_leases_and_the_iteration(run: Run, by: str) -> None:
    async def test() -> None:
        cluster = lab([("127.0.0.1", 9)], Policy(1, 1, 1))
        async with Client(cluster) as client:
            subscription = client.subscribe("t")
            ready = asyncio.create_task(subscription.ready())
            taker = asyncio.create_task(anext(subscription))
            await asyncio.sleep(0)
            if by == "subscription":
                subscription.close()
                subscription.close()
            else:
                await client.__aexit__(None, None, None)
            assert await ready == subscription.leases == (0, 0)
            with pytest.raises(StopAsyncIteration):
                await taker

    run(test())


def test_what_was_delivered_can_still_be_taken_after_closing(run: Run) -> None:
    async def test() -> None:
        async with two_clients() as (publisher, subscriber):
            subscription, mark = subscriber.subscribe("t"), subscriber.subscribe("t")
            await mark.ready()
            for payload in ("a", "b"):
                await publisher.publish("t", payload)
            assert [(await anext(mark)).payload for _ in "ab"] == [b"a", b"b"]
            subscription.close()
            assert [delivery.payload async for delivery in subscription] == [b"a", b"b"]
            await publisher.publish("t", "c")
            assert (await anext(mark)).payload == b"c", "the other one of the topic goes on"
            mark.close()
            assert subscriber.core.server_states().keys() == publisher.core.server_states().keys()
            with pytest.raises(KeyError):
                subscriber.core.lease_counts(b"t")

    run(test())


def test_slow_consumer_keeps_the_newest_and_the_rest_is_counted(run: Run) -> None:
    async def test() -> None:
        async with two_clients() as (publisher, subscriber):
            slow, fast = subscriber.subscribe("t", queue_max=2), subscriber.subscribe("t")
            await fast.ready()
            for number in range(5):
                await publisher.publish("t", str(number))
                await anext(fast)
            assert subscriber.drops[Drop.SLOW_CONSUMER] == 3
            slow.close()
            assert [delivery.payload async for delivery in slow] == [b"3", b"4"]

    run(test())


# --- Events -------------------------------------------------------------------------------------------


def test_events_tell_of_leases_and_of_servers_that_go_and_come_back(run: Run) -> None:
    async def test() -> None:
        async with hosts(2, Policy(2, 2, 2), ttl_s=1.0) as (started, cluster), Client(cluster) as client:
            events = client.events()
            await client.subscribe("t").ready()
            assert await anext(events) == LeasesChanged(b"t", 1, 2), "it listens from when it is called"
            assert await anext(events) == LeasesChanged(b"t", 2, 2)
            name = cluster.servers[0].name
            started[0].stop()
            seen = [await anext(events)]
            while not isinstance(seen[-1], ServerLost):
                seen.append(await anext(events))
            assert seen[-1] == ServerLost(name)
            started[0].start()
            while not isinstance(seen[-1], ServerReturned):
                seen.append(await anext(events))
            assert seen[-1] == ServerReturned(name)
            assert not [event for event in seen if isinstance(event, Delivery | Published)]

    run(test())


def test_events_end_with_the_client(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster):
            client = Client(cluster)
            async with client:
                events = client.events()
                await client.subscribe("t").ready()
            assert [event async for event in events] == [LeasesChanged(b"t", n, 3) for n in (1, 2, 3)]

    run(test())


# --- Opening and closing ------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_client_that_is_not_open_says_so(run: Run, when: str) -> None:
    async def test() -> None:
        client = Client(lab([("127.0.0.1", 9)]))
        if when == "after":
            async with client:
                pass
        with pytest.raises(ClientClosed, match="use it within 'async with"):
            await client.publish("t", "x")
        with pytest.raises(ClientClosed, match="use it within 'async with"):
            client.subscribe("t")
        with pytest.raises(ClientClosed, match="use it within 'async with"):
            client.events()
        assert client.kernel_drops == 0

    run(test())


def test_what_was_published_without_waiting_leaves_before_the_socket_does(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as subscriber:
            subscription = subscriber.subscribe("t")
            await subscription.ready()
            async with Client(cluster) as publisher:
                await publisher.publish("t", "first")
                task = asyncio.create_task(publisher.publish("t", "last"))
                await asyncio.sleep(0)
            assert [(await anext(subscription)).payload for _ in range(2)] == [b"first", b"last"]
            with pytest.raises(ClientClosed):
                await task

    run(test())


def test_cluster_may_be_a_file(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster):
            path = tmp_path / "lab.txt"
            path.write_text(format_cluster(cluster))
            async with Client(path) as client, Client(str(path)) as other:
                assert client.cluster == other.cluster == cluster
                assert (await client.publish("t", "x")).receipts == 3

    with pytest.raises(ClusterError, match="No such file"):
        Client(tmp_path / "none.txt")
    run(test())


def test_names_of_publishers_differ_and_can_be_given(run: Run) -> None:
    cluster = lab([("127.0.0.1", 9)])
    names = {Client(cluster).core.publisher for _ in range(50)}
    assert len(names) == 50
    assert Client(cluster, publisher="me").core.publisher == "me"


def test_forked_process_takes_another_name(run: Run) -> None:
    """§9.1: else two processes would number different messages alike."""

    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as client:
            await client.publish("t", "x")
            before = client.core.publisher
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.write(writer, client.core.publisher.encode() + b" %d" % len(client.core._seqs))
                os._exit(0)
            os.close(writer)
            os.waitpid(child, 0)
            name, seqs = os.read(reader, 100).split()
            os.close(reader)
            assert name.decode() != before
            assert (len(name), seqs) == (11, b"0")
            assert client.core.publisher == before
            assert (await client.publish("t", "y")).seq == 2

    run(test())
