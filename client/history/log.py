"""A log: the entries of a topic that one holds, makes, gets and gives. A layer, sans-IO. PROTOCOL §9.12.

An entry, from when it has come:

| state | sign | next state |
|---|---|---|
| unknown | comes live, or as a copy that was asked for | waits for its parents (`Arrivals`), or counts |
| counts | the store has it on disk | held: told, and given to others |
| counts | it is one's own, and on disk | held; it leaves (`OwnEntries`) |
| held | the floor has risen above it, and it is not pinned | gone |
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from math import inf
from random import Random
from typing import NamedTuple, Protocol, SupportsBytes

from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge
from kcast.client.events import Delivery, Drop, FloorRose, LogTrouble, Published
from kcast.client.history.arrivals import Arrivals
from kcast.client.history.entries import Done, Entry, Evict, Left, Pin, Row, Status, Synced, entry_of
from kcast.client.history.having import Holder, clock_bound
from kcast.client.history.host import Lines
from kcast.client.history.ids import (
    Stamp,
    attributes_of,
    choose_parents,
    clock_of,
    id_of,
    next_clock,
    to_text,
)
from kcast.client.history.index import HIGHEST, LOWEST, Heads, Index
from kcast.client.history.own import OwnEntries
from kcast.client.history.runs import Place, Runs, RunsOf
from kcast.client.history.store import Store
from kcast.client.history.sync import LogSync
from kcast.client.history.tables import Reader, cut
from kcast.client.history.words import SYNC, Have, Kept, Said, Word
from kcast.client.layers.host import Readiness
from kcast.client.layers.words import layer_topic
from kcast.client.messages import base64url
from kcast.client.messages.guard_and_writer import Prover
from kcast.client.messages.lines import room
from kcast.client.publishing.waiters import Waiter, fail
from kcast.pubsub import wire
from kcast.pubsub.errors import KcastError

ENTRIES_MAX = 100_000
SIZE_BYTES_MAX = 64 * 1024 * 1024
PENDING_MAX = 4096
DONE_MAX = 128  # of which note is taken in one turn, some 3 ms
COMMITTED_BY = 3  # holders that have an entry, so that it counts as committed
EVICT_INTERVAL_S = 1.0
AGE_STEP = 0.01  # of the age that entries reach, by which the floor rises at a time
MAILBOX_BYTES = 14  # by which the name of a mailbox is longer than that of its topic


def load(store: Reader) -> tuple[Index, Runs, Heads, bytes]:
    """Returns the ids of what a store has, the numbers, the heads, and the floor."""
    runs, heads, floor, ids = Runs(), Heads(), store.standing().floor, list[bytes]()
    for entry_id, publisher, seq, parents in store.load():
        ids.append(entry_id)
        runs.add(publisher, seq, entry_id)
        of_it = cut(parents)
        heads.add(entry_id, of_it, [each for each in of_it if each < floor])
    heads.rise(floor)
    return Index(ids), runs, heads, floor


class LogHost(Protocol):
    """What a log has of its client."""

    rng: Random
    drops: Counter[Drop]

    @property
    def clock_offset_s(self) -> float:
        """What makes seconds since 1970 of `now`."""

    def each_leases(self) -> Sequence[tuple[int, int]]:
        """Returns for each topic of the layer how many leases stand, and how many are wanted."""

    def line(
        self, topic: bytes, payload: bytes, attributes: Mapping[str, str], spare_bytes: int, now: float
    ) -> tuple[int, bytes]:
        """Returns the number and the line of a message, signed as the client's are, which leaves room for
        some bytes more. Raises MessageTooLarge."""

    def send(self, topic: bytes, message: bytes, now: float, waiter: Waiter | None = None) -> None:
        """Publishes a message as it is: by one server; with a waiter, which is given a `Published`, as other
        messages. Raises what the core raises."""

    def say(self, topic: bytes, payload: bytes, now: float) -> None:
        """Publishes by one server, without proof. Raises what the core raises."""

    def wake(self) -> None:
        """Lets the log do what is due, with the next turn."""

    def tell(self, event: LogTrouble | FloorRose) -> None:
        """Tells the application of something."""


class Keeping(NamedTuple):
    """What a log keeps: entries made `age_s` ago at most, so many, and so many bytes of messages."""

    age_s: float = inf
    entries_max: int = ENTRIES_MAX
    size_bytes_max: int = SIZE_BYTES_MAX


class Log:
    """The log of a topic. `name` is its mailbox's. `has_changed` is called when entries have come to be held,
    or have left. With `signs`, what it has and keeps is signed as the client's messages are. Programs are
    told of it as `title`. Its guard gives it what comes (`kcast.client.history.guard`)."""

    def __init__(
        self,
        host: LogHost,
        topic: bytes,
        name: str,
        store: Store,
        keeping: Keeping,
        has_changed: Callable[[], object],
        *,
        signs: bool = False,
        title: bytes | None = None,
    ) -> None:
        self.rng, self.drops, self.name = host.rng, host.drops, name
        self.topic, self.wire_topic = topic, wire.encode_topic(topic)
        self.title = topic if title is None else title
        self.topics = topic, layer_topic(topic, SYNC), layer_topic(topic, name.encode())
        self.room_bytes = room(wire.encode_topic(self.topics[2])).text_bytes
        self.index, self.runs, self._heads, self.floor = load(store)
        self.store, self.is_over = store, False
        self.pins = set[bytes]()  # that are not there
        self.got = 0  # entries that came as copies
        self.inner: Prover | None = None  # what judges messages of the topic
        self._host, self._keeping, self._has_changed, self._signs = host, keeping, has_changed, signs
        self._now, self._evict_at = 0.0, -inf
        self._pending: dict[bytes, Row] = {}
        self._done: deque[Done] = deque()  # what is on disk, and was not taken note of yet
        self._copies: dict[bytes, Holder] = {}  # that do not count yet, or are pending, and whose they are
        self._own = OwnEntries(self._send, partial(self.say, "sync"), name, host.rng)
        self._last_clock = clock_of(self.index.last_before(HIGHEST) or LOWEST)
        self._arrivals = Arrivals(self._counts, self._take, self._lost)
        self._arrivals.rise(self.floor)
        self._readiness = Readiness()
        self._sync: LogSync | None = None
        self.hears = False  # others: whether it has had leases
        self._waiting: list[tuple[float, Waiter]] = []  # for `synced`
        self._trouble: str | None = None

    # --- A layer's ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        if self._done:
            return -inf
        sync_at = self._readiness.next_at if self._sync is None else self._sync.next_at
        waiting = [until for until, _ in self._waiting]
        return min(self._arrivals.next_at, sync_at, self._evict_at, self._own.next_at, *waiting)

    def hear(self, delivery: Delivery, now: float) -> None:
        """Is never called: the guard takes all."""

    def handle_timeout(self, now: float) -> None:
        """Does what is due, and takes note of what is on disk."""
        self._now = now
        if self._sync is None and self._readiness.look(self._host.each_leases(), now):
            self._sync, self.hears = LogSync(self, self, now), True
        if now >= self._arrivals.next_at:
            missing = self._arrivals.handle_timeout(now, self._lowest_floor(now))
            if self._sync is not None:
                self._sync.want_parents(missing, now)
        if now >= self._evict_at:
            self._evict(now)
        if self.store.file.path is None:
            self.store.file.commit()  # in memory there is no thread
        self._take_done(now)
        if self._sync is not None:
            self._sync.handle_timeout(now)
        self._own.handle_timeout(now)
        self.look_for_synced(now)
        self._look_for_trouble(now)

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Ends all waiting. What is not on disk is written as the store closes."""
        self._own.end(make_error)
        for _, waiter in self._waiting:
            fail(waiter, make_error())
        self._waiting.clear()

    def close(self, now: float) -> None:
        """Ends it with the next turn; what was appended stands."""
        self.end(partial(ClientClosed, "the log was closed"))
        self.is_over = True
        self._begin(now)

    # --- What the application wants -------------------------------------------------------------------

    def append(self, waiter: Waiter, payload: bytes, confirm: int, timeout_s: float, now: float) -> None:
        """Makes an entry. The waiter is given it once it is on disk, and, with `confirm`, so many others have
        said that it is on theirs; or NotKept. Raises MessageTooLarge and Backlog."""
        self._begin(now)
        if len(self._pending) >= PENDING_MAX:
            raise Backlog(f"{PENDING_MAX} entries wait for the disk: wait for some")
        row, entry = self._made(payload, now)
        self._own.begin(row, entry, waiter, confirm, now + timeout_s)
        self.runs.add(row.publisher, row.seq, row.entry_id)
        self._take(row, at_once=True)

    def _made(self, payload: bytes, now: float) -> tuple[Row, Entry]:
        unix_s = self.unix_s()
        parents = choose_parents(self._heads.ids, unix_s)
        while True:
            clock = next_clock(unix_s, max(self._last_clock, clock_of(self.floor)), parents)
            attributes = attributes_of(Stamp(clock, parents))
            try:
                seq, line = self._host.line(self.topic, payload, attributes, MAILBOX_BYTES, now)
                break
            except MessageTooLarge:
                if not parents:
                    raise
                parents.pop()
        message = line[len(self.wire_topic) + 1 : -1]
        self._last_clock = clock
        entry_id = id_of(clock, self.wire_topic, message)
        publisher = message[2 : message.index(b".")].decode("ascii")
        proven = None if self.inner is None else self.inner.prove(self.wire_topic, message)
        if isinstance(proven, Drop):
            raise ValueError(f"nobody would take it ({proven}): sign with one of the keys in senders")
        row = Row(entry_id, publisher, seq, message, proven and proven.sender, parents=tuple(parents))
        entry = entry_of(row, proven)
        assert entry is not None  # for it is open here
        return row, entry

    def entry(self, row: Row) -> Entry | None:
        """Returns an entry as programs see it; None where nobody here can open it, which is counted."""
        opened = self.inner.prove(self.wire_topic, row.message) if self.is_sealed and self.inner else None
        entry = None if isinstance(opened, Drop) else entry_of(row, opened)
        if entry is None:
            self.drops[Drop.NOT_OPENED] += 1
        return entry

    def pin(self, ids: Sequence[bytes], is_pinned: bool = True) -> None:
        """Keeps entries below the floor too, and gets those that are not there; or no longer."""
        self.store.put(Pin(ids, is_pinned))
        self.pins = self.pins.difference(ids) | {each for each in ids if is_pinned and not self._counts(each)}
        if self._sync is not None:
            self._sync.having.fresh.update(self._sync.having.holders)
        self._host.wake()

    def wait_synced(self, waiter: Waiter, timeout_s: float, now: float) -> None:
        """Tells the waiter, by `Synced`, once it has all that others have; or what it has by then."""
        self._begin(now)
        self._waiting.append((now + timeout_s, waiter))

    def confirmations(self, entry_id: bytes) -> int:
        """Returns how many others have said that they have all up to an entry, and with it."""
        found = [] if self._sync is None else self._sync.having.confirming(entry_id)
        return sum(map(self._votes, found))

    def status(self) -> Status:
        """Returns how it stands."""
        holders = [] if self._sync is None else list(self._sync.having.holders.values())
        voters = [each for each in holders if self._votes(each) and each.equal[0] <= self.floor]
        reach = sorted((each.equal[1] for each in voters), reverse=True)
        bound = reach[COMMITTED_BY - 1] if len(reach) >= COMMITTED_BY else LOWEST
        newest = self.index.last_before(bound)
        return Status(
            entries=len(self.index),
            heads=list(map(to_text, self._heads.ids)),
            floor=to_text(self.floor),
            digest=base64url.encode(self.index.block(self.floor, HIGHEST).fingerprint),
            holders=len(holders),
            committed=None if newest is None else to_text(newest),
            waiting=len(self._arrivals),
            trouble=self.store.trouble,
            on_the_way=self._own.on_the_way,
        )

    def _lowest_floor(self, now: float) -> bytes:
        """Returns the lowest floor of all others that were heard; `LOWEST` as long as that says nothing."""
        having = None if self._sync is None else self._sync.having
        heard = [] if having is None or now < having.answered_at else having.holders.values()
        return min(each.have.floor for each in heard) if any(map(self._votes, heard)) else LOWEST

    @property
    def is_sealed(self) -> bool:
        """Whether it is of a sealed topic: then all that holders say is a claim, as on a topic in clear."""
        return self.inner is not None and self.inner.is_sealed

    def _votes(self, holder: Holder) -> bool:
        """Whether a holder's word counts: where senders are named, only if one of them has signed it."""
        return self.inner is None or self.is_sealed or holder.sender is not None

    # --- What comes -----------------------------------------------------------------------------------

    def came(self, row: Row, now: float, holder: Holder | None = None) -> None:
        """Takes an entry that came live, or as the copy that a holder was asked for, and is judged."""
        self._begin(now)
        if self.is_known(row.entry_id):
            return
        if row.entry_id < self.floor and row.entry_id not in self.pins:
            self.drops[Drop.TOO_OLD] += 1
        elif len(self._pending) >= PENDING_MAX:
            self.drops[Drop.SLOW_CONSUMER] += 1  # the disk is slow; it comes again with a sync
        else:
            self.runs.add(row.publisher, row.seq, row.entry_id)  # it is not asked for again
            if holder is not None:
                self._copies[row.entry_id] = holder
            self._arrivals.come(row, now)

    def refuse(self, row: Row, why: Drop, now: float) -> None:
        """Is told that an entry has come which the guard refuses: a copy, or one that is over a limit."""
        self._begin(now)
        self._arrivals.refuse(row.entry_id)
        if why is Drop.LIMITED:  # else its number is a claim
            self.runs.refuse(row.publisher, row.seq, row.entry_id)

    def _lost(self, row: Row) -> None:
        self.runs.remove(row.publisher, row.seq)
        self._copies.pop(row.entry_id, None)

    def asked_for(self, row: Row, now: float) -> Holder | None:
        """Returns who was asked for a copy that is not here yet; None where nobody was, which is counted."""
        self._now = now
        if self._sync is None or self.is_known(row.entry_id):
            return None
        return self._sync.puller.copy_came(row.entry_id, row.publisher, row.seq, now)

    def said(self, said: Said, sender: str | None, now: float) -> None:
        """Takes what another holder said to all."""
        self._begin(now)
        if self._sync is not None:
            self._sync.hear_said(said, now, sender)

    def word(self, word: Word, by: str | None, now: float) -> None:
        """Takes what another holder said in the mailbox. `by` is who: a publisher, or, where senders are
        named, the key that has signed it."""
        self._begin(now)
        if isinstance(word, Kept):
            if by is not None:
                self._own.kept(word, by, now)
        elif self._sync is not None:
            self._sync.hear_word(word, now)

    def _begin(self, now: float) -> None:
        self._now = now
        self._host.wake()

    def is_known(self, entry_id: bytes) -> bool:
        """Whether an entry counts, or waits for its parents."""
        return self._counts(entry_id) or entry_id in self._arrivals

    def _counts(self, entry_id: bytes) -> bool:
        return entry_id in self._pending or entry_id in self.index

    def _take(self, row: Row, at_once: bool = False) -> None:
        """Takes an entry that counts; the store tells when it is held."""
        row = row._replace(is_pinned=row.entry_id in self.pins)
        missing = [each for each in row.parents if each < self.floor or not self._counts(each)]
        if row.entry_id >= self.floor:
            self._heads.add(row.entry_id, row.parents, missing)
        self._pending[row.entry_id] = row
        self.store.put(row, at_once)

    def _take_done(self, now: float) -> None:
        self._done += self.store.take()
        done = [self._done.popleft() for _ in range(min(len(self._done), DONE_MAX))]
        for each in done:
            match each:
                case Row():
                    self._held(each, now)
                case Left(ids, floor, is_more):
                    for entry_id in ids:
                        self.index.remove(entry_id)
                    self._rise(floor)
                    self._evict_at = now if is_more else now + EVICT_INTERVAL_S
        if done:
            if self._sync is not None:
                self._sync.answers.committed(now)
            self._has_changed()

    def _look_for_trouble(self, now: float) -> None:
        text = self.store.trouble or (None if self._sync is None else self._sync.trouble(now))
        if text != self._trouble:
            self._trouble = text
            self._host.tell(LogTrouble(self.title, text))

    def _held(self, row: Row, now: float) -> None:
        self._pending.pop(row.entry_id, None)
        if row.ordinal:
            self.index.add(row.entry_id)
            self.pins.discard(row.entry_id)
        holder = self._copies.pop(row.entry_id, None)
        if holder is not None and self._sync is not None:
            self.got += 1
            self._sync.puller.took(holder, now)
        self._own.held(row, now)

    def _rise(self, floor: bytes) -> None:
        if floor > self.floor:
            self.floor = floor
            self._host.tell(FloorRose(self.title, to_text(floor)))
            self._arrivals.rise(floor)
            self._heads.rise(floor)
            self.runs.rise(floor)

    def _evict(self, now: float) -> None:
        below, age_s = LOWEST, self._keeping.age_s
        if age_s < inf:
            step_s = max(EVICT_INTERVAL_S, age_s * AGE_STEP)  # the disk is not to write each second, for ever
            below = clock_bound(max(0, int((self.unix_s() - age_s) // step_s * step_s * 1e6)))
        self._evict_at = inf  # until the store has done it
        self.store.put(Evict(below, self._keeping.entries_max, self._keeping.size_bytes_max))

    # --- The sync's -----------------------------------------------------------------------------------

    @property
    def clock_offset_s(self) -> float:
        """What makes seconds since 1970 of the time that the log goes by."""
        return self._host.clock_offset_s

    def unix_s(self) -> float:
        """Returns the time of day, in seconds since 1970."""
        return self._now + self.clock_offset_s

    @property
    def copies_waiting(self) -> int:
        """How many copies have come, and wait for their parents or the disk."""
        return len(self._copies)

    @property
    def not_held(self) -> Iterable[bytes]:
        """The ids of entries that have come, and are not held, or not yet."""
        return chain(self._pending, self._arrivals.waiting, self._arrivals.refused)

    def messages(self, ids: Sequence[bytes]) -> Sequence[tuple[bytes, bytes]]:
        """Returns those of these ids that are there, and their messages."""
        return [(row.entry_id, row.message) for row in self.store.rows(ids)]

    def lacking(self, lo: bytes, hi: bytes, start: Place, stop: Place, runs: RunsOf, most: int) -> Lines:
        """Returns ids and messages that are not in some runs, and the bound before which these are all."""
        rows, bound = self.store.lacking(self.runs, lo, hi, start, stop, runs, most)
        return [(row.entry_id, row.message) for row in rows], bound

    def on_disk(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Returns those of the ids that are held for good: in memory none is."""
        return [each for each in ids if each in self.index] if self.store.file.is_durable else []

    def say(self, where: str, word: SupportsBytes, now: float) -> None:
        """Says something to all, or in a mailbox. What cannot leave is as if lost on its way."""
        topic = self.topics[1] if where == "sync" else layer_topic(self.topic, where.encode())
        with suppress(KcastError):
            if self._signs and isinstance(word, Kept | Have):
                _, line = self._host.line(topic, bytes(word), {}, 0, now)
                self._host.send(topic, line[len(wire.encode_topic(topic)) + 1 : -1], now)
            else:
                self._host.say(topic, bytes(word), now)

    def _send(self, message: bytes, now: float, waiter: Waiter) -> None:
        """Publishes an own entry."""
        try:
            self._host.send(self.topic, message, now, waiter)
        except KcastError:
            waiter.set_result(Published(0, self.topic, None, {}))

    def copy(self, mailbox: str, message: bytes, now: float) -> None:
        """Gives a message, as its author made it."""
        with suppress(KcastError):
            self._host.send(layer_topic(self.topic, mailbox.encode()), message, now)

    def look_for_synced(self, now: float) -> None:
        """Tells who waits for `Synced`, and has what there is, or has waited until now."""
        for until, waiter in list(self._waiting):
            found = self._synced()
            if waiter.done() or found.complete or now >= until:
                self._waiting.remove((until, waiter))
                if not waiter.done():
                    waiter.set_result(found)

    def _synced(self) -> Synced:
        sync = self._sync
        if sync is None or not sync.having.holders:
            return Synced(0, self.got, complete=False)
        is_open = sync.puller.is_syncing or sync.having.fresh or len(self._arrivals) or self._pending
        is_open = is_open or (sync.having.is_new and not self.got)
        return Synced(len(sync.having.holders), self.got, complete=not is_open)
