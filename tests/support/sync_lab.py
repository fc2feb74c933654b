"""Logs that sync over a simulated path: what is held is in memory, lines have their real lengths.

Lines of one turn share datagrams as the client's do: 1,118 bytes of lines behind the vouch line. A datagram
goes over two legs, and each may lose it.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import Any, NamedTuple, SupportsBytes

from kcast.client.events import Drop
from kcast.client.history.ids import clock_text, id_of, to_text
from kcast.client.history.index import LOWEST, Index
from kcast.client.history.runs import Place, Run, Runs, has
from kcast.client.history.sync import LogSync
from kcast.client.history.words import Kept, parse_said, parse_word
from kcast.client.layers.words import layer_topic
from kcast.client.messages.lines import room

TOPIC = b"weather/oslo"
UNIX_S = 1_790_000_000.0
DATAGRAM_BYTES = 1118
HEADERS_BYTES = 28 + 82  # UDP, IP and the vouch line
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


class Entry(NamedTuple):
    """An entry as its author made it."""

    id: bytes
    publisher: str
    seq: int
    message: bytes


def name_of(number: int) -> str:
    """A name of 11 characters."""
    rng = Random(number)
    return "".join(rng.choice(ALPHABET) for _ in range(11))


def make_entry(
    clock: int,
    publisher: str,
    seq: int,
    parent: bytes | None = None,
    text: bytes = b"x",
    topic: bytes = TOPIC,
) -> Entry:
    """An entry of a topic."""
    parents = "" if parent is None else f";p={to_text(parent)}"
    message = f"%@{publisher}.{seq};c={clock_text(clock)}{parents} ".encode() + text
    return Entry(id_of(clock, topic, message), publisher, seq, message)


def make_entries(
    count: int,
    publishers: int,
    seed: int = 1,
    days: float = 10.0,
    payload_bytes: int = 200,
    topic: bytes = TOPIC,
) -> list[Entry]:
    """Entries of the last days, until a minute ago, in the order of their ids."""
    rng = Random(seed)
    ages = sorted((60.0 + rng.random() * days * 86_400 for _ in range(count)), reverse=True)
    names = [name_of(number) for number in range(publishers)]
    seqs, entries = Counter[str](), list[Entry]()
    parent = None
    for number, age_s in enumerate(ages):
        name = names[number] if publishers == count else rng.choice(names)
        seqs[name] += 1
        text = b"x" * payload_bytes
        entries.append(make_entry(int((UNIX_S - age_s) * 1e6), name, seqs[name], parent, text, topic))
        parent = entries[-1].id
    return entries


class Shelf:
    """What is held, in memory."""

    def __init__(self, entries: Iterable[Entry] = (), floor: bytes = LOWEST) -> None:
        self.entries = {each.id: each for each in entries}
        self.index = Index(self.entries)
        self.runs = Runs()
        for each in self.entries.values():
            self.runs.add(each.publisher, each.seq, each.id)
        self.floor = floor
        self.kept: set[bytes] | None = None  # None: all is on disk
        self.pins = set[bytes]()
        self.copies_waiting, self.not_held = 0, list[bytes]()

    def add(self, entry: Entry) -> bool:
        self.entries[entry.id] = entry
        self.runs.add(entry.publisher, entry.seq, entry.id)
        return self.index.add(entry.id)

    def messages(self, ids: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        return [(each, self.entries[each].message) for each in ids]

    def lacking(
        self,
        lo: bytes,
        hi: bytes,
        start: Place,
        stop: Place,
        runs: Mapping[str, Sequence[Run]],
        lines_max: int,
    ) -> tuple[list[tuple[bytes, bytes]], bytes]:
        found = list[tuple[bytes, bytes]]()
        for each in self.index.ids(lo, hi):
            entry = self.entries[each]
            if start <= (entry.publisher, entry.seq) < stop and not has(runs, entry.publisher, entry.seq):
                if len(found) == lines_max:
                    return found, each
                found.append((each, entry.message))
        return found, hi

    def on_disk(self, ids: Sequence[bytes]) -> list[bytes]:
        return [each for each in ids if each in (self.entries if self.kept is None else self.kept)]


class Said(NamedTuple):
    """A line: where to, and a word's payload or an author's message."""

    where: str
    payload: bytes
    is_copy: bool

    @property
    def size_bytes(self) -> int:
        """The length of its line; a word has an envelope of its own."""
        envelope = 0 if self.is_copy else len(b"%@PPPPPPPPPPP.12345 ")
        return len(layer_topic(TOPIC, self.where.encode())) + 1 + envelope + len(self.payload) + 1


class LabLog:
    """A log of the lab, and its host."""

    def __init__(self, lab: "SyncLab", name: str, shelf: Shelf, ahead_s: float = 0.0) -> None:
        self.rng = Random(f"{lab.seed} {name}")
        self.drops: Counter[Drop] = Counter()
        self.name = name
        self.room_bytes = room(layer_topic(TOPIC, name.encode())).text_bytes
        self.shelf = shelf
        self.outbox: list[Said] = []
        self.words: list[Said] = []  # all that it has said but copies
        self.may_take: Callable[[Entry], bool] = lambda entry: True  # the guard
        self._lab = lab
        self._ahead_s = ahead_s
        self.sync = LogSync(self, shelf, lab.now)

    def unix_s(self) -> float:
        return UNIX_S + self._lab.now + self._ahead_s

    def say(self, where: str, word: SupportsBytes, now: float) -> None:
        self.words.append(Said(where, bytes(word), is_copy=False))
        self.outbox.append(self.words[-1])

    def copy(self, mailbox: str, message: bytes, now: float) -> None:
        self.outbox.append(Said(mailbox, message, is_copy=True))

    def hear(self, said: Said, now: float) -> None:
        """Takes a line."""
        if said.is_copy:
            entry = self._lab.catalogue[said.payload]
            holder = self.sync.puller.copy_came(entry.id, entry.publisher, entry.seq, now)
            if holder and self.may_take(entry) and self.shelf.add(entry):
                self.sync.puller.took(holder, now)
            return
        word: Any = parse_said(said.payload) if said.where == "sync" else parse_word(said.payload)
        if word is None:
            self.drops[Drop.MALFORMED_MESSAGE] += 1
        elif said.where == "sync":
            self.sync.hear_said(word, now)
        elif not isinstance(word, Kept):  # that is the log's affair
            self.sync.hear_word(word, now)


class SyncLab:
    """Logs, and the path between them."""

    def __init__(self, seed: int = 1, loss: float = 0.0, rtt_s: float = 0.25) -> None:
        self.seed = seed
        self.now = 0.0
        self.loss = loss
        self.logs: dict[str, LabLog] = {}
        self.catalogue: dict[bytes, Entry] = {}  # by message
        self.control_bytes = self.data_bytes = self.copies = 0
        self.said: Counter[str] = Counter()
        self.late_s = 0.0  # by which copies are late at most: they come by other servers than words
        self.is_cut: Callable[[str, Said], bool] = lambda name, said: False
        self._rtt_s = rtt_s
        self._rng = Random(seed)
        self._flying: list[tuple[float, int, str, list[Said]]] = []
        self._number = 0

    def know(self, entries: Iterable[Entry]) -> None:
        """Lets the lab know entries by their messages."""
        self.catalogue.update((each.message, each) for each in entries)

    def open(self, name: str, entries: Iterable[Entry], **more: Any) -> LabLog:
        """Opens a log that holds these."""
        shelf = Shelf(entries, more.pop("floor", LOWEST))
        self.know(shelf.entries.values())
        log = self.logs[name] = LabLog(self, name, shelf, **more)
        return log

    def run(self, until_s: float, is_done: Callable[[], bool] = lambda: False) -> float:
        """Lets time go on until then, or until something is true; returns the time."""
        for _ in range(10_000_000):
            self._send()
            at = min((each.sync.next_at for each in self.logs.values()), default=inf)
            at = max(self.now, min(at, self._flying[0][0] if self._flying else inf))
            if is_done() or at > until_s:
                break
            self.now = at
            while self._flying and self._flying[0][0] <= at:
                _, _, name, lines = heapq.heappop(self._flying)
                for said in lines:
                    if name in self.logs:
                        self.logs[name].hear(said, at)
            for log in list(self.logs.values()):
                if log.sync.next_at <= at:
                    log.sync.handle_timeout(at)
        else:
            raise AssertionError("it is due again and again")
        self.now = self.now if is_done() else until_s
        return self.now

    def _send(self) -> None:
        for log in list(self.logs.values()):
            lines, log.outbox = log.outbox, []
            by_place: dict[str, list[Said]] = {}
            for each in lines:
                by_place.setdefault(each.where, []).append(each)
            for where, those in by_place.items():
                for datagram in self._packed(those):
                    self._count(datagram)
                    to = [other for other in self.logs if other != log.name] if where == "sync" else [where]
                    left = [each for each in datagram if not self.is_cut(log.name, each)]
                    if left and self._rng.random() >= self.loss:
                        for name in to:
                            if self._rng.random() >= self.loss:
                                self._fly(name, left)

    def _fly(self, name: str, lines: list[Said]) -> None:
        self._number += 1
        late_s = self.late_s * self._rng.random() if lines[0].is_copy else 0.0
        heapq.heappush(self._flying, (self.now + self._rtt_s / 2 + late_s, self._number, name, lines))

    @staticmethod
    def _packed(lines: Iterable[Said]) -> Iterable[list[Said]]:
        datagram, size_bytes = list[Said](), 0
        for each in lines:
            if datagram and size_bytes + each.size_bytes > DATAGRAM_BYTES:
                yield datagram
                datagram, size_bytes = [], 0
            datagram.append(each)
            size_bytes += each.size_bytes
        yield datagram

    def _count(self, datagram: list[Said]) -> None:
        """A datagram's headers belong to the copies in it, if there are some."""
        for each in datagram:
            if each.is_copy:
                self.data_bytes += each.size_bytes
                self.copies += 1
            else:
                self.control_bytes += each.size_bytes
                self.said[each.payload.split(b" ", 1)[0].decode()] += 1
        if any(each.is_copy for each in datagram):
            self.data_bytes += HEADERS_BYTES
        else:
            self.control_bytes += HEADERS_BYTES
