"""A caller's requests, and its workers, as it keeps them. Sans-IO."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import NamedTuple

from kcast.client.layers.members import Key
from kcast.client.layers.parts import Assembly
from kcast.client.publishing.waiters import Waiter
from kcast.client.session.requests import RoundTripTime
from kcast.pubsub.errors import KcastError

FIRST_S = 0.3  # until the first sign of life of a worker that was never heard ...
LEAST_S = 0.05  # ... and of others
FULL_S = 0.05
UNHEARD_MAX = 64

Target = tuple[str | None, str]
"""What may be asked: the worker of this name, whatever its methods; for None, all that have the method."""


class Reply(NamedTuple):
    """An answer: from which worker, the key that proves that (None where none does), and how often the
    request was sent for it."""

    payload: bytes
    worker: str
    sender: str | None
    attempts: int


@dataclass(slots=True, eq=False)
class Worker:
    """What a caller knows of a worker, beside its presence."""

    key: Key
    methods: Collection[str] | None = None
    targets: set[Target] = field(default_factory=set)
    calls: int = 0  # of ours ...
    unheard: int = 0  # ... and of which no sign of life came
    is_full: bool = False
    full_s: float = FULL_S
    at: float = inf  # when it has been full for that long
    heard_at: float = -inf
    silent_since: float = inf
    round_trip: RoundTripTime = field(default_factory=partial(RoundTripTime, FIRST_S, LEAST_S))

    @property
    def takes_one(self) -> bool:
        """Whether it may be sent one more, if it is not full."""
        return self.unheard < UNHEARD_MAX and self.silent_since == inf


@dataclass(slots=True, eq=False)
class Call:
    """A request. `worker` is that of the moment: there is none while it waits for one."""

    number: int
    q: str
    method: str
    payload: bytes
    deadline: float
    waiter: Waiter
    target: Target
    is_to_all: bool = False
    found: "dict[str, Reply | KcastError | None] | None" = None  # if it is one of those, what all ended with
    is_alone: bool = False  # nobody is known that may be asked
    has_waited: bool = False
    has_worked: bool = False
    attempts: int = 0
    worker: Worker | None = None
    is_trial: bool = False  # that worker was full, and its time was over
    is_unheard: bool = False  # it has given no sign of life
    silences: int = 0  # of this worker in a row
    at: float = inf  # when its time is over
    sent: dict[Key, float] = field(default_factory=dict)  # to whom, when first, of whom no sign of life came
    asked: dict[Key, Assembly | None] = field(default_factory=dict)  # with the parts that came
