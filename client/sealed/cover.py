"""Cover traffic: one line on each tick, so that nobody sees whether anything is said. Sans-IO. PROTOCOL §9.7.

    put  -> queue                              nothing else: no session is touched, and no turn made
    tick -> the first of the queue, or a dummy -> sealed with the same size -> published as all else is

Ticks lie at `start + n / rate`, and nothing moves them. One for which no turn was made until the next was
due is skipped, and not made up for. Whatever is done on a tick is done alike for messages and dummies: what
differs is inside the seal.

A machine that has rested wakes up later, and works more slowly, than one that was awake a moment ago because
a program had something to say. So a driver begins with a tick a moment before it, and holds the line back
until the tick itself.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import floor, inf
from numbers import Real
from typing import NamedTuple, Protocol

from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge
from kcast.client.messages.guard_and_writer import Writer
from kcast.client.publishing.waiters import Waiter
from kcast.client.sealed.frame import empty_bytes, padded_bytes
from kcast.client.sealed.writers import SealedWriter
from kcast.pubsub.errors import KcastError

RATE_MAX = 1000.0  # lines a second
QUEUE_MAX = 1024  # messages that wait for their tick
LEAD_S = 0.003  # in which event loops that wait in whole milliseconds wake up, and a line is made
LEAD_SHARE = 0.25  # of the time between two ticks of any cover traffic, at most


class Schedule:
    """Ticks at `start + n / rate`, from n = 0. `next_at` is the next one, `skipped` the number left out."""

    def __init__(self, start: float, rate: float) -> None:
        self.next_at = start
        self.skipped = 0
        self._start = start
        self._rate = rate
        self._next = 0

    def take(self, now: float) -> bool:
        """Returns whether there is a tick since the last call. Of several only the last one counts."""
        if now < self.next_at:
            return False
        newest = max(self._next, floor((now - self._start) * self._rate) - 1)  # division rounds
        while self._time(newest + 1) <= now:
            newest += 1
        self.skipped += newest - self._next
        self._next = newest + 1
        self.next_at = self._time(self._next)
        return True

    def _time(self, tick: int) -> float:
        return self._start + tick / self._rate


class Publish(Protocol):
    """Publishes a message, with the options of a stream: see `ClientCore.publish`. Returns its handle."""

    def __call__(self, topic: bytes, payload: bytes, now: float, *, writer: Writer) -> int:
        """Raises KcastError."""


class _Queued(NamedTuple):
    payload: bytes
    waiter: Waiter


class _Lines:
    """Makes lines of a size, of messages or of dummies."""

    is_once = False

    def __init__(self, writer: SealedWriter, pad_to: int, *, is_dummy: bool) -> None:
        self._writer = writer
        self._pad_to = pad_to
        self._is_dummy = is_dummy

    def place(self, name: bytes, unix_s: float) -> bytes:
        """Returns the topic of the epoch that is in force."""
        return self._writer.place(name, unix_s)

    def lines(
        self, wire_topic: bytes, payloads: Sequence[bytes], unix_s: float
    ) -> tuple[int, Sequence[bytes]]:
        """Returns the number and the line of one message."""
        (payload,) = payloads
        pad_to, is_dummy = self._pad_to, self._is_dummy
        seq, line = self._writer.cover_line(wire_topic, payload, unix_s, pad_to, is_dummy=is_dummy)
        return seq, (line,)


class Cover:
    """The cover traffic of one topic, from `start` until it is closed.

    `name` is the topic. No message may have more than `size` bytes, and at most `queue_max` of them wait.
    `publish` publishes, and `waits_for` is told of the handle of each message, and of who waits for its
    outcome. Raises ValueError and TypeError for what cannot be, and KcastError where the group takes nothing
    from us now.
    """

    def __init__(
        self,
        name: bytes,
        writer: SealedWriter,
        publish: Publish,
        waits_for: Callable[[int, Waiter], None],
        start: float,
        unix_s: float,
        *,
        rate: float,
        size: int,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        for option, value, kind in (("rate", rate, Real), ("size", size, int), ("queue_max", queue_max, int)):
            if not isinstance(value, kind) or isinstance(value, bool):
                raise TypeError(f"{option} is of type {type(value).__name__}: give a number")
        if not 0 < rate <= RATE_MAX:
            raise ValueError(f"rate is {rate}: give more than 0 lines a second, and at most {RATE_MAX:.0f}")
        if queue_max < 1:
            raise ValueError(f"queue_max is {queue_max}: give 1 or more messages")
        fits = writer.cover_room(name, unix_s)
        if not 0 <= size <= fits:
            raise ValueError(
                f"size is {size}: on this topic, at most {max(0, fits)} bytes fit into a line of cover "
                "traffic: give a size from 0 to that"
            )
        self.name = name
        self.writer = writer
        self.size = size
        self.schedule = Schedule(start, rate)
        self.rate = rate
        self.is_closed = False
        self._queue_max = queue_max
        self._queue: deque[_Queued] = deque()
        self._publish = publish
        self._waits_for = waits_for
        pad_to = padded_bytes(empty_bytes(has_count=True) + size)
        self._real = _Lines(writer, pad_to, is_dummy=False)
        self._dummy = _Lines(writer, pad_to, is_dummy=True)

    @property
    def waiting(self) -> int:
        """Number of messages that wait for their tick."""
        return len(self._queue)

    @property
    def skipped(self) -> int:
        """Number of ticks on which nothing left."""
        return self.schedule.skipped

    def put(self, payload: bytes, waiter: Waiter) -> None:
        """Lets a message wait for its tick. Raises MessageTooLarge, Backlog and ClientClosed."""
        if self.is_closed:
            raise ClientClosed("this cover traffic has ended: begin it again")
        if len(payload) > self.size:
            raise MessageTooLarge(too_large(len(payload), self.size))
        if len(self._queue) >= self._queue_max:
            raise Backlog(
                f"{len(self._queue)} messages wait for their tick: wait for some, or give a higher rate"
            )
        self._queue.append(_Queued(payload, waiter))

    def look(self, now: float) -> None:
        """Publishes one line where a tick is due: of the first message that waits, else of a dummy."""
        if not self.schedule.take(now):
            return
        while self._queue and self._queue[0].waiter.done():  # nobody wants it any more
            self._queue.popleft()
        queued = self._queue[0] if self._queue else None
        payload, lines = (b"", self._dummy) if queued is None else (queued.payload, self._real)
        try:
            handle = self._publish(self.name, payload, now, writer=lines)
        except Backlog:
            self.schedule.skipped += 1
            return
        except KcastError as error:
            self.schedule.skipped += 1
            self._fail(partial(_same, error))
            return
        if queued is not None:
            self._queue.popleft()
            self._waits_for(handle, queued.waiter)

    def close(self, make_error: Callable[[], BaseException] | None = None) -> None:
        """Ends it at once: who waits for a message that has not left is told so."""
        self.is_closed = True
        self._fail(
            make_error or (lambda: ClientClosed("this cover traffic has ended before the message's tick"))
        )

    def _fail(self, make_error: Callable[[], BaseException]) -> None:
        while self._queue:
            waiter = self._queue.popleft().waiter
            if not waiter.done():
                waiter.set_exception(make_error())
                waiter.exception()  # asyncio complains of errors that nobody has looked at


class Covers:
    """All cover traffic of a client. `next_at` is when the next tick is due; infinite for never."""

    def __init__(self) -> None:
        self._covers: list[Cover] = []

    @property
    def next_at(self) -> float:
        """When `look` has something to do."""
        return min((cover.schedule.next_at for cover in self._running()), default=inf)

    @property
    def begin_at(self) -> float:
        """When a driver begins with that: what comes of `look` is held back until `next_at`."""
        rate = sum(cover.rate for cover in self._running())
        return self.next_at - min(LEAD_S, LEAD_SHARE / rate) if rate else inf

    def begin(self, cover: Cover) -> None:
        """Takes one more."""
        self._covers.append(cover)

    def look(self, now: float) -> None:
        """Publishes what is due."""
        for cover in self._running():
            cover.look(now)

    def refuse(self, name: bytes, writer: Writer | None) -> None:
        """Raises ValueError where what is to be published on a topic would stand out of its cover traffic."""
        for cover in self._running():
            if cover.name != name:
                continue
            is_groups = isinstance(writer, SealedWriter) and writer.group_name == cover.writer.group_name
            if is_groups or cover.writer.has_plain_topics:
                raise ValueError(
                    "cover traffic runs on this topic, and all else would stand out of it: give the message "
                    "to its put"
                )

    def close(self, make_error: Callable[[], BaseException]) -> None:
        """Ends all."""
        for cover in self._running():
            cover.close(make_error)

    def _running(self) -> Iterator[Cover]:
        if self._covers and any(cover.is_closed for cover in self._covers):
            self._covers = [cover for cover in self._covers if not cover.is_closed]
        return iter(tuple(self._covers))


def too_large(size_bytes: int, room: int) -> str:
    """Returns what to say of a message that is larger than the size of cover traffic."""
    return (
        f"message too large: {size_bytes} bytes, and this cover traffic has room for {room}: send less, or "
        "give a larger size"
    )


def _same(error: BaseException) -> BaseException:
    return error
