"""What every driver must do with members, requests and services: scenarios beside those of `driver_suite`."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kcast.client.errors import ClientClosed, MessageTooLarge, NoWorker, RemoteError, RequestTimeout
from kcast.client.events import Drop, LeasesChanged, Limited
from kcast.client.layers.calls import Reply
from kcast.client.layers.limit import FixedWindow
from kcast.client.layers.members import MemberJoined, MemberLeft
from kcast.pubsub.wire import TopicError
from tests.support.driver_suite import Servers, events_until, raising, scenario
from tests.support.drivers import WAIT_S, Driver, Loop

SOON_S = 10.0
READY_S = 3.0  # an idle client looks by itself after 5 s, which is too late


async def add(request: Any) -> str:
    one, other = request.payload.split()
    assert 0 < request.left_s <= SOON_S and request.topic == b"calc"
    return str(int(one) + int(other))


async def declines(request: Any) -> str:
    text: Any = 5 if request.payload else f"not {request.method}"
    raise RemoteError("mine", text)


async def fails(request: Any) -> str:
    raise LookupError("only the class is told")


class Ending(BaseException):
    """No Exception."""


async def ends(request: Any) -> str:
    """As where what it awaits is cancelled, or it exits."""
    kinds = {b"loop": asyncio.CancelledError, b"thread": SystemExit, b"any": Ending}
    raise kinds[request.payload]


async def returns(request: Any) -> Any:
    return {b"none": None, b"int": 3, b"str": "ø", b"300": bytes(300 * 1024), b"200": bytes(200_000)}[
        request.payload
    ]


async def code_of(asking: Any) -> tuple[str, str]:
    """The code and the text by which a request is declined."""
    try:
        reply = await asking
    except RemoteError as error:
        return error.code, error.text
    raise AssertionError(f"it was answered: {reply}")


@contextmanager
def unlogged() -> Iterator[None]:
    """Keeps tracebacks of handlers that fail on purpose out of the log."""
    logger = logging.getLogger("kcast.client")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@scenario
async def requests_are_answered_and_what_goes_wrong_is_told(driver: Driver, servers: Servers) -> None:
    methods: dict[str, Any] = {"add": add, "declines": declines, "fails": fails, "ends": ends, "": returns}
    how = ("loop", "CancelledError") if isinstance(driver, Loop) else ("thread", "SystemExit")
    with unlogged():
        async with driver.client(servers.cluster) as worker, driver.client(servers.cluster) as client:
            async with worker.service("calc", methods) as service:
                reply = await client.request("calc", "1 2", "add", SOON_S)
                assert (reply.payload, reply.worker, reply.sender) == (b"3", service.name, None)
                assert (await worker.request("calc", b"20 22", "add", SOON_S)).payload == b"42", (
                    "its own process"
                )
                assert (await client.request("calc", "str")).payload == "ø".encode()
                assert (await client.request("calc", "200", timeout_s=SOON_S)).payload == bytes(200_000)
                for method, payload, code, text in (
                    ("declines", "", "mine", "not declines"),
                    ("fails", "", "failed", "LookupError"),
                    ("declines", "5", "failed", "TypeError"),
                    ("ends", how[0], "failed", how[1]),
                    ("ends", "any", "failed", "Ending"),
                    ("", "none", "failed", "TypeError"),
                    ("", "int", "failed", "TypeError"),
                    ("", "300", "size", "the answer has 307200 bytes"),
                ):
                    assert await code_of(client.request("calc", payload, method, SOON_S)) == (code, text)
                found = await client.request_all("calc", "1 2", method="add", timeout_s=SOON_S)
                (name, one), *none = found.items()
                assert name == service.name and isinstance(one, Reply) and one.payload == b"3" and not none
                with raising(RemoteError, "method"):
                    await client.request("calc", "", "sub", SOON_S, to=service.name)
                with raising(NoWorker, "sub"):
                    await client.request("calc", "", "sub", SOON_S)
                with raising(NoWorker, "AAAAAAAAAAA"):
                    await client.request("calc", "", to="AAAAAAAAAAA", timeout_s=SOON_S)
                with raising(MessageTooLarge, "room for"):
                    await client.request("calc", bytes(1100), "add")
            with raising(NoWorker, "add"):
                await client.request("calc", "1 2", "add", SOON_S)


@scenario
async def what_callers_and_services_get_wrong_is_told_at_once(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        for topic, part in (
            ("t" * 121, "121 bytes"),
            ("a}", "without a tag"),
            ("~" + "A" * 22, "senders="),
            ("", ""),
        ):
            for ask in (client.request, client.request_all):
                with raising(TopicError, part):
                    await ask(topic, "")
            with raising(TopicError, part):
                client.service(topic, add)
            with raising(TopicError, part):
                client.members(topic)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"timeout_s": 0}, "timeout_s"),
            ({"timeout_s": 3601}, "timeout_s"),
            ({"method": "a b"}, "method"),
            ({"to": "short"}, "worker's name"),
        ]
        for options, part in wrong:
            with raising(ValueError, part):
                await client.request("calc", "", **options)
        strange: list[tuple[Any, dict[str, Any], str]] = [
            ({}, {}, "without methods"),
            ({".": add}, {}, "no method"),
            (add, {"concurrency": 0}, "concurrency"),
            (add, {"info": "i" * 201}, "too long"),
            (add, {"limit": FixedWindow(1, 1.0, ban_s=1.0)}, "keys"),
        ]
        for handler, options, part in strange:
            with raising(ValueError, part):
                client.service("calc", handler, **options)
        with raising(ValueError, "keys"):
            client.subscribe("calc", limit=FixedWindow(1, 1.0, ban_s=1.0))
        number: Any = 3
        for begin in (client.subscribe, lambda topic, limit: client.service(topic, add, limit=limit)):
            with raising(TypeError, "FixedWindow"):
                begin("calc", limit=number)
        with raising(ValueError, "info"):
            client.members("calc", info="i" * 201)


@scenario
async def a_busy_worker_is_passed_over_and_a_hanging_one_is_waited_for(
    driver: Driver, servers: Servers
) -> None:
    async def slow(request: Any) -> Any:
        await driver.sleep(0.6)
        return request.payload

    async with driver.client(servers.cluster) as client, driver.client(servers.cluster) as other:
        first = client.service("slow", slow, concurrency=1)
        async with first, other.service("slow", slow, concurrency=1) as second:
            waiting = [client.request_nowait("slow", str(number), timeout_s=SOON_S) for number in range(3)]
            replies = [await each for each in waiting]
            assert [reply.payload for reply in replies] == [b"0", b"1", b"2"]
            assert {reply.worker for reply in replies} == {first.name, second.name}
            try:
                await client.request("slow", "", timeout_s=0.3)
                raise AssertionError("it was answered")
            except RequestTimeout as error:
                assert error.worked and error.attempts >= 1


@scenario
async def services_call_each_other(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as one, driver.client(servers.cluster) as other:

        async def inner(request: Any) -> Any:
            return b"<" + request.payload + b">"

        async def outer(request: Any) -> Any:
            return (await one.request("b", request.payload, timeout_s=SOON_S)).payload

        async def asks_back(request: Any) -> Any:
            return (await other.request("a", request.payload, "inner", SOON_S)).payload

        async with one.service("a", {"outer": outer, "inner": inner}), other.service("b", asks_back):
            assert (await one.request("a", "x", "outer", SOON_S)).payload == b"<x>"


@scenario
async def a_service_asks_itself_and_callbacks_ask(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        asked: list[Any] = []

        async def count(request: Any) -> Any:
            left = int(request.payload)
            return "end" if not left else (await client.request("count", str(left - 1))).payload

        async with client.service("count", count):
            assert (await client.request("count", "3", timeout_s=SOON_S)).payload == b"end"
            subscription = client.subscribe(
                "t", on_delivery=lambda _: asked.append(client.request_nowait("count", "1"))
            )
            await subscription.ready(WAIT_S)
            await client.publish("t", "x")
            while not asked:
                await driver.sleep(0.01)
            assert (await asked[0]).payload == b"end"
        async with client.service("count", count, concurrency=1):
            with raising(RequestTimeout, "has begun"):
                await client.request("count", "1", timeout_s=0.5)


@scenario
async def members_come_and_go(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client, driver.client(servers.cluster) as other:
        await driver.sleep(0)  # the turn of opening is over
        watching = client.members("room")
        async with other.members("room", info="ada") as ada:
            await watching.ready(READY_S)
            (member,) = watching.alive
            assert (member.info, member.methods, member.sender) == ("ada", (), None)
            assert await watching.get(WAIT_S) == MemberJoined(member)
            assert await ada.get(WAIT_S) == MemberJoined(member), "it hears itself"
            async with client.service("room", add, info="adds") as service:
                joined = await watching.get(WAIT_S)
                assert isinstance(joined, MemberJoined)
                assert (joined.member.name, joined.member.methods, joined.member.info) == (
                    service.name,
                    ("",),
                    "adds",
                )
            assert await watching.get(WAIT_S) == MemberLeft(joined.member, "left")
        assert await watching.get(WAIT_S) == MemberLeft(member, "left")
        watching.close()
        assert await watching.get(WAIT_S) is None and watching.alive == ()


@scenario
async def senders_over_a_limit_are_left_out(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client, driver.client(servers.cluster) as other:
        async with client.service("calc", add, limit=FixedWindow(2, 30.0)):
            for _ in range(2):
                assert (await other.request("calc", "1 2", timeout_s=SOON_S)).payload == b"3"
            code, text = await code_of(other.request("calc", "1 2", timeout_s=SOON_S))
            assert code == "limited" and 1 <= int(text) <= 30
            assert (await client.request("calc", "1 2", timeout_s=SOON_S)).payload == b"3", "another sender"
        events = client.events()
        subscription = client.subscribe("t", limit=FixedWindow(2, 30.0))
        await subscription.ready(WAIT_S)
        for number in range(4):
            await other.publish("t", str(number))
        await client.publish("t", "mine")
        taken = [await subscription.get(WAIT_S) for _ in range(3)]
        assert sorted(each.payload for each in taken if each is not None) == [b"0", b"1", b"mine"]
        limited = [each for each in await events_until(events, Limited) if isinstance(each, Limited)]
        assert [(each.topic, each.sender) for each in limited] == [(b"t", other.core.publisher)]
        assert 0 < limited[0].wait_s <= 30 and client.drops[Drop.LIMITED] == 2


@scenario
async def leases_of_layers_are_told_to_nobody(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client:
        events, everything = client.events(), client.stream()
        async with client.service("calc", add):
            assert (await client.request("calc", "1 2", timeout_s=SOON_S)).payload == b"3"
        subscription = client.subscribe("t")
        await subscription.ready(WAIT_S)
        told = await events_until(events, LeasesChanged)
        assert {each.topic for each in told if isinstance(each, LeasesChanged)} == {b"t"}
        await client.publish("t", "x")
        delivery = await everything.get(WAIT_S)
        assert delivery is not None and delivery.topic == b"t", "and no stream takes what they hear"


@scenario
async def closing_ends_requests_and_services(driver: Driver, servers: Servers) -> None:
    client = driver.client(servers.cluster)
    await client.open()
    waiting = client.request_nowait("nobody", "", timeout_s=SOON_S)
    service = client.service("calc", add)
    asking = driver.start(client.request_all("nobody", "", timeout_s=SOON_S))
    closed = client.service("calc", add)
    for _ in range(2):
        await closed.close()
    members = client.members("calc", info="me")
    await client.close()
    await closed.close()
    with raising(ClientClosed, "closed"):
        await asking
    with raising(ClientClosed, "closed"):
        await waiting
    await service.wait()
    while await members.get(2 * WAIT_S) is not None:  # what came before
        pass
    for use in (
        lambda: client.request("calc", ""),
        lambda: client.request_all("calc", ""),
    ):
        with raising(ClientClosed, "closed"):
            await use()
    calls: list[Callable[[], Any]] = [lambda: client.service("calc", add), lambda: client.members("calc")]
    for call in calls:
        with raising(ClientClosed, "closed"):
            call()


@scenario
async def a_forked_process_asks_nobody(driver: Driver, servers: Servers) -> None:
    async with driver.client(servers.cluster) as client, client.service("calc", add):
        assert (await client.request("calc", "1 2", timeout_s=SOON_S)).payload == b"3"
        members = client.members("calc", info="me")
        child = os.fork()
        if child == 0:
            refused = 0
            calls: list[Callable[[], Any]] = [
                lambda: client.request_nowait("calc", "1 2"),
                lambda: client.service("calc", add),
                lambda: client.members("calc"),
            ]
            with suppress(BaseException):
                for call in calls:
                    with suppress(ClientClosed):
                        call()
                        continue
                    refused += 1
                members.close()  # does nothing
            os._exit(len(calls) - refused)
        assert os.waitpid(child, 0)[1] == 0
        assert (await client.request("calc", "1 2", timeout_s=SOON_S)).payload == b"3"
