"""Many messages of one topic that were published together, with one outcome. Sans-IO.

PROTOCOL §8.5. Each message has a draw of servers of its own, and what goes to one server is packed together
there. A batch is handed over as its servers take it: so it fills no queue, and what is still to be sent
avoids a server that is lost meanwhile. A message that a server does not answer goes to another one instead,
as a single one does.
"""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, groupby
from operator import attrgetter
from random import Random

from kcast.client.events import Outcome, PublishedMany
from kcast.client.publishing.routes import DRAWS_MAX, Draws, Route, Routes
from kcast.client.session.outbox import Settled
from kcast.client.session.requests import LINE_BYTES_MAX, Parcel
from kcast.client.session.session import Session

PARCELS_AHEAD = 64  # that wait at a server, which is a window's worth, before more are handed over

_handle = attrgetter("handle")


@dataclass(slots=True)
class Batch:
    """Messages of one topic, and what is known of them.

    `topic` is the one on which they travel, and `told_as` the one that they were published on. `lines` are
    their wire forms, with the LF; those before `handed_over` are on their way. `audience`, `servers` and
    `reasons` are as in `PublishedMany`.
    """

    handle: int
    topic: bytes
    told_as: bytes
    first_seq: int | None
    lines: Sequence[bytes]
    confirm: bool
    receipts: list[int]  # of each message
    handed_over: int = 0
    awaited: int = 0  # messages, each counted at each server
    draws: list[Draws] = field(default_factory=list)  # each but the last of DRAWS_MAX messages
    more: defaultdict[int, list[Session]] = field(default_factory=lambda: defaultdict(list))  # beside these
    servers: defaultdict[str, Counter[Outcome]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: dict[str, str] = field(default_factory=dict)
    audience: int | None = None

    def sent_to(self, number: int) -> Sequence[Session]:
        """Returns the servers that a message was sent to."""
        drawn = self.draws[number // DRAWS_MAX].of(number % DRAWS_MAX)
        return (*drawn, *self.more[number]) if number in self.more else drawn


class Batches:
    """All batches of a client whose outcome is not known yet; `messages` are in them.

    `touch` is called with each session that has something to send, `tell` with each outcome.
    """

    def __init__(
        self,
        rng: Random,
        routes: Routes,
        touch: Callable[[Session], None],
        tell: Callable[[PublishedMany], None],
    ) -> None:
        self.messages = 0
        self.waiting: dict[bytes, deque[Batch]] = {}  # by topic: those that are not handed over as a whole
        # Their topics, by a server that takes no more at present: nobody looks at them until it does. Those
        # by None were not looked at yet.
        self._held_up: defaultdict[Session | None, deque[bytes]] = defaultdict(deque)
        self._rng = rng
        self._routes = routes
        self._touch = touch
        self._tell = tell
        self._batches: dict[int, Batch] = {}

    @property
    def oldest(self) -> int | None:
        """The handle of the batch that was begun first, None where there is none."""
        return next(iter(self._batches), None)

    def begin(
        self,
        handle: int,
        topic: bytes,
        first_seq: int | None,
        lines: Sequence[bytes],
        confirm: bool,
        *,
        told_as: bytes | None = None,
    ) -> None:
        """Sends messages from the next `hand_over` on."""
        name = topic if told_as is None else told_as
        batch = Batch(handle, topic, name, first_seq, lines, confirm, [0] * len(lines))
        self.messages += len(lines)
        self._batches[handle] = batch
        if topic not in self.waiting:
            self.waiting[topic] = deque()
            self._held_up[None].append(topic)
        self.waiting[topic].append(batch)

    def hand_over(self, now: float) -> None:
        """Hands over as much as the servers that are alive take. What goes to others may find no room."""
        for session, topics in list(self._held_up.items()):
            while topics and (session is None or not _is_full(session)):
                topic = topics.popleft()
                if (full := self._hand_over_topic(topic, now)) is not None:
                    self._held_up[full].append(topic)
            if not topics:
                del self._held_up[session]

    def _hand_over_topic(self, topic: bytes, now: float) -> Session | None:
        """Hands over the batches of a topic, in order. Returns a server that takes no more before all is
        handed over, if there is one."""
        batches = self.waiting[topic]
        while batches:
            batch = batches[0]
            while batch.handed_over < len(batch.lines):
                route = self._routes.of(topic, now)
                full = next(filter(_is_full, route.candidates), None)
                if full is not None:
                    return full
                self._hand_over_some(batch, route)
            batches.popleft()
            self._finish_if_known(batch)
        del self.waiting[topic]
        return None

    def settle(self, parcels: Sequence[Parcel], settled: Settled, session: Session, now: float) -> None:
        """Takes what became of parcels at one server."""
        for handle, several in groupby(parcels, _handle):
            batch = self._batches.get(handle)
            if batch is not None:
                self._settle(batch, [parcel.numbers for parcel in several], settled, session, now)

    def _settle(
        self, batch: Batch, numbers: list[Sequence[int]], settled: Settled, session: Session, now: float
    ) -> None:
        """Takes what became of messages at one server. Their numbers are in several runs."""
        outcome, count = settled.outcome, sum(map(len, numbers))
        batch.awaited -= count
        batch.servers[session.name][outcome] += count
        if settled.reason:
            batch.reasons[session.name] = settled.reason
        if settled.audience is not None:
            batch.audience = max(settled.audience, batch.audience or 0)
        if outcome is Outcome.RECEIPT:
            for number in chain.from_iterable(numbers):
                batch.receipts[number] += 1
        if self._routes.wants_another(session, outcome, now):
            is_silent = outcome is Outcome.NO_ANSWER
            self._send_to_others(batch, [*chain.from_iterable(numbers)], now, only_warm=not is_silent)
        self._finish_if_known(batch)

    def _hand_over_some(self, batch: Batch, route: Route) -> None:
        start = batch.handed_over
        count = min(DRAWS_MAX, len(batch.lines) - start)
        draws = route.draw_many(self._rng, count)
        batch.draws.append(draws)
        batch.handed_over += count
        for session, positions in draws.by_session():
            if isinstance(positions, range):
                self._send_to(batch, session, range(start, start + count))
            else:
                self._send_to(batch, session, [start + position for position in positions])
        for session in route.leavers():
            self._send_to(batch, session, range(start, start + count))

    def _send_to_others(self, batch: Batch, numbers: Sequence[int], now: float, *, only_warm: bool) -> None:
        """Sends each of these messages to one server more, if there is one that is believed alive."""
        route = self._routes.of(batch.topic, now)
        again: defaultdict[Session, list[int]] = defaultdict(list)
        for number in numbers:
            another = route.another(batch.sent_to(number), self._rng, now, only_warm=only_warm)
            if another is not None:
                batch.more[number].append(another)
                again[another].append(number)
        for session, some in again.items():
            self._send_to(batch, session, some)

    def _send_to(self, batch: Batch, session: Session, numbers: Sequence[int]) -> None:
        if isinstance(numbers, range):
            lines = batch.lines[numbers.start : numbers.stop]
        else:
            lines = [batch.lines[number] for number in numbers]
        put = session.outbox.put
        for start, end in _runs(lines, LINE_BYTES_MAX, session.lines_max - 1):
            some = numbers[start:end]
            if put(Parcel(b"".join(lines[start:end]), batch.handle, batch.confirm, some)):
                batch.awaited += len(some)
            else:
                batch.servers[session.name][Outcome.QUEUE_FULL] += len(some)
        self._touch(session)

    def _finish_if_known(self, batch: Batch) -> None:
        if batch.awaited or batch.handed_over < len(batch.lines):
            return
        del self._batches[batch.handle]
        self.messages -= len(batch.lines)
        without_receipt = [number for number, count in enumerate(batch.receipts) if not count]
        self._tell(
            PublishedMany(
                batch.handle,
                batch.told_as,
                batch.first_seq,
                len(batch.lines),
                {name: dict(counts) for name, counts in batch.servers.items()},
                without_receipt,
                batch.audience,
                batch.reasons,
                Counter(batch.receipts),
            )
        )


def _is_full(session: Session) -> bool:
    return len(session.outbox) >= PARCELS_AHEAD and session.is_alive


def _runs(lines: Sequence[bytes], size_bytes_max: int, count_max: int) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each run of lines, as long as these bounds allow."""
    ends = list(accumulate(map(len, lines)))
    start = size_bytes = 0
    while start < len(lines):
        end = min(bisect_right(ends, size_bytes + size_bytes_max, start), start + count_max)
        yield start, end
        start, size_bytes = end, ends[end - 1]
