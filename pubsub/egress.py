"""What is to be sent, in what order, and how much at once. PROTOCOL §4.3. Sans-IO.

Published lines wait in a queue for each publisher (`kcast.pubsub.queues`). Queues take turns by deficit
round robin (Shreedhar and Varghese, 1995): a queue that has its turn may send a quantum, and what it
sends beyond is taken off its next ones; if that is more than a quantum, also when it has become empty.
All queues of a network share its turns (`kcast.pubsub.queues`). A publisher that had nothing waiting comes
first, as in FQ-CoDel (RFC 8290 §4.2), if what it wants sent fits in a quantum that all of its network
share until the next round. So bulk does not hold up sparse messages, and waits for its turns.

What the queues give is put together in a batch (`kcast.pubsub.batch`): each subscriber gets all its lines in
as few datagrams as possible, because a copy costs system calls, hardly bytes (`kcast.pubsub.router`). A burst
whose lines are all of one topic leaves as it came, without being cut into lines. There is a batch of those
who come first, and a batch of those whose turn it is, which is called a round. Batches leave in slices, which
are bounded in calls and bytes, and the driver receives between them. So one message to 100,000 subscribers
makes the server deaf to nobody.

A publisher's queue pays for the copies that it causes, but not for those to excess leases: they wait in a
queue of the party that holds those leases (`kcast.pubsub.audience`).

Whom a copy goes to is found when it is put in a batch. A batch that has not left within a second, because the
uplink is busy or the machine was suspended, is held against the table again.
"""

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from math import inf

from kcast.pubsub import wire
from kcast.pubsub.audience import LARGE, Excess
from kcast.pubsub.batch import COST_BYTES_MAX, LATE_S, Batch
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Transmit, datagram_count
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, HEADER_BYTES
from kcast.pubsub.networks import Networks
from kcast.pubsub.queues import (
    COPY_COST_BYTES,
    JOINED_BYTES_MAX,
    QUANTUM_BYTES,
    Lines,
    Parcel,
    Party,
    Queue,
    RoundRobin,
    Sender,
)
from kcast.pubsub.rates import Demand, Rate
from kcast.pubsub.router import PYTHON, Many, Router
from kcast.pubsub.subscribers import Subscribers
from kcast.pubsub.table import LeaseTable

BYTES_MAX = 4 * 1024 * 1024  # in a slice: a run to one subscriber is much longer than a line
PASSES_MAX = 4096  # of turns, to put a round together: about a millisecond
QUEUES_MAX = 256  # of a network that has more waiting than its part
BACKLOG_BYTES_MAX = 64 * 1024 * 1024  # of all queues, costs included: a third of a second or less
BACKLOG_S_MAX = 0.25  # ... and of an uplink whose rate is known
UPLINK_BURST_S = 0.01
BATCH_S_MAX = 0.02  # of an uplink whose rate is known: for so long nobody in a batch comes first


class Egress:
    """Queues of what publishers want sent to the subscribers in `table`.

    `subscribers` says what each may still be sent, and `networks` as whose what goes to excess leases waits.
    Counts `copies_sent` in `counts`, and what is not sent in `drops`. With `marks_copies` every datagram of
    copies begins with a blank line, as at an open server (§4.4). No more than `uplink_bytes_per_s` are sent,
    with headers; 0 is no limit.
    """

    def __init__(
        self,
        table: LeaseTable,
        subscribers: Subscribers,
        networks: Networks,
        counts: Counter[str],
        drops: Counter[Drop],
        *,
        marks_copies: bool = False,
        uplink_bytes_per_s: int = 0,
        router: Router = PYTHON,
    ) -> None:
        self._table = table
        self._subscribers = subscribers
        self._networks = networks
        self._counts = counts
        self._drops = drops
        self.marks_copies = marks_copies
        self._mark = b"\n" if marks_copies else b""
        self._uplink = Rate(uplink_bytes_per_s, UPLINK_BURST_S)
        self._backlog_bytes_max = int(uplink_bytes_per_s * BACKLOG_S_MAX) or BACKLOG_BYTES_MAX
        self._batch_bytes_max = uplink_bytes_per_s * BATCH_S_MAX or COST_BYTES_MAX
        self._backlog_bytes = 0
        self._queues: dict[Hashable, Queue] = {}
        self._parties: dict[Hashable, Party] = {}
        self._fresh: deque[Queue] = deque()  # those that had nothing waiting
        self._waiting: RoundRobin[Queue] = RoundRobin()
        self._packer = router.make_packer()
        # Of those who come first, and of those whose turn it is.
        self._first = Batch(router.make_packer, self._mark, self._batch_bytes_max)
        self._round = Batch(router.make_packer, self._mark, self._batch_bytes_max)
        self._in_round: set[Hashable] = set()  # whose it is
        self._first_bytes: dict[Hashable, int] = {}  # what each network has had of its quantum in it

    @property
    def backlog_bytes(self) -> int:
        """What waits to be sent, with what each copy costs beside its bytes."""
        return self._backlog_bytes

    def ready_at(self, now: float) -> float:
        """Returns when more can be sent, `now` if at once; infinity if nothing waits."""
        is_any_left = self._queues or self._first.copies or self._round.ready
        return self._uplink.ready_at(now) if is_any_left else inf

    # --- What comes in -------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so much waits that not all senders have room for more."""
        return self._backlog_bytes >= self._backlog_bytes_max

    def has_room(self, sender: Sender) -> bool:
        """Whether more of this sender can wait: yes, unless much waits, and its network has more than its
        part of that, and the sender more than its part of the network's."""
        if not self.is_full:
            return True
        party = self._parties.get(sender.party)
        if party is None:
            return True
        part_bytes = self._backlog_bytes_max / len(self._parties)
        if party.backlog_bytes < part_bytes:
            return True
        queue = self._queues.get(sender.name)
        if queue is None:
            return party.queues < QUEUES_MAX
        return queue.backlog_bytes * party.queues < part_bytes

    def put(self, sender: Sender, data: bytes, segment_bytes: int, demand: Demand, now: float) -> None:
        """Takes datagrams of `segment_bytes`, all whose lines are publishes. `demand` is what they cause."""
        cost_bytes = _backlog_of(demand)
        if self._comes_first(sender, cost_bytes):
            self._first_bytes[sender.party] = self._first_bytes.get(sender.party, 0) + cost_bytes
            _, left = self._add_lines(self._first, data, sender, now)
            if left:
                self._queue_left(self._queue_of(sender), left)
            return
        queue = self._queue_of(sender)
        if (large := self._large_topics(data, demand, now)) is None:
            queue.add_lines(data, segment_bytes, demand.copies, cost_bytes)
            self._hold(queue, cost_bytes)
            return
        for topic, lines in large.items():
            parcel = self._parcel(topic, lines)
            self._hold(queue, parcel.backlog_bytes)
            queue.add(parcel)

    def put_run(
        self, sender: Sender, data: bytes, segment_bytes: int, topic: bytes, demand: Demand, now: float
    ) -> None:
        """Takes a burst of one topic, to leave as it came and after what came before it.

        What waits for its turn is joined with the burst before, as far as both fit in a call.
        """
        assert not self._mark
        if len(data) > JOINED_BYTES_MAX:
            route = self._table.routes(now)[topic]
            cost_bytes = len(route) * (len(data) + COPY_COST_BYTES)
            if isinstance(route, tuple) and self._comes_first(sender, cost_bytes):
                self._first_bytes[sender.party] = self._first_bytes.get(sender.party, 0) + cost_bytes
                run = Transmit(data, segment_bytes, route, demand.lines)
                self._first.add_run(run, sender.name, cost_bytes, now)
                return
        queue, backlog_bytes = self._queue_of(sender), _backlog_of(demand)
        queue.add(Parcel(topic, data, segment_bytes, demand.lines, backlog_bytes))
        self._hold(queue, backlog_bytes)

    def _comes_first(self, sender: Sender, cost_bytes: int) -> bool:
        """Whether what costs so much may be put in the first batch at once, without a queue."""
        return (
            sender.name not in self._queues
            and self._first_bytes.get(sender.party, 0) + cost_bytes <= QUANTUM_BYTES
            and sender.name not in self._in_round  # nobody overtakes what he has sent before
            and not self._first.is_leaving
            and self._first.has_room
        )

    def _queue_of(self, sender: Sender, *, may_come_first: bool = True) -> Queue:
        return self._queues.get(sender.name) or self._begin(sender, may_come_first)

    def _hold(self, queue: Queue, backlog_bytes: int) -> None:
        """Counts what waits in a queue now; less than 0 is what no longer does."""
        queue.backlog_bytes += backlog_bytes
        queue.party.backlog_bytes += backlog_bytes
        self._backlog_bytes += backlog_bytes

    def _begin(self, sender: Sender, may_come_first: bool) -> Queue:
        party = self._parties.get(sender.party)
        if party is None:
            party = self._parties[sender.party] = Party()
        party.queues += 1
        queue = self._queues[sender.name] = Queue(sender, party)
        if may_come_first and sender.name not in self._in_round:  # nobody overtakes what he has sent before
            self._fresh.append(queue)
        else:
            self._waiting.add(queue, sender.networks)
        return queue

    def _end(self, queue: Queue) -> None:
        sender, party = queue.sender, queue.party
        party.queues -= 1
        if not party.queues:
            del self._parties[sender.party]
        del self._queues[sender.name]

    # --- What goes out -------------------------------------------------------------------------------

    def next_slice(self, now: float) -> list[Transmit]:
        """Returns the next copies to send; none while the uplink is taken."""
        bytes_left = min(BYTES_MAX, self._uplink.left(now)) if self._uplink.per_s else BYTES_MAX
        batch = self._next_batch(now) if bytes_left > 0 else None
        calls_left = batch.calls_of_slice if batch else 0
        transmits: list[Transmit] = []
        copies, refused = 0, self._subscribers.refused
        fullness = 0.0  # of the batches that have left in this slice
        while batch and batch.ready:
            taken = batch.take(calls_left, bytes_left)
            transmits += taken.transmits
            copies += taken.copies
            calls_left -= taken.calls
            bytes_left -= taken.size_bytes
            if batch.ready:
                break
            fullness += batch.fullness
            batch.clear()
            if calls_left <= 0 or bytes_left <= 0 or fullness >= 0.5:
                break
            if not self._queues and not self._round.ready:  # as after most of a quiet server's turns
                self._in_round.clear()
                self._first_bytes.clear()
                break
            batch = self._next_batch(now)
        if transmits and self._subscribers:
            transmits = [part for each in transmits for part in self._subscribers.granted(each, now)]
        self._counts["copies_sent"] += copies - (self._subscribers.refused - refused)
        self.charge_uplink(transmits, now)
        return transmits

    def _next_batch(self, now: float) -> Batch | None:
        """Returns the batch that leaves next, which is put together if need be; None if nothing waits.

        Nothing may be ready in it yet, where to put it together takes longer than a slice may.
        """
        first = self._first
        if first.ready:
            self._drop_late(first, now)
        if not first.is_leaving:
            if self._fresh:
                self._put_first_together(now)
            if first.copies:
                first.pack()
                self._drop_late(first, now)
        if first.ready:
            return first
        self._drop_late(self._round, now)
        if not self._round.ready:
            self._in_round.clear()
            self._first_bytes.clear()
            if not self._waiting:
                return None
            self._put_round_together(now)
            self._drop_late(self._round, now)
        return self._round

    def _drop_late(self, batch: Batch, now: float) -> None:
        if batch.ready and now > batch.found_at + LATE_S:
            if late := batch.drop_late(self._table, now):
                self._drops[Drop.LATE] += late
            if not batch.ready:
                batch.clear()

    def _put_first_together(self, now: float) -> None:
        """Takes all of those who had nothing waiting, as far as the quanta of their networks go."""
        batch = self._first
        while self._fresh and batch.has_room:
            queue = self._fresh.popleft()
            sender = queue.sender
            first_bytes = self._first_bytes.get(sender.party, 0) + queue.backlog_bytes
            if first_bytes <= QUANTUM_BYTES:
                self._first_bytes[sender.party] = first_bytes
                self._serve(queue, batch, now)
            if queue.parcels:
                self._waiting.add(queue, sender.networks)
            else:
                self._end(queue)

    def _put_round_together(self, now: float) -> None:
        """Takes what queues give by turns."""
        batch = self._round
        for _ in range(PASSES_MAX):
            if not self._waiting or not batch.has_room:
                break
            queue = self._waiting.first()
            if queue.deficit_bytes <= 0:
                queue.deficit_bytes += QUANTUM_BYTES
                self._waiting.pass_on()
                continue
            if queue.parcels:
                self._in_round.add(queue.sender.name)
                self._serve(queue, batch, now)
            if not queue.parcels and queue.deficit_bytes > -QUANTUM_BYTES:  # else it owes others their turns
                self._waiting.remove_first()
                self._end(queue)
        batch.pack()

    def _serve(self, queue: Queue, batch: Batch, now: float) -> None:
        """Takes from a queue what its deficit and the batch allow."""
        while queue.parcels and queue.deficit_bytes > 0 and batch.has_room:
            parcel = queue.parcels[0]
            if isinstance(parcel, Lines):
                queue.parcels.popleft()
                self._take_lines(queue, parcel, batch, now)
            else:
                self._take_chunk(queue, parcel, batch, now)

    def _take_lines(self, queue: Queue, lines: Lines, batch: Batch, now: float) -> None:
        """Takes lines for whoever has leased their topics."""
        cost_bytes, left = self._add_lines(batch, lines.data, queue.sender, now)
        queue.deficit_bytes -= cost_bytes
        self._hold(queue, -lines.backlog_bytes)
        if left:
            self._queue_left(queue, left)

    def _add_lines(self, batch: Batch, data: bytes, sender: Sender, now: float) -> tuple[int, list[bytes]]:
        """Puts lines in a batch; returns what they cost, and those that were left: see `_queue_left`."""
        copies, size_bytes, left = batch.add_lines(data, self._table.routes(now), sender.name, now)
        cost_bytes = size_bytes + COPY_COST_BYTES * copies
        batch.cost_bytes += cost_bytes
        return cost_bytes, left

    def _queue_left(self, queue: Queue, left: list[bytes]) -> None:
        """Makes parcels of lines whose topics have large audiences, and drops those that nobody wants."""
        for topic, lines in reversed(wire.by_topic(left).items()):
            if not self._table.audience_count(topic):
                self.drop_unwanted(topic, len(lines))
                continue
            parcel = self._parcel(topic, lines)
            self._hold(queue, parcel.backlog_bytes)
            queue.parcels.appendleft(parcel)

    def _large_topics(self, data: bytes, demand: Demand, now: float) -> dict[bytes, list[bytes]] | None:
        """Returns lines by topic if all their topics have large audiences; else None."""
        if demand.copies <= LARGE * demand.lines:
            return None
        routes = self._table.routes(now)
        found = wire.by_topic(filter(None, data.split(b"\n")))
        return found if all(isinstance(routes[topic], Many) for topic in found) else None

    def _parcel(self, topic: bytes, lines: list[bytes]) -> Parcel:
        data = b"\n".join(lines) + b"\n"
        backlog_bytes = self._table.paid_count(topic) * (len(data) + COPY_COST_BYTES)
        return Parcel(topic, data, 0, len(lines), backlog_bytes)

    def drop_unwanted(self, topic: bytes, line_count: int) -> None:
        """Counts lines that nobody wants."""
        # Topics in the table are canonical already; only unmatched ones need this check.
        self._drops[Drop.NO_SUBSCRIBER if wire.is_topic(topic) else Drop.TOPIC] += line_count

    def _take_chunk(self, queue: Queue, parcel: Parcel, batch: Batch, now: float) -> None:
        """Takes the next chunk of the first parcel."""
        if parcel.audience is None:
            queue.begin(parcel)
            parcel.audience, parties = self._table.split_subscribers(parcel.topic, now)
            parcel.found_at = now
            for excess in parties:
                self._put_to_excess(parcel, excess, now)
            if not parcel.audience:
                if not parties:
                    self._drops[Drop.NO_SUBSCRIBER] += parcel.line_count
                queue.parcels.popleft()
                self._hold(queue, -parcel.backlog_bytes)
                return
        chunk, backlog_bytes = parcel.take_chunk()
        cost_bytes = len(chunk) * parcel.copy_cost_bytes
        queue.deficit_bytes -= cost_bytes
        self._hold(queue, -backlog_bytes)
        is_alone = len(self._queues) == len(queue.parcels) == 1
        if parcel.is_done:
            queue.parcels.popleft()
        sender = queue.sender.name
        if not parcel.segment_bytes and len(parcel.data) <= DATAGRAM_BYTES_MAX // 2 and not is_alone:
            copies = len(chunk) * parcel.line_count
            batch.add_lines_for(parcel.data, chunk, copies, sender, cost_bytes, parcel.found_at)
            return
        if not parcel.segment_bytes:
            # Enough to fill a datagram alone, or alone in the batch, so it is packed once for all its
            # subscribers. If it were copied for each set of topics, a few busy topics in many sets could fill
            # the memory.
            self._packer.add_for(parcel.data, chunk[:1])
            ((parcel.data, parcel.segment_bytes, _, _),) = self._packer.pack(self._mark)
        run = Transmit(parcel.data, parcel.segment_bytes, chunk, parcel.line_count)
        batch.add_run(run, sender, cost_bytes, parcel.found_at)

    def _put_to_excess(self, parcel: Parcel, excess: Excess, now: float) -> None:
        """Takes what goes beyond what publishers pay for: it waits as if the party had published it."""
        sender = self._sender_of(excess)
        if not self.has_room(sender):
            self._drops[Drop.CROWD] += parcel.line_count * len(excess.members)
            return
        backlog_bytes = parcel.copy_cost_bytes * len(excess.members)
        theirs = Parcel(parcel.topic, parcel.data, parcel.segment_bytes, parcel.line_count, backlog_bytes)
        theirs.audience, theirs.found_at = excess.members, now
        queue = self._queue_of(sender, may_come_first=False)
        queue.parcels.append(theirs)
        self._hold(queue, backlog_bytes)

    def _sender_of(self, excess: Excess) -> Sender:
        *wider, narrowest = (share for share, _ in reversed(self._networks.shares_of(excess.members[0])))
        networks = wider if excess.party == narrowest else wider[:1]
        return Sender(("crowd", excess.party), wider[0], tuple(networks))

    def charge_uplink(self, transmits: Sequence[Transmit], now: float) -> None:
        """Takes what is sent off what the uplink has room for."""
        if not self._uplink.per_s:
            return
        for data, segment_bytes, destinations in (each[:3] for each in transmits):
            wire_bytes = len(data) + HEADER_BYTES * datagram_count(len(data), segment_bytes)
            # Answers are sent though nothing is left: their debt must not keep copies waiting for long.
            self._uplink.charge(wire_bytes * len(destinations), now, owed_max=self._uplink.per_s)


def _backlog_of(demand: Demand) -> int:
    return demand.size_bytes + COPY_COST_BYTES * demand.copies
