"""What the facades of logs have in common: a log in a client's engine, and a cursor on its entries."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from numbers import Real
from pathlib import Path
from random import Random
from time import time
from typing import Any

from kcast.client.driving.arguments import HistoryOptions, as_bytes, refuse_unknown
from kcast.client.driving.engine import Engine
from kcast.client.driving.layers import LayerInbox
from kcast.client.errors import ClientClosed
from kcast.client.events import Drop, FloorRose, LogTrouble
from kcast.client.history.cursor import Cursor, Since, bound_of
from kcast.client.history.entries import Entry
from kcast.client.history.guard import LogGuard
from kcast.client.history.ids import parse_id
from kcast.client.history.log import ENTRIES_MAX, SIZE_BYTES_MAX, Keeping, Log, Prover, Status
from kcast.client.history.store import open_store
from kcast.client.layers.limit import FixedWindow
from kcast.client.messages.envelope import new_publisher
from kcast.client.messages.guard_and_writer import Guard
from kcast.client.publishing.waiters import Waiter
from kcast.pubsub import clock
from kcast.pubsub.wire import encode_topic, publish_line

Act = Callable[[], None]


class _ReadyMade:
    """Writes a message that is made already."""

    def __init__(self, message: bytes, is_once: bool) -> None:
        self._message, self.is_once = message, is_once

    def place(self, name: bytes, unix_s: float) -> bytes:
        """Returns the topic itself."""
        return name

    def lines(
        self, wire_topic: bytes, payloads: Sequence[bytes], unix_s: float
    ) -> tuple[int, Sequence[bytes]]:
        """Returns the line; the number in it is its author's."""
        return 0, [publish_line(wire_topic, self._message)]


class _LogHost:
    """What a log has of a client (`kcast.client.history.log.LogHost`), beside what each layer has."""

    def __init__(self, inbox: LayerInbox, engine: Engine) -> None:
        self.rng: Random = inbox.rng
        self.drops: Counter[Drop] = inbox.drops
        self.each_leases, self.wake = inbox.each_leases, inbox.wake
        self._engine = engine

    @property
    def clock_offset_s(self) -> float:
        """What makes seconds since 1970 of the time that layers go by."""
        return self._engine.core.clock_offset_s

    def line(
        self, topic: bytes, payload: bytes, attributes: Mapping[str, str], spare_bytes: int, now: float
    ) -> tuple[int, bytes]:
        """Returns the number and the line of a message, signed as the client's messages are."""
        made, unix_s = self._engine.layers.protection.made, now + self.clock_offset_s
        writer = None if made is None else made.signing(topic, now)
        some = encode_topic(topic), (payload,)
        if writer is None:
            publisher = self._engine.core.publications.publisher
            first, (line,) = publisher.lines_with(*some, attributes, spare_bytes)
        else:
            first, (line,) = writer.lines(*some, unix_s, attributes, spare_bytes)
        return first, line

    def send(self, topic: bytes, message: bytes, now: float, waiter: Waiter | None = None) -> None:
        """Publishes a message as it is: by one server, or as others, where a waiter is to be told of it."""
        writer = _ReadyMade(message, is_once=waiter is None)
        handle = self._engine.core.publish(topic, b"", now, confirm=waiter is not None, writer=writer)
        if waiter is not None:
            self._engine.waiters.put(handle, waiter)

    def tell(self, event: LogTrouble | FloorRose) -> None:
        """Tells the application of something."""
        self._engine.tell((event,), clock.now())

    def say(self, topic: bytes, payload: bytes, now: float) -> None:
        """Publishes by one server, without proof."""
        wire_topic = encode_topic(topic)
        publisher = self._engine.core.publications.publisher
        _, (line,) = publisher.lines_with(wire_topic, (payload,), {}, 0)
        self.send(topic, line[len(wire_topic) + 1 : -1], now)


class LogBase:
    """What the logs of both drivers have in common.

    `call_soon` lets the engine's turns do something, from any thread; `wake_all` wakes those who wait for
    entries, at the end of a turn; `on_over` is called at the end.
    """

    def __init__(
        self,
        engine: Engine,
        topic: str | bytes,
        store: str | Path | None,
        options: HistoryOptions,
        call_soon: Callable[[Act], object],
        wake_all: Act,
        on_over: Act,
    ) -> None:
        refuse_unknown(options, "history")
        self._engine = engine
        self._is_over = False
        name, keeping = as_bytes(topic, "topic"), _keeping_of(options)
        path = None if store is None else Path(store)

        def look() -> None:
            if engine.is_open:
                engine.layers.use(self._log, lambda now: None)

        senders = options.get("senders")
        named = None if senders is None or isinstance(senders, str) else tuple(senders)
        opened = open_store(path, encode_topic(name), lambda: call_soon(look), named)

        def end() -> None:
            opened.close()
            self._is_over = True
            on_over()

        def make(inbox: LayerInbox) -> Log:
            mailbox = new_publisher(engine.core.rng)
            signs = engine.layers.protection.made is not None
            return Log(_LogHost(inbox, engine), name, mailbox, opened, keeping, wake_all, signs=signs)

        try:
            limit = options.get("limit")
            wrap = partial(_guarded, limit)
            self._log: Log = engine.layers.run(make, senders if named is None else named, end, limit, wrap)
        except BaseException:
            opened.close()
            raise

    def _use(self, act: Callable[[float], object]) -> None:
        if self._is_over or self._log.is_over:
            raise ClientClosed("this log is closed: open it again")
        self._engine.layers.use(self._log, act)

    def _cursor(self, since: Since, last: int | None) -> Cursor:
        _refuse_less("last", 0 if last is None else last, int)
        lo = bound_of(since, time())
        self._use(lambda now: None)
        return Cursor(self._log.store, lo, last, is_new=since == "new")

    def _take(self, cursor: Cursor) -> list[Entry]:
        return [] if self._is_over else cursor.take()

    def _append(self, waiter: Waiter, payload: str | bytes, confirm: int, timeout_s: float) -> None:
        content = as_bytes(payload, "payload")
        _refuse_less("confirm", confirm, int)
        _refuse_less("timeout_s", timeout_s, Real)
        self._use(lambda now: self._log.append(waiter, content, confirm, timeout_s, now))

    def _wait_synced(self, waiter: Waiter, timeout_s: float) -> None:
        _refuse_less("timeout_s", timeout_s, Real)
        self._use(lambda now: self._log.wait_synced(waiter, timeout_s, now))

    def status(self) -> Status:
        """Returns how it stands."""
        return self._log.status()

    def confirmations(self, entry_id: str) -> int:
        """Returns how many others have said that they have all entries up to this one, and it."""
        return self._log.confirmations(_id_of(entry_id))

    def pin(self, ids: Iterable[str], is_pinned: bool = True) -> None:
        """Keeps some entries also where the floor rises over them, and gives them to others; or no longer."""
        found = list(map(_id_of, ids))
        self._use(lambda now: self._log.pin(found, is_pinned))


def _refuse_less(name: str, given: Any, kind: type[Any]) -> None:
    if not isinstance(given, kind) or not given >= 0:
        raise ValueError(f"{name} is {given!r}: give 0 or more")


def _id_of(text: str) -> bytes:
    found = parse_id(text)
    if found is None:
        raise ValueError(f"{text!r} is no id: give the 32 characters of an entry's")
    return found


def _guarded(limit: FixedWindow | None, log: Log, guard: Guard | None) -> Guard:
    if guard is not None and not isinstance(guard, Prover):
        raise ValueError("a log of a sealed topic is not there yet: give a client without a group")
    return LogGuard(log, guard, limit=limit)


def _keeping_of(options: HistoryOptions) -> Keeping:
    keeping = Keeping(
        options.get("age_s", inf),
        options.get("count", ENTRIES_MAX),
        options.get("size_bytes", SIZE_BYTES_MAX),
    )
    for name, given in zip(("age_s", "count", "size_bytes"), keeping, strict=True):
        if not isinstance(given, Real) or not given > 0:
            raise ValueError(f"{name} is {given!r}: give more than 0")
    return keeping
