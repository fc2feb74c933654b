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
from weakref import WeakSet

from kcast.client.driving.arguments import HistoryOptions, as_bytes, refuse_unknown
from kcast.client.driving.engine import Engine
from kcast.client.driving.layers import LayerInbox
from kcast.client.errors import ClientClosed
from kcast.client.events import Drop, FloorRose, LogTrouble
from kcast.client.history.cursor import Since, bound_of
from kcast.client.history.entries import Entry, Status, StoreError
from kcast.client.history.epochs import Cursors, Epochs
from kcast.client.history.guard import LogGuard
from kcast.client.history.ids import parse_id
from kcast.client.history.log import ENTRIES_MAX, SIZE_BYTES_MAX, Keeping, Log
from kcast.client.history.store import open_store
from kcast.client.history.words import SYNC
from kcast.client.layers.words import layer_topic
from kcast.client.messages.envelope import new_publisher
from kcast.client.messages.guard_and_writer import Prover
from kcast.client.messages.lines import Publisher
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

    def __init__(self, inbox: LayerInbox, engine: Engine, title: bytes, speaker: Publisher | None) -> None:
        self.rng: Random = inbox.rng
        self.drops: Counter[Drop] = inbox.drops
        self.each_leases, self.wake = inbox.each_leases, inbox.wake
        self._engine, self._title, self._speaker = engine, title, speaker

    @property
    def clock_offset_s(self) -> float:
        """What makes seconds since 1970 of the time that layers go by."""
        return self._engine.core.clock_offset_s

    def line(
        self, topic: bytes, payload: bytes, attributes: Mapping[str, str], spare_bytes: int, now: float
    ) -> tuple[int, bytes]:
        """Returns the number and the line of a message, signed and sealed as the client's messages are."""
        made, unix_s = self._engine.layers.protection.made, now + self.clock_offset_s
        writer = None if made is None else made.writer_of_log(self._title, now)
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
        publisher = self._speaker or self._engine.core.publications.publisher
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
        self._engine, self._topic, self._on_over = engine, as_bytes(topic, "topic"), on_over
        self._path = None if store is None else Path(store)
        self._keeping, self._limit = _keeping_of(options), options.get("limit")
        self._call_soon, self._wake_all = call_soon, wake_all
        self._cursors: WeakSet[Cursors] = WeakSet()
        self._running = set[Log | Epochs]()
        self._is_over = False
        layer_topic(self._topic, SYNC)  # or it can have no log
        if (made := engine.layers.protection.made) is not None:
            made.writer_of_log(self._topic, engine.begin())
        senders = options.get("senders")
        self._named = None if senders is None or isinstance(senders, str) else tuple(senders)
        given = senders if self._named is None else self._named
        guard = engine.guard([self._topic], {} if given is None else {"senders": given}, self._limit)
        assert isinstance(guard, Prover | None)
        self._guard = guard
        some = self._topic, guard, self._open
        self._epochs = Epochs(*some, lambda: engine.core.clock_offset_s, self._tell_trouble)
        if (made := engine.layers.protection.made) is not None:
            made.begin_log(self._topic, guard, self._wake)
        try:
            self._epochs.handle_timeout(engine.begin())
            self._refuse_trouble()
            engine.layers.run(
                lambda inbox: self._epochs,
                None,
                partial(self._ended, self._epochs),
                guard_of=lambda layer: None,
            )
            self._running.add(self._epochs)
        except BaseException:
            self._on_over = lambda: None
            self._close(engine.begin())
            self._finish()
            raise

    def _open(self, wire_name: bytes) -> Log:
        """Opens the log of a topic on which messages of this one travel."""
        engine, is_sealed = self._engine, self._guard is not None and self._guard.is_sealed
        wire_topic = encode_topic(wire_name)

        def look() -> None:
            if engine.is_open:
                engine.layers.use(log, lambda now: None)

        def make(inbox: LayerInbox) -> Log:
            # Epochs are linked by nothing: so not by who says what there is in their logs.
            speaker = Publisher(new_publisher(engine.core.rng)) if is_sealed else None
            host = _LogHost(inbox, engine, self._topic, speaker)
            signs = engine.layers.protection.made is not None and not is_sealed
            some = wire_name, new_publisher(engine.core.rng), store, self._keeping, self._wake_all
            return Log(host, *some, signs=signs, title=self._topic)

        store = open_store(self._path, wire_topic, lambda: self._call_soon(look), self._named)
        try:
            log: Log = engine.layers.run(
                make,
                None,
                lambda: self._ended(log),
                guard_of=lambda log: LogGuard(log, self._guard, limit=self._limit),
            )
        except BaseException:
            store.close()
            raise
        self._running.add(log)
        return log

    def _ended(self, layer: Log | Epochs) -> None:
        """A log is over, or the whole. A log that is over before its epoch is has failed, and all do."""
        self._running.discard(layer)
        if isinstance(layer, Log):
            if untold := sum(cursors.leave(layer) for cursors in self._cursors):
                layer.drops[Drop.NOT_OPENED] += untold
            layer.store.close()
        is_whole = layer in (self._epochs, *self._epochs.logs.values())
        if self._engine.is_open and is_whole and not self._epochs.is_over:
            self._close(clock.now())
            self._wake()
        self._finish()

    def _finish(self) -> None:
        if not self._running:
            if (made := self._engine.layers.protection.made) is not None:
                made.end_log(self._topic, self._guard)
            self._is_over = True
            self._on_over()

    def _tell_trouble(self, text: str | None) -> None:
        if self._running:  # else it is raised
            self._engine.tell((LogTrouble(self._topic, text),), clock.now())

    def _refuse_trouble(self) -> None:
        if self._epochs.trouble is not None:
            raise StoreError(self._epochs.trouble)

    def _wake(self) -> None:
        self._engine.layers.use(self._epochs, lambda now: None)

    def _use(self, act: Callable[[float], object]) -> None:
        if self._is_over or self._epochs.is_over:
            raise ClientClosed("this log is closed: open it again")
        self._engine.layers.use(self._epochs, act)

    def _close(self, now: float) -> None:
        """Ends all logs with the next turn."""
        self._epochs.close(now)

    def _cursor(self, since: Since, last: int | None) -> Cursors:
        _refuse_less("last", 0 if last is None else last, int)
        lo = bound_of(since, time())
        self._use(lambda now: None)
        cursors = Cursors(self._epochs, lo, last, is_new=since == "new")
        self._cursors.add(cursors)
        return cursors

    def _take(self, cursors: Cursors) -> list[Entry]:
        return [] if self._is_over or self._epochs.is_over else cursors.take()

    def _append(self, waiter: Waiter, payload: str | bytes, confirm: int, timeout_s: float) -> None:
        content = as_bytes(payload, "payload")
        _refuse_less("confirm", confirm, int)
        _refuse_less("timeout_s", timeout_s, Real)

        def append(now: float) -> None:
            self._epochs.handle_timeout(now)  # which epoch's log it is
            if (log := self._epochs.in_force) is not None:
                log.append(waiter, content, confirm, timeout_s, now)
                return
            self._refuse_trouble()
            if (made := self._engine.layers.protection.made) is not None:
                writer = made.writer_of_log(self._topic, now)  # which says why there is none
                assert writer is not None
                writer.place(self._topic, now + self._engine.core.clock_offset_s)

        self._use(append)

    def _wait_synced(self, waiter: Waiter, timeout_s: float) -> None:
        _refuse_less("timeout_s", timeout_s, Real)
        self._use(lambda now: self._epochs.wait_synced(waiter, timeout_s, now))

    def status(self) -> Status:
        """Returns how it stands."""
        return self._epochs.status()

    def confirmations(self, entry_id: str) -> int:
        """Returns how many others have said that they have all entries up to this one, and it."""
        return self._epochs.confirmations(_id_of(entry_id))

    def pin(self, ids: Iterable[str], is_pinned: bool = True) -> None:
        """Keeps some entries also where the floor rises over them, and gets those of them that are not there
        from others; or no longer."""
        found = list(map(_id_of, ids))
        self._use(lambda now: self._epochs.pin(found, is_pinned))


def _refuse_less(name: str, given: Any, kind: type[Any]) -> None:
    if not isinstance(given, kind) or not given >= 0:
        raise ValueError(f"{name} is {given!r}: give 0 or more")


def _id_of(text: str) -> bytes:
    found = parse_id(text)
    if found is None:
        raise ValueError(f"{text!r} is no id: give the 32 characters of an entry's")
    return found


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
