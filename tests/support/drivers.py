"""One adapter for each driver, so that all of them run what `tests.support.driver_suite` holds.

A scenario is a coroutine that uses a client of asyncio's shape. `Loop` runs it on an event loop. `Threads`
runs it straight through: there awaiting does not suspend but blocks, since the adapter's coroutines call a
blocking client.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

from kcast.client import aio, blocking
from kcast.client.cluster import Cluster
from kcast.client.driving.blocking_log import Log
from kcast.client.driving.blocking_service import Service

WAIT_S = 20.0

Coro = Coroutine[Any, Any, Any]


class Driver(Protocol):
    """One way to run a scenario."""

    def run(self, scenario: Coro) -> None:
        """Runs it to its end; one that hangs fails."""

    def client(self, cluster: Cluster | Path | str, **options: Any) -> aio.Client:
        """A client, or what can be used in the same way."""

    def start(self, coroutine: Coro) -> Awaitable[Any]:
        """Runs it at the same time; its result can be awaited."""

    async def sleep(self, seconds: float) -> None:
        """Does nothing, while the client goes on."""


class Loop:
    """asyncio, and what has its interface."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._new_loop = new_loop

    def run(self, scenario: Coro) -> None:
        async def timed() -> None:
            async with asyncio.timeout(WAIT_S):
                await scenario

        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(timed())

    def client(self, cluster: Cluster | Path | str, **options: Any) -> aio.Client:
        return aio.Client(cluster, **options)

    def start(self, coroutine: Coro) -> Awaitable[Any]:
        return asyncio.create_task(coroutine)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Threads:
    """The blocking driver, with threads or, once gevent has patched them, greenlets."""

    def run(self, scenario: Coro) -> None:
        _in_thread(scenario).result(WAIT_S)

    def client(self, cluster: Cluster | Path | str, **options: Any) -> aio.Client:
        return cast(aio.Client, _Blocking(blocking.Client(cluster, **options)))

    def start(self, coroutine: Coro) -> Awaitable[Any]:
        return _Result(_in_thread(coroutine))

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Blocking:
    """A blocking client, subscription or stream of events that looks like its twin of asyncio."""

    def __init__(self, blocking_one: Any) -> None:
        self._it = blocking_one

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._it, name)
        if name in ("subscribe", "events", "stream", "members", "history"):
            return lambda *args, **options: _Blocking(attribute(*map(_blocking_one, args), **options))
        if name == "service":
            return lambda topic, handler, *args, **options: _Blocking(
                attribute(topic, _straight(handler), *args, **options)
            )
        verbs = {"publish", "publish_many", "flush", "get", "ready", "request", "request_all", "wait"}
        verbs |= {"append", "synced"}
        ends = blocking.Client, Service, Log
        if name in verbs or (name in ("open", "close") and isinstance(self._it, ends)):
            return partial(_call, attribute)
        if name in ("batches", "entries"):
            return lambda *args, **options: _Batches(attribute(*args, **options))
        if name in ("publish_nowait", "publish_many_nowait", "request_nowait"):
            return lambda *args, **options: _Result(attribute(*args, **options))
        return attribute

    def __repr__(self) -> str:
        return repr(self._it)

    async def __aenter__(self) -> Self:
        self._it.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._it.__exit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        for item in self._it:
            return item
        raise StopAsyncIteration


class _Batches:
    """What comes, several at a time, as an async iterator that blocks."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        for batch in self._batches:
            return batch
        raise StopAsyncIteration


def _blocking_one(given: Any) -> Any:
    return given._it if isinstance(given, _Blocking) else given


class _Result:
    """A future of a thread that can be awaited, which blocks."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self._future.result(WAIT_S)


def _straight(handler: Any) -> Any:
    """A handler, or several by method, whose awaits block."""
    if isinstance(handler, dict):
        return {method: _straight(each) for method, each in handler.items()}

    def handle(request: Any) -> Any:
        try:
            handler(request).send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("it waited for an event loop")

    return handle


async def _call(method: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    return method(*args, **options)


def _in_thread(coroutine: Coro) -> "Future[Any]":
    """Runs a coroutine whose awaits block, in a thread that does not keep a failed test from ending."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            coroutine.send(None)
        except StopIteration as end:
            future.set_result(end.value)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_exception(AssertionError("it waited for an event loop"))

    threading.Thread(target=run, daemon=True).start()
    return future
