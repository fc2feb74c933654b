"""What leaves together: lines packed for each subscriber, once for all who want the same. Sans-IO."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.router import Packer, Routes
from kcast.pubsub.table import LeaseTable

CALLS_MAX = 64  # in a slice: a sixth of a millisecond
WHOLE_CALLS_MAX = 100  # what goes to so many is not cut, since a slice costs as much as some twenty calls
COPIES_MAX = 32_768  # lines times subscribers in a batch: some milliseconds to put together
COST_BYTES_MAX = 4 * 1024 * 1024  # in a batch, what copies cost beside their bytes included
ADDRESSES_MAX = 1024  # in a batch: a few milliseconds to send, and for so long nobody in it comes first
LATE_S = 1.0  # what waits for longer is held against the table again: leases may have ended (§7.1)


class Ready(NamedTuple):
    """What is ready to leave, and the number of lines in it."""

    transmit: Transmit
    line_count: int

    @property
    def copies(self) -> int:
        """Lines times destinations."""
        return self.line_count * len(self.transmit.destinations)


class Batch:
    """What is put together, of `cost_bytes_max` or little more. Each datagram begins with `mark` (§4.4)."""

    __slots__ = (
        "_cost_bytes_max",
        "_mark",
        "_packer",
        "_senders",
        "copies",
        "cost_bytes",
        "found_at",
        "ready",
        "ready_addresses",
    )

    def __init__(
        self,
        now: float,
        make_packer: Callable[[], Packer],
        mark: bytes = b"",
        cost_bytes_max: float = COST_BYTES_MAX,
    ) -> None:
        self._mark = mark
        self._cost_bytes_max = cost_bytes_max
        self._packer = make_packer()
        self._senders: set[Hashable] = set()  # of the lines that are still to be packed
        self.cost_bytes = 0  # of what was put in
        self.copies = 0
        self.found_at = now  # when the first of the audiences was that it is for
        self.ready: deque[Ready] = deque()
        self.ready_addresses = 0  # that what is ready goes to

    @property
    def has_room(self) -> bool:
        """Whether more may be put in it."""
        if self.copies >= COPIES_MAX or self.cost_bytes >= self._cost_bytes_max:
            return False
        return self.ready_addresses + len(self._packer) < ADDRESSES_MAX

    @property
    def fullness(self) -> float:
        """What it took to put it together, as a part of what it may take."""
        return self.copies / COPIES_MAX

    @property
    def calls_of_slice(self) -> int:
        """How many calls the next slice may have: more than usual if all, or the first, then leaves whole."""
        if not self.ready:
            return CALLS_MAX
        for calls in (self.ready_addresses, len(self.ready[0].transmit.destinations)):
            if calls <= WHOLE_CALLS_MAX:
                return max(CALLS_MAX, calls)
        return CALLS_MAX

    def add_lines(self, data: bytes, routes: Routes, sender: Hashable) -> tuple[int, int, list[bytes]]:
        """Takes a sender's publishes, to be packed with others; returns what `Packer.add` does."""
        added = self._packer.add(data, routes)
        self._senders.add(sender)
        self.copies += added[0]
        return added

    def add_lines_for(self, data: bytes, addresses: Sequence[Address], copies: int, sender: Hashable) -> None:
        """Takes a sender's publishes for these subscribers, to be packed with others."""
        self._packer.add_for(data, addresses)
        self._senders.add(sender)
        self.copies += copies

    def add_run(self, transmit: Transmit, line_count: int, sender: Hashable) -> None:
        """Takes what leaves as it is, behind what the sender put in before."""
        if sender in self._senders:
            self.pack()
        self._add(transmit, line_count)
        self.copies += len(transmit.destinations)

    def pack(self) -> None:
        """Packs the lines of each subscriber."""
        for data, segment_bytes, addresses, line_count in self._packer.pack(self._mark):
            self._add(Transmit(data, segment_bytes, addresses), line_count)
        self._senders.clear()

    def _add(self, transmit: Transmit, line_count: int) -> None:
        self.ready.append(Ready(transmit, line_count))
        self.ready_addresses += len(transmit.destinations)

    def drop_late(self, table: LeaseTable, now: float) -> int:
        """Drops, of what has waited for long, the copies of leases that have ended; returns their number."""
        if now <= self.found_at + LATE_S or not self.ready:
            return 0
        before = sum([ready.copies for ready in self.ready])
        self.ready = deque(self._still_wanted(table, now))
        self.ready_addresses = sum([len(ready.transmit.destinations) for ready in self.ready])
        self.found_at = now
        return before - sum([ready.copies for ready in self.ready])

    def _still_wanted(self, table: LeaseTable, now: float) -> Iterator[Ready]:
        for (data, segment_bytes, destinations, _), line_count in self.ready:
            lines = wire.split_lines(data)[0]
            topics = {line.partition(b" ")[0] for line in lines}
            audiences: defaultdict[frozenset[bytes], list[Address]] = defaultdict(list)
            for address in destinations:
                wanted = frozenset([topic for topic in topics if table.is_live(topic, address, now)])
                audiences[wanted].append(address)
            for wanted, addresses in audiences.items():
                if len(wanted) == len(topics):
                    yield Ready(Transmit(data, segment_bytes, addresses), line_count)
                elif wanted:
                    rest = [line for line in lines if line.partition(b" ")[0] in wanted]
                    yield Ready(Transmit(*wire.pack_lines(rest, mark=self._mark), addresses), len(rest))
