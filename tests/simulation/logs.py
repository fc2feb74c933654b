"""Logs on the simulated network: several holders of one topic, who crash and come back, and liars.

`Logs` is a world with them, and the ledger of what was told to programs. `CHECKERS` judge by that.
"""

import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from kcast.client.events import Delivery, LeasesChanged, Published
from kcast.client.history.arrivals import WAITING_MAX
from kcast.client.history.cursor import Cursor
from kcast.client.history.entries import Entry
from kcast.client.history.guard import LogGuard
from kcast.client.history.having import HOLDERS_MAX
from kcast.client.history.holder import KEEPS_MAX, REQUESTS_MAX
from kcast.client.history.ids import Stamp, attributes_of, parse_id, to_text, varint
from kcast.client.history.index import FINGERPRINT_BYTES, HIGHEST, LOWEST, Block
from kcast.client.history.log import Keeping, Log
from kcast.client.history.runs import FIRST, LAST
from kcast.client.history.store import Store, StoreFile
from kcast.client.history.words import (
    PARTS_MAX,
    Ask,
    Have,
    Keep,
    Kept,
    Parts,
    Sent,
    What,
    parse_said,
    parse_word,
    short_of,
)  # fmt: skip
from kcast.client.layers.words import layer_topic
from kcast.client.messages.envelope import new_publisher
from kcast.client.messages.guard_and_writer import Guarded, Prover
from kcast.client.publishing.waiters import Waiters
from kcast.pubsub import wire
from tests.simulation.checkers import LeasedAgain
from tests.simulation.hosts import ClientHost
from tests.simulation.layers import LayerRun
from tests.simulation.ledger import ClientTurn, lines_of
from tests.simulation.options import Options
from tests.simulation.world import World
from tests.support.log_lab import Outcome, Speaker

TOPIC = b"chat"
SYNC = layer_topic(TOPIC, b"sync")
DATAGRAM_BYTES = 28  # of headers: IPv4 and UDP
STALE_S = 120.0  # a sync that brings nothing is over by then
ALL = Keeping()


class Disk(StoreFile):
    """A file in memory. A commit takes its time, and a crash loses what was not written by then."""

    def __init__(self, world: World, topic: bytes = TOPIC) -> None:
        super().__init__(None)
        self.world = world
        self.topic_name = wire.encode_topic(topic)
        self._is_planned = False

    def commit(self) -> None:
        """Is called with each turn: what waits is written together, at once what is urgent."""
        if self.waiting and not self._is_planned:
            self._is_planned = True
            fsync_s = self.world.rng.choice((0.0, 0.006, 0.2))
            self.world.clock.after(fsync_s + (0.0 if self.is_urgent else 0.05), self._write)

    def _write(self) -> None:
        self._is_planned = False
        super().commit()
        self.commit()

    def crash(self) -> None:
        self.waiting.clear()
        self.stores.clear()


class Holder(LayerRun, Speaker):
    """A process with a log, from its start to its end. `disk` outlives it."""

    spins_max = 200  # it compares with one other at a time

    inner: Prover | None = None

    def __init__(self, logs: "Logs", client: ClientHost, disk: Disk, keeping: Keeping) -> None:
        world = logs.world
        super().__init__(world, client)
        self.logs, self.disk, self.core, self.waiters = logs, disk, client.core, Waiters()
        self.drops = client.core.drops
        self.leases: dict[bytes, tuple[int, int]] = {}
        self.is_woken = self.has_changed = False
        self.seen = set[str]()  # told to the program
        store = Store(disk, disk.topic_name, self._plan)
        self.log = logs.make_log(self, logs.topic, new_publisher(self.rng), store, keeping, self._changed)
        self.cursor = logs.make_cursor(store, LOWEST, entry_of=self.log.entry)
        self.sync_bytes = 0
        self.is_up = True

    def start(self) -> None:
        self._changed()
        self.begin(self.log, LogGuard(self.log, self.inner))

    def each_leases(self) -> list[tuple[int, int]]:
        return [self.leases.get(topic, (0, 0)) for topic in self.log.topics]

    def say(self, topic: bytes, payload: bytes, now: float) -> None:
        for checker in self.logs.checkers:
            checker.said(self, topic, payload)
        super().say(topic, payload, now)
        self._plan()

    def send(self, *arguments: Any) -> None:
        super().send(*arguments)
        self._plan()

    def tell(self, event: object) -> None:
        self.logs.told[type(event).__name__] += 1

    def wake(self) -> None:
        self.is_woken = True

    def _changed(self) -> None:
        self.has_changed = True

    def _plan(self) -> None:
        """Something has to leave, or to be taken: with the next turn."""
        self.is_woken = True
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self.world.clock.after(0.0, self._turn)

    def append(self, payload: bytes, confirm: int = 0, timeout_s: float = 5.0) -> Outcome:
        outcome = Outcome()
        self.log.append(outcome, payload, confirm, timeout_s, self.client.now)
        self._plan()
        return outcome

    def _watch(self, turn: ClientTurn) -> None:
        if turn.host is not self.client or not self.is_up:
            return
        for packet in turn.packets:
            if any(line.startswith(self.logs.sync_prefix) for line in lines_of(packet.data)):
                self.sync_bytes += len(packet.data) + DATAGRAM_BYTES
        for event in turn.events:
            told = event.event if isinstance(event, Guarded) else event
            if isinstance(told, Published):
                self.waiters.tell(told)
            elif isinstance(told, LeasesChanged):
                self.leases[told.topic] = told.leased, told.wanted
                self.is_woken = True
        if self.is_woken and self.client.can_act:
            self.is_woken = False
            self.log.handle_timeout(turn.now)
        self.due()
        if self.has_changed:
            self.has_changed = False
            while found := self.cursor.take():
                for checker in self.logs.checkers:
                    checker.told(self, found)
                self.seen.update(entry.id for entry in found)
        for checker in self.logs.checkers:
            checker.turned(self)

    def ids(self) -> set[bytes]:
        return {each for each in self.log.index.ids() if each >= self.log.floor}

    def crash(self) -> None:
        self.is_up = False
        self.client.crash()
        self.disk.crash()


class LogChecker:
    """An invariant of logs; `name` is what a violation says."""

    name = ""

    def __init__(self, logs: "Logs") -> None:
        self.logs = logs

    def began(self, holder: Holder) -> None:
        """A process begins, perhaps on a disk that another has left."""

    def told(self, holder: Holder, entries: list[Entry]) -> None:
        """A program is told of entries; `seen` does not have them yet."""

    def said(self, holder: Holder, topic: bytes, payload: bytes) -> None:
        """A holder says something."""

    def turned(self, holder: Holder) -> None:
        """A turn is over."""

    def finish(self) -> None:
        """Looks at the whole, at its end."""

    def fail(self, facts: str) -> None:
        self.logs.world.violate(self.name, facts)


class SameSetInTheEnd(LogChecker):
    """Above the larger floor of two all have the same; and nothing is lost that somebody had on disk."""

    name = "same-set"

    def __init__(self, logs: "Logs") -> None:
        super().__init__(logs)
        self.all: set[bytes] = set()

    def told(self, holder: Holder, entries: list[Entry]) -> None:
        self.all.update(parse_id(entry.id) or b"" for entry in entries)

    def finish(self) -> None:
        holders = [(holder, holder.ids()) for holder in self.logs.holders if holder.client.can_act]
        floor = max(holder.log.floor for holder, _ in holders)
        for holder, ids in holders:
            if stored := ids ^ {each for each, *_ in holder.log.store.load() if each >= holder.log.floor}:
                self.fail(f"{holder.client.name} has {len(stored)} entries on its disk alone, or not there")
            if lacks := {each for each in self.all if each >= floor} - ids:
                self.fail(f"{holder.client.name} lacks {len(lacks)} of {len(self.all)}: {self._why(holder)}")
            for other, others in holders:
                low = max(holder.log.floor, other.log.floor)
                if lacks := {each for each in others if each >= low} - ids:
                    names = f"{holder.client.name} lacks {len(lacks)} that {other.client.name} has"
                    self.fail(f"{names}: {self._why(holder)}")

    def _why(self, holder: Holder) -> str:
        return f"{holder.log.status()}, {dict(holder.drops)}"


class ParentsFirst(LogChecker):
    """A program is told of an entry after its parents above the floors, unless it is said to be an orphan."""

    name = "parents-first"

    def __init__(self, logs: "Logs") -> None:
        super().__init__(logs)
        self.floors: dict[Holder, bytes] = {}  # the lowest that a holder has heard, when that was highest

    def turned(self, holder: Holder) -> None:
        heard = [] if holder.log._sync is None else holder.log._sync.having.holders.values()
        lowest = min((each.have.floor for each in heard), default=LOWEST)
        self.floors[holder] = max(self.floors.get(holder, LOWEST), lowest)

    def told(self, holder: Holder, entries: list[Entry]) -> None:
        seen = set(holder.seen)
        floor = to_text(max(holder.log.floor, self.floors.get(holder, LOWEST)))
        for entry in entries:
            seen.add(entry.id)
            missing = [each for each in entry.parents if each >= floor and each not in seen]
            if missing and not entry.orphan:
                self.fail(f"{holder.client.name} is told of {entry.id} before {missing}")


class OnceEach(LogChecker):
    """A program is told once of each entry, in one life of its process, and of all in the end."""

    name = "once-each"

    def told(self, holder: Holder, entries: list[Entry]) -> None:
        ids = [entry.id for entry in entries]
        if len(set(ids)) < len(ids) or (again := holder.seen.intersection(ids)):
            self.fail(f"{holder.client.name} is told again of {sorted(again)[:3]}")

    def finish(self) -> None:
        for holder in self.logs.holders:
            if untold := {to_text(each) for each in holder.ids()} - holder.seen:
                self.fail(f"{holder.client.name} was never told of {sorted(untold)[:3]}")


class FloorOnlyRises(LogChecker):
    """A floor never sinks, not over a crash either, and nothing comes back that is below."""

    name = "floor-only-rises"

    def __init__(self, logs: "Logs") -> None:
        super().__init__(logs)
        self.floors: dict[Disk, bytes] = {}

    def began(self, holder: Holder) -> None:
        self.turned(holder)

    def turned(self, holder: Holder) -> None:
        floor, before = holder.log.floor, self.floors.get(holder.disk, LOWEST)
        if floor < before:
            self.fail(f"the floor of {holder.client.name} sinks from {to_text(before)} to {to_text(floor)}")
        if (first := holder.log.index.first) is not None and first < floor:
            self.fail(f"{holder.client.name} holds {to_text(first)}, below its floor {to_text(floor)}")
        self.floors[holder.disk] = floor


class KeptIsOnDisk(LogChecker):
    """What a holder says that it has kept would be there after a crash, now and later."""

    name = "kept-is-on-disk"

    def __init__(self, logs: "Logs") -> None:
        super().__init__(logs)
        self.asked: dict[str, list[bytes]] = {}
        self.claims: dict[Disk, set[bytes]] = {}

    def said(self, holder: Holder, topic: bytes, payload: bytes) -> None:
        if isinstance(said := parse_said(payload), Keep):
            self.asked[said.q] = list(said.ids)
        elif topic != self.logs.sync and isinstance(word := parse_word(payload), Kept):
            ids = [each for each in self.asked.get(word.q, ()) if short_of(each, word.q) in word.shorts]
            self.claims.setdefault(holder.disk, set()).update(ids)
            self._look(holder, ids)

    def began(self, holder: Holder) -> None:
        self._look(holder, list(self.claims.get(holder.disk, ())))

    def _look(self, holder: Holder, ids: list[bytes]) -> None:
        floor = holder.log.store.standing().floor
        there = {row.entry_id for row in holder.log.store.rows(ids)}
        if lost := [each for each in ids if each >= floor and each not in there]:
            self.fail(
                f"{holder.client.name} has said that it keeps {to_text(lost[0])}, which is not on its disk"
            )


class SyncEnds(LogChecker):
    """A sync brings something within 120 s, or ends."""

    name = "sync-ends"

    def __init__(self, logs: "Logs") -> None:
        super().__init__(logs)
        self.since: dict[Holder, tuple[object, int, float]] = {}

    def turned(self, holder: Holder) -> None:
        sync = None if holder.log._sync is None else holder.log._sync.puller._sync
        time = self.logs.world.clock.time
        before, brought, since = self.since.get(holder, (None, 0, time))
        if sync is None or sync is not before or sync.brought > brought:
            self.since[holder] = sync, 0 if sync is None else sync.brought, time
        elif time > since + STALE_S and not holder.client.is_paused:
            self.fail(f"a sync of {holder.client.name} has brought nothing for {time - since:.0f} s: {sync}")


class HolderStateless(LogChecker):
    """What a holder keeps of others is bounded, however many they are."""

    name = "holder-stateless"

    def turned(self, holder: Holder) -> None:
        if (sync := holder.log._sync) is None:
            return
        of_askers = [each for each in vars(sync.answers).values() if isinstance(each, dict | set | list)]
        bounds = (
            (sum(map(len, of_askers)), KEEPS_MAX + REQUESTS_MAX),
            (len(sync.having.holders), HOLDERS_MAX),
            (len(sync.having.fresh), HOLDERS_MAX),
            (len(holder.log._arrivals), WAITING_MAX),
        )
        for count, most in bounds:
            if count > most:
                self.fail(f"{holder.client.name} keeps {count}, and may {most}")


class NoStorm(LogChecker):
    """Little is said of what is held: 100 lines in 10 s, and 10 for each process."""

    name = "no-storm"

    def __init__(self, logs: "Logs") -> None:
        super().__init__(logs)
        self.said_at: deque[float] = deque()

    def said(self, holder: Holder, topic: bytes, payload: bytes) -> None:
        if topic != self.logs.sync:
            return
        time = self.logs.world.clock.time
        if isinstance(parse_said(payload), Have):
            self.said_at.append(time)
        while self.said_at and self.said_at[0] < time - 10.0:
            self.said_at.popleft()
        if len(self.said_at) > 100 + 10 * len(self.logs.holders):
            self.fail(f"{len(self.said_at)} lines in 10 s by {len(self.logs.holders)} holders")


CHECKERS = (
    SameSetInTheEnd, ParentsFirst, OnceEach, FloorOnlyRises,
    KeptIsOnDisk, SyncEnds, HolderStateless, NoStorm,
)  # fmt: skip


@dataclass(frozen=True)
class Talk:
    """How the logs of a run are: how many holders and liars, how often they append, and what befalls them."""

    holders: int = 4
    liars: int = 0
    interval_s: float = 1.0
    entries_max: tuple[int, ...] = (1000,)  # that one keeps
    error_s: float = 10.0  # of a clock, at most
    crashes: int = 0
    partitions: int = 0
    calm_s: float = 60.0


class Logs:
    """Holders of one topic in a world, each on a client of its own, and what was asked of them. In a `world`
    that is there already they begin when somebody starts them."""

    def __init__(
        self,
        options: Options,
        talk: Talk = Talk(),
        *,
        make_log: Callable[..., Log] = Log,
        make_disk: Callable[[World], Disk] = Disk,
        make_cursor: Callable[..., Cursor] = Cursor,
        topic: bytes = TOPIC,
        world: World | None = None,
    ) -> None:
        self.is_part = world is not None
        self.topic, self.sync = topic, layer_topic(topic, b"sync")
        self.world = world = world or World(options)
        world.checkers = [world.checker(LeasedAgain)]  # the others have seeds of their own, and take time
        self.talk, self.make_log, self.make_cursor = talk, make_log, make_cursor
        self.rng = Random(f"logs {options.seed}")
        self.told: Counter[str] = Counter()
        self.sync_prefix = wire.encode_topic(self.sync) + b" "
        self.checkers = [make(self) for make in CHECKERS]
        self.holders: list[Holder] = []
        self.outcomes: list[Outcome] = []
        for number in range(0 if self.is_part else talk.holders):
            self.start(
                make_disk(world), Keeping(entries_max=talk.entries_max[number % len(talk.entries_max)])
            )
        self.liars = [Liar(self) for _ in range(talk.liars)]

    def start(self, disk: Disk, keeping: Keeping = ALL) -> Holder:
        """A process begins, on a disk that is empty, or that another one has left."""
        client = self.world.add_client(*self.world.new_client_addresses())
        client.set_wall_clock(self.rng.uniform(-self.talk.error_s, self.talk.error_s))
        return self.begin(Holder(self, client, disk, keeping))

    def begin(self, holder: Holder) -> Holder:
        """A process has opened the log."""
        self.holders.append(holder)
        for checker in self.checkers:
            checker.began(holder)
        holder.start()
        return holder

    def crash(self, back_s: float) -> None:
        """One holder's process is killed, and another one begins on its disk."""
        running = [each for each in self.holders if not each.client.is_paused]
        if len(running) > 1:
            holder = self.rng.choice(running)
            self.holders.remove(holder)
            holder.crash()
            self.world.clock.after(back_s, partial(self._restart, holder))

    def _restart(self, holder: Holder) -> None:
        self.start(holder.disk, holder.log._keeping)

    def part(self, groups: list[set[str]]) -> None:
        """Only hosts of one group reach each other."""
        names = set().union(*groups)
        self.world.network.blocked.update(
            (one, other) for group in groups for one in group for other in names - group
        )

    def keep_appending(self, until: float) -> None:
        """Some holder appends at random times, until some virtual time."""
        if self.world.clock.time < until:
            able = [each for each in self.holders if each.client.can_act]
            if able:
                payload = b"x" * self.rng.choice((1, 20, 200))
                confirm = self.rng.choice((0, 0, 1, 2))
                self.outcomes.append(self.rng.choice(able).append(payload, confirm))
            delay_s = self.rng.expovariate(1 / self.talk.interval_s)
            self.world.clock.after(delay_s, partial(self.keep_appending, until))

    def befall(self, healed_at: float) -> None:
        """One fault of servers or clients' machines, and its end."""
        world, rng = self.world, self.rng
        ends_at = min(healed_at, world.clock.time + rng.choice((0.05, 1.0, 5.0, 20.0)))
        server, client = rng.choice(world.servers), rng.choice(self.holders).client
        match rng.choice(("crash", "pause-server", "pause-client", "rebind")):
            case "crash":
                server.crash()
                world.clock.at(ends_at, server.restart)
            case "pause-server":
                server.pause()
                world.clock.at(ends_at, server.resume)
            case "pause-client":
                client.pause()
                world.clock.at(ends_at, client.resume)
            case _:
                client.rebind(world.new_client_address())

    def partition(self, healed_at: float) -> None:
        """The hosts fall into two groups, for a while."""
        names = [host.name for host in (*self.world.servers, *self.world.clients)]
        group = {name for name in names if self.rng.random() < 0.5}
        self.world.network.blocked.clear()
        self.part([group, set(names) - group])
        ends_at = min(healed_at, self.world.clock.time + self.rng.choice((1.0, 5.0, 15.0)))
        self.world.clock.at(ends_at, self.world.network.blocked.clear)

    def run(self) -> "Logs":
        """The whole scenario: faults, then calm, and then all that must hold is looked at."""
        world, talk, options = self.world, self.talk, self.world.options
        healed_at = options.fault_s
        world.clock.after(1.0, partial(self.keep_appending, healed_at))
        acts = (
            (options.faults, partial(self.befall, healed_at)),
            (talk.partitions, partial(self.partition, healed_at)),
        )
        for count, act in acts:
            for _ in range(count):
                world.clock.at(self.rng.uniform(1.0, healed_at), act)
        for _ in range(talk.crashes):
            at, back_s = self.rng.uniform(1.0, healed_at), self.rng.choice((0.1, 3.0))
            world.clock.at(at, partial(self.crash, back_s))
        world.run_until(healed_at + 3.0)
        for liar in self.liars:
            liar.is_over = True
        world.heal()
        world.run_for(talk.calm_s)
        self.finish()
        return self

    def finish(self) -> None:
        for checker in self.checkers:
            checker.finish()


class Liar(Speaker):
    """Reads the topics of a log, and says there what is not so. It signs nothing, as nobody does here."""

    def __init__(self, logs: Logs) -> None:
        self.logs, self.world = logs, logs.world
        self.client = logs.world.add_client(*logs.world.new_client_addresses())
        self.client.set_wall_clock(0.0)
        self.core, self.waiters = self.client.core, Waiters()
        self.rng = Random(self.world.rng.getrandbits(64))
        self.name = new_publisher(self.rng)
        self.is_over = False
        self.entries: deque[bytes] = deque(maxlen=20)
        self.mailboxes: set[str] = set()
        for topic in (TOPIC, SYNC, layer_topic(TOPIC, self.name.encode())):
            self.client.subscribe(topic)
        self.world.watchers.append(self._watch)
        self.world.clock.after(self.rng.uniform(1, 2), self._act)

    def _watch(self, turn: ClientTurn) -> None:
        if turn.host is not self.client or self.is_over:
            return
        for event in turn.events:
            if not isinstance(event, Delivery):
                continue
            if event.topic == SYNC and isinstance(said := parse_said(event.payload), Have):
                self.mailboxes.add(said.mine)
            elif event.topic not in (SYNC, TOPIC):
                word = parse_word(event.payload)
                if isinstance(word, Ask | What):
                    self.world.clock.after(0.0, partial(self._answer, word))
        for packet in turn.packets:
            prefix = wire.encode_topic(TOPIC) + b" "
            self.entries += [each[len(prefix) :] for each in lines_of(packet.data) if each.startswith(prefix)]

    def tell(self, where: bytes, word: Any) -> None:
        self.say(layer_topic(TOPIC, where), bytes(word), self.client.now)

    def _block(self) -> Block:
        return Block(self.rng.choice((0, 1, 30, 10**8)), self.rng.randbytes(FINGERPRINT_BYTES))

    def _answer(self, word: Ask | What) -> None:
        """Answers with what is not so, or not at all; whatever was asked."""
        mine, q = word.mine.encode(), word.q
        next_ = self.rng.choice((word.hi, word.lo, self._between(word.lo, word.hi)))
        lines = self.rng.choice((0, 1, 8, 512))
        token = new_publisher(self.rng)[:8]
        match self.rng.choice(("silence", "sent", "parts", "copies", "empty")):
            case "sent":
                self.tell(mine, Sent(q, next_, lines, token))
            case "empty":
                self.tell(mine, Sent(q, word.hi, 0, token))
            case "parts":
                bounds = sorted({self._between(word.lo, word.hi) for _ in range(PARTS_MAX - 16)} | {word.hi})
                self.tell(mine, Parts(q, [(each, self._block()) for each in bounds]))
            case "copies":
                for _ in range(4):
                    self._copy(mine)
                self.tell(mine, Sent(q, word.hi, 4, token))
        self.client.turn()

    def _between(self, lo: bytes, hi: bytes) -> bytes:
        low, high = int.from_bytes(lo, "big"), int.from_bytes(hi, "big")
        return self.rng.randint(low + 1, high).to_bytes(len(lo), "big")

    def _copy(self, mailbox: bytes) -> None:
        """An entry that nobody asked for, or one that nobody has made."""
        message = (
            self._forged() if not self.entries or self.rng.random() < 0.5 else self.rng.choice(self.entries)
        )
        self.send(layer_topic(TOPIC, mailbox), message, self.client.now)

    def _forged(self) -> bytes:
        """An entry with the publisher and number of another's, and perhaps with parents that are not."""
        unix_s = self.client.now + self.core.clock_offset_s
        clock = int((unix_s + self.rng.choice((-50.0, 0.0, 20.0))) * 1e6)
        parents = [varint(clock - 10**6) + self.rng.randbytes(16)] if self.rng.random() < 0.2 else []
        _, line = self.line(
            TOPIC, b"forged %d" % self.rng.getrandbits(30), attributes_of(Stamp(clock, parents)), 0, 0.0
        )
        message = line[len(wire.encode_topic(TOPIC)) + 1 : -1]
        place = re.match(rb"%@[^ ;]+", self.rng.choice(self.entries)) if self.entries else None
        return message if place is None else re.sub(rb"%@[^ ;]+", place[0], message, count=1)

    def _act(self) -> None:
        if self.is_over:
            return
        act = self.rng.choice(("have", "stranger", "copy", "forged", "ask"))
        others = sorted(self.mailboxes) or [self.name]
        if act in ("have", "stranger"):
            mine = self.name if act == "have" else new_publisher(self.rng)
            hi = int((self.client.now + self.core.clock_offset_s - 5) * 1e6)
            blocks = [self._block() for _ in range(self.rng.randint(1, 7))]
            self.tell(b"sync", Have(mine, hi, LOWEST, blocks))
        elif act == "copy":
            self._copy(self.rng.choice(others).encode())
        elif act == "forged":
            self.send(TOPIC, self._forged(), self.client.now)
        else:
            q, mine = new_publisher(self.rng)[:8], self.rng.choice((self.name, *others))
            asked = Ask(q, mine, "-", LOWEST, HIGHEST, 512, FIRST, LAST, f"{self.name}:1-{10**18 - 1}")
            self.tell(self.rng.choice(others).encode(), asked)
        self.client.turn()
        self.world.clock.after(self.rng.expovariate(1 / 0.5), self._act)
