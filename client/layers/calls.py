"""A caller's requests, and its workers, as it keeps them; and the end of a request to all. Sans-IO."""

from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from math import inf
from typing import NamedTuple

from kcast.client.errors import ClientClosed
from kcast.client.layers.members import Key
from kcast.client.layers.parts import Assembly
from kcast.client.publishing.waiters import Waiter
from kcast.client.session.requests import RoundTripTime
from kcast.pubsub.errors import KcastError

FIRST_S = 0.3  # until the first sign of life of a worker that was never heard ...
LEAST_S = 0.05  # ... and of others
HELD_S = 0.05


class Reply(NamedTuple):
    """An answer: from which worker, the key that proves that (None where none does), and how often the
    request was sent for it."""

    payload: bytes
    worker: str
    sender: str | None
    attempts: int


class State(Enum):
    """What a request waits for."""

    LOOKING = auto()
    HELD = auto()
    ASKED = auto()
    WORKING = auto()
    GATHERING = auto()


@dataclass(slots=True)
class Worker:
    """What a caller knows of a worker, beside its presence."""

    calls: int = 0  # of ours
    is_silent: bool = False
    round_trip: RoundTripTime = field(default_factory=partial(RoundTripTime, FIRST_S, LEAST_S))


@dataclass(slots=True, eq=False)
class Call:
    """A request. `to` is the name of the only worker that may be asked, `to_key` what that is known by."""

    q: str
    method: str
    payload: bytes
    deadline: float
    waiter: Waiter
    to: str | None
    to_key: Key | None
    since: float  # it has been looking for a worker
    state: State = State.LOOKING
    attempts: int = 0
    has_worked: bool = False
    worker: Key | None = None
    load: Worker | None = None  # what it counts for
    silences: int = 0  # of this worker in a row
    sent_at: float = 0.0
    at: float = inf  # when its time is over
    held_s: float = HELD_S
    is_ended: bool = False
    busy: set[Key] = field(default_factory=set)
    asked: dict[Key, Assembly | None] = field(default_factory=dict)


class Gathering:
    """The requests of one `ask_all`, as their waiter. It tells `waiter` once all have ended."""

    def __init__(self, waiter: Waiter, names: list[str]) -> None:
        self._waiter = waiter
        self._left = len(names)
        self._found: dict[str, Reply | KcastError] = {}

    def of(self, name: str) -> Waiter:
        """Returns the waiter of one of them."""
        return _OneOf(self, name)

    def is_over(self) -> bool:
        """Whether nobody waits any more."""
        return self._waiter.done()

    def put(self, name: str, found: "Reply | KcastError") -> None:
        """Takes what one has ended with. Where the client was closed, that is the end of all."""
        self._found[name] = found
        self._left -= 1
        if isinstance(found, ClientClosed):
            self._waiter.set_exception(found)
        elif not self._left:
            self._waiter.set_result(self._found)


class _OneOf:
    def __init__(self, all_of_them: Gathering, name: str) -> None:
        self._all, self._name = all_of_them, name

    def done(self) -> bool:
        return self._all.is_over()

    def set_result(self, result: Reply, /) -> None:
        self._all.put(self._name, result)

    def set_exception(self, error: BaseException, /) -> None:
        assert isinstance(error, KcastError)
        self._all.put(self._name, error)

    def exception(self) -> BaseException | None:
        return None
