"""What leaves together: lines packed for each subscriber, once for all who want the same. Sans-IO."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.table import LeaseTable

CALLS_MAX = 64  # in a slice: a sixth of a millisecond
WHOLE_CALLS_MAX = 100  # what goes to so many is not cut, since a slice costs as much as some twenty calls
PAIRS_MAX = 8192  # topics times subscribers in a batch: some milliseconds to put together
LINE_PAIRS_MAX = 65_536  # lines times subscribers: as long to pack, where no two want the same
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
        "cost_bytes",
        "found_at",
        "line_pairs",
        "pairs",
        "ready",
        "ready_addresses",
        "topics",
        "wanted",
        "wanted_by",
    )

    def __init__(self, now: float, mark: bytes = b"", cost_bytes_max: float = COST_BYTES_MAX) -> None:
        self._mark = mark
        self._cost_bytes_max = cost_bytes_max
        self.cost_bytes = 0  # of what was put in
        self.found_at = now  # when the first of the audiences was that it is for
        self.pairs = 0
        self.line_pairs = 0
        self.ready: deque[Ready] = deque()
        self.ready_addresses = 0  # that what is ready goes to
        self.topics: set[bytes] = set()  # of the lines that are still to be packed
        self.wanted: list[list[bytes]] = []  # lines that are packed together for those who want them ...
        self.wanted_by: defaultdict[Address, list[int]] = defaultdict(list)  # ... by their places there

    @property
    def has_room(self) -> bool:
        """Whether more may be put in it."""
        if self.fullness >= 1 or self.cost_bytes >= self._cost_bytes_max:
            return False
        return self.ready_addresses + len(self.wanted_by) < ADDRESSES_MAX

    @property
    def fullness(self) -> float:
        """What it took to put it together, as a part of what it may take."""
        return max(self.pairs / PAIRS_MAX, self.line_pairs / LINE_PAIRS_MAX)

    @property
    def calls_of_slice(self) -> int:
        """How many calls the next slice may have: more than usual if all, or the first, then leaves whole."""
        if not self.ready:
            return CALLS_MAX
        for calls in (self.ready_addresses, len(self.ready[0].transmit.destinations)):
            if calls <= WHOLE_CALLS_MAX:
                return max(CALLS_MAX, calls)
        return CALLS_MAX

    def add(self, transmit: Transmit, line_count: int) -> None:
        """Takes what needs no packing."""
        self.ready.append(Ready(transmit, line_count))
        self.ready_addresses += len(transmit.destinations)

    def pack(self) -> None:
        """Packs each subscriber's lines together, once for subscribers who want the same."""
        if not self.wanted:
            return
        audiences: defaultdict[tuple[int, ...], list[Address]] = defaultdict(list)
        for address, places in self.wanted_by.items():
            audiences[tuple(places)].append(address)
        wanted = self.wanted
        for chosen, addresses in audiences.items():
            lines = [line for place in chosen for line in wanted[place]]
            packed = wire.pack_lines(lines, mark=self._mark)
            self.add(Transmit(*packed, addresses), len(lines))
        self.wanted.clear()
        self.wanted_by.clear()
        self.topics.clear()

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
