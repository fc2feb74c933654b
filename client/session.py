"""One client's dealings with one server: cookie, leases, publishes, and whether it is alive. Sans-IO.

PROTOCOL §7. A server never speaks first but for copies, so all that a client knows of it comes from answers
to its own requests. Two kinds are kept apart:

- *Control*: asking for a cookie, and asking for leases. One request at a time; when it is not answered in
  time it is sent again, each time later. After three unanswered ones the server counts as lost, and is asked
  once a renewal interval, so that all leases stand again soon after it has come back.
- *Publishes*: as many at a time as there are. One that is not answered is not sent here again (the core may
  draw another server for it), but casts suspicion, and control then finds out.

A vouched request that is answered with a cookie (`%=`) was not carried out. If the cookie it showed was
young, the server has restarted, or our address has changed in a NAT; either way our leases there are gone,
and all of them are asked for at once.
"""

import heapq
from base64 import urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from random import Random

from client.cluster import ServerEntry
from client.events import Outcome
from client.leases import Leases
from client.rtt import RoundTripTime
from pubsub import wire
from pubsub.endpoint import Address
from pubsub.limits import (
    COOKIE_CHARS,
    COOKIE_LEASE_LIFE_S,
    COOKIE_PUBLISH_LIFE_S,
    DATAGRAM_BYTES_MAX,
    LINES_PER_DATAGRAM_MAX,
    NONCE_CHARS_MAX,
    RENEWAL_INTERVAL_S_MAX,
    RENEWALS_PER_TTL,
)

NONCE_BYTES = 8
COOKIE_MARGIN_S = 8.0  # stop using a cookie this long before the server stops taking it
LOST_AFTER_MISSES = 3
PING_INTERVAL_S = 1.0
ASK_INTERVAL_S = 5.0  # between questions to a lost server that never told its ttl
LATE_MAX = 256  # requests given up whose late answers still teach something
QUEUE_MAX = 4096  # lines that wait for one server's cookie

# The longest first line: nonce, cookie, and a stamp of at most 22 characters (§5.4).
VOUCH_BYTES_MAX = len("%!   \n") + NONCE_CHARS_MAX + COOKIE_CHARS + 22
LINE_BYTES_MAX = DATAGRAM_BYTES_MAX - VOUCH_BYTES_MAX  # so that every line can be vouched for
_PONG_BYTES = len("%: 11-of-nonce 1000000\n")  # a ping rides in a datagram at least as long as its answer


class Change(Enum):
    """What a session reports to the core besides outcomes."""

    LEASES = auto()
    REFUSED = auto()
    LOST = auto()
    RETURNED = auto()
    TRUSTED = auto()
    FORGOT = auto()


@dataclass(slots=True)
class Notice:
    """Something changed: `change`, with the topic (wire form) and reason where they apply."""

    change: Change
    topic: bytes = b""
    reason: str = ""


@dataclass(slots=True)
class Settled:
    """A publish line's fate at this server."""

    handle: int
    outcome: Outcome


@dataclass(slots=True)
class _Line:
    line: bytes
    handle: int
    confirm: bool
    tries_left: int = 1  # beyond the first


@dataclass(slots=True)
class _Request:
    nonce: bytes
    sent_at: float
    deadline: float
    cookie: bytes | None = None  # the one it showed, if any
    cookie_at: float = -inf  # when that was asked for
    topics: Sequence[bytes] = ()
    lines: Sequence[_Line] = ()
    is_ping: bool = False

    def fits(self, reply: wire.Reply) -> bool:
        """Whether a reply is of a kind that answers this request."""
        if self.is_ping:
            return isinstance(reply, wire.Pong)
        if self.cookie is None:
            return isinstance(reply, wire.Challenge)
        return isinstance(reply, wire.Challenge | wire.Receipt | wire.Refusal)


class Session:
    """The state that a client keeps about one server. `notices` and `settled` are drained by the core."""

    def __init__(self, server: ServerEntry, address: Address, rng: Random) -> None:
        self.server = server
        self.address = address
        self.notices: list[Notice] = []
        self.settled: list[Settled] = []
        self.ttl_s: float | None = None
        self.is_lost = False
        self.is_suspected = False
        self.warm_at = -inf
        self._rng = rng
        self._cookie: bytes | None = None
        self._cookie_at = -inf
        self._publish_lease_until = -inf
        self._pinged_at = -inf
        self._round_trip = RoundTripTime()
        self._misses = 0
        self._challenges_in_a_row = 0
        self._control: _Request | None = None
        self._control_not_before = -inf
        self._in_flight: dict[bytes, _Request] = {}
        self._deadlines: list[tuple[float, bytes]] = []
        self._late: OrderedDict[bytes, _Request] = OrderedDict()
        self._leases = Leases()
        self._queue: deque[_Line] = deque()
        self._again: list[_Line] = []  # to be sent again, before the queue

    # --- What the core asks of it --------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether it is believed to answer; a server never asked is given the benefit of the doubt."""
        return not self.is_suspected and not self.is_lost

    @property
    def renewal_interval_s(self) -> float:
        """How often leases are renewed (§7.3), or the server is asked while its ttl is not known."""
        if self.ttl_s is None:
            return ASK_INTERVAL_S
        return min(self.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)

    def is_warm(self, now: float) -> bool:
        """Whether subscribers have had the time to lease again since it came back (one renewal)."""
        return now >= self.warm_at

    def want(self, topic: bytes, now: float) -> None:
        """Holds a lease on this topic (wire form) from now on."""
        self._leases.want(topic, now)

    def unwant(self, topic: bytes) -> None:
        """Lets the lease run out."""
        self._leases.unwant(topic)

    def is_leased(self, topic: bytes) -> bool:
        """Whether the server has promised copies of this topic for now."""
        return self._leases.is_live(topic)

    def publish(self, line: bytes, handle: int, confirm: bool) -> bool:
        """Sends a line (with its LF) with the next flush; False where too much waits already."""
        if len(self._queue) + len(self._again) >= QUEUE_MAX:
            return False
        self._queue.append(_Line(line, handle, confirm))
        return True

    # --- Time ----------------------------------------------------------------------------------------

    def next_timeout(self) -> float | None:
        """When `handle_timeout` or `datagrams_to_send` has something to do."""
        while self._deadlines and self._deadlines[0][1] not in self._in_flight:
            heapq.heappop(self._deadlines)
        times = [self._deadlines[0][0]] if self._deadlines else []
        expiry, due = self._leases.next_expiry(), self._leases.next_due()
        if expiry is not None:
            times.append(expiry)
        if self._control is not None:
            times.append(self._control.deadline)
        elif not self.is_alive:
            times.append(self._control_not_before)
        elif due is not None:
            times.append(max(due, self._control_not_before))
        return min(times, default=None)

    def handle_timeout(self, now: float) -> None:
        """Gives up requests that were not answered in time, and leases that were not renewed."""
        if self._control is not None and self._control.deadline <= now:
            self._control_missed(now)
        while self._deadlines and self._deadlines[0][0] <= now:
            request = self._in_flight.get(heapq.heappop(self._deadlines)[1])
            if request is not None:
                self._give_up(request, now)
        self.notices += [Notice(Change.LEASES, topic) for topic in self._leases.expire(now)]

    def handle_unreachable(self, now: float) -> None:
        """The network says that nobody listens there: what is in flight will not be answered.

        Such a message can be forged, so it only makes us ask sooner and prefer others; no lease is given up.
        """
        if self._control is not None:
            self._control_missed(now)
        for request in list(self._in_flight.values()):
            self._give_up(request, now)

    def _control_missed(self, now: float) -> None:
        assert self._control is not None
        request, self._control = self._control, None
        self._remember_late(request)
        self._leases.ask_again(request.topics, now)
        self._misses += 1
        self.is_suspected = True
        if self._misses >= LOST_AFTER_MISSES and not self.is_lost:
            self.is_lost = True
            self.notices.append(Notice(Change.LOST))
        if self.is_lost:
            wait_s = self.renewal_interval_s * self._rng.uniform(0.8, 0.9)
        else:
            wait_s = self._round_trip.timeout_s * (2 ** (self._misses - 1) - 1)
        self._control_not_before = now + wait_s
        # A lost question about a cookie must not cost the messages that wait for it: they get a second one.
        waiting, self._queue, self._again = [*self._again, *self._queue], deque(), []
        self._try_again(waiting)

    def _try_again(self, lines: Collection[_Line]) -> None:
        """Sends lines again that were not carried out, as often as each may be."""
        for line in lines:
            line.tries_left -= 1
            if line.tries_left < 0:
                self.settled.append(Settled(line.handle, Outcome.NO_ANSWER))
        self._again += [line for line in lines if line.tries_left >= 0]

    def _give_up(self, request: _Request, now: float) -> None:
        del self._in_flight[request.nonce]
        self._remember_late(request)
        for line in request.lines:
            self.settled.append(Settled(line.handle, Outcome.NO_ANSWER))
        self._publish_lease_until = -inf
        if not self.is_suspected:
            self.is_suspected = True
            self._control_not_before = now

    def _remember_late(self, request: _Request) -> None:
        """An answer that comes after all must teach how late answers come: else a path that has become slow
        would look dead for ever. The fate of its messages is settled already."""
        self._late[request.nonce] = replace(request, lines=())
        if len(self._late) > LATE_MAX:
            self._late.popitem(last=False)

    # --- Answers -------------------------------------------------------------------------------------

    def handle_replies(self, replies: Sequence[wire.Reply], now: float) -> int:
        """Takes the control lines of one datagram; how many of them answer nothing that we asked."""
        receipt = next((reply for reply in replies if isinstance(reply, wire.Receipt)), None)
        unasked = 0
        for reply in replies:
            if isinstance(reply, wire.Refusal) and receipt is not None and reply.nonce == receipt.nonce:
                continue
            request = self._take_request(reply)
            if request is None:
                unasked += 1
                continue
            self._answered(request, now)
            match reply:
                case wire.Receipt():
                    refusal = next((r for r in replies if isinstance(r, wire.Refusal)), None)
                    if refusal is not None and refusal.nonce != reply.nonce:
                        refusal = None
                    self._handle_receipt(request, reply, refusal, now)
                case wire.Challenge():
                    self._handle_challenge(request, reply, now)
                case wire.Refusal():
                    self._handle_refusal(request, reply, now)
                case wire.Pong():
                    self._publish_lease_until = now + reply.left_s if reply.left_s else -inf
        return unasked

    def _take_request(self, reply: wire.Reply) -> _Request | None:
        control = self._control
        if control is not None and control.nonce == reply.nonce and control.fits(reply):
            self._control = None
            return control
        for requests in (self._in_flight, self._late):
            request = requests.get(reply.nonce)
            if request is not None and request.fits(reply):
                return requests.pop(reply.nonce)
        return None

    def _answered(self, request: _Request, now: float) -> None:
        self._round_trip.observe(now - request.sent_at)
        self._misses = 0
        self._control_not_before = -inf
        if self.is_lost:
            self.is_lost = False
            self.warm_at = now + self.renewal_interval_s
            self.notices.append(Notice(Change.RETURNED))
            self._leases.ask_for_all(now)
        elif self.is_suspected:
            self.notices.append(Notice(Change.TRUSTED))
        self.is_suspected = False

    def _handle_receipt(
        self, request: _Request, receipt: wire.Receipt, refusal: wire.Refusal | None, now: float
    ) -> None:
        self._challenges_in_a_row = 0
        self._keep_cookie(receipt.cookie, request)
        self.ttl_s = max(1.0, receipt.ttl_s)
        refused = 0 if refusal is None else -1 if refusal.lines is None else refusal.lines
        reason = refusal.reason if refusal else ""
        for index, topic in enumerate(request.topics):
            if refused >> index & 1:
                self._lease_refused(topic, reason, now)
            else:
                self._lease_granted(topic, request.sent_at, now)
        if not request.topics:
            is_open = receipt.attributes.get("bare") != "0"
            self._publish_lease_until = request.sent_at + self.ttl_s if is_open else -inf
        for line in request.lines:
            self.settled.append(Settled(line.handle, Outcome.RECEIPT))

    def _handle_challenge(self, request: _Request, challenge: wire.Challenge, now: float) -> None:
        is_news = request.cookie is not None and request.cookie == self._cookie
        life_s = COOKIE_LEASE_LIFE_S if request.topics else COOKIE_PUBLISH_LIFE_S
        was_young = request.sent_at - request.cookie_at < life_s - COOKIE_MARGIN_S
        self._keep_cookie(challenge.cookie, request)
        self._leases.ask_again(request.topics, now)
        self._try_again(request.lines)
        # We had asked for it, or it refuses a cookie that we no longer use: then it tells nothing new.
        if not is_news:
            return
        self._challenges_in_a_row += 1
        if self._challenges_in_a_row > 1:
            # A fresh cookie is refused: asking faster will not help.
            self._control_not_before = now + self._round_trip.timeout_s
        if was_young:
            self.warm_at = now + self.renewal_interval_s
            self._publish_lease_until = -inf
            self.notices.append(Notice(Change.FORGOT))
            self.notices += [Notice(Change.LEASES, topic) for topic in self._leases.void(now)]
            self._leases.ask_for_all(now)

    def _handle_refusal(self, request: _Request, refusal: wire.Refusal, now: float) -> None:
        self._challenges_in_a_row = 0
        for topic in request.topics:
            self._lease_refused(topic, refusal.reason, now)
        for line in request.lines:
            self.settled.append(Settled(line.handle, Outcome.REFUSED))

    def _keep_cookie(self, cookie: bytes, request: _Request) -> None:
        # Its age counts from the question, since the server issued it no earlier.
        if request.sent_at >= self._cookie_at:
            self._cookie, self._cookie_at = cookie, request.sent_at

    def _lease_granted(self, topic: bytes, asked_at: float, now: float) -> None:
        assert self.ttl_s is not None
        if asked_at + self.ttl_s <= now:  # we slept, and it has ended meanwhile
            self._leases.ask_again((topic,), now)
            return
        renew_at = asked_at + self.renewal_interval_s * self._rng.uniform(0.9, 1.0)
        if self._leases.grant(topic, asked_at, asked_at + self.ttl_s, renew_at):
            self.notices.append(Notice(Change.LEASES, topic))

    def _lease_refused(self, topic: bytes, reason: str, now: float) -> None:
        self._leases.ask_again((topic,), now + self.renewal_interval_s)
        self.notices.append(Notice(Change.REFUSED, topic, reason))

    # --- Sending -------------------------------------------------------------------------------------

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, int]]:
        """What is to go to this server now: buffers of datagrams, and the length of each in bytes."""
        datagrams = self._publish_datagrams(now)
        control = self._control_datagram(now)
        if control is not None:
            datagrams.append((control, len(control)))
        return datagrams

    def _control_datagram(self, now: float) -> bytes | None:
        if self._control is not None:
            return None
        may_ask = now >= self._control_not_before
        is_due = may_ask and (not self.is_alive or self._leases.is_due(now))
        if not is_due and not self._queue:
            return None
        nonce, deadline = self._new_nonce(), now + self._round_trip.timeout_s
        if not is_due or not self._has_cookie(COOKIE_LEASE_LIFE_S, now):
            # Lines still in the queue wait for a cookie, and do not wait for the next renewal.
            self._control = _Request(nonce, now, deadline)
            return wire.request_datagram(wire.Ask(nonce))
        assert self._cookie is not None
        # What falls due a little later goes along, so that renewals stay together. A suspected server is
        # always shown the cookie, and so asked whether it is the one that we knew.
        horizon = now + self.renewal_interval_s / 5 if self.is_alive else inf
        topics = self._leases.take_due(horizon, LINES_PER_DATAGRAM_MAX - 1, LINE_BYTES_MAX)
        self._control = _Request(nonce, now, deadline, self._cookie, self._cookie_at, topics)
        vouch = wire.Vouch(nonce, self._cookie, None)
        return wire.request_datagram(vouch, [topic + b"\n" for topic in topics])

    def _publish_datagrams(self, now: float) -> list[tuple[bytes, int]]:
        if not self._queue and not self._again:
            return []
        # Each refused datagram puts its lines back; in order, and sorted once for all of them.
        self._queue.extendleft(sorted(self._again, key=lambda line: line.handle, reverse=True))
        self._again = []
        # Near its end a publish lease is renewed by vouching again, so that it never lapses in a busy stream.
        has_lease = self._publish_lease_until - now > self.renewal_interval_s
        has_cookie = self._has_cookie(COOKIE_PUBLISH_LIFE_S, now)
        bare = [line for line in self._queue if has_lease and not line.confirm]
        rest = [line for line in self._queue if not (has_lease and not line.confirm)]
        self._queue = deque(() if has_cookie else rest)
        datagrams = self._bare_datagrams(bare, now) if bare else []
        if has_cookie:
            datagrams += [(datagram, len(datagram)) for datagram in self._vouched_datagrams(rest, now)]
        return datagrams

    def _bare_datagrams(self, lines: list[_Line], now: float) -> list[tuple[bytes, int]]:
        self.settled += [Settled(line.handle, Outcome.SENT) for line in lines]
        texts = [line.line[:-1] for line in lines]
        if now < self._pinged_at + PING_INTERVAL_S:
            return [wire.pack_lines(texts, LINES_PER_DATAGRAM_MAX)]
        self._pinged_at = now
        ping = wire.Ping(self._new_nonce())
        self._await_answer(_Request(ping.nonce, now, now + self._round_trip.timeout_s, is_ping=True))
        data, segment_bytes = wire.pack_lines([wire.format_line(ping)[:-1], *texts], LINES_PER_DATAGRAM_MAX)
        if len(data) <= segment_bytes:
            data = wire.pad(data, _PONG_BYTES)
            segment_bytes = len(data)
        return [(data, segment_bytes)]

    def _vouched_datagrams(self, lines: list[_Line], now: float) -> Iterator[bytes]:
        assert self._cookie is not None
        batch: list[_Line] = []
        size_bytes = VOUCH_BYTES_MAX
        for line in lines:
            size_bytes += len(line.line)
            if size_bytes > DATAGRAM_BYTES_MAX or len(batch) == LINES_PER_DATAGRAM_MAX - 1:
                yield self._vouched_datagram(batch, now)
                batch, size_bytes = [], VOUCH_BYTES_MAX + len(line.line)
            batch.append(line)
        if batch:
            yield self._vouched_datagram(batch, now)

    def _vouched_datagram(self, lines: Sequence[_Line], now: float) -> bytes:
        assert self._cookie is not None
        vouch = wire.Vouch(self._new_nonce(), self._cookie, None)
        deadline = now + self._round_trip.timeout_s
        self._await_answer(_Request(vouch.nonce, now, deadline, self._cookie, self._cookie_at, lines=lines))
        return wire.request_datagram(vouch, [line.line for line in lines])

    def _await_answer(self, request: _Request) -> None:
        self._in_flight[request.nonce] = request
        heapq.heappush(self._deadlines, (request.deadline, request.nonce))

    def _has_cookie(self, life_s: float, now: float) -> bool:
        return self._cookie is not None and now - self._cookie_at < life_s - COOKIE_MARGIN_S

    def _new_nonce(self) -> bytes:
        return urlsafe_b64encode(self._rng.randbytes(NONCE_BYTES)).rstrip(b"=")
