"""What is to be sent, in what order, and how much at once. PROTOCOL §4.3. Sans-IO.

Published lines wait here in a queue for each publisher, and leave in slices. A slice is bounded in calls and
bytes, and the driver receives between slices. So one message to 100,000 subscribers makes the server deaf to
nobody, and a publisher whose messages make many copies waits behind its own backlog, not others behind it.

Queues take turns by deficit round robin (Shreedhar and Varghese, 1995): a queue that has its turn may send a
quantum, and what it sends beyond is taken off its next one. A publisher that had nothing waiting comes first
once, as in FQ-CoDel (RFC 8290 §4.2): so sparse messages are not held up by bulk.

Within a slice each subscriber gets all its lines in as few datagrams as possible, because a copy costs system
calls, hardly bytes. A burst whose lines are all of one topic leaves as it came, without being cut into lines.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, HEADER_BYTES
from kcast.pubsub.networks import Share
from kcast.pubsub.rates import Demand, Rate
from kcast.pubsub.subscribers import Subscribers
from kcast.pubsub.table import LeaseTable

CALLS_MAX = 128  # in a slice, with up to a chunk of an audience beyond; half a millisecond
BYTES_MAX = 4 * 1024 * 1024  # in a slice, likewise
PAIRS_MAX = 16_384  # lines times subscribers that are put together in a slice
COPY_COST_BYTES = 250  # what a copy costs beside its bytes: that of a system call
QUANTUM_BYTES = 64 * 1024
PART_BYTES_MAX = BYTES_MAX  # of a chunk, that a queue may send in one go: large bursts cost little a byte
BACKLOG_BYTES_MAX = 32 * 1024 * 1024  # of all queues, costs included: a third of a second
BACKLOG_S_MAX = 0.25  # ... and of an uplink whose rate is known
UPLINK_BURST_S = 0.01


class _Parcel:
    """What goes to several chunks of an audience: lines that are packed with others, or a run as it is."""

    __slots__ = ("chunks", "line_count", "lines", "offset", "position", "run", "size_bytes", "topic")

    def __init__(
        self, topic: bytes, lines: list[bytes], run: tuple[bytes, int] | None, line_count: int
    ) -> None:
        self.topic = topic
        self.lines = lines
        self.run = run
        self.line_count = line_count
        self.size_bytes = len(run[0]) if run else sum(map(len, lines))
        self.chunks: Sequence[Sequence[Address]] | None = None
        self.position = 0  # of the chunk that is next ...
        self.offset = 0  # ... and of the address in it


class _Queue:
    """What one publisher wants sent: `parcels` first, then lines by topic."""

    __slots__ = ("backlog_bytes", "deficit_bytes", "lines_by_topic", "parcels")

    def __init__(self) -> None:
        self.parcels: deque[_Parcel] = deque()
        self.lines_by_topic: dict[bytes, list[bytes]] = {}
        self.deficit_bytes = QUANTUM_BYTES
        self.backlog_bytes = 0


class _Slice:
    """What is to leave together, and how much that is."""

    __slots__ = ("bytes_left", "calls", "copies", "pairs", "transmits", "wanted", "wanted_by")

    def __init__(self, bytes_max: float) -> None:
        self.bytes_left = bytes_max
        self.calls = 0
        self.copies = 0
        self.pairs = 0
        self.transmits: list[Transmit] = []
        self.wanted: list[list[bytes]] = []  # lines that are packed together for those who want them ...
        self.wanted_by: defaultdict[Address, list[int]] = defaultdict(list)  # ... by their places there

    @property
    def is_full(self) -> bool:
        return (
            self.calls + len(self.wanted_by) >= CALLS_MAX or self.pairs >= PAIRS_MAX or self.bytes_left <= 0
        )


class Egress:
    """Queues of what publishers want sent to the subscribers in `table`.

    `subscribers` says what each may still be sent. Counts `copies_sent` in `counts`, and what is not sent in
    `drops`. With `marks_copies` every datagram of copies begins with a blank line, as at an open server
    (§4.4). No more than `uplink_bytes_per_s` are sent, with headers; 0 is no limit.
    """

    def __init__(
        self,
        table: LeaseTable,
        subscribers: Subscribers,
        counts: Counter[str],
        drops: Counter[Drop],
        *,
        marks_copies: bool = False,
        uplink_bytes_per_s: int = 0,
    ) -> None:
        self._table = table
        self._subscribers = subscribers
        self._counts = counts
        self._drops = drops
        self._mark = b"\n" if marks_copies else b""
        self._uplink = Rate(uplink_bytes_per_s, UPLINK_BURST_S)
        self._backlog_bytes_max = int(uplink_bytes_per_s * BACKLOG_S_MAX) or BACKLOG_BYTES_MAX
        self._backlog_bytes = 0
        self._queues: dict[Share, _Queue] = {}
        self._fresh: deque[Share] = deque()  # publishers that have their first turn
        self._waiting: deque[Share] = deque()

    @property
    def backlog_bytes(self) -> int:
        """What waits to be sent, with what each copy costs beside its bytes."""
        return self._backlog_bytes

    def ready_at(self, now: float) -> float | None:
        """Returns when more can be sent, `now` if at once; None if nothing waits."""
        return self._uplink.ready_at(now) if self._queues else None

    # --- What comes in -------------------------------------------------------------------------------

    def has_room(self, publisher: Share) -> bool:
        """Whether more of this publisher can wait: yes, unless much waits, and its own is more than its share
        of that."""
        if self._backlog_bytes < self._backlog_bytes_max:
            return True
        queue = self._queues.get(publisher)
        return queue is None or queue.backlog_bytes * len(self._queues) < self._backlog_bytes_max

    def put(self, publisher: Share, lines_by_topic: dict[bytes, list[bytes]], demand: Demand) -> None:
        """Takes lines (without LF), and the lists that they are in. `demand` is what they cause."""
        if self._mark:
            lines_by_topic = self._fitting(lines_by_topic)
        queue = self._queue_of(publisher, demand)
        waiting = queue.lines_by_topic
        if not waiting:
            queue.lines_by_topic = lines_by_topic
            return
        for topic, lines in lines_by_topic.items():
            if topic in waiting:
                waiting[topic] += lines
            else:
                waiting[topic] = lines

    def put_run(
        self,
        publisher: Share,
        data: bytes,
        segment_bytes: int,
        topic: bytes,
        demand: Demand,
    ) -> None:
        """Takes a burst of one topic, to leave as it came and after what came before it."""
        assert not self._mark
        queue = self._queue_of(publisher, demand)
        waiting = queue.lines_by_topic.pop(topic, None)
        if waiting:
            queue.parcels.append(_Parcel(topic, waiting, None, len(waiting)))
        for parcel in queue.parcels:
            # What is packed with other lines would leave after the burst.
            if parcel.topic == topic and parcel.run is None:
                parcel.run = wire.pack_lines(parcel.lines)
        queue.parcels.append(_Parcel(topic, [], (data, segment_bytes), demand.lines))

    def _fitting(self, lines_by_topic: dict[bytes, list[bytes]]) -> dict[bytes, list[bytes]]:
        """Leaves out the lines that the mark makes too long for a datagram."""
        fitting = {}
        for topic, lines in lines_by_topic.items():
            fitting[topic] = [line for line in lines if len(self._mark) + len(line) < DATAGRAM_BYTES_MAX]
            if len(fitting[topic]) < len(lines):
                self._drops[Drop.OVERSIZE] += len(lines) - len(fitting[topic])
        return {topic: lines for topic, lines in fitting.items() if lines}

    def _queue_of(self, publisher: Share, demand: Demand) -> _Queue:
        queue = self._queues.get(publisher)
        if queue is None:
            queue = self._queues[publisher] = _Queue()
            self._fresh.append(publisher)
        backlog_bytes = demand.size_bytes + COPY_COST_BYTES * demand.copies
        queue.backlog_bytes += backlog_bytes
        self._backlog_bytes += backlog_bytes
        return queue

    # --- What goes out -------------------------------------------------------------------------------

    def next_slice(self, now: float) -> list[Transmit]:
        """Returns the next copies to send; none while the uplink is taken."""
        if not self._queues:
            return []
        taken = _Slice(min(BYTES_MAX, self._uplink.left(now)))
        while self._queues and not taken.is_full:
            turns = self._fresh or self._waiting
            queue = self._queues[turns[0]]
            if queue.deficit_bytes <= 0:
                queue.deficit_bytes += QUANTUM_BYTES
                self._waiting.append(turns.popleft())
                continue
            self._serve(queue, taken, now)
            if not queue.parcels and not queue.lines_by_topic:
                self._backlog_bytes -= queue.backlog_bytes
                del self._queues[turns.popleft()]
            elif turns is self._fresh:
                self._waiting.append(turns.popleft())
        transmits = taken.transmits
        transmits += self._packed_for_each(taken)
        if self._subscribers:
            refused = self._subscribers.refused
            transmits = [part for each in transmits for part in self._subscribers.granted(each, now)]
            taken.copies -= self._subscribers.refused - refused
        self._counts["copies_sent"] += taken.copies
        self._charge_uplink(transmits, now)
        return transmits

    def _serve(self, queue: _Queue, taken: _Slice, now: float) -> None:
        """Takes from a queue what its deficit and the slice allow."""
        audience = self._table.audience
        waiting = queue.lines_by_topic
        while queue.deficit_bytes > 0 and not taken.is_full:
            if queue.parcels:
                self._take_chunk(queue, taken, now)
                continue
            if not waiting:
                break
            topic = next(iter(waiting))
            lines = waiting.pop(topic)
            chunks = audience(topic, now)
            if not chunks:
                self._unwanted(topic, len(lines))
                continue
            size_bytes = len(lines[0]) if len(lines) == 1 else sum(map(len, lines))
            if len(chunks) > 1 or size_bytes > DATAGRAM_BYTES_MAX // 2:
                parcel = _Parcel(topic, lines, None, len(lines))
                parcel.chunks = chunks
                queue.parcels.append(parcel)
                continue
            chunk = chunks[0]
            place = len(taken.wanted)
            taken.wanted.append(lines)
            wanted_by = taken.wanted_by
            for address in chunk:
                wanted_by[address].append(place)
            count = len(chunk)
            taken.pairs += count
            taken.copies += count * len(lines)
            self._charge(queue, taken, count, size_bytes)

    def _take_chunk(self, queue: _Queue, taken: _Slice, now: float) -> None:
        """Takes the next chunk of the first parcel."""
        parcel = queue.parcels[0]
        if parcel.chunks is None:
            parcel.chunks = self._table.audience(parcel.topic, now)
            if not parcel.chunks:
                self._unwanted(parcel.topic, parcel.line_count)
                queue.parcels.popleft()
                return
        chunk = parcel.chunks[parcel.position][parcel.offset :]
        most = max(1, int(min(taken.bytes_left, PART_BYTES_MAX)) // (parcel.size_bytes + COPY_COST_BYTES))
        if len(chunk) > most:
            chunk = chunk[:most]
            parcel.offset += most
        else:
            parcel.position += 1
            parcel.offset = 0
            if parcel.position == len(parcel.chunks):
                queue.parcels.popleft()
        if parcel.run is None and parcel.size_bytes > DATAGRAM_BYTES_MAX // 2:
            # Enough to fill a datagram alone, so it is packed once for all its subscribers. If it were copied
            # for each set of topics, a few busy topics in many sets could fill the memory.
            parcel.run = wire.pack_lines(parcel.lines, mark=self._mark)
        if parcel.run is not None:
            taken.transmits.append(Transmit(*parcel.run, chunk))
            taken.calls += len(chunk)
        else:
            place = len(taken.wanted)
            taken.wanted.append(parcel.lines)
            for address in chunk:
                taken.wanted_by[address].append(place)
            taken.pairs += len(chunk)
        taken.copies += len(chunk) * parcel.line_count
        self._charge(queue, taken, len(chunk), parcel.size_bytes)

    def _charge(self, queue: _Queue, taken: _Slice, count: int, size_bytes: int) -> None:
        cost_bytes = count * (size_bytes + COPY_COST_BYTES)
        queue.deficit_bytes -= cost_bytes
        queue.backlog_bytes -= cost_bytes
        self._backlog_bytes -= cost_bytes
        taken.bytes_left -= count * size_bytes

    def _unwanted(self, topic: bytes, line_count: int) -> None:
        # Topics in the table are canonical already; only unmatched ones need this check.
        self._drops[Drop.NO_SUBSCRIBER if wire.is_topic(topic) else Drop.TOPIC] += line_count

    def _packed_for_each(self, taken: _Slice) -> Iterator[Transmit]:
        """Packs each subscriber's lines together, once for subscribers who want the same."""
        audiences: defaultdict[tuple[int, ...], list[Address]] = defaultdict(list)
        for address, places in taken.wanted_by.items():
            audiences[tuple(places)].append(address)
        wanted = taken.wanted
        for chosen, addresses in audiences.items():
            lines = [line for place in chosen for line in wanted[place]]
            yield Transmit(*wire.pack_lines(lines, mark=self._mark), addresses)

    def _charge_uplink(self, transmits: list[Transmit], now: float) -> None:
        if self._uplink.per_s:
            for data, segment_bytes, destinations in (each[:3] for each in transmits):
                wire_bytes = len(data) + HEADER_BYTES * -(-len(data) // segment_bytes)
                self._uplink.take(wire_bytes * len(destinations), now)
