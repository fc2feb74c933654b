"""client/aio.py: what is asyncio's own, with servers in the same loop; under asyncio and uvloop.

What all drivers do is in `tests.client.test_drivers`.
"""

import asyncio
import gc
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import uvloop

from kcast.client.aio import Client, ClientClosed
from kcast.client.cluster import Cluster, lab
from kcast.client.core import ClientCore
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.server import Server
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.drivers import WAIT_S, Loop

pytestmark = pytest.mark.world

ALL = Policy(3, 3, 3)
NOBODY = lab([("127.0.0.1", 9)], Policy(1, 1, 1))

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine; one that hangs fails."""
    return Loop(request.param).run


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


def test_dead_server_costs_no_message(run: Run) -> None:
    """Another of the K takes its place, as soon as the network says that nobody listens."""

    async def test() -> None:
        async with hosts(4, Policy(4, 2, 4)) as (started, cluster), Client(cluster, rng=Random(1)) as client:
            started[0].stop()
            for _ in range(10):
                assert (await client.publish("t", "x")).receipts == 2
            started[0].start()

    run(test())


def test_cancelled_publish_is_sent_and_nothing_breaks(run: Run) -> None:
    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as publisher, Client(cluster) as subscriber:
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
            assert not publisher._engine.waiters

    run(test())


def test_outcome_that_nobody_awaits_is_not_complained_about(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Client(NOBODY) as client:
            client.publish_nowait("t", "x")
        gc.collect()

    run(test())
    assert not caplog.records


def test_events_that_nobody_keeps_are_forgotten(run: Run) -> None:
    async def test() -> None:
        async with Client(NOBODY) as client:
            kept, closed = client.events(), client.events()
            client.events()
            closed.close()
            assert client._engine.recipients._streams.listening() == [kept._inbox]
            assert [event async for event in closed] == []

    run(test())


def test_minting_does_one_slice_in_each_pass_of_the_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is ready runs in between, and so do answers."""
    slices = 0

    def work(core: ClientCore, tries: int, now: float) -> bool:
        nonlocal slices
        slices += 1
        return False

    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as client:
            assert (await client.publish("t", "x")).receipts == 3
            monkeypatch.setattr(ClientCore, "work", work)
            monkeypatch.setattr(ClientCore, "is_minting", True)
            client.publish_nowait("t", "x")
            for passes in range(100):
                assert slices <= passes
                await asyncio.sleep(0)
            assert slices > 50
            assert (await client.publish("t", "x")).receipts == 3
            monkeypatch.undo()

    run(test())


def test_client_whose_last_turn_fails_is_closed_all_the_same(run: Run) -> None:
    async def test() -> None:
        client = Client(NOBODY)

        def flush(now: float) -> list[Transmit]:
            raise RuntimeError("boom")

        with pytest.raises(RuntimeError, match="boom"):
            async with client:
                client.core.flush = flush  # type: ignore[method-assign]
        with pytest.raises(ClientClosed):
            client.events()

    run(test())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_leaves_the_parents_loop_listening(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any timer: what arrives by itself causes the turn that takes it."""

    async def test() -> None:
        async with hosts() as (_, cluster), Client(cluster) as publisher, Client(cluster) as subscriber:
            subscription = subscriber.subscribe("t")
            await subscription.ready()
            assert (await publisher.publish("t", "before")).receipts == 3
            assert await subscription.get(WAIT_S)
            subscriber._wake_in(None)
            monkeypatch.setattr(subscriber, "_wake_in", lambda delay_s: None)
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            publisher.publish_nowait("t", "after")
            delivery = await subscription.get(WAIT_S)
            assert delivery and delivery.payload == b"after"

    run(test())


def test_one_exception_in_a_turn_does_not_end_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is set at the end of a turn; one that raises before leaves a client that never wakes."""
    monkeypatch.setattr("kcast.client.aio.TURN_RETRY_S", 0.01)
    mute = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mute.bind(("127.0.0.1", 0))

    async def turns() -> int:
        async with Client(lab([mute.getsockname()], Policy(1, 1, 1))) as client:
            client.subscribe("t")
            real, count, went_on = client.core.flush, 0, asyncio.Event()

            def flush(now: float) -> list[Transmit]:
                nonlocal count
                count += 1
                if count == 2:
                    raise RuntimeError("boom")
                if count > 2:
                    went_on.set()
                return real(now)

            client.core.flush = flush  # type: ignore[method-assign]
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            await asyncio.wait_for(went_on.wait(), 20.0)
            return count

    with mute:
        assert asyncio.run(turns()) > 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_forked_before_the_client_is_entered_publish_under_different_names() -> None:
    client = Client(lab([("127.0.0.1", 9)], Policy(1, 1, 1)))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, client.core.publisher.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 99).decode() != client.core.publisher


# --- Another event loop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_says_at_once_that_it_belongs_to_another_event_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    own, other = new_loop(), new_loop()
    client = own.run_until_complete(Client(NOBODY).open())

    async def things() -> tuple[Any, ...]:
        return client.subscribe("t"), client.events(), client.stream()

    subscription, events, stream = own.run_until_complete(things())
    events._inbox.put([object()])
    calls: dict[str, Callable[[], Any]] = {
        "publish": lambda: client.publish("t", "x"),
        "publish_nowait": lambda: client.publish_nowait("t", "x"),
        "publish_many": lambda: client.publish_many("t", ["x"]),
        "publish_many_nowait": lambda: client.publish_many_nowait("t", ["x"]),
        "flush": client.flush,
        "subscribe": lambda: client.subscribe("t"),
        "cover": lambda: client.cover("t", rate=1, size=10),
        "events": client.events,
        "stream": client.stream,
        "ready": subscription.ready,
        "close": client.close,
    }
    for name, items in {"subscription": subscription, "events": events, "stream": stream}.items():
        calls[f"{name}.get"] = items.get
        calls[f"{name}, async for"] = items.__anext__
        calls[f"{name}.batches"] = items.batches(2).__anext__
        calls[f"{name}.close"] = items.close

    async def call(act: Callable[[], Any]) -> None:
        with pytest.raises(RuntimeError, match="belongs to an"):
            result = act()
            if asyncio.iscoroutine(result) or hasattr(result, "__await__"):
                await asyncio.wait_for(result, 1)

    for act in calls.values():
        other.run_until_complete(call(act))
    with ThreadPoolExecutor(1) as thread:  # where no loop runs
        for name in ("publish_nowait", "subscribe", "events", "subscription.close"):
            with pytest.raises(RuntimeError, match="belongs to an"):
                thread.submit(calls[name]).result()
    with pytest.raises(ClientClosed):
        other.run_until_complete(client.open())

    async def close() -> None:
        await client.close()
        subscription.close()

    own.run_until_complete(close())
    assert (
        other.run_until_complete(subscription.get()) is None
    )  # once it is closed there is nothing to wait for
    own.close()
    other.close()
