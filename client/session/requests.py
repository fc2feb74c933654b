"""The requests that one server was asked and has not answered yet; the cookies that its answers brought, and
how long they took. Sans-IO. PROTOCOL §5.10, §6, §7.4.

All that leaves in one flush is a *round*. Some requests of a round may get lost on the way, and several that
get no answer may be one silence. So silence is counted by rounds: an unanswered request says something about
the server only if nothing of its round or of a later one was answered, and if it left after the last silence
that was counted.
"""

import heapq
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from math import inf
from random import Random
from typing import NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.limits import COOKIE_CHARS, DATAGRAM_BYTES_MAX, NONCE_CHARS_MAX

NONCE_BYTES = 8
STAMP_CHARS_MAX = 22
LATE_MAX = 256  # requests given up whose late answers are still of use

COOKIE_MARGIN_S = 8.0  # stop using a cookie this long before the server stops taking it

TIMEOUT_S_FIRST = 1.0  # before the first answer
TIMEOUT_S_MIN = 0.5  # a loaded machine answers late; calling it dead costs more than waiting
TIMEOUT_S_MAX = 3.0

# The longest first line: nonce, cookie and stamp (§5.4).
VOUCH_BYTES_MAX = len("%!   \n") + NONCE_CHARS_MAX + COOKIE_CHARS + STAMP_CHARS_MAX
LINE_BYTES_MAX = DATAGRAM_BYTES_MAX - VOUCH_BYTES_MAX  # so that every line can be vouched for


class Cookie(NamedTuple):
    """A cookie (§6), when it was asked for, and in which era. An era ends when the server has forgotten
    us."""

    text: bytes
    asked_at: float
    era: int

    def serves(self, life_s: float, now: float) -> bool:
        """Returns whether the server will take it, with a margin. It is no older than the request for it."""
        return now - self.asked_at < life_s - COOKIE_MARGIN_S


@dataclass(frozen=True, slots=True)
class Stamped:
    """New leases, in order, with the stamp that pays for them under this cookie, at `bits` each (§5.11)."""

    cookie: Cookie
    topics: Sequence[bytes]
    bits: int
    stamp: bytes


@dataclass(slots=True)
class Parcel:
    """Lines to publish, each with its LF, that stay together on their way to one server: mostly one.

    Of several, `numbers` tell which messages of a batch they are. `tries_left` is the number of times that it
    may be sent again.
    """

    text: bytes
    handle: int
    confirm: bool
    numbers: Sequence[int] = ()
    tries_left: int = 1

    @property
    def line_count(self) -> int:
        """The number of its lines."""
        return len(self.numbers) or 1

    def pieces(self, lines_max: int) -> "Iterator[Parcel]":
        """Yields parcels of at most `lines_max` lines, which are this one together."""
        if self.line_count <= lines_max:
            yield self
            return
        lines = [line + b"\n" for line in self.text.split(b"\n")[:-1]]
        for start in range(0, len(lines), lines_max):
            some = slice(start, start + lines_max)
            yield replace(self, text=b"".join(lines[some]), numbers=self.numbers[some])


class Kind(StrEnum):
    """What a request asks for."""

    ASK = auto()  # a cookie
    LEASES = auto()  # leases, new or renewed; without any it only shows the cookie
    PAID = auto()  # new leases, with a stamp
    PUBLISH = auto()
    PING = auto()


CONTROL = (Kind.ASK, Kind.LEASES, Kind.PAID)


@dataclass(slots=True)
class Request:
    """A request that left at `sent_at`, with what it was about."""

    kind: Kind
    nonce: bytes
    round: int
    sent_at: float
    deadline: float
    cookie: Cookie | None = None  # the one it showed, if any
    topics: Sequence[bytes] = ()
    parcels: Sequence[Parcel] = ()
    stamped: Stamped | None = None
    mark: int = 0  # of what had left for the server, with it (`kcast.client.session.outbox`)

    @property
    def is_control(self) -> bool:
        """Whether it is about cookie and leases, and not about messages."""
        return self.kind in CONTROL

    def fits(self, reply: wire.Reply) -> bool:
        """Whether a reply is of a kind that answers this request."""
        if self.kind is Kind.PING:
            return isinstance(reply, wire.Pong)
        if self.kind is Kind.ASK:
            return isinstance(reply, wire.Challenge)
        return isinstance(reply, wire.Challenge | wire.Receipt | wire.Refusal)


class Backoff:
    """The time to go on after a failure: at once after the first, twice as late after each further one."""

    def __init__(self) -> None:
        self.not_before = -inf
        self._delay_s = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether something has failed since the last reset."""
        return self._delay_s > 0

    def failed(self, now: float, since: float, delay_s_min: float, delay_s_max: float) -> None:
        """Notes a failure. The time to wait counts from `since`, and may be over already."""
        self.not_before = max(now, since + self._delay_s)
        self._delay_s = min(max(2 * self._delay_s, delay_s_min), delay_s_max)

    def reset(self) -> None:
        """Makes the next failure a first one."""
        self.not_before = -inf
        self._delay_s = 0.0


class Requests:
    """The requests to one server that are under way, and those given up of late."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._round_trip = RoundTripTime()
        self._waiting: dict[bytes, Request] = {}
        self._counts = dict.fromkeys(Kind, 0)
        self._deadlines: list[tuple[float, bytes]] = []
        self._late: OrderedDict[bytes, Request] = OrderedDict()
        self._round = self._heard_round = self._missed_round = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def timeout_s(self) -> float:
        """Seconds for which an answer is awaited now."""
        return self._round_trip.timeout_s

    def count(self, *kinds: Kind) -> int:
        """Returns the number of requests of these kinds that are under way."""
        return sum([self._counts[kind] for kind in kinds])

    def begin_round(self) -> None:
        """Begins a round: what is opened from now on leaves together."""
        self._round += 1

    def open(
        self,
        kind: Kind,
        now: float,
        *,
        cookie: Cookie | None = None,
        topics: Sequence[bytes] = (),
        parcels: Sequence[Parcel] = (),
        stamped: Stamped | None = None,
    ) -> Request:
        """Returns a request that leaves now, with a nonce of its own."""
        nonce = urlsafe_b64encode(self._rng.randbytes(NONCE_BYTES)).rstrip(b"=")
        deadline = now + self._round_trip.timeout_s
        request = Request(kind, nonce, self._round, now, deadline, cookie, topics, parcels, stamped)
        self._waiting[nonce] = request
        self._counts[kind] += 1
        heapq.heappush(self._deadlines, (deadline, nonce))
        return request

    def take(self, reply: wire.Reply) -> Request | None:
        """Returns the request that this answers, which then waits no longer; None where it answers
        nothing."""
        request = self._waiting.get(reply.nonce)
        if request is not None and request.fits(reply):
            self._remove(request)
            return request
        request = self._late.get(reply.nonce)
        if request is not None and request.fits(reply):
            return self._late.pop(reply.nonce)
        return None

    def control_of(self, nonce: bytes) -> Request | None:
        """Returns the request for a cookie or leases that has this nonce, also one given up of late."""
        request = self._waiting.get(nonce) or self._late.get(nonce)
        return request if request is not None and request.is_control else None

    def heard(self, request: Request, now: float) -> bool:
        """Takes note of an answer; returns whether no later request has been answered before."""
        self._round_trip.observe(now - request.sent_at)
        is_newest = request.round >= self._heard_round
        self._heard_round = max(self._heard_round, request.round)
        return is_newest

    def is_silence(self, request: Request) -> bool:
        """Returns whether this unanswered request is a silence of the server, and not one lost datagram."""
        return request.round > max(self._heard_round, self._missed_round)

    def count_silence(self) -> None:
        """Counts all that has left by now as one silence."""
        self._missed_round = self._round

    def next_deadline(self) -> float:
        """Returns when the first answer is overdue; infinite where none is awaited."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else inf

    def give_up(self, now: float | None = None) -> list[Request]:
        """Returns the requests that are overdue by now, or all where no time is given; they wait no
        longer."""
        overdue = []
        while self._deadlines and (now is None or self._deadlines[0][0] <= now):
            request = self._waiting.get(heapq.heappop(self._deadlines)[1])
            if request is not None:
                self._remove(request)
                overdue.append(request)
                self._remember_late(request)
        return overdue

    def give_up_shown(self, era: int) -> list[Request]:
        """Returns the publishes that showed a cookie of this era; they wait no longer."""
        shown = [
            request
            for request in self._waiting.values()
            if request.kind is Kind.PUBLISH and request.cookie is not None and request.cookie.era == era
        ]
        for request in shown:
            self._remove(request)
            self._remember_late(request)
        return shown

    def move(self, answered: Request | None = None) -> list[Request]:
        """Gives up all requests, and forgets what was learnt of the path, since another address is asked
        now. The answer of one, from there, is still to be taken."""
        given_up = self.give_up()
        self._late.clear()
        if answered is not None:
            self._late[answered.nonce] = answered
        self._round_trip = RoundTripTime()
        return given_up

    def _remove(self, request: Request) -> None:
        del self._waiting[request.nonce]
        self._counts[request.kind] -= 1

    def _remember_late(self, request: Request) -> None:
        # A late answer must still teach how long answers take: otherwise a path that has become slow would
        # look dead for ever. What became of its messages is settled already.
        self._late[request.nonce] = replace(request, parcels=())
        if len(self._late) > LATE_MAX:
            self._late.popitem(last=False)


class Cookies:
    """The newest cookie from one server, and the era in which we are there."""

    def __init__(self) -> None:
        self.era = 0
        self._newest: Cookie | None = None

    def keep(self, text: bytes, asked_at: float) -> bool:
        """Takes a cookie that answers a request of this time; returns False where a newer one is known."""
        if self._newest is not None and asked_at < self._newest.asked_at:
            return False
        self._newest = Cookie(text, asked_at, self.era)
        return True

    def serving(self, life_s: float, now: float) -> Cookie | None:
        """Returns the newest cookie if the server will take it at this age."""
        return self._newest if self._newest is not None and self._newest.serves(life_s, now) else None

    def is_of_now(self, cookie: Cookie | None) -> bool:
        """Whether a request showed a cookie, and one of this era."""
        return cookie is not None and cookie.era == self.era

    def begin_era(self) -> None:
        """Forgets the cookie, since the server has forgotten us."""
        self.era += 1
        self._newest = None


class RoundTripTime:
    """The smoothed round-trip time to one peer, and its variation, in seconds (RFC 6298).

    `first_s` is the time to wait before the first answer, `least_s` the least one later; by default those
    for servers.
    """

    def __init__(self, first_s: float | None = None, least_s: float = TIMEOUT_S_MIN) -> None:
        self._first_s = TIMEOUT_S_FIRST if first_s is None else first_s
        self._least_s = least_s
        self._smoothed_s: float | None = None
        self._variation_s = 0.0

    def observe(self, rtt_s: float) -> None:
        """Takes the time of one answer. A nonce tells which request it answers, so every answer counts."""
        if self._smoothed_s is None:
            self._smoothed_s, self._variation_s = rtt_s, rtt_s / 2
            return
        self._variation_s += (abs(rtt_s - self._smoothed_s) - self._variation_s) / 4
        self._smoothed_s += (rtt_s - self._smoothed_s) / 8

    @property
    def timeout_s(self) -> float:
        """The time to wait: the smoothed time and four variations, within bounds."""
        if self._smoothed_s is None:
            return self._first_s
        return min(max(self._smoothed_s + 4 * self._variation_s, self._least_s), TIMEOUT_S_MAX)


# --- What answers say (PROTOCOL §5.7 to §5.11) --------------------------------------------------------


def refused_topics(refusal: wire.Refusal, topics: Iterable[bytes]) -> list[bytes]:
    """Returns those of the topics asked for that the refusal names; all of them where it names none."""
    lines = -1 if refusal.lines is None else refusal.lines
    return [topic for index, topic in enumerate(topics) if lines >> index & 1]


def fewer_lines(refusal: wire.Refusal, line_count: int) -> int:
    """Returns the number of lines that the server says a datagram may have, or half of what it refused where
    it says nothing that helps."""
    lines_max = number(refusal.attributes.get("lines"))
    return line_count // 2 if lines_max is None or lines_max >= line_count else lines_max


def number(text: str | None, digits_max: int = 7) -> int | None:
    """Returns an attribute's whole number of at most `digits_max` digits; None for anything else."""
    return int(text) if text is not None and text.isdigit() and len(text) <= digits_max else None
