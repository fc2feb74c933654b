"""The dumb server: keeps a table of who wants which topic, and forwards. Sans-IO. PROTOCOL §4 to §7.

A datagram with a cookie is checked in this order, cheapest first. Nothing is kept for an address before its
cookie is good:

    not from us -> length -> first line's verb -> request at least as long as its answer -> cookie
           -> number of lines -> the cookie's age -> rate -> which leases are new -> topic -> draining
           -> stamp -> limits -> table

Without a cookie: length -> number of lines -> publish lease (or an open server) -> rate.

Every datagram gets at most one datagram back, never longer than itself. Reply verbs that arrive are dropped,
so no forged packet can set two servers talking. Neither can copies: an open server marks its own, and
forwards none that is marked (§4.4). What is not done is counted in `drops`, by reason (`kcast.pubsub.drops`),
and in `refusals` if the client is told.

A datagram enters by `receive`. Copies and answers leave by `flush`, so that a batch of bursts is routed as
one (`kcast.pubsub.router`).
"""

from collections import Counter
from collections.abc import Callable, Mapping

from kcast.pubsub import wire
from kcast.pubsub.cookie import Cookies
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, Tap, Transmit, datagrams
from kcast.pubsub.leasing import Leasing
from kcast.pubsub.limits import (
    AUDIENCE_MAX,
    COOKIE_LEASE_LIFE_S,
    DATAGRAM_BYTES_MAX,
    DRAIN_MARGIN_S,
    HEAD_CHARS_MAX,
    RENEWAL_INTERVAL_S_MAX,
    RENEWALS_PER_TTL,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MIN,
    TTL_S_DEFAULT,
    TTL_S_MAX,
    WORK_BITS_MAX,
    Limits,
)
from kcast.pubsub.networks import networks_of
from kcast.pubsub.rates import PublishRates, Rate
from kcast.pubsub.router import Router, publishes_by_topic, whole_topic
from kcast.pubsub.table import TABLES, ExpiringSet


class Server:
    """One server's core; satisfies `Endpoint`.

    `secret` is 32 random bytes, new for each process. `table` is "ttl" or "fifo" (§7.5). `work_bits` is the
    price of a new lease (§5.11), `head` an opaque string that answers carry (§5.1). With `tells_audience`
    receipts say how many have leased what was published (§5.7). `own_addresses` are those at which the server
    is reached; they cannot subscribe. `open_to` tells which sources may subscribe and
    publish without a handshake (§4.4); None allows nobody. `exempts_loopback` frees loopback from limits by
    network. `tap` is told of bursts and lease changes. Raises ValueError for a setting out of range.
    """

    make_leasing = Leasing

    def __init__(
        self,
        *,
        secret: bytes,
        ttl_s: float = TTL_S_DEFAULT,
        table: str = "ttl",
        limits: Limits | None = None,
        work_bits: int = 0,
        head: str = "",
        tells_audience: bool = True,
        own_addresses: frozenset[Address] = frozenset(),
        open_to: Callable[[Address], bool] | None = None,
        exempts_loopback: bool = True,
        tap: Tap | None = None,
    ) -> None:
        if not 1 <= ttl_s <= TTL_S_MAX:
            raise ValueError(f"ttl_s is {ttl_s}: give 1 to {TTL_S_MAX} seconds")
        if not 0 <= work_bits <= WORK_BITS_MAX:
            raise ValueError(f"work_bits is {work_bits}: give 0 to {WORK_BITS_MAX}: clients pay no more")
        if table not in TABLES:
            raise ValueError(f"table is {table!r}: give one of {', '.join(TABLES)}")
        self.limits = limits or Limits()
        self.ttl_s = ttl_s
        self.exempts_loopback = exempts_loopback
        self.leases = TABLES[table](ttl_s, self.limits, exempts_loopback=exempts_loopback)
        self.publish_leases: ExpiringSet[Address] = ExpiringSet(ttl_s, self.limits.publishers)
        self.counts: Counter[str] = Counter()
        self.drops: Counter[Drop] = Counter()
        self.refusals: Counter[str] = Counter()
        self._cookies = Cookies(secret)
        self._tells_audience = tells_audience
        self._own_addresses = own_addresses
        self._open_to = open_to
        self._tap = tap
        self._leasing = self.make_leasing(self.leases, work_bits, self.counts, self.drops, tap)
        # Whoever knows of a publish lease can forge bare lines. That must not shut out the one who vouches.
        self._vouched_rates, self._bare_rates = (
            PublishRates(self.limits.publishes_per_s, self.limits.copies_per_s, self.limits.publishers)
            for _ in range(2)
        )
        self._challenges = Rate(self.limits.challenges_per_s)
        self._strangers_pongs = Rate(self.limits.challenges_per_s)
        self._router = Router(self.leases, self.counts, marks_copies=open_to is not None)
        self._replies: list[Transmit] = []
        self._drained_at: float | None = None
        self.set_head(head)
        self._drain: dict[str, str] = {}

    def set_head(self, head: str) -> None:
        """Lets answers carry another head from now on. Any thread may call it. Raises ValueError."""
        if not wire.is_head(head):
            raise ValueError(f"head is {head!r}: give at most {HEAD_CHARS_MAX} printable ASCII, no spaces")
        self._head = {"head": head} if head else {}

    # --- Endpoint ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, now: float) -> None:
        """Routes what has arrived. Copies and answers wait for `flush`."""
        self.counts["bytes_received"] += len(burst.data)
        if burst.source in self._own_addresses:
            self.drops[Drop.OWN_ADDRESS] += sum(1 for _ in datagrams(burst.data, burst.segment_bytes))
        elif not self._receive_publishes(burst, now):
            for datagram in datagrams(burst.data, burst.segment_bytes):
                self._receive_datagram(datagram, burst.source, now)

    def handle_timeout(self, now: float) -> None:
        """Forgets leases that have expired."""
        self._leasing.expire(now)
        self.publish_leases.pop_expired(now)

    def next_timeout(self) -> float | None:
        """Returns when the first lease of either kind ends, or the draining does; None if nothing will."""
        ends = (self.leases.next_expiry(), self.publish_leases.next_expiry(), self._drained_at)
        return min((at for at in ends if at is not None), default=None)

    def flush(self, now: float) -> list[Transmit]:
        """Returns what is to be sent: answers first, then copies."""
        copies, unwanted = self._router.flush(now)
        for topic, line_count in unwanted.items():
            # Topics in the table are canonical already; only unmatched ones need this check.
            self.drops[Drop.NO_SUBSCRIBER if wire.is_topic(topic) else Drop.TOPIC] += line_count
        replies, self._replies = self._replies, []
        return replies + copies

    # --- Draining ------------------------------------------------------------------------------------

    @property
    def work_bits(self) -> int:
        """The price of a new lease."""
        return self._leasing.work_bits

    @property
    def is_draining(self) -> bool:
        """Whether `start_drain` was called."""
        return self._drained_at is not None

    def start_drain(self, now: float) -> None:
        """Begins to end (§7.6): every answer says so from now on, and new leases are refused."""
        if self._drained_at is None:
            renewal_s = min(self.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)
            self._drained_at = now + renewal_s + DRAIN_MARGIN_S
            self._drain = {"drain": "1"}
            self._leasing.is_draining = True

    def is_drained(self, now: float) -> bool:
        """Whether every client has had the time to hear of it, or no lease is left."""
        if self._drained_at is None:
            return False
        # Health checks come every few seconds, and each leaves a lease whose copies nobody awaits.
        return now >= self._drained_at or len(self.leases) <= self.leases.audience_count(wire.HEALTH_TOPIC)

    # --- Admission -----------------------------------------------------------------------------------

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        self.counts["datagrams_received"] += 1
        if len(datagram) > DATAGRAM_BYTES_MAX:
            self.drops[Drop.OVERSIZE] += 1
            return
        lines, unterminated = wire.split_lines(datagram)
        if unterminated:
            self.drops[Drop.UNTERMINATED] += 1
        if not lines:
            self.drops[Drop.EMPTY] += 1
        elif lines[0].startswith(b"%!"):
            self._receive_vouched(datagram, lines, source, now)
        elif len(lines) > self.limits.lines_per_datagram:
            self.drops[Drop.TOO_MANY_LINES] += 1
            request = wire.parse_request(lines[0])
            if isinstance(request, wire.Ping):
                self._pong(request.nonce, datagram, source, now, is_refused=True)
        else:
            self._receive_bare(datagram, lines, source, now)

    def _receive_vouched(self, datagram: bytes, lines: list[bytes], source: Address, now: float) -> None:
        """Takes a datagram whose first line shows a cookie: leases, publishes, one receipt (§5.4)."""
        if len(datagram) < REQUEST_BYTES_MIN:
            self.drops[Drop.SHORT] += 1
            return
        vouch = wire.parse_request(lines[0])
        if not isinstance(vouch, wire.Vouch):
            self.drops[Drop.MALFORMED] += 1
            return
        age_s = self._cookies.age_s(vouch.cookie, source, now)
        if age_s is None:
            self.drops[Drop.COOKIE_FOREIGN] += 1
            self._challenge(vouch.nonce, datagram, source, now)
            return
        if len(lines) > self.limits.lines_per_datagram:
            self.drops[Drop.TOO_MANY_LINES] += 1
            self._refuse_whole(
                vouch, "size", datagram, source, {"lines": str(self.limits.lines_per_datagram)}
            )
            return
        subscribes, publishes, controls = wire.sorted_lines(lines[1:])
        for line in controls:
            # No pong follows, since the receipt has all that a pong would have. Only the first line can show
            # a cookie.
            misplaced = line.startswith((b"%!", b"%?", b"%~"))
            self.drops[Drop.MISPLACED if misplaced else _control_drop(line)] += 1
        if subscribes and age_s > COOKIE_LEASE_LIFE_S:
            self.drops[Drop.COOKIE_OLD] += 1
            self._challenge(vouch.nonce, datagram, source, now, is_proven=True)
            return
        if publishes and not self._take(self._vouched_rates, source, *self._demand_of(publishes), now):
            self._refuse_whole(vouch, "rate", datagram, source)
            return
        self._grant(vouch, subscribes, publishes, datagram, source, now)

    def _grant(
        self,
        vouch: wire.Vouch,
        subscribes: list[bytes],
        publishes: dict[bytes, list[bytes]],
        datagram: bytes,
        source: Address,
        now: float,
    ) -> None:
        """Does what a good cookie vouches for, and answers (§5.7, §5.8)."""
        refused, reason = self._leasing.ask(subscribes, vouch, source, now)
        self._forward(publishes, source, now)
        answer = b""
        if publishes or not subscribes or refused.bit_count() < len(subscribes):
            attributes = self._head | self._drain
            if publishes and not subscribes and self._tells_audience:
                attributes = {"audience": str(self._audience_of(publishes, now))} | attributes
            if (publishes or not subscribes) and not self._open_publish_lease(source, now):
                attributes = {"bare": "0"} | attributes
            cookie = self._cookies.mint(source, now)
            ttl_s = int(self.leases.promise_s(now))
            answer = wire.format_line(
                wire.Receipt(vouch.nonce, ttl_s, cookie, self._leasing.work_bits, attributes)
            )
        if refused:
            self.refusals[reason] += 1
            attributes = {"bits": str(self._leasing.work_bits)} if reason == Drop.WORK else {}
            if not answer:
                attributes |= self._drain
            answer += wire.format_line(wire.Refusal(vouch.nonce, reason, refused, attributes))
        self._reply(datagram, source, answer)

    def _open_publish_lease(self, source: Address, now: float) -> bool:
        self.publish_leases.pop_expired(now)
        if self._bare_rates.was_overdrawn(source, now):
            return False
        if self.publish_leases.renew(source, now):
            return True
        self.drops[Drop.PUBLISHERS] += 1
        return False

    def _receive_bare(self, datagram: bytes, lines: list[bytes], source: Address, now: float) -> None:
        """Takes a datagram without a cookie: `%?`, `%~`, publishes (§7.2), and what an open server takes."""
        request: wire.Ask | wire.Ping | None = None
        subscribes, publishes, controls = wire.sorted_lines(lines)
        for line in controls:
            parsed = wire.parse_request(line)
            if isinstance(parsed, (wire.Ask, wire.Ping)) and request is None:
                request = parsed
            elif isinstance(parsed, (wire.Ask, wire.Ping)):
                self.drops[Drop.EXTRA_REQUEST] += 1
            elif isinstance(parsed, wire.Vouch):
                self.drops[Drop.MISPLACED] += 1
            else:
                self.drops[_control_drop(line)] += 1
        is_open = self._open_to is not None and self._open_to(source)
        if subscribes and is_open:
            self._leasing.ask(subscribes, None, source, now)
        elif subscribes:
            self.drops[Drop.UNVOUCHED_SUBSCRIBE] += len(subscribes)
        if publishes:
            self._publish_bare(datagram, publishes, is_open, source, now)
        if isinstance(request, wire.Ask):
            if len(datagram) < REQUEST_BYTES_MIN:
                self.drops[Drop.SHORT] += 1
            else:
                self._challenge(request.nonce, datagram, source, now)
        elif isinstance(request, wire.Ping):
            self._pong(request.nonce, datagram, source, now)

    def _publish_bare(
        self, datagram: bytes, publishes: dict[bytes, list[bytes]], is_open: bool, source: Address, now: float
    ) -> None:
        line_count = sum(map(len, publishes.values()))
        if not is_open and not self.publish_leases.left_s(source, now):
            self.drops[Drop.UNVOUCHED_PUBLISH] += line_count
        elif self._open_to is not None and datagram.startswith(b"\n"):
            # It is, or looks like, what an open server has forwarded already (§4.4).
            self.drops[Drop.COPY] += line_count
        elif self._take(self._bare_rates, source, *self._demand_of(publishes), now):
            self._forward(publishes, source, now)

    # --- Answers -------------------------------------------------------------------------------------

    def _challenge(
        self, nonce: bytes, datagram: bytes, source: Address, now: float, *, is_proven: bool = False
    ) -> None:
        if not is_proven and not self._may_answer(source, self._challenges, now):
            return
        self.counts["cookies_issued"] += 1
        cookie = self._cookies.mint(source, now)
        challenge = wire.Challenge(nonce, cookie, self._leasing.work_bits, self._head | self._drain)
        self._reply(datagram, source, wire.format_line(challenge), is_proven=is_proven)

    def _may_answer(self, stranger: Address, rate: Rate, now: float) -> bool:
        """Whether a stranger is answered now. On loopback always: nobody can forge such an address."""
        is_exempt = not networks_of(stranger[0], exempts_loopback=self.exempts_loopback)
        if is_exempt or rate.take(1, now):
            return True
        # Silence: an answer that says so would cost what the limit saves.
        self.drops[Drop.CHALLENGE_RATE] += 1
        return False

    def _pong(
        self, nonce: bytes, datagram: bytes, source: Address, now: float, *, is_refused: bool = False
    ) -> None:
        """Answers a ping (§5.9), with 0 if bare lines were refused: then the client vouches, and is told."""
        left_s = int(self.publish_leases.left_s(source, now))
        is_proven = left_s > 0
        if not is_proven and not self._may_answer(source, self._strangers_pongs, now):
            return
        if is_proven and (is_refused or self._bare_rates.was_overdrawn(source, now)):
            left_s = 0
        answer = wire.format_line(wire.Pong(nonce, left_s, self._drain))
        self._reply(datagram, source, answer, is_proven=is_proven)

    def _refuse_whole(
        self, vouch: wire.Vouch, reason: str, datagram: bytes, source: Address, more: Mapping[str, str] = {}
    ) -> None:
        """Answers that nothing of the datagram was done (§5.8)."""
        self.refusals[reason] += 1
        answer = wire.format_line(wire.Refusal(vouch.nonce, reason, None, {**more, **self._drain}))
        self._reply(datagram, source, answer)

    def _reply(self, request: bytes, source: Address, answer: bytes, *, is_proven: bool = True) -> None:
        """Sends the one answer to a datagram, unless it would be longer than the datagram (§5.2)."""
        assert len(answer) <= REPLY_BYTES_MAX
        if len(answer) > len(request):
            self.drops[Drop.SHORT] += 1
            return
        self.counts["answers_sent"] += 1
        if not is_proven:
            self.counts["unproven_bytes_received"] += len(request)
            self.counts["unproven_bytes_sent"] += len(answer)
        self._replies.append(Transmit(answer, len(answer), (source,), is_answer=True))

    # --- Forwarding ----------------------------------------------------------------------------------

    def _forward(self, publishes: dict[bytes, list[bytes]], source: Address, now: float) -> None:
        for topic, lines in publishes.items():
            self.counts["messages_received"] += len(lines)
            if self._tap is not None and wire.is_topic(topic):
                self._tap.burst(now, source, topic, lines)
            too_long = self._router.forward(topic, lines)
            if too_long:
                self.drops[Drop.OVERSIZE] += too_long

    def _receive_publishes(self, burst: Burst, now: float) -> bool:
        """Takes a burst that is nothing but publishes at once, if its source has a publish lease.

        Returns False for all others: they are looked at datagram by datagram, as an open server does always.
        """
        data, segment_bytes, source, _ = burst
        if segment_bytes > DATAGRAM_BYTES_MAX or self._open_to is not None:
            return False
        if not self.publish_leases.left_s(source, now):
            return False
        lines_max = self.limits.lines_per_datagram
        whole = whole_topic(data, segment_bytes, lines_max) if len(data) > segment_bytes else None
        publishes = None if whole is not None else publishes_by_topic(data, segment_bytes, lines_max)
        if whole is not None:
            topic, line_count = whole
            copies = line_count * self.leases.audience_count(topic)
        elif publishes is not None:
            line_count, copies = self._demand_of(publishes)
        else:
            return False
        if len(data) > segment_bytes and self._bare_rates.is_large(line_count, copies):
            return False  # one datagram may overdraw a rate, a burst may not
        if self._take(self._bare_rates, source, line_count, copies, now):
            if publishes is not None:
                self._forward(publishes, source, now)
            else:
                self._forward_whole(burst, topic, line_count, now)
        self.counts["datagrams_received"] += -(-len(data) // segment_bytes)
        return True

    def _forward_whole(self, burst: Burst, topic: bytes, line_count: int, now: float) -> None:
        """Forwards a burst of one topic as it came (§4.3)."""
        data, segment_bytes, source, _ = burst
        self.counts["messages_received"] += line_count
        if self._tap is not None:
            self._tap.burst(now, source, topic, list(filter(None, data.split(b"\n"))))
        if not self._router.forward_burst(data, segment_bytes, topic, line_count, now):
            self.drops[Drop.NO_SUBSCRIBER] += line_count

    def _demand_of(self, publishes: dict[bytes, list[bytes]]) -> tuple[int, int]:
        """Returns the number of lines, and the number of copies that they cause."""
        line_count = copies = 0
        for topic, lines in publishes.items():
            line_count += len(lines)
            copies += len(lines) * self.leases.audience_count(topic)
        return line_count, copies

    def _audience_of(self, publishes: dict[bytes, list[bytes]], now: float) -> int:
        """Returns the largest number of live leases on one of these topics, as far as a receipt can tell."""
        return min(max(len(self.leases.subscribers(topic, now)) for topic in publishes), AUDIENCE_MAX)

    def _take(self, rates: PublishRates, source: Address, line_count: int, copies: int, now: float) -> bool:
        """Whether the source may publish this much now; if so, it is charged for it."""
        if rates.take(source, line_count, copies, now):
            return True
        self.drops[Drop.PUBLISH_RATE] += line_count
        return False


def _control_drop(line: bytes) -> Drop:
    """Returns why a control line that is no request has no effect."""
    if line.startswith(wire.REPLY_VERBS):
        return Drop.REPLY_VERB
    return Drop.MALFORMED if line.startswith((b"%!", b"%?", b"%~")) else Drop.UNKNOWN_VERB
