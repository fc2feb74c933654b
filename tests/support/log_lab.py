"""Logs on client cores and servers, with a clock moved by hand, and a path that loses what it is told to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from kcast.client.core import ClientCore
from kcast.client.events import LeasesChanged, Published
from kcast.client.history.entries import Entry
from kcast.client.history.guard import LogGuard
from kcast.client.history.log import Keeping, Log
from kcast.client.history.store import open_store
from kcast.client.layers.limit import FixedWindow
from kcast.client.messages.guard_and_writer import Guarded, Prover
from kcast.client.publishing.waiters import Waiter, Waiters
from kcast.pubsub import wire
from tests.support.client_lab import FEW_PUBLISH, Lab


class Outcome:
    """A waiter that keeps what it is given."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def set_result(self, result: Any) -> None:
        self.result = result

    def set_exception(self, error: BaseException) -> None:
        self.error = error

    def exception(self) -> BaseException | None:
        return self.error


class _Line:
    is_once: bool

    def __init__(self, message: bytes, is_once: bool) -> None:
        self.message, self.is_once = message, is_once

    def place(self, name: bytes, unix_s: float) -> bytes:
        return name

    def lines(self, wire_topic: bytes, payloads: Sequence[bytes], unix_s: float) -> tuple[int, list[bytes]]:
        return 0, [wire.publish_line(wire_topic, self.message)]


class Speaker:
    """What a log has of a client core, but its leases and its turns."""

    core: ClientCore
    waiters: Waiters

    @property
    def clock_offset_s(self) -> float:
        return self.core.clock_offset_s

    def line(
        self, topic: bytes, payload: bytes, attributes: Mapping[str, str], spare_bytes: int, now: float
    ) -> tuple[int, bytes]:
        publisher = self.core.publications.publisher
        seq, (line,) = publisher.lines_with(wire.encode_topic(topic), [payload], attributes, spare_bytes)
        return seq, line

    def send(self, topic: bytes, message: bytes, now: float, waiter: Waiter | None = None) -> None:
        writer = _Line(message, is_once=waiter is None)
        handle = self.core.publish(topic, b"", now, confirm=waiter is not None, writer=writer)
        if waiter is not None:
            self.waiters.put(handle, waiter)

    def say(self, topic: bytes, payload: bytes, now: float) -> None:
        _, line = self.line(topic, payload, {}, 0, now)
        self.send(topic, line[len(wire.encode_topic(topic)) + 1 : -1], now)


class Participant(Speaker):
    """A client core with one log: its host, its engine and its disk in one."""

    signs = False

    def __init__(
        self,
        lab: "LogLab",
        core: ClientCore,
        topic: bytes,
        path: Path | None = None,
        keeping: Keeping | None = None,
        inner: Prover | None = None,
        offset_s: float = 0.0,
        limit: FixedWindow | None = None,
    ) -> None:
        self.lab, self.core = lab, core
        self.rng, self.drops = core.rng, core.drops
        core.clock_offset_s = 1_790_000_000.0 + offset_s
        self.waiters = Waiters()
        self.told: list[Any] = []
        self.store = open_store(path, wire.encode_topic(topic), lambda: None)
        self.store.file.is_durable = True  # here memory is as good as a disk
        name = "".join(core.rng.choices("abcdefghijk", k=11))
        self.log = Log(self, topic, name, self.store, keeping or Keeping(), lambda: None, signs=self.signs)
        self.guard = LogGuard(self.log, inner, limit=limit)
        self.leases = dict.fromkeys(self.log.topics, (0, 0))
        for each in self.log.topics:
            core.subscribe(each, lab.now, guard=self.guard)

    # --- The host's -----------------------------------------------------------------------------------

    def each_leases(self) -> Sequence[tuple[int, int]]:
        return list(self.leases.values())

    def tell(self, event: Any) -> None:
        self.told.append(event)

    def wake(self) -> None:
        """The lab looks at all in each turn."""

    # --- What a test does -----------------------------------------------------------------------------

    def append(self, payload: bytes, confirm: int = 0, timeout_s: float = 5.0) -> Outcome:
        outcome = Outcome()
        self.log.append(outcome, payload, confirm, timeout_s, self.lab.now)
        return outcome

    def synced(self, timeout_s: float = 5.0) -> Outcome:
        outcome = Outcome()
        self.log.wait_synced(outcome, timeout_s, self.lab.now)
        return outcome

    def entries(self) -> list[Entry]:
        return list(filter(None, map(self.log.entry, self.store.rows_after(0, 100_000))))

    def turn(self) -> float:
        """What is due; returns when the next is."""
        for event in self.core.events():
            told = event.event if isinstance(event, Guarded) else event
            if isinstance(told, Published):
                self.waiters.tell(told)
            elif isinstance(told, LeasesChanged):
                self.leases[told.topic] = told.leased, told.wanted
        self.log.handle_timeout(self.lab.now)
        return self.log.next_at


class LogLab(Lab):
    """Servers, and participants of logs. `loses` says of a copy to a client whether it is lost."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        super().__init__(FEW_PUBLISH, **options)
        self.rng = Random(seed)
        self.participants: list[Participant] = []
        self.joined = 0

    def join(
        self, topic: bytes = b"chat", kind: type[Participant] = Participant, **options: Any
    ) -> Participant:
        self.joined += 1
        core = self.client((f"198.51.100.{self.joined}", 1), seed=self.rng.randrange(2**32))
        participant = kind(self, core, topic, **options)
        self.participants.append(participant)
        return participant

    def leave(self, participant: Participant) -> None:
        self.participants.remove(participant)
        self.clients = {at: core for at, core in self.clients.items() if core is not participant.core}
        participant.store.close()

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        while True:
            self.turn()
            due = [participant.turn() for participant in self.participants]
            self.turn()
            due += [at for core in self.clients.values() if (at := core.next_timeout()) is not None]
            if not due or min(due) > end:
                break
            self.now = max(self.now + 0.001, min(due))
        self.now = end
