"""Members and services for asyncio: tasks around the layers of `kcast.client.layers`."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Self

from kcast.client.driving.aio_items import LoopWaker, _Items, refuse_other_loop
from kcast.client.driving.engine import QUEUE_MAX, Engine
from kcast.client.driving.inbox import Inbox
from kcast.client.driving.mailboxes import (
    Handler,
    answer_bytes,
    begin_members,
    begin_service,
    handlers_of,
    request_of,
)
from kcast.client.errors import ClientClosed, RemoteError
from kcast.client.layers.limit import FixedWindow
from kcast.client.layers.members import Member, MemberJoined, MemberLeft
from kcast.client.layers.service import Job
from kcast.pubsub import clock

CONCURRENCY = 256

logger = logging.getLogger(__name__)


class Members(_Items[MemberJoined | MemberLeft]):
    """Who is there on a topic (`Client.members`): iterate over who joins and leaves. It ends with `close`,
    and with the client."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        send_soon: Callable[[], None],
        topic: str | bytes,
        info: str | None,
        senders: Iterable[str] | None,
    ) -> None:
        waker = LoopWaker(loop)
        super().__init__(engine, Inbox(waker, QUEUE_MAX), waker)
        self._send_soon = send_soon
        inbox = self._inbox
        self._members = begin_members(
            engine, topic, info, senders, lambda change: inbox.put((change,)), inbox.end
        )
        self.topics = self._members.topics
        send_soon()

    @property
    def alive(self) -> tuple[Member, ...]:
        """The members that are known now; this one is among them, once it has heard itself."""
        return self._members.alive

    async def ready(self, timeout_s: float | None = None) -> None:
        """Waits until who is there has had time to say so, 0.5 s after the leases stand.

        - `timeout_s`: seconds to wait at most; without limit by default.
        """
        self._refuse_other_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._inbox.is_ended and not self._members.is_ready(clock.now()):
                    await asyncio.sleep(0.02)

    def close(self) -> None:
        """Leaves, and ends the iteration once what has come is taken."""
        self._refuse_other_loop()
        if self._engine.is_open and not self._members.is_over:
            self._engine.layers.use(self._members, self._members.leave)
            self._send_soon()


class Service:
    """A service (`Client.service`); use it with `async with`, or `close` it. `name` is the worker's."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        send_soon: Callable[[], None],
        topic: str | bytes,
        handler: Handler | Mapping[str, Handler],
        concurrency: int,
        limit: FixedWindow | None,
        info: str,
        senders: Iterable[str] | None,
    ) -> None:
        self._engine, self._loop, self._send_soon = engine, loop, send_soon
        self._handlers = handlers_of(handler)
        self._over = asyncio.Event()
        self._service = begin_service(
            engine, topic, self._handlers, self._run, concurrency, limit, info, senders, self._over.set
        )
        self.name = self._service.name
        send_soon()

    async def wait(self) -> None:
        """Waits until the service has ended. Raises ClientClosed where the client has failed."""
        refuse_other_loop(self._engine, self._loop)
        await self._over.wait()
        self._engine.refuse_failed()

    async def close(self) -> None:
        """Takes no more requests, and waits for those that run, for 5 s at most."""
        refuse_other_loop(self._engine, self._loop)
        if self._engine.is_open and not self._over.is_set():
            self._engine.layers.use(self._service, self._service.leave)
            self._send_soon()
            await self._over.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _run(self, job: Job) -> None:
        job.stop = self._loop.create_task(self._handle(job)).cancel  # a job that runs refers to its task

    async def _handle(self, job: Job) -> None:
        service = self._service
        if not service.may_begin(job, clock.now()):
            return
        try:
            answer = self._handlers[job.method](request_of(job))
            payload = answer_bytes(await answer if isawaitable(answer) else answer)
        except RemoteError as error:
            code, text = error.code, error.text
            self._use(lambda now: service.fail(job, code, text, now))
        except Exception as error:
            logger.exception("a handler has failed: %r", self._handlers[job.method])
            name = type(error).__name__
            self._use(lambda now: service.fail(job, "failed", name, now))
        else:
            self._use(lambda now: service.finish(job, payload, now))

    def _use(self, act: Callable[[float], Any]) -> None:
        with suppress(ClientClosed):
            self._engine.layers.use(self._service, act)
            self._send_soon()
