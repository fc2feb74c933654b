"""What leaves together: lines packed for each subscriber, once for all who want the same. Sans-IO."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.router import PackerLike, Routes
from kcast.pubsub.table import LeaseTable

CALLS_MAX = 64  # in a slice: a sixth of a millisecond
WHOLE_CALLS_MAX = 100  # what goes to so many is not cut, since a slice costs as much as some twenty calls
COPIES_MAX = 32_768  # lines times subscribers in a batch: some milliseconds to put together
COST_BYTES_MAX = 4 * 1024 * 1024  # in a batch, what copies cost beside their bytes included
ADDRESSES_MAX = 1024  # in a batch: a few milliseconds to send, and for so long nobody in it comes first
LATE_S = 1.0  # what waits for longer is held against the table again: leases may have ended (§7.1)


class Taken(NamedTuple):
    """What leaves: `calls` is the number of destinations, `size_bytes` what is sent to all of them."""

    transmits: list[Transmit]
    calls: int
    size_bytes: int
    copies: int


class Batch:
    """What is put together, of `cost_bytes_max` or little more. Each datagram begins with `mark` (§4.4).

    It has left when `ready` is empty again. Then `clear` makes it anew.
    """

    __slots__ = (
        "_cost_bytes_max",
        "_mark",
        "_packer",
        "_senders",
        "copies",
        "cost_bytes",
        "found_at",
        "is_leaving",
        "ready",
        "ready_addresses",
    )

    def __init__(
        self, make_packer: Callable[[], PackerLike], mark: bytes = b"", cost_bytes_max: float = COST_BYTES_MAX
    ) -> None:
        self._mark = mark
        self._cost_bytes_max = cost_bytes_max
        self._packer = make_packer()
        self._senders: set[Hashable] = set()  # of the lines that are still to be packed
        self.ready: deque[Transmit] = deque()
        self.ready_addresses = 0  # that what is ready goes to
        self.clear()

    def clear(self) -> None:
        """Makes it as new, after all has left."""
        self.cost_bytes = 0  # of what was put in
        self.copies = 0
        self.found_at = inf  # when the first of the audiences was that it is for
        self.is_leaving = False  # whether a part has left, so that no more may be put in it

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
        for calls in (self.ready_addresses, len(self.ready[0][2])):
            if calls <= WHOLE_CALLS_MAX:
                return max(CALLS_MAX, calls)
        return CALLS_MAX

    def add_lines(
        self, data: bytes, routes: Routes, sender: Hashable, now: float
    ) -> tuple[int, int, list[bytes]]:
        """Takes a sender's publishes, to be packed with others; returns what `Packer.add` does."""
        added = self._packer.add(data, routes)
        self._senders.add(sender)
        self.copies += added[0]
        if now < self.found_at:
            self.found_at = now
        return added

    def add_lines_for(
        self,
        data: bytes,
        addresses: Sequence[Address],
        copies: int,
        sender: Hashable,
        cost_bytes: int,
        found_at: float,
    ) -> None:
        """Takes a sender's publishes for these subscribers, to be packed with others."""
        self._packer.add_for(data, addresses)
        self._senders.add(sender)
        self._count(copies, cost_bytes, found_at)

    def add_run(self, run: Transmit, sender: Hashable, cost_bytes: int, found_at: float) -> None:
        """Takes what leaves as it is, behind what the sender put in before."""
        if sender in self._senders:
            self.pack()
        self.ready.append(run)
        self.ready_addresses += len(run.destinations)
        self._count(len(run.destinations), cost_bytes, found_at)

    def _count(self, copies: int, cost_bytes: int, found_at: float) -> None:
        self.copies += copies
        self.cost_bytes += cost_bytes
        self.found_at = min(self.found_at, found_at)

    def pack(self) -> None:
        """Packs the lines of each subscriber."""
        self.ready_addresses += len(self._packer)
        self.ready.extend(self._packer.pack(self._mark))
        self._senders.clear()

    def take(self, calls_max: float, bytes_max: float) -> Taken:
        """Takes out what leaves next: this number of calls and bytes, or little more."""
        self.is_leaving = True
        taken: list[Transmit] = []
        calls = size_bytes = copies = 0
        ready = self.ready
        while ready and calls < calls_max and size_bytes < bytes_max:
            transmit = ready.popleft()
            data, segment_bytes, addresses, line_count = transmit
            count = len(addresses)
            if count > 1 and (calls + count > calls_max or size_bytes + len(data) * count > bytes_max):
                most = max(1, int(min(calls_max - calls, (bytes_max - size_bytes) // len(data))))
                if most < count:
                    ready.appendleft(Transmit(data, segment_bytes, addresses[most:], line_count))
                    transmit = Transmit(data, segment_bytes, addresses[:most], line_count)
                    count = most
            taken.append(transmit)
            calls += count
            size_bytes += len(data) * count
            copies += line_count * count
        self.ready_addresses -= calls
        return Taken(taken, calls, size_bytes, copies)

    def drop_late(self, table: LeaseTable, now: float) -> int:
        """Drops copies of leases that have ended since it was put together; returns their number."""
        self.pack()  # what is not packed yet is as old
        before = _copies_of(self.ready)
        self.ready = deque(self._still_wanted(table, now))
        self.ready_addresses = sum([len(addresses) for _, _, addresses, _ in self.ready])
        self.found_at = now
        return before - _copies_of(self.ready)

    def _still_wanted(self, table: LeaseTable, now: float) -> Iterator[Transmit]:
        for data, segment_bytes, destinations, line_count in self.ready:
            lines = wire.split_lines(data)[0]
            topics = {line.partition(b" ")[0] for line in lines}
            audiences: defaultdict[frozenset[bytes], list[Address]] = defaultdict(list)
            for address in destinations:
                wanted = frozenset([topic for topic in topics if table.is_live(topic, address, now)])
                audiences[wanted].append(address)
            for wanted, addresses in audiences.items():
                if len(wanted) == len(topics):
                    yield Transmit(data, segment_bytes, addresses, line_count)
                elif wanted:
                    rest = [line for line in lines if line.partition(b" ")[0] in wanted]
                    yield Transmit(*wire.pack_lines(rest, mark=self._mark), addresses, len(rest))


def _copies_of(ready: Iterable[Transmit]) -> int:
    """Lines times addresses."""
    return sum([line_count * len(addresses) for _, _, addresses, line_count in ready])
