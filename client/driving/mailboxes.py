"""What both drivers have in common of requests, services and members: how they begin, and the callers that a
client has."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

from kcast.client.driving.arguments import RequestOptions, ServiceOptions, as_bytes, refuse_unknown
from kcast.client.driving.engine import Engine
from kcast.client.driving.inbox import Inbox
from kcast.client.errors import Backlog, RemoteError
from kcast.client.layers.caller import Caller
from kcast.client.layers.members import MemberJoined, MemberLeft, Members
from kcast.client.layers.service import Job, Service
from kcast.client.layers.words import INFO_BYTES_MAX, MS_MAX, fits_presence, is_member, is_method
from kcast.client.messages.envelope import new_publisher
from kcast.client.publishing.waiters import Waiter
from kcast.pubsub import clock

MAILBOXES_MAX = 256
Handler = Callable[["Request"], Any]
Handlers = Handler | Mapping[str, Handler]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as a handler is given it: `sender` is the proven key of who asks, if there is one."""

    payload: bytes
    method: str
    topic: bytes
    sender: str | None
    _until: float = field(repr=False)

    @property
    def left_s(self) -> float:
        """Seconds until nobody waits for the answer any more."""
        return max(0.0, self._until - clock.now())


class Mailboxes:
    """The callers of a client, one for each topic and set of senders: 256 at most, until 60 s unused."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._callers: dict[tuple[bytes, frozenset[str] | None], Caller] = {}

    def ask(
        self,
        waiter: Waiter,
        topic: str | bytes,
        payload: str | bytes,
        options: RequestOptions,
        *,
        of_all: bool = False,
    ) -> None:
        """Sends a request to one worker, or to all. Raises what `Client.request` raises at once."""
        refuse_unknown(options, "request_all" if of_all else "request")
        name, content = as_bytes(topic, "topic"), as_bytes(payload, "payload")
        method, timeout_s, to = options.get("method", ""), options.get("timeout_s", 5.0), options.get("to")
        if not isinstance(method, str) or not is_method(method):
            raise ValueError(f"method is {method!r}: give 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
        if to is not None and not (isinstance(to, str) and is_member(to)):
            raise ValueError(f"to is {to!r}: give the 11 characters of a worker's name")
        if not isinstance(timeout_s, Real) or not 0 < timeout_s <= MS_MAX / 1000:
            raise ValueError(f"timeout_s is {timeout_s}: give more than 0 seconds, and at most 3600")
        caller = self._caller(name, options.get("senders"))
        if of_all:
            ask = partial(caller.ask_all, waiter, content, method, timeout_s)
        else:
            ask = partial(caller.ask, waiter, content, method, timeout_s, to=to)
        self._engine.layers.use(caller, ask)

    def _caller(self, topic: bytes, senders: Iterable[str] | None) -> Caller:
        given = None if senders is None else tuple(senders)
        key = topic, None if given is None else frozenset(given)
        caller = self._callers.get(key)
        if caller is not None:
            return caller
        if len(self._callers) >= MAILBOXES_MAX:
            idle = [each for each in self._callers.values() if not len(each)]
            if not idle:
                raise Backlog(f"requests on {MAILBOXES_MAX} topics are under way: wait for some")
            self._engine.layers.stop(min(idle, key=lambda each: each.used_at))
        name = new_publisher(self._engine.core.rng)
        caller = self._callers[key] = self._engine.layers.run(
            lambda host: Caller(host, topic, name), given, lambda: self._callers.pop(key, None)
        )
        return caller


def begin_members(
    engine: Engine,
    inbox: Inbox[MemberJoined | MemberLeft],
    topic: str | bytes,
    info: str | None,
    senders: Iterable[str] | None,
) -> Members:
    """Begins to be a member, or to watch, and puts into an inbox who joins and leaves. Raises what
    `Client.members` raises."""
    if info is not None and (not isinstance(info, str) or not fits_presence((), info)):
        raise ValueError(f"info is {info!r}: give a str of at most {INFO_BYTES_MAX} bytes")
    make = partial(
        Members,
        topic=as_bytes(topic, "topic"),
        name=new_publisher(engine.core.rng),
        info=info,
        tell=lambda change: inbox.put((change,)),
    )
    return engine.layers.run(make, senders, inbox.end)


class ServiceBase:
    """What the services of both drivers have in common. `name` is the worker's.

    `run` is called with each job that begins, and is to `call` its handler; `on_over` is called at the end.
    """

    def __init__(
        self,
        engine: Engine,
        topic: str | bytes,
        handler: Handlers,
        options: ServiceOptions,
        concurrency: int,
        run: Callable[[Job], object],
        on_over: Callable[[], object],
    ) -> None:
        refuse_unknown(options, "service")
        self._engine = engine
        self._handlers = _handlers_of(handler)
        concurrency = options.get("concurrency", concurrency)
        limit, info = options.get("limit"), options.get("info", "")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ValueError(f"concurrency is {concurrency!r}: give 1 or more")
        if not isinstance(info, str) or not fits_presence(tuple(self._handlers), info):
            raise ValueError(
                "methods and info are too long together: 500 bytes fit, 200 of them for the info"
            )
        make = partial(
            Service,
            topic=as_bytes(topic, "topic"),
            name=new_publisher(engine.core.rng),
            methods=tuple(self._handlers),
            run=run,
            concurrency=concurrency,
            limit=limit,
            info=info,
        )
        self._service = engine.layers.run(make, options.get("senders"), on_over, limit)
        self.name = self._service.name

    def _called(self, job: Job) -> Any:
        """Calls a job's handler, and returns what that returns."""
        request = Request(job.payload, job.method, job.topic, job.sender, job.until)
        return self._handlers[job.method](request)

    def _answered(self, job: Job, answer: object) -> Callable[[float], None]:
        """Returns what ends a job that was answered so. Raises TypeError."""
        return partial(self._service.finish, job, as_bytes(answer, "answer"))

    def _failed(self, job: Job, error: BaseException) -> Callable[[float], None]:
        """Returns what ends a job whose handler has raised an error, and logs one that is no refusal."""
        if isinstance(error, RemoteError):
            return partial(self._service.fail, job, error.code, error.text)
        logger.error("a handler has failed: %r", self._handlers[job.method], exc_info=error)
        return partial(self._service.fail, job, "failed", type(error).__name__)


def _handlers_of(given: Handlers) -> dict[str, Handler]:
    handlers: dict[str, Handler] = dict(given) if isinstance(given, Mapping) else {"": given}
    for method, handler in handlers.items():
        if not isinstance(method, str) or not is_method(method):
            raise ValueError(f"{method!r} is no method: give 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
        if not callable(handler):
            raise TypeError(f"the handler is of type {type(handler).__name__}: give a function")
    if not handlers:
        raise ValueError("a service without methods answers nothing: give a handler")
    return handlers
