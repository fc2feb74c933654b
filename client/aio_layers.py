"""Requests, services and members for the client of asyncio. What they need is imported once it is used."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from kcast.client.driving.arguments import HistoryOptions, RequestOptions, ServiceOptions
from kcast.client.driving.base import ClientBase
from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from kcast.client.driving.aio_log import Log
    from kcast.client.driving.aio_service import Members, Service
    from kcast.client.driving.mailboxes import Handlers
    from kcast.client.layers.calls import Reply


class LayersClient(ClientBase):
    """The part of `kcast.client.aio.Client` that asks, answers, and is a member."""

    async def request(
        self,
        topic: str | bytes,
        payload: str | bytes,
        method: str = "",
        timeout_s: float = 5.0,
        to: str | None = None,
        senders: Iterable[str] | None = None,
    ) -> "Reply":
        """Asks one of the workers of a topic (`service`), and returns its answer.

        It chooses a worker that has the method and the fewest requests of this client, asks it twice, and
        then another one, as long as there is time. So a request may run more than once: handlers should be
        idempotent.

        - `topic`: of the service, at most 120 bytes on the wire.
        - `payload`: str (its UTF-8 is sent) or bytes, in one message: 510 bytes of anything, or more.
        - `method`: a name of 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'; by default the unnamed method.
        - `timeout_s`: seconds until it is given up, 5 by default, 3600 at most.
        - `to`: the name of the only worker that is to be asked; by default any.
        - `senders`: keys of the workers whose word counts; by default anybody's, unless the client has a
          group.

        Raises NoWorker where nobody is known 1 s after the leases stand; RequestTimeout, a TimeoutError, too;
        RemoteError where the worker declines; MessageTooLarge; TopicError; ClientClosed; ValueError and
        TypeError for arguments that make no sense.
        """
        options = RequestOptions(method=method, timeout_s=timeout_s, to=to, senders=senders)
        return await self.request_nowait(topic, payload, **options)

    def request_nowait(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[RequestOptions]
    ) -> "asyncio.Future[Reply]":
        """Asks as `request` does, and returns at once with a future of the answer. Where it is cancelled,
        nobody is asked any more."""
        answer: asyncio.Future[Reply] = self._loop_if_open().create_future()
        self._mailboxes.ask(answer, topic, payload, options)
        return answer

    async def request_all(
        self, topic: str | bytes, payload: str | bytes, **options: Unpack[RequestOptions]
    ) -> "dict[str, Reply | KcastError]":
        """Asks each worker with the method that is known 1 s after the leases stand, and returns what each
        has answered, or why not, by name. It takes what `request` takes but `to`, and raises NoWorker."""
        answers: asyncio.Future[dict[str, Reply | KcastError]] = self._loop_if_open().create_future()
        self._mailboxes.ask(answers, topic, payload, options, of_all=True)
        return await answers

    def service(
        self, topic: str | bytes, handler: "Handlers", **options: Unpack[ServiceOptions]
    ) -> "Service":
        """Begins to answer requests on a topic; use the result with `async with`.

        - `topic`: as in `request`.
        - `handler`: a coroutine function that takes a `Request` and returns str or bytes, at most 256 KiB, or
          raises `RemoteError`; or one for each method. All else that it raises is logged, and answered by the
          name of its class. It is cancelled once the caller waits no more.
        - `concurrency`: number of requests that run at a time, 256 by default; more are told `busy`, and go
          to another worker.
        - `limit`: what one sender may ask (`FixedWindow`); by default any number.
        - `info`: what `members` shows of it, 200 bytes at most.
        - `senders`: keys of the callers that are answered; by default anybody, unless the client has a group.

        Raises TopicError; ClientClosed; ValueError and TypeError for arguments that make no sense.
        """
        from kcast.client.driving.aio_service import Service

        self._loop_if_open()
        return Service(self._engine, topic, handler, options)

    def members(
        self, topic: str | bytes, info: str | None = None, senders: Iterable[str] | None = None
    ) -> "Members":
        """Returns who is there on a topic. Iterate over it for who joins and leaves.

        - `topic`: as in `request`. Workers of its services are members, too.
        - `info`: what this member says of itself, 200 bytes at most; by default it only watches.
        - `senders`: keys of the members that count; by default anybody, unless the client has a group.

        Raises TopicError; ClientClosed; ValueError and TypeError for arguments that make no sense.
        """
        from kcast.client.driving.aio_service import Members

        self._loop_if_open()
        return Members(self._engine, topic, info, senders)

    def history(
        self, topic: str | bytes, store: "str | Path | None" = None, **options: Unpack[HistoryOptions]
    ) -> "Log":
        """Opens a topic's log: what was said there, also before this client came, and while it was away. Use
        the result with `async with`.

        Clients with a log of a topic give each other what they lack; servers have no part in that. Each entry
        is stored here before it is told, or given to others.

        - `topic`: at most 120 bytes on the wire. Of a client with a group it is sealed.
        - `store`: a file for it, which several logs of this process may share; by default it is in memory.
        - `age_s`: seconds for which entries are kept, without limit by default.
        - `count`, `size_bytes`: number of entries that are kept, and bytes of their messages; 100,000 and
          64 MiB by default.
        - `limit`: what one sender may add (`FixedWindow`), by its entries' clocks; by default any number.
        - `senders`: keys of those whose entries count; by default anybody.

        Raises StoreError where the file cannot be used; TopicError; ClientClosed; ValueError and TypeError
        for arguments that make no sense.
        """
        from kcast.client.driving.aio_log import Log

        self._loop_if_open()
        return Log(self._engine, topic, store, options)

    @abstractmethod
    def _loop_if_open(self) -> asyncio.AbstractEventLoop:
        """Returns the event loop. Raises ClientClosed and RuntimeError."""
