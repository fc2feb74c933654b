"""What every driver must do, written once: scenarios over real servers.

`tests.client.test_drivers` runs them with the adapters of `tests.support.drivers`, and
`tests.support.driver_suite_gevent` does after gevent's patches, in a process of its own.
"""

import os
import signal
import socket
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from kcast.client import aio
from kcast.client.cluster import Cluster, ClusterError, ServerEntry, format_cluster, lab
from kcast.client.clusters import watch
from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge, NoReceipt
from kcast.client.events import (
    AllServersLost,
    ClusterChanged,
    ClusterRefused,
    Delivery,
    Drop,
    Event,
    FamilyMissing,
    LeasesChanged,
    ListChanged,
    ListTrouble,
    Outcome,
    Published,
    ServerLost,
    ServerReturned,
)
from kcast.client.session import requests, whereabouts
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.pubsub.endpoint import Address, Endpoint, datagrams
from kcast.pubsub.sockets import uses_linux
from kcast.pubsub.wire import TopicError
from tests.support.client_paths import Far, Rough, Through
from tests.support.drivers import WAIT_S, Coro, Driver
from tests.support.machine import has_ipv6

TTL_S = 2
ALL = Policy(3, 3, 3)
ONE = Policy(1, 1, 1)

# --- Servers ------------------------------------------------------------------------------------------


@dataclass
class Servers:
    """Real servers for all scenarios of a driver, one scenario at a time."""

    processes: ProcessCluster
    with_work: ProcessCluster
    with_ipv6: ProcessCluster | None

    @property
    def cluster(self) -> Cluster:
        """Three servers; every message goes to all of them."""
        return self.processes.cluster(ALL)


@contextmanager
def serving() -> Iterator[Servers]:
    """Starts them, and ends them."""
    with ExitStack() as stack:
        yield Servers(
            stack.enter_context(ProcessCluster(3, ttl_s=TTL_S)),
            stack.enter_context(ProcessCluster(1, ttl_s=60, options=("--work-bits", "12"))),
            stack.enter_context(ProcessCluster(1, ttl_s=60, options=("--host", "::1")))
            if has_ipv6()
            else None,
        )


@contextmanager
def mute_cluster() -> Iterator[Cluster]:
    """A server that never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        yield lab([mute.getsockname()], ONE)


@contextmanager
def giving_up_soon() -> Iterator[None]:
    """Lets clients wait a tenth of the time for a server that has never answered. Only where none does."""
    with mock.patch.object(requests, "TIMEOUT_S_FIRST", requests.TIMEOUT_S_FIRST / 10):
        yield


# --- Scenarios ----------------------------------------------------------------------------------------

Scenario = Callable[[Driver, Servers], Coro]

SCENARIOS: dict[str, Scenario] = {}

_ALONE = count()


def scenario(function: Scenario) -> Scenario:
    """Registers it by its name."""
    SCENARIOS[function.__name__] = function
    return function


@scenario
async def message_is_delivered_once_and_its_outcome_is_told_for_each_server(
    driver: Driver, servers: Servers
) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe("Tromsø")
        assert subscription.leases == (0, 3)
        assert await subscription.ready(WAIT_S) == subscription.leases == (3, 3)
        outcome = await publisher.publish("Tromsø", "snø\n-3.5")
        assert outcome.servers == dict.fromkeys(servers.processes.names, Outcome.RECEIPT)
        assert (outcome.topic, outcome.seq, outcome.receipts) == ("Tromsø".encode(), 1, 3)
        outcome = await publisher.publish("Tromsø".encode(), b"again", repeat=2, repeat_interval_s=0.01)
        assert (outcome.seq, outcome.receipts) == (2, 3)
        outcome = await publisher.publish("Tromsø", b"", raw=True)
        assert (outcome.seq, outcome.receipts) == (None, 3)
        outcome = await publisher.publish("Tromsø", "bare", confirm=False)
        assert (outcome.seq, outcome.sent) == (3, 3)
        got = [await subscription.get(WAIT_S) for _ in range(4)]
        assert [(one.payload, one.seq) for one in got if one] == [
            ("snø\n-3.5".encode(), 1),
            (b"again", 2),
            (b"", None),
            (b"bare", 3),
        ]
        assert {one.topic for one in got if one} == {"Tromsø".encode()}
        assert not subscriber.drops, "duplicates are no drops"
        assert (subscriber.kernel_drops, publisher.kernel_drops) == (0, 0)


@scenario
async def outcome_tells_the_audience_and_any_800_bytes_arrive(driver: Driver, servers: Servers) -> None:
    topic = f"alone/{next(_ALONE):06}"  # leases of the driver before may stand yet
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        assert (await publisher.publish(topic, "to nobody")).audience == 0
        subscription = subscriber.subscribe(topic)
        await subscription.ready(WAIT_S)
        for payload in (bytes(800), bytes(range(256)) * 3, b"50 %\xff"):
            assert (await publisher.publish(topic, payload)).audience == 1
            delivery = await subscription.get(WAIT_S)
            assert delivery is not None
            assert (delivery.payload, delivery.attributes) == (payload, {})
        with raising(MessageTooLarge, "any 813; send less, or split it"):
            await publisher.publish(topic, bytes(814))


@scenario
async def many_are_published_without_waiting_for_each(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe("many")
        await subscription.ready(WAIT_S)
        began_at_s = time.time()
        waiting = [publisher.publish_nowait("many", str(number)) for number in range(500)]
        outcomes: list[Published] = [await one for one in waiting]
        assert {outcome.receipts for outcome in outcomes} == {3}
        assert [outcome.seq for outcome in outcomes] == list(range(1, 501))
        got: list[Delivery] = []
        async for delivery in subscription:
            got.append(delivery)
            if len(got) == 500:
                break
        assert {delivery.payload for delivery in got} == {str(number).encode() for number in range(500)}
        assert all(began_at_s - 1.0 < delivery.received_at_s < time.time() + 1.0 for delivery in got)


@scenario
async def many_messages_are_published_with_a_call_and_taken_at_a_time(
    driver: Driver, servers: Servers
) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe("many")
        await subscription.ready(WAIT_S)
        outcome = await publisher.publish_many("many", (f"number {number}" for number in range(300)))
        assert (outcome.topic, outcome.messages, outcome.first_seq) == (b"many", 300, 1)
        assert outcome.servers == {name: {Outcome.RECEIPT: 300} for name in servers.processes.names}, outcome
        assert (outcome.receipts, len(outcome.without_receipt)) == (300, 0), outcome
        assert outcome.audience and outcome.audience >= 1, outcome
        got: list[Delivery] = []
        batches = subscription.batches(max=50)
        while len(got) < 300:
            batch = await anext(batches)
            assert 1 <= len(batch) <= 50
            got += batch
        assert sorted(one.seq or 0 for one in got) == list(range(1, 301))
        assert {one.payload for one in got} == {b"number %d" % number for number in range(300)}
        outcome = await publisher.publish_many_nowait("many", [b"raw", "and bare"], confirm=False, raw=True)
        assert (outcome.first_seq, outcome.outcomes[Outcome.SENT], outcome.receipts) == (None, 6, 0)
        assert (await publisher.publish_many("many", [])).messages == 0
        got.clear()
        while len(got) < 2:
            got += await anext(batches)
        subscription.close()
        assert [batch async for batch in batches] == [], "it ends with its subscription"


@scenario
async def flush_waits_for_all_that_was_published_before(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        await client.flush(WAIT_S)
        outcomes = [client.publish_nowait("t", "x") for _ in range(10)]
        many = client.publish_many_nowait("t", ["x"] * 20_000, confirm=False)
        await client.flush(WAIT_S)
        counters = client.counters()
        assert counters["published"] == 20_010 and not counters["outcomes"]["no-answer"]
        assert [(await outcome).receipts for outcome in outcomes] == [3] * 10
        assert sum((await many).outcomes.values()) == 60_000
    with raising(ClientClosed, "is closed"):
        await client.flush()
    with mute_cluster() as mute:
        async with driver.client(mute) as client:
            client.publish_nowait("t", "x")
            with raising(TimeoutError, r"not all that was published has an outcome after 0.01 s"):
                await client.flush(0.01)


@scenario
async def what_waits_for_room_on_its_way_leaves_before_the_socket_is_closed(
    driver: Driver, servers: Servers
) -> None:
    async with driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe("t", queue_max=100_000)
        await subscription.ready(WAIT_S)
        async with driver.client(servers.cluster) as publisher:
            await publisher.publish("t", "first")
            publisher.publish_many_nowait("t", ["x" * 100] * 8000)
        got = 0
        while got < 8001:
            assert await subscription.get(WAIT_S) is not None
            got += 1


@scenario
async def what_callers_get_wrong_of_many_is_told_at_once(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        for wrong in ("text", b"bytes", 5, {"a": 1}):
            with raising(TypeError, "give a list of them, or use publish for a single one"):
                await client.publish_many("t", wrong)  # type: ignore[arg-type]
        with raising(TypeError, "the payload is of type int"):
            await client.publish_many("t", ["x", 1])  # type: ignore[list-item]
        with raising(MessageTooLarge, "payload 1 (from 0), so none was published"):
            await client.publish_many("t", ["x", "x" * 1200])
        with raising(TopicError, ""):
            await client.publish_many("", ["x"])
        with raising(Backlog, "70000 messages are too many for one call: give 65536 at most"):
            await client.publish_many("t", ["x"] * 70_000)
        subscription = client.subscribe("t")
        with raising(ValueError, "max is 0: give 1 or more"):
            subscription.batches(max=0)
        with raising(TypeError, "max is of type str"):
            subscription.batches(max="5")  # type: ignore[arg-type]
        assert (await client.publish_many("t", ["x"])).first_seq == 1


@scenario
async def what_callers_get_wrong_is_told_at_once(driver: Driver, servers: Servers) -> None:
    with mute_cluster() as cluster:
        async with driver.client(cluster) as client:
            with raising(MessageTooLarge, "message too large: 2000 bytes"):
                await client.publish("t", "x" * 2000)
            with raising(MessageTooLarge, "message too large: 2000 bytes"):
                client.publish_nowait("t", "x" * 2000)
            with raising(TopicError, "must not be empty"):
                await client.publish("", "x")
            with raising(TopicError, "topic too long"):
                client.subscribe("t" * 256)
            with raising(ValueError, "at least once"):
                await client.publish("t", "x", repeat=0)
            with raising(ValueError, "give 0 or more seconds"):
                await client.publish("t", "x", repeat_interval_s=-1.0)
            with raising(ValueError, "queue_max is 0"):
                client.subscribe("t", queue_max=0)
            wrong: Any
            for wrong in (None, 7, -3.5, ["t"], {"t": 1}, array("i")):
                kind = type(wrong).__name__
                with raising(TypeError, f"the topic is of type {kind}: give str"):
                    await client.publish(wrong, "x")
                with raising(TypeError, f"the topic is of type {kind}: give str"):
                    client.subscribe(["t", wrong])
                if kind != "list":
                    with raising(TypeError, f"the topic is of type {kind}: give str"):
                        client.subscribe(wrong)
                with raising(TypeError, f"the payload is of type {kind}: give str"):
                    client.publish_nowait("t", wrong)
            for options in ({"repeat": "2"}, {"repeat": 1.5}, {"repeat_interval_s": None}):
                with raising(TypeError, "repeat is a whole number"):
                    await client.publish("t", "x", **options)
            with raising(TypeError, "publish has no option confrm; did you mean confirm?"):
                client.publish_nowait("t", "x", confrm=False)  # type: ignore[call-arg]
            with mock.patch("kcast.client.trust.extras.find_spec", lambda _: None):  # without the extra, too
                calls: tuple[tuple[Any, tuple[Any, ...], str, str], ...] = (
                    (client.subscribe, ("t",), "hold", "subscribe has no option hold; did you mean hold_s?"),
                    (client.cover, ("t",), "rat", "cover has no option rat; did you mean rate?"),
                    (client.publish_many_nowait, ("t", []), "repeat", "publish_many has no option repeat"),
                )
                for call, given, option, told in calls:
                    with raising(TypeError, told):
                        call(*given, **{option: 1})
            with mock.patch("kcast.client.publishing.publications.UNSETTLED_MAX", 2):
                for _ in range(2):
                    client.publish_nowait("t", "x")
                with raising(Backlog, "2 publishes await their outcome"):
                    await client.publish("t", "x")


@scenario
async def waiting_ends_with_its_time(driver: Driver, servers: Servers) -> None:
    with mute_cluster() as cluster:
        async with driver.client(cluster) as client:
            subscription = client.subscribe("t")
            assert await subscription.ready(0.0) == await subscription.ready(0.01) == (0, 1)
            for stream in (subscription, client.events(), client.stream()):
                for timeout_s in (0.0, 0.01):
                    with raising(TimeoutError, f"nothing came in {timeout_s} s"):
                        await stream.get(timeout_s)


@scenario
async def waiting_ends_with_the_client(driver: Driver, servers: Servers) -> None:
    with mute_cluster() as cluster:
        client = driver.client(cluster)
        async with client:
            subscription, events = client.subscribe("t"), client.events()
            waiting = {
                "publish": driver.start(client.publish("t", "x")),
                "ready": driver.start(subscription.ready()),
                "get": driver.start(subscription.get()),
                "iterate": driver.start(all_of(subscription)),
                "events": driver.start(all_of(events)),
            }
            await driver.sleep(0.05)
        assert await waiting["ready"] == subscription.leases == (0, 0)
        assert await waiting["get"] is None
        assert await waiting["iterate"] == await waiting["events"] == []
        with raising(ClientClosed, "was closed before the outcome was known"):
            await waiting["publish"]
        await client.__aexit__(None, None, None)


@scenario
async def waiting_ends_with_the_subscription(driver: Driver, servers: Servers) -> None:
    with mute_cluster() as cluster:
        async with driver.client(cluster) as client:
            subscription, events = client.subscribe("t"), client.events()
            ready, taking = driver.start(subscription.ready()), driver.start(subscription.get())
            listening = driver.start(events.get())
            await driver.sleep(0.05)
            for closing in (subscription, events):
                closing.close()
                closing.close()
            assert await ready == subscription.leases == (0, 0)
            assert await taking is await listening is None
            assert client.subscribe("t").leases == (0, 1)


@scenario
async def what_has_happened_can_be_taken_after_closing(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        events, subscription = client.events(), client.subscribe("t")
        assert await subscription.ready(WAIT_S) == (3, 3)
        await client.publish("t", "x", repeat=2, repeat_interval_s=0.01)
    assert await all_of(events) == [LeasesChanged(b"t", leased, 3) for leased in (1, 2, 3)]
    assert [one.payload for one in await all_of(subscription)] == [b"x"]


@scenario
async def client_that_is_not_open_says_so(driver: Driver, servers: Servers) -> None:
    with mute_cluster() as cluster:
        before, after = driver.client(cluster), driver.client(cluster)
        async with after:
            pass
        for client, told in ((before, "its open()"), (after, "is closed: make another")):
            with raising(ClientClosed, told):
                await client.publish("t", "x")
            for opened in (partial(client.subscribe, "t"), client.events, client.stream):
                with raising(ClientClosed, told):
                    opened()
            assert client.kernel_drops == 0
        with raising(ClientClosed, "has been open before"):
            await after.__aenter__()


@scenario
async def client_is_opened_and_closed_by_calls_and_shows_what_it_has(
    driver: Driver, servers: Servers
) -> None:
    client = driver.client(servers.cluster)
    await client.close()
    assert repr(client).endswith("Client: not open, 3 servers of 'lab', 0 lost>")
    await client.open()
    with raising(ClientClosed, "has been open before"):
        await client.open()
    many = client.subscribe([f"{number}{'x' * 200}" for number in range(100)])
    stream = client.stream(many)
    await many.ready(WAIT_S)
    shown: list[tuple[object, str]] = [
        (client, "300 of 300 leases"),
        (many, "and 97 more, 300 of 300 leases, 0 waiting"),
        (stream, "and 97 more, 300 of 300 leases, 0 waiting"),
        (client.events(), "Events: 0 waiting"),
    ]
    for thing, end in shown:
        assert repr(thing).endswith(f"{end}>") and len(repr(thing)) < 300
    assert "Client: open, 3 servers of 'lab', 0 lost, b'0x" in repr(client)
    await client.close()
    await client.close()
    for thing, end in ((client, "0 lost"), (many, "and 97 more, ended"), (stream, "Stream: ended")):
        assert repr(thing).endswith(f"{end}>")


@scenario
async def closed_subscription_gives_what_had_come_and_the_other_one_goes_on(
    driver: Driver, servers: Servers
) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        closed, other = subscriber.subscribe("closing"), subscriber.subscribe("closing")
        await other.ready(WAIT_S)
        for payload in ("a", "b"):
            await publisher.publish("closing", payload)
        assert [one.payload for _ in "ab" if (one := await other.get(WAIT_S))] == [b"a", b"b"]
        waiting = driver.start(all_of(closed))
        closed.close()
        closed.close()
        assert [one.payload for one in await waiting] == [b"a", b"b"]
        assert await closed.ready() == closed.leases == (0, 0)
        await publisher.publish("closing", "c")
        last = await other.get(WAIT_S)
        assert last and last.payload == b"c"


@scenario
async def the_only_message_of_a_client_leaves_before_the_socket_closes(
    driver: Driver, servers: Servers
) -> None:
    """It waits for the servers' cookies."""
    rng = Random(1)

    def far(core: Endpoint) -> Far:
        return Far(core, rng, delay_s=0.05)

    async with driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe("only")
        await subscription.ready(WAIT_S)
        async with driver.client(servers.cluster, path=far) as publisher:
            publisher.publish_nowait("only", "one")
        got = await subscription.get(WAIT_S)
        assert got and got.payload == b"one"


@scenario
async def several_topics_come_in_one_stream(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe(["one", b"two", "three", "one"])
        assert subscription.topics == (b"one", b"two", b"three")
        assert await subscription.ready(WAIT_S) == (9, 9)
        alone = subscriber.subscribe("two")
        await alone.ready(WAIT_S)
        for topic in ("three", "one", "two"):
            await publisher.publish(topic, topic)
        got = [await subscription.get(WAIT_S) for _ in range(3)]
        assert [(one.topic, one.payload) for one in got if one] == [
            (t, t) for t in (b"three", b"one", b"two")
        ]
        figures = subscriber.counters()
        assert (figures["leases"], figures["leases_wanted"], figures["queued"]) == (12, 12, 1)
        with raising(TopicError, "topic too long"):
            subscriber.subscribe(["four", "t" * 256])
        assert subscriber.counters()["leases_wanted"] == 12, "all or none"
        subscription.close()
        assert subscription.leases == (0, 0)
        await publisher.publish("two", "still")
        assert [one.payload for _ in "ab" if (one := await alone.get(WAIT_S))] == [b"two", b"still"]


@scenario
async def stream_takes_what_comes_to_several(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        first, second = subscriber.subscribe("first"), subscriber.subscribe("second")
        for subscription in (first, second):
            await subscription.ready(WAIT_S)
        await publisher.publish("first", "0")
        stream = subscriber.stream(first, second, subscriber.events())
        for number, topic in enumerate(("second", "first"), 1):
            await publisher.publish(topic, str(number))
        got = [await stream.get(WAIT_S) for _ in range(3)]
        assert [one.payload for one in got if isinstance(one, Delivery)] == [b"0", b"1", b"2"]
        with raising(ValueError, "part of another stream"):
            subscriber.stream(first)
        with raising(ValueError, "belongs to another client"):
            publisher.stream(second)
        wrong: Any
        for wrong in ([second], "second", None):
            with raising(TypeError, f"a source is of type {type(wrong).__name__}: give subscriptions"):
                subscriber.stream(wrong)
        with raising(ValueError, "queue_max is 0"):
            subscriber.stream(second, queue_max=0)
        stream.close()
        assert await stream.get() is None
        await publisher.publish("first", "3")
        assert (await first.get(WAIT_S) or stream) != stream
        taking = driver.start(all_of(subscriber.stream(first, second)))
        first.close()
        second.close()
        assert await taking == []


@scenario
async def function_is_called_with_each_delivery(driver: Driver, servers: Servers) -> None:
    got: list[bytes] = []

    def take(delivery: Delivery) -> None:
        got.append(delivery.payload)

    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        subscription = subscriber.subscribe(["called", "back"], on_delivery=take)
        await subscription.ready(WAIT_S)
        for topic in ("called", "back"):
            await publisher.publish(topic, topic)
        while len(got) < 2:
            await driver.sleep(0.01)
        wrong: Any
        for wrong, told in ((7, "of type int"), (take_later, "a coroutine function")):
            with raising(TypeError, f"on_delivery is {told}"):
                subscriber.subscribe("called", on_delivery=wrong)
    assert (got, await all_of(subscription)) == ([b"called", b"back"], [])


async def take_later(delivery: Delivery) -> None:
    """A callback that nobody would await."""


@scenario
async def held_deliveries_come_in_the_order_of_their_publisher(driver: Driver, servers: Servers) -> None:
    rng = Random(2)

    def rough(core: Endpoint) -> Rough:
        return Rough(core, rng, delay_s=0.05, jitters=True)

    one_of_three = servers.processes.cluster(Policy(3, 1, 3))
    async with (
        driver.client(one_of_three) as publisher,
        driver.client(one_of_three, path=rough) as subscriber,
    ):
        held, unheld = subscriber.subscribe("held", hold_s=5.0), subscriber.subscribe("held")
        await unheld.ready(WAIT_S)
        for number in range(100):
            await publisher.publish("held", str(number))
        came = [[one.seq or 0 for _ in range(100) if (one := await each.get())] for each in (unheld, held)]
        assert came[1] == list(range(1, 101)) == sorted(came[0]) != came[0]


@scenario
async def message_that_no_server_confirms_is_an_error(driver: Driver, servers: Servers) -> None:
    with mute_cluster() as cluster, giving_up_soon():
        async with driver.client(cluster) as client:
            events = client.events()
            name = cluster.servers[0].name
            with raising(NoReceipt, f"no server has given a receipt: {name} did not answer"):
                await client.publish("t", "x")
            outcome = await client.publish_nowait("t", "x")
            assert outcome.servers == {name: Outcome.NO_ANSWER}
            assert (await client.publish("t", "x", confirm=False)).receipts == 0
            assert (await events_until(events, AllServersLost))[-1] == AllServersLost(1)
            figures = client.counters()
            assert (figures["published"], figures["outcomes"]["no-answer"]) == (3, 3)
            assert figures["servers"] == {"alive": 0, "suspected": 0, "lost": 1}


@scenario
async def file_that_changes_is_adopted(driver: Driver, servers: Servers) -> None:
    every = servers.cluster
    few = replace(every, servers=every.servers[:2])
    with TemporaryDirectory() as folder, looking_often():
        file = Path(folder) / "a.cluster"
        file.write_text(format_cluster(few))
        async with driver.client(file) as client, driver.client(every) as publisher:
            events, subscription = client.events(), client.subscribe("t")
            assert await subscription.ready(WAIT_S) == (2, 2)
            file.write_text("kcast-cluster 1\n")
            refused = (await events_until(events, ClusterRefused))[-1]
            assert (
                isinstance(refused, ClusterRefused) and "at least one 'server IP:PORT' line" in refused.reason
            )
            assert client.cluster == few
            file.write_text(format_cluster(every))
            name = every.servers[2].name
            assert (await events_until(events, ClusterChanged))[-1] == ClusterChanged((name,), ())
            assert client.cluster == every
            assert await subscription.ready(WAIT_S) == (3, 3)
            assert (await client.publish("t", "x")).receipts == 3
            await publisher.publish("t", "y")
            assert [one.payload for _ in range(2) if (one := await subscription.get(WAIT_S))] == [b"x", b"y"]


@contextmanager
def looking_often() -> Iterator[None]:
    """Lets clients look at their cluster files many times a second."""
    with (
        mock.patch.object(watch, "LOOK_INTERVAL_S", 0.02),
        mock.patch.object(watch, "SETTLE_S", 0.02),
    ):
        yield


if find_spec("nacl") is not None:
    from tests.support.published import AT_NAME, known_list

    @scenario
    async def newer_signed_list_is_adopted(driver: Driver, servers: Servers) -> None:
        every = servers.cluster.servers
        with known_list(ONE) as known:
            known.publish(every[:1], age_s=50)
            async with driver.client(AT_NAME) as client, driver.client(AT_NAME) as publisher:
                events, subscription = client.events(), client.subscribe("t")
                assert await subscription.ready(WAIT_S) == (1, 1)
                assert [server.name for server in client.cluster.servers] == [every[0].name]
                cluster = known.publish(every[1:])
                names = tuple(sorted(server.name for server in every[1:]))
                changed = (await events_until(events, ListChanged))[-1]
                assert changed == ListChanged("example.org/lab", 2, names, (every[0].name,))
                assert (await events_until(events, ClusterChanged))[-1] == ClusterChanged(
                    names, (every[0].name,)
                )
                assert client.cluster.servers == cluster.servers
                state = client.list_state()
                assert state is not None and state.version == 2
                assert [trouble.fault for trouble in state.troubles] == ["apart"], "all servers are others"
                await publisher.publish("t", "x")
                delivery = await subscription.get(WAIT_S)
                assert delivery is not None and delivery.payload == b"x"

    @scenario
    async def expired_list_ends_the_client_where_its_owners_want_that(
        driver: Driver, servers: Servers
    ) -> None:
        with known_list(ONE, expiry="refuse") as known:
            known.publish(servers.cluster.servers, fresh_s=1, valid_s=2)
            async with driver.client(AT_NAME) as client:
                events, seen = client.events(), set()
                with raising(ClientClosed, "has failed: @example.org/lab: version 1 was valid until"):
                    async for event in events:
                        seen |= {event.fault} if isinstance(event, ListTrouble) else set()
                assert "expired" in seen
                with raising(ClientClosed, "Its trust document forbids to use it"):
                    await client.publish("t", "x")
            with raising(ClusterError, "Its trust document forbids to use it"):
                driver.client(AT_NAME)


@scenario
async def names_are_looked_up_until_they_resolve(driver: Driver, servers: Servers) -> None:
    literal = servers.cluster.servers
    found = {f"kcast-{n}.kcast": server.addresses[0][0] for n, server in enumerate(literal)}
    last = found.popitem()
    named = tuple(ServerEntry((), f"kcast-{n}", (f"kcast-{n}.kcast", s.port)) for n, s in enumerate(literal))

    def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        if host not in found:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", (found[host], port))]

    with mock.patch.object(socket, "getaddrinfo", getaddrinfo):
        async with driver.client(Cluster(named, ALL, has_names=True)) as client:
            events, subscription = client.events(), client.subscribe("t")
            down = ServerLost(named[2].name, "name", has_answered=False)
            assert (await events_until(events, ServerLost))[-1] == down
            assert (await client.publish("t", "x")).receipts == 2
            found[last[0]] = last[1]
            assert (await events_until(events, ServerReturned))[-1] == ServerReturned(named[2].name)
            assert await subscription.ready(WAIT_S) == (3, 3)
            assert (await client.publish("t", "x")).servers.keys() == {server.name for server in named}


@scenario
async def slow_consumer_keeps_the_newest_and_the_rest_is_counted(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as publisher, driver.client(servers.cluster) as subscriber:
        slow, fast = subscriber.subscribe("slow", queue_max=2), subscriber.subscribe("slow")
        await fast.ready(WAIT_S)
        for number in range(5):
            await publisher.publish("slow", str(number))
            assert await fast.get(WAIT_S)
        assert subscriber.drops[Drop.SLOW_CONSUMER] == 3
        slow.close()
        assert [one.payload for one in await all_of(slow)] == [b"3", b"4"]


@scenario
async def killed_server_is_told_and_so_is_its_return(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        events = client.events()
        subscription = client.subscribe("t")
        for leased in (1, 2, 3):
            assert await events.get(WAIT_S) == LeasesChanged(b"t", leased, 3)
        name = servers.processes.names[0]
        servers.processes.kill(0)
        try:
            outcome = await client.publish("t", "x")
            assert outcome.servers[name] is not Outcome.RECEIPT
            assert outcome.receipts == 2
            seen = await events_until(events, ServerLost)
            assert getattr(seen[-1], "server", "") == name
        finally:
            servers.processes.restart(0)
        seen = await events_until(events, ServerReturned)
        assert seen[-1] == ServerReturned(name)
        assert await subscription.ready(WAIT_S) == (3, 3)
        assert (await client.publish("t", "x")).receipts == 3


@scenario
async def leases_are_renewed_while_the_user_sleeps_and_it_costs_next_to_nothing(
    driver: Driver, servers: Servers
) -> None:
    async with driver.client(servers.cluster) as client:
        subscription = client.subscribe("renewed")
        await subscription.ready(WAIT_S)
        events = client.events()
        cpu_s = time.process_time()
        await driver.sleep(TTL_S * 1.3)
        cpu_s = time.process_time() - cpu_s
        with raising(TimeoutError, ""):  # no lease has lapsed
            await events.get(0.0)
        assert (await client.publish("renewed", "x")).receipts == 3
        assert await subscription.get(WAIT_S)
        assert cpu_s < 0.1 * TTL_S, f"{cpu_s:.3f} s of computing while nothing was to do"


@scenario
async def forked_process_is_told_to_open_its_own_and_the_parent_goes_on(
    driver: Driver, servers: Servers
) -> None:
    async with driver.client(servers.cluster) as client:
        subscription, events = client.subscribe("forked"), client.events()
        await subscription.ready(WAIT_S)
        publisher = (await client.publish("forked", "before")).servers
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(int(WAIT_S))  # it might hang
            os.write(writer, "\n".join(not_refused(client, subscription, events)).encode() or b"all refused")
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        told = os.read(reader, 4096)
        os.close(reader)
        assert (told, status) == (b"all refused", 0)
        assert (await client.publish("forked", "after")).servers == publisher
        got = [await subscription.get(WAIT_S) for _ in range(2)]
        assert [one.payload for one in got if one] == [b"before", b"after"]
        assert subscription.leases == (3, 3)


def not_refused(client: aio.Client, subscription: aio.Subscription, events: aio.Events) -> list[str]:
    """What in a forked process does anything else than raising ClientClosed at once."""
    calls: dict[str, Callable[[], Any]] = {
        "publish": lambda: client.publish("forked", "child").send(None),
        "publish_nowait": lambda: client.publish_nowait("forked", "child"),
        "subscribe": lambda: client.subscribe("other"),
        "events": client.events,
        "stream": client.stream,
        "get": lambda: subscription.get().send(None),
        "ready": lambda: subscription.ready().send(None),
        "get an event": lambda: events.get().send(None),
        "leave": lambda: client.__aexit__(None, None, None).send(None),
    }
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except ClientClosed as error:
            if "forked" not in str(error):
                wrong.append(f"{name}: {error}")
        except BaseException as error:
            if name != "leave" or not isinstance(error, StopIteration):
                wrong.append(f"{name}: {error!r}")
        else:
            wrong.append(f"{name} was not refused")
    return wrong


@scenario
async def lease_that_costs_work_is_paid_for(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.with_work.cluster(ONE)) as client:
        first, second = client.subscribe("first"), client.subscribe("second")
        assert await first.ready(WAIT_S) == await second.ready(WAIT_S) == (1, 1)
        assert (await client.publish("second", "x")).receipts == 1
        assert await second.get(WAIT_S)


@scenario
async def path_sees_all_that_comes_and_goes_and_when_the_kernel_took_it(
    driver: Driver, servers: Servers
) -> None:
    paths: list[Through] = []

    def through(core: Endpoint) -> Through:
        paths.append(Through(core))
        return paths[-1]

    began_ns = time.time_ns()
    async with driver.client(servers.cluster, path=through, kernel_times=True) as client:
        subscription = client.subscribe("seen")
        await subscription.ready(WAIT_S)
        for number in range(20):
            await client.publish("seen", str(number))
            await subscription.get(WAIT_S)
        port = client.local_port
        assert port > 0
    (path,) = paths
    came = [one for burst in path.received for one in datagrams(burst.data, burst.segment_bytes)]
    gone = b"".join([transmit.data for transmit in path.sent])
    assert len(came) == client.counts["datagrams_received"]
    assert sum(one.count(b"seen ") for one in came) == client.counts["copies_received"] <= 60
    assert client.counts["deliveries"] == 20
    assert gone.count(b"seen %@") >= 60
    assert {burst.source for burst in path.received} == set(servers.processes.addresses)
    if uses_linux():
        times_ns = [burst.kernel_ns for burst in path.received]
        assert began_ns <= min(times_ns) <= max(times_ns) <= time.time_ns()
    assert (client.local_port, client.send_errors) == (port, {})


@scenario
async def ipv6_serves_as_well(driver: Driver, servers: Servers) -> None:
    assert servers.with_ipv6 is not None
    port = servers.with_ipv6.addresses[0][1]
    async with driver.client(lab([("::1", port)], ONE)) as client:
        subscription = client.subscribe("t")
        assert await subscription.ready(WAIT_S) == (1, 1)
        outcome = await client.publish("t", "x")
        assert outcome.servers == {f"[::1]:{port}": Outcome.RECEIPT}
        assert await subscription.get(WAIT_S)


@scenario
async def address_that_the_system_sends_nothing_to_is_passed_over_at_once(
    driver: Driver, servers: Servers
) -> None:
    (address, *_) = servers.processes.addresses
    cluster = Cluster((ServerEntry((("255.255.255.255", 9), address), "a"),), ONE, is_lab=True)
    after_s = 60.0 if uses_linux() else whereabouts.NEXT_AFTER_S
    with mock.patch.object(whereabouts, "NEXT_AFTER_S", after_s):
        async with driver.client(cluster) as client:
            assert (await client.publish("t", "x")).receipts == 1


@scenario
async def system_without_ipv6_uses_ipv4_and_tells_what_it_cannot_reach(
    driver: Driver, servers: Servers
) -> None:
    (address, *_) = servers.processes.addresses
    both: tuple[Address, ...] = (("::1", address[1]), address)
    cluster = Cluster(
        (ServerEntry(both, "both"), ServerEntry((("::1", 9),), "six")), Policy(2, 2, 2), is_lab=True
    )
    with mock.patch("socket.socket", lacking(socket.AF_INET6)):
        async with driver.client(cluster) as client:
            events, subscription = client.events(), client.subscribe("t")
            (missing,) = [
                one for one in await events_until(events, FamilyMissing) if isinstance(one, FamilyMissing)
            ]
            assert missing == FamilyMissing("[::1]:9", 6)
            while subscription.leases[0] < 1:
                assert await events.get(WAIT_S)
            outcome = await client.publish("t", "x")
            assert (outcome.receipts, outcome.servers[cluster.servers[0].name]) == (1, Outcome.RECEIPT)


# --- What scenarios use -------------------------------------------------------------------------------


@contextmanager
def raising(kind: type[BaseException], part: str) -> Iterator[None]:
    """Does what pytest.raises does, which does not exist where this may run."""
    try:
        yield
    except kind as error:
        assert part in str(error), f"{part!r} is not in {str(error)!r}"
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def lacking(*families: socket.AddressFamily) -> type[socket.socket]:
    """The sockets of a system whose kernel does not have these families."""

    class Socket(socket.socket):
        def __init__(self, family: int = -1, *args: Any, **options: Any) -> None:
            if family in families:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *args, **options)

    return Socket


async def all_of(stream: Any) -> list[Any]:
    return [item async for item in stream]


async def events_until(events: aio.Events, kind: type[Event]) -> list[Event]:
    """All events up to the first of this kind."""
    seen: list[Event] = []
    while not seen or not isinstance(seen[-1], kind):
        event = await events.get(WAIT_S)
        assert event is not None, f"no {kind.__name__} came, but {seen}"
        seen.append(event)
    return seen
