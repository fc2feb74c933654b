"""The life of a lease at one server: its states, and all that changes them. Sans-IO. PROTOCOL §7.

    state      take       again    grant   deny     hold    end

    wanted     asked      wanted   live    wanted   asked
    asked                 wanted   live    wanted   asked
    live       renewing   live     live    wanted   asked   wanted
    renewing              live     live    wanted   asked   asked

- *wanted*: it does not stand, and is due at a time. It may have a price (§5.11).
- *asked*: it does not stand; a request asks for it, or a stamp is looked for, or waits to be sent.
- *live*: the server's promise stands, and the renewal is due at a time.
- *renewing*: it stands; a request asks for it, or a stamp for its renewal is looked for, or waits.

`want` begins it as wanted, and `unwant` ends it in any state. An answer counts only if no later request was
answered before, and if its request was sent since the server has last forgotten us:

- *take*: it is due, and goes into a request, or a stamp is looked for.
- *again*: its request got lost, its stamp is of no use, or it is to be asked for at another time.
- *grant*, *deny*: the server has promised it, or says that it does not stand.
- *hold*: denied, but its stamp is sent again later.
- *end*: its time is over, or the server has forgotten us.

The renewal of a live one may have a price too, but not of the first few that the server has granted (§7.9).
So each has a *place* among the live ones, in the order in which they were granted: where renewals have a
price, those that were granted last may have to run out (`keep_at_most`). Times are in heaps, and entries stay
there when a time, state or place changes: an entry counts only if it still agrees with its lease.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from math import inf

from kcast.pubsub.limits import LEASES_KEPT_FREE


class State(StrEnum):
    """Where a lease is in its life."""

    WANTED = "wanted"
    ASKED = "asked"
    LIVE = "live"
    RENEWING = "renewing"


class Step(StrEnum):
    """What happens to a lease."""

    TAKE = "take"
    AGAIN = "again"
    GRANT = "grant"
    DENY = "deny"
    HOLD = "hold"
    END = "end"


_ANSWERS = {Step.GRANT: State.LIVE, Step.DENY: State.WANTED, Step.HOLD: State.ASKED}
TRANSITIONS = {
    State.WANTED: {Step.TAKE: State.ASKED, Step.AGAIN: State.WANTED} | _ANSWERS,
    State.ASKED: {Step.AGAIN: State.WANTED} | _ANSWERS,
    State.LIVE: {Step.TAKE: State.RENEWING, Step.AGAIN: State.LIVE, Step.END: State.WANTED} | _ANSWERS,
    State.RENEWING: {Step.AGAIN: State.LIVE, Step.END: State.ASKED} | _ANSWERS,
}
DUE = (State.WANTED, State.LIVE)  # at a time
STANDING = (State.LIVE, State.RENEWING)


class Place(IntEnum):
    """Where a lease is among those that stand. It decides whether its renewal may have a price."""

    NEW = 0  # it does not stand
    FIRST = 1  # one of the first that were granted
    MORE = 2
    LATER = 3  # granted after those that can be kept: not to be renewed


RENEWALS = (Place.FIRST, Place.MORE)
ALL = tuple(Place)

STALE_MAX = 64  # entries of a heap that count no more, beyond twice as many as there are leases


@dataclass(slots=True)
class _Lease:
    due_at: float  # when to ask for it, in a state that is DUE
    state: State = State.WANTED
    place: Place = Place.NEW
    asked_at: float = -inf  # when the request was sent that was answered last
    expires_at: float = -inf
    check_at: float = inf  # when `expire` looks at it next; renewals add no entry to the heap


class Leases:
    """The topics (wire form) wanted at one server: `size_bytes` in all, with their LF.

    `confirmed_at` is when the request was made that the server has answered by promising any of them.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.confirmed_at = -inf
        self._leases: dict[bytes, _Lease] = {}
        self._heaps: list[list[tuple[float, bytes]]] = [[] for _ in ALL]
        self._expiring: list[tuple[float, bytes]] = []
        self._void_at = -inf
        # The topics of each place, in the order in which they were granted; none are kept for NEW.
        self._places: list[dict[bytes, None]] = [{} for _ in ALL]
        self._more_max = inf

    def __len__(self) -> int:
        return len(self._leases)

    def want(self, topic: bytes, now: float) -> None:
        """Wants a lease from now on."""
        if topic not in self._leases:
            self._leases[topic] = _Lease(due_at=now)
            self.size_bytes += len(topic) + 1
            heapq.heappush(self._heaps[Place.NEW], (now, topic))

    def unwant(self, topic: bytes) -> None:
        """Lets a lease run out."""
        lease = self._leases.pop(topic, None)
        if lease is not None:
            if lease.state in STANDING:
                del self._places[lease.place][topic]
                self._move_up()
            self.size_bytes -= len(topic) + 1
            self._drop_stale()

    def is_wanted(self, topic: bytes) -> bool:
        """Whether it is wanted, in whatever state."""
        return topic in self._leases

    def is_live(self, topic: bytes) -> bool:
        """Whether the server has promised copies of this topic for now."""
        lease = self._leases.get(topic)
        return lease is not None and lease.state in STANDING

    @property
    def has_standing(self) -> bool:
        """Whether any stands."""
        return any(self._places)

    @property
    def has_new(self) -> bool:
        """Whether any is wanted that does not stand."""
        return len(self._leases) > sum(map(len, self._places))

    @property
    def room(self) -> float:
        """How many more could be kept, if they were granted."""
        return LEASES_KEPT_FREE + self._more_max - sum(map(len, self._places))

    # --- When they are due ----------------------------------------------------------------------------

    def next_due(self, places: Iterable[Place] = ALL) -> float | None:
        """Returns when the first lease of these places is due (perhaps too early, never too late), or
        None."""
        heaps = self._heaps
        return min([heaps[place][0][0] for place in places if heaps[place]], default=None)

    def first_due(self, places: Iterable[Place] = ALL) -> float | None:
        """Returns when the first lease of these places is due, or None."""
        return min([heap[0][0] for place in places if (heap := self._current(place))], default=None)

    def is_due(self, now: float, places: Iterable[Place] = ALL) -> bool:
        """Returns whether any lease of these places is to be asked for now."""
        due_at = self.next_due(places)
        if due_at is not None and due_at <= now:
            due_at = self.first_due(places)
        return due_at is not None and due_at <= now

    def next_expiry(self) -> float | None:
        """Returns when the first lease ends (perhaps too early, never too late), or None."""
        return self._expiring[0][0] if self._expiring else None

    # --- What happens to them -------------------------------------------------------------------------

    def take_due(
        self, until: float, count_max: int, size_bytes_max: int, places: Iterable[Place] = ALL
    ) -> list[bytes]:
        """Takes topics due by `until`, as many as fit with their LF, beginning with those due for longest."""
        topics: list[bytes] = []
        size_bytes = 0
        while len(topics) < count_max:
            # Renewals do not go first: where there are many, new leases would never have a turn.
            heaps = [heap for place in places if (heap := self._current(place))]
            heap = min(heaps, key=lambda heap: heap[0], default=[])
            if not heap or heap[0][0] > until:
                break
            topic = heap[0][1]
            size_bytes += len(topic) + 1
            if size_bytes > size_bytes_max:
                break
            heapq.heappop(heap)
            self._change(topic, self._leases[topic], Step.TAKE)
            topics.append(topic)
        return topics

    def ask_again(self, topics: Iterable[bytes], at: float) -> None:
        """Makes these topics due at another time, whoever has them."""
        for topic in topics:
            lease = self._leases.get(topic)
            if lease is not None:
                self._change(topic, lease, Step.AGAIN, at)

    def renew_all(self, now: float) -> None:
        """Makes all leases due now, except those that are being asked or paid for."""
        self.ask_again([topic for topic, lease in self._leases.items() if lease.state in DUE], now)

    def grant(self, topic: bytes, asked_at: float, expires_at: float, renew_at: float) -> bool:
        """Takes the server's promise; returns whether the lease did not stand before."""
        lease = self._answered(topic, asked_at)
        if lease is None:
            return False
        was_live = lease.state in STANDING
        self.confirmed_at = max(self.confirmed_at, asked_at)
        lease.expires_at = expires_at
        self._check_at_expiry(topic, lease)
        self._change(topic, lease, Step.GRANT, renew_at)
        return not was_live

    def deny(self, topic: bytes, asked_at: float, again_at: float) -> bool:
        """Takes the server's word that the lease does not stand; returns whether it did, as far as we knew.

        It is due again at `again_at`; where that is infinite, its stamp is sent again.
        """
        lease = self._answered(topic, asked_at)
        if lease is None:
            return False
        was_live = lease.state in STANDING
        self._change(topic, lease, Step.DENY if again_at < inf else Step.HOLD, again_at)
        return was_live

    def expire(self, now: float) -> list[bytes]:
        """Ends leases whose time is over; returns their topics."""
        ended = []
        while self._expiring and self._expiring[0][0] <= now:
            check_at, topic = heapq.heappop(self._expiring)
            if not self._is_checked_at(check_at, topic):
                continue
            lease = self._leases[topic]
            lease.check_at = inf
            if lease.expires_at > now:
                self._check_at_expiry(topic, lease)
            elif lease.state in STANDING:
                self._change(topic, lease, Step.END)
                ended.append(topic)
        return ended

    def void(self, now: float) -> list[bytes]:
        """Ends all leases, since the server knows none of them any more, and makes them due now; returns the
        topics of those that stood."""
        self._void_at = now
        ended = [topic for place in self._places for topic in place]
        for topic in ended:
            self._change(topic, self._leases[topic], Step.END)
        self.ask_again(self._leases, now)
        return ended

    # --- Their places ---------------------------------------------------------------------------------

    def keep_at_most(self, count: float) -> list[bytes]:
        """Lets all that stand run out but the first ones and `count` more, those granted first; returns
        those."""
        self._more_max = count
        more = self._places[Place.MORE]
        behind = list(more)[int(count) :] if count < len(more) else []
        later, self._places[Place.LATER] = self._places[Place.LATER], {}
        for topic in behind:
            self._put(topic, self._leases[topic], Place.LATER)
        self._places[Place.LATER] |= later
        self._move_up()
        return behind

    def put_behind(self, topics: Iterable[bytes]) -> None:
        """Takes it that others were granted before these: the server counts in another order."""
        for topic in topics:
            lease = self._leases.get(topic)
            if lease is not None and lease.state in STANDING:
                self._put(topic, lease, Place.NEW)
                self._move_up()
                self._put(topic, lease, self._last_place())

    def _last_place(self) -> Place:
        """Returns the place of one that is granted now."""
        if len(self._places[Place.FIRST]) < LEASES_KEPT_FREE:
            return Place.FIRST
        return Place.MORE if len(self._places[Place.MORE]) < self._more_max else Place.LATER

    def _move_up(self) -> None:
        """Fills the places that have become free, with those granted first of the rest."""
        _, first, more, later = self._places
        while len(first) < LEASES_KEPT_FREE and (rest := more or later):
            topic = next(iter(rest))
            self._put(topic, self._leases[topic], Place.FIRST)
        while len(more) < self._more_max and later:
            topic = next(iter(later))
            self._put(topic, self._leases[topic], Place.MORE)

    def _put(self, topic: bytes, lease: _Lease, place: Place) -> None:
        if lease.place is not Place.NEW:
            del self._places[lease.place][topic]
        if place is not Place.NEW:
            self._places[place][topic] = None
        lease.place = place
        if lease.state in DUE:
            heapq.heappush(self._heaps[place], (lease.due_at, topic))

    # --- How that is done -----------------------------------------------------------------------------

    def _change(self, topic: bytes, lease: _Lease, step: Step, due_at: float | None = None) -> None:
        """Moves a lease along the table; nothing else does."""
        was_standing = lease.state in STANDING
        lease.state = TRANSITIONS[lease.state][step]
        if due_at is not None:
            lease.due_at = due_at
        if was_standing == (lease.state in STANDING):
            if due_at is not None and lease.state in DUE:
                heapq.heappush(self._heaps[lease.place], (due_at, topic))
        elif was_standing:
            self._put(topic, lease, Place.NEW)
            self._move_up()
        else:
            self._put(topic, lease, self._last_place())

    def _answered(self, topic: bytes, asked_at: float) -> _Lease | None:
        """Returns the lease that an answer is about, where that counts."""
        lease = self._leases.get(topic)
        if lease is None or asked_at < max(lease.asked_at, self._void_at):
            return None
        lease.asked_at = asked_at
        return lease

    def _check_at_expiry(self, topic: bytes, lease: _Lease) -> None:
        if lease.expires_at < lease.check_at:
            lease.check_at = lease.expires_at
            heapq.heappush(self._expiring, (lease.expires_at, topic))

    def _current(self, place: Place) -> list[tuple[float, bytes]]:
        """Returns the heap of this place, beginning with an entry that counts, if there is any."""
        heap = self._heaps[place]
        while heap and not self._is_due_at(*heap[0], place):
            heapq.heappop(heap)
        return heap

    def _is_due_at(self, due_at: float, topic: bytes, place: Place) -> bool:
        """Whether an entry of this place's heap counts."""
        lease = self._leases.get(topic)
        return lease is not None and lease.due_at == due_at and lease.place is place and lease.state in DUE

    def _is_checked_at(self, check_at: float, topic: bytes) -> bool:
        """Whether an entry of the heap of expiries counts."""
        lease = self._leases.get(topic)
        return lease is not None and lease.check_at == check_at

    def _drop_stale(self) -> None:
        """Drops the entries that count no more of heaps that consist mostly of them.

        Those of topics that were unwanted would stay until they come first: for as long as a lease lasts, and
        for ever at a server that is never asked. At least half of a heap goes, so that this costs a constant
        time for each entry.
        """
        entries_max = 2 * len(self._leases) + STALE_MAX
        for place, heap in zip(ALL, self._heaps, strict=True):
            if len(heap) > entries_max:
                heap[:] = {entry for entry in heap if self._is_due_at(*entry, place)}
                heapq.heapify(heap)
        if len(self._expiring) > entries_max:
            self._expiring[:] = {entry for entry in self._expiring if self._is_checked_at(*entry)}
            heapq.heapify(self._expiring)
