"""What the facades of requests have in common: the callers that a client has, and checks of arguments."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

from kcast.client.driving.arguments import as_bytes
from kcast.client.driving.engine import Engine
from kcast.client.errors import Backlog
from kcast.client.layers.caller import Caller
from kcast.client.layers.limit import FixedWindow
from kcast.client.layers.members import MemberJoined, MemberLeft, Members
from kcast.client.layers.service import Job, Service
from kcast.client.layers.words import INFO_BYTES_MAX, MS_MAX, fits_presence, is_member, is_method
from kcast.client.messages.envelope import new_publisher
from kcast.client.publishing.waiters import Waiter
from kcast.pubsub import clock

MAILBOXES_MAX = 256
Handler = Callable[["Request"], Any]


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
        method: str,
        timeout_s: float,
        to: str | None,
        senders: Iterable[str] | None,
        *,
        of_all: bool = False,
    ) -> None:
        """Sends a request to one worker, or to all. Raises what `Client.request` raises at once."""
        name, content = as_bytes(topic, "topic"), as_bytes(payload, "payload")
        if not isinstance(method, str) or not is_method(method):
            raise ValueError(f"method is {method!r}: give 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
        if to is not None and not (isinstance(to, str) and is_member(to)):
            raise ValueError(f"to is {to!r}: give the 11 characters of a worker's name")
        if not isinstance(timeout_s, Real) or not 0 < timeout_s <= MS_MAX / 1000:
            raise ValueError(f"timeout_s is {timeout_s}: give more than 0 seconds, and at most 3600")
        caller = self._caller(name, senders)
        if of_all:
            self._engine.layers.use(
                caller, lambda now: caller.ask_all(waiter, content, method, timeout_s, now)
            )
        else:
            self._engine.layers.use(
                caller, lambda now: caller.ask(waiter, content, method, timeout_s, now, to)
            )

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
    topic: str | bytes,
    info: str | None,
    senders: Iterable[str] | None,
    tell: Callable[[MemberJoined | MemberLeft], object],
    on_over: Callable[[], object],
) -> Members:
    """Begins to be a member, or to watch. Raises what `Client.members` raises."""
    if info is not None and (not isinstance(info, str) or not fits_presence((), info)):
        raise ValueError(f"info is {info!r}: give a str of at most {INFO_BYTES_MAX} bytes")
    name, of = new_publisher(engine.core.rng), as_bytes(topic, "topic")
    return engine.layers.run(lambda host: Members(host, of, name, info, tell), senders, on_over)


def handlers_of(given: Handler | Mapping[str, Handler]) -> dict[str, Handler]:
    """Returns the handlers by method. Raises TypeError and ValueError."""
    handlers: dict[str, Handler] = dict(given) if isinstance(given, Mapping) else {"": given}
    for method, handler in handlers.items():
        if not isinstance(method, str) or not is_method(method):
            raise ValueError(f"{method!r} is no method: give 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
        if not callable(handler):
            raise TypeError(f"the handler is of type {type(handler).__name__}: give a function")
    if not handlers:
        raise ValueError("a service without methods answers nothing: give a handler")
    return handlers


def begin_service(
    engine: Engine,
    topic: str | bytes,
    handlers: Mapping[str, Handler],
    run: Callable[[Job], object],
    concurrency: int,
    limit: FixedWindow | None,
    info: str,
    senders: Iterable[str] | None,
    on_over: Callable[[], object],
) -> Service:
    """Begins a service. Raises what `Client.service` raises."""
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency is {concurrency!r}: give 1 or more")
    if not isinstance(info, str) or not fits_presence(tuple(handlers), info):
        raise ValueError("methods and info are too long together: 500 bytes fit, 200 of them for the info")
    name, of = new_publisher(engine.core.rng), as_bytes(topic, "topic")
    make = partial(
        Service,
        topic=of,
        name=name,
        methods=tuple(handlers),
        run=run,
        concurrency=concurrency,
        limit=limit,
        info=info,
    )
    return engine.layers.run(make, senders, on_over, bans=limit is not None and limit.ban_s > 0)


def request_of(job: Job) -> Request:
    """Returns a job as its handler is given it."""
    return Request(job.payload, job.method, job.topic, job.sender, job.until)


def answer_bytes(answer: object) -> bytes:
    """Returns what a handler has returned. Raises TypeError."""
    if isinstance(answer, bool | int | float) or answer is None:
        raise TypeError(f"the handler has returned {answer!r}: return str or bytes")
    return as_bytes(answer, "answer")
