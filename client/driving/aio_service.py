"""Members and services for asyncio: tasks around the layers of `kcast.client.layers`."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from inspect import isawaitable
from typing import Self

from kcast.client.driving.aio_items import LoopWaker, _Items, refuse_other_loop
from kcast.client.driving.arguments import ServiceOptions
from kcast.client.driving.engine import QUEUE_MAX, Engine
from kcast.client.driving.inbox import Inbox
from kcast.client.driving.mailboxes import Handlers, ServiceBase, begin_members
from kcast.client.errors import ClientClosed
from kcast.client.layers.members import Member, MemberJoined, MemberLeft
from kcast.client.layers.service import Job
from kcast.pubsub import clock

CONCURRENCY = 256


class Members(_Items[MemberJoined | MemberLeft]):
    """Who is there on a topic (`Client.members`): iterate over who joins and leaves. It ends with `close`,
    at the end of an `async with`, and with the client."""

    def __init__(
        self, engine: Engine, topic: str | bytes, info: str | None, senders: Iterable[str] | None
    ) -> None:
        waker = LoopWaker(asyncio.get_running_loop())
        super().__init__(engine, Inbox(waker, QUEUE_MAX), waker)
        self._members = begin_members(engine, self._inbox, topic, info, senders)
        self.topics = self._members.topics

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
        if self._engine.is_open:
            self._engine.layers.use(self._members, self._members.leave)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Service(ServiceBase):
    """A service (`Client.service`); use it with `async with`, or `close` it. `name` is the worker's."""

    def __init__(
        self, engine: Engine, topic: str | bytes, handler: Handlers, options: ServiceOptions
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        super().__init__(engine, topic, handler, options, CONCURRENCY, self._run, self._over.set)

    async def wait(self) -> None:
        """Waits until the service has ended. Raises ClientClosed where the client has failed."""
        refuse_other_loop(self._engine, self._loop)
        await self._over.wait()
        self._engine.refuse_failed()

    async def close(self) -> None:
        """Takes no more requests, and waits for those that run, for 5 s at most."""
        refuse_other_loop(self._engine, self._loop)
        if self._engine.is_open:
            self._engine.layers.use(self._service, self._service.leave)
            await self._over.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _run(self, job: Job) -> None:
        job.stop = self._loop.create_task(self._handle(job)).cancel  # a job that runs refers to its task

    async def _handle(self, job: Job) -> None:
        if not self._service.may_begin(job, clock.now()):
            return
        try:
            answer = self._called(job)
            end = self._answered(job, await answer if isawaitable(answer) else answer)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # what it has awaited may have been cancelled
            if not job.is_running:  # it was itself
                raise
            end = self._failed(job, error)
        with suppress(ClientClosed):
            self._engine.layers.use(self._service, end)
