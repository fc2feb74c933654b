"""The dumb server: keeps a table of who wants which topic, and forwards. Sans-IO. PROTOCOL §4 to §7.

A datagram with a cookie is checked in this order, cheapest first. Nothing is kept for an address before its
cookie is good:

    not from us -> length -> first line's verb -> request at least as long as its answer -> cookie
           -> number of lines -> the cookie's age -> rate -> which leases are new -> topic -> draining
           -> stamp -> limits -> table

Without a cookie, from a source with a publish lease or to which the server is open: length -> number of lines
-> rate. Of its requests the first is read. Of all others, who are strangers, only the first request is looked
at, as far as `kcast.pubsub.strangers` admits.

Every datagram gets at most one datagram back, never longer than itself. Reply verbs that arrive are dropped,
so no forged packet can set two servers talking. Neither can copies: an open server marks its own, and
forwards none that is marked (§4.4). What is not done is counted in `drops`, by reason (`kcast.pubsub.drops`),
and in `refusals` if the client is told.

A datagram enters by `receive`. Copies and answers leave by `flush`, so that a batch of bursts is routed as
one, and much of it in slices (`kcast.pubsub.egress`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from random import Random

from kcast.pubsub import strangers, wire
from kcast.pubsub.cookie import Cookies, Issued
from kcast.pubsub.drops import Drop, drop_of_control
from kcast.pubsub.egress import Egress
from kcast.pubsub.endpoint import Address, Burst, Tap, Transmit, datagram_count, datagrams
from kcast.pubsub.fifo_table import TABLES
from kcast.pubsub.kernel_filter import Kind, kind_of
from kcast.pubsub.leasing import Leasing, Price
from kcast.pubsub.limits import (
    AUDIENCE_MAX,
    COOKIE_LEASE_LIFE_S,
    CREDIT_MAX,
    DATAGRAM_BYTES_MAX,
    DRAIN_MARGIN_S,
    RENEWAL_INTERVAL_S_MAX,
    RENEWALS_PER_TTL,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MIN,
    TTL_S_DEFAULT,
    TTL_S_MAX,
    WORK_BITS_MAX,
    Limits,
)
from kcast.pubsub.networks import Networks, alternately
from kcast.pubsub.publishing import Publishing
from kcast.pubsub.router import PYTHON, Router
from kcast.pubsub.stamp import FREE, Quote
from kcast.pubsub.strangers import StrangerBudget
from kcast.pubsub.subscribers import Subscribers


class Server:
    """One server's core; satisfies `Endpoint`.

    `secret` is 32 random bytes, new for each process. `table` is "ttl" or "fifo" (§7.5). `work_bits` is the
    least price of a new lease (§5.11), `head` an opaque string that answers carry (§5.1), `version` what
    receipts tell whoever asks, nothing if it is empty. With `tells_audience` they say how many have leased
    what was published (§5.7). `own_addresses` are those at which the server is reached; they cannot
    subscribe. `open_to` tells which sources may subscribe and publish without a handshake (§4.4); None allows
    nobody. With `exempts_loopback` loopback addresses have no network, so no share and no credit. `router`
    routes publishes. `tap` is told of bursts and lease changes. Raises ValueError for a setting out of range.
    """

    make_price = Price
    make_leasing = Leasing
    make_publishing = Publishing

    def __init__(
        self,
        *,
        secret: bytes,
        ttl_s: float = TTL_S_DEFAULT,
        table: str = "ttl",
        limits: Limits | None = None,
        work_bits: int = 0,
        head: str = "",
        version: str = "",
        tells_audience: bool = True,
        own_addresses: frozenset[Address] = frozenset(),
        open_to: Callable[[Address], bool] | None = None,
        exempts_loopback: bool = True,
        router: Router = PYTHON,
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
        networks = Networks(exempts_loopback=exempts_loopback)
        self.leases = TABLES[table](ttl_s, self.limits, networks)
        self.counts: Counter[str] = Counter()
        self.drops: Counter[Drop] = Counter()
        self.refusals: Counter[str] = Counter()
        self._strangers: Counter[Kind] = Counter()  # datagrams of theirs
        self._cookies = Cookies(secret)
        self._tells_audience = tells_audience
        self._own_addresses = own_addresses
        self._open_to = open_to
        self._stranger_budget = StrangerBudget(
            self.limits.stranger_answers_per_s, exempts_loopback=exempts_loopback
        )
        self._price = self.make_price(work_bits, self.leases)
        self._leasing = self.make_leasing(self.leases, self.counts, self.drops, tap)
        self._subscribers = Subscribers(
            self.leases.holders, networks, self.limits, ttl_s, self.drops, is_open=open_to is not None
        )
        self._egress = Egress(
            self.leases,
            self._subscribers,
            networks,
            self.counts,
            self.drops,
            marks_copies=open_to is not None,
            uplink_bytes_per_s=self.limits.uplink_bytes_per_s,
            router=router,
        )
        self._publishing = self.make_publishing(
            self._egress, self.leases, networks, self.limits, self.counts, self.drops, tap, router
        )
        self.publish_leases = self._publishing.leases
        self._replies: list[Transmit] = []
        self._egress_at = inf  # when more can be sent
        self._ends_at: float | None = None  # when the first of all that is kept ends; None if unknown
        self._drained_at = inf
        self.set_head(head)
        self._version = wire.version_attribute(version)
        self._drain: dict[str, str] = {}

    def set_head(self, head: str) -> None:
        """Lets answers carry another head from now on. Any thread may call it. Raises ValueError."""
        self._head = wire.head_attribute(head)

    # --- Endpoint ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, now: float) -> None:
        """Routes what has arrived. Copies and answers wait for `flush`."""
        data, segment_bytes, source, _ = burst
        self.counts["bytes_received"] += len(data)
        self._stranger_budget.count_burst()
        if source in self._own_addresses:
            self.drops[Drop.OWN_ADDRESS] += sum(1 for _ in datagrams(data, segment_bytes))
        elif self.publish_leases.has(source, now):
            if self._open_to is None and self._publishing.take_burst(burst, now):
                return  # as most of what arrives; it neither opens nor ends anything
            self._receive_known(burst, now)
        elif self._is_open_to(source):
            if source not in self._subscribers:  # to the filter of a flood it is a stranger
                self._strangers[kind_of(data)] += datagram_count(len(data), segment_bytes)
            self._receive_known(burst, now)
        else:
            self._receive_unknown(burst, now)
        self._ends_at = None

    def handle_timeout(self, now: float) -> None:
        """Forgets what has ended, a slice of it. Of addresses the last, since they outlive their leases."""
        self._leasing.expire(now)
        self._publishing.expire(now)
        ends = self.leases.next_expiry(), self.publish_leases.next_expiry()
        if all(at is None or at > now for at in ends):
            self._subscribers.expire(now)
        self._ends_at = None

    def next_timeout(self) -> float | None:
        """Returns when the first lease of either kind ends, or more can be sent, or the draining ends."""
        if self._ends_at is None:
            ends = [each.next_expiry() for each in (self.leases, self.publish_leases, self._subscribers)]
            self._ends_at = min([at for at in ends if at is not None], default=inf)
        due = min(self._ends_at, self._egress_at, self._drained_at)
        return None if due == inf else due

    def flush(self, now: float) -> list[Transmit]:
        """Returns what is to be sent now: a slice of the copies, then answers, which may be later."""
        self._stranger_budget.begin_turn()
        replies, self._replies = self._replies, []
        self._egress.charge_uplink(replies, now)
        copies = self._egress.next_slice(now)
        self._egress_at = self._egress.ready_at(now)
        return copies + replies

    @property
    def strangers(self) -> Mapping[Kind, int]:
        """Datagrams of strangers, by kind."""
        return self._strangers

    def known_sources(self, random: Random) -> Iterator[Address]:
        """Returns addresses that have shown a cookie, of publishers and subscribers, by turns of networks."""
        return alternately(self._publishing.sources, self._subscribers.sources, random)

    # --- Draining ------------------------------------------------------------------------------------

    @property
    def work_bits(self) -> int:
        """The least price of a new lease."""
        return self._price.least_bits

    @property
    def is_draining(self) -> bool:
        """Whether `start_drain` was called."""
        return self._drained_at < inf

    def start_drain(self, now: float) -> None:
        """Begins to end (§7.6): every answer says so from now on, and new leases are refused."""
        if self._drained_at == inf:
            renewal_s = min(self.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)
            self._drained_at = now + renewal_s + DRAIN_MARGIN_S
            self._drain = {"drain": "1"}
            self._leasing.is_draining = True

    def is_drained(self, now: float) -> bool:
        """Whether every client has had the time to hear of it, or no lease is left."""
        if self._drained_at == inf:
            return False
        # Health checks come every few seconds, and each leaves a lease whose copies nobody awaits.
        return now >= self._drained_at or len(self.leases) <= self.leases.audience_count(wire.HEALTH_TOPIC)

    # --- Admission -----------------------------------------------------------------------------------

    def _is_open_to(self, source: Address) -> bool:
        return self._open_to is not None and self._open_to(source)

    def _receive_unknown(self, burst: Burst, now: float) -> None:
        """Takes a burst from a source that holds no publish lease."""
        data, segment_bytes, source, _ = burst
        count = datagram_count(len(data), segment_bytes)
        for index, datagram in enumerate(datagrams(data, segment_bytes)):
            self.counts["datagrams_received"] += 1
            if len(datagram) > DATAGRAM_BYTES_MAX:
                self.drops[Drop.OVERSIZE] += 1
                is_proven = False
            elif wire.is_vouched(datagram):
                is_proven = self._receive_vouched(datagram, source, now)
            else:
                is_proven = False
                self._receive_stranger(datagram, source, now)
            if is_proven or source in self._subscribers:
                continue  # what is not good may be forged, so that those behind it are dropped
            # All of a burst come from one source, so one answer is enough for a stranger's.
            self._strangers[kind_of(datagram)] += count - index
            if index + 1 < count:
                self.counts["datagrams_received"] += count - index - 1
                self.drops[Drop.STRANGER] += count - index - 1
            return

    def _receive_known(self, burst: Burst, now: float) -> None:
        """Takes a burst from a source that holds a publish lease, or that an open server is open to.

        Of the datagrams in it that have nothing but control lines only the first is looked at.
        """
        data, segment_bytes, source, _ = burst
        has_asked = False
        for datagram in datagrams(data, segment_bytes):
            asks = strangers.has_controls_alone(datagram)
            if asks and has_asked:
                self.counts["datagrams_received"] += 1
                self.drops[Drop.EXTRA_REQUEST] += len(wire.split_lines(datagram)[0])
            else:
                self._receive_datagram(datagram, source, now)
            has_asked = has_asked or asks

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        """Takes one of them."""
        self.counts["datagrams_received"] += 1
        if len(datagram) > DATAGRAM_BYTES_MAX:
            self.drops[Drop.OVERSIZE] += 1
        elif wire.is_vouched(datagram):
            self._receive_vouched(datagram, source, now)
        else:
            self._receive_bare(datagram, source, now)

    def _receive_vouched(self, datagram: bytes, source: Address, now: float) -> bool:
        """Takes a datagram whose first line shows a cookie: leases, publishes, one receipt (§5.4).

        Returns whether the cookie was good.
        """
        if len(datagram) < REQUEST_BYTES_MIN:
            self.drops[Drop.SHORT] += 1
            return False
        first, ended, _ = datagram.lstrip(b"\n").partition(b"\n")
        if not ended or not isinstance(vouch := wire.parse_request(first), wire.Vouch):
            self.drops[Drop.MALFORMED] += 1
            return False
        issued = self._cookies.read(vouch.cookie, source, now)
        if issued is None:
            self.drops[Drop.COOKIE_FOREIGN] += 1
            self._challenge(vouch.nonce, datagram, source, now)
            return False
        lines = strangers.split(datagram, self.drops)
        lines_max = self.limits.lines_per_datagram
        if len(lines) > lines_max:
            self.drops[Drop.TOO_MANY_LINES] += 1
            self._refuse_whole(vouch, "size", datagram, source, {"lines": str(lines_max)})
            return True
        subscribes, publishes, controls = wire.sorted_lines(lines[1:])
        for line in controls:
            # No pong follows, since the receipt has all that a pong would have. Only the first line can show
            # a cookie.
            misplaced = line.startswith((b"%!", b"%?", b"%~"))
            self.drops[Drop.MISPLACED if misplaced else drop_of_control(line)] += 1
        if subscribes and issued.age_s > COOKIE_LEASE_LIFE_S:
            self.drops[Drop.COOKIE_OLD] += 1
            self._challenge(vouch.nonce, datagram, source, now, is_proven=True)
            return True
        demand = self._publishing.take_vouched(publishes, source, now) if publishes else None
        if publishes and demand is None:
            self._refuse_whole(vouch, "rate", datagram, source)
            return True
        self._grant(vouch, issued, subscribes, publishes, datagram, source, now)
        if demand is not None:
            self._publishing.forward(publishes, demand, source, now, is_stale=bool(subscribes))
        return True

    def _grant(
        self,
        vouch: wire.Vouch,
        issued: Issued,
        subscribes: list[bytes],
        publishes: Sequence[bytes],
        datagram: bytes,
        source: Address,
        now: float,
    ) -> None:
        """Does what a good cookie vouches for, and answers (§5.7, §5.8)."""
        self._leasing.expire(now)
        refused, reason = self._leasing.ask(subscribes, vouch, issued.quote, source, now)
        is_any_leased = refused.bit_count() < len(subscribes)
        if is_any_leased:
            self._subscribers.leased(source, now)
            self._subscribers.showed(source, issued.issued_at, now)
        answer, quote = b"", issued.quote
        if publishes or not subscribes or is_any_leased:
            attributes = self._head | self._drain
            if publishes and not subscribes and self._tells_audience:
                attributes = {"audience": str(self._audience_of(publishes, now))} | attributes
            only_asks = vouch.asks_version and not publishes  # which is to let nobody forge lines
            if (publishes or not subscribes) and (only_asks or not self._publishing.open_lease(source, now)):
                attributes = {"bare": "0"} | attributes
            cookie, quote = self._mint(source, now)
            attributes = quote.attributes | attributes
            credit_bytes = self._subscribers.credit_bytes(source) if is_any_leased and not publishes else None
            if credit_bytes is not None:
                attributes = {"credit": str(min(credit_bytes, CREDIT_MAX))} | attributes
            attributes |= self._version if vouch.asks_version and not refused else {}
            ttl_s = int(self.leases.promise_s(now))
            answer = wire.format_line(wire.Receipt(vouch.nonce, ttl_s, cookie, quote.bits, attributes))
        if refused:
            self.refusals[reason] += 1
            # A receipt beside it says that too. If it also says `drain`, there is no room for both.
            says_bits = reason == Drop.WORK and not (answer and self._drain)
            attributes = {"bits": str(quote.bits)} if says_bits else {}
            if not answer:
                attributes |= self._drain
            answer += wire.format_line(wire.Refusal(vouch.nonce, reason, refused, attributes))
        self._reply(datagram, source, answer)

    def _receive_stranger(self, datagram: bytes, source: Address, now: float) -> None:
        """Takes a datagram of which only the first request counts (§5.2)."""
        start = wire.request_start(datagram)
        if start >= 0 and not self._admits(source, now):
            return
        strangers.count_unvouched(datagram, start, self.limits.lines_per_datagram, self.drops)
        if start < 0:
            return
        request = wire.parse_request(datagram[start : max(start, datagram.find(b"\n", start))])
        if isinstance(request, wire.Ping):
            self._pong(request.nonce, datagram, source, now, is_admitted=True)
        elif not isinstance(request, wire.Ask):
            self.drops[Drop.MALFORMED] += 1
        elif len(datagram) < REQUEST_BYTES_MIN:
            self.drops[Drop.SHORT] += 1
        else:
            self._challenge(request.nonce, datagram, source, now, is_admitted=True)

    def _receive_bare(self, datagram: bytes, source: Address, now: float) -> None:
        """Takes a datagram without a cookie: `%?`, `%~`, publishes (§7.2), and what an open server takes."""
        lines = strangers.split(datagram, self.drops)
        if len(lines) > self.limits.lines_per_datagram:
            self.drops[Drop.TOO_MANY_LINES] += 1
            ping = wire.parse_request(lines[0])
            if isinstance(ping, wire.Ping):
                self._pong(ping.nonce, datagram, source, now, is_refused=True)
            return
        subscribes, publishes, controls = wire.sorted_lines(lines)
        request = strangers.first_request(controls, self.drops) if controls else None
        is_open = self._is_open_to(source)
        if subscribes and is_open:
            self._leasing.expire(now)
            refused, _ = self._leasing.ask(subscribes, None, FREE, source, now)
            if refused.bit_count() < len(subscribes):
                self._subscribers.leased(source, now, is_bare=True)
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
        self, datagram: bytes, publishes: Sequence[bytes], is_open: bool, source: Address, now: float
    ) -> None:
        if not is_open and not self.publish_leases.has(source, now):
            self.drops[Drop.UNVOUCHED_PUBLISH] += len(publishes)
        elif self._open_to is not None and datagram.startswith(b"\n"):
            # It is, or looks like, what an open server has forwarded already (§4.4).
            self.drops[Drop.COPY] += len(publishes)
        elif demand := self._publishing.take_bare(publishes, source, now):
            self._publishing.forward(publishes, demand, source, now)

    # --- Answers -------------------------------------------------------------------------------------

    def _mint(self, source: Address, now: float) -> tuple[bytes, Quote]:
        self._subscribers.minted(source, now)
        quote = self._price.quote(source, now)
        return self._cookies.mint(source, now, quote), quote

    def _challenge(
        self,
        nonce: bytes,
        datagram: bytes,
        source: Address,
        now: float,
        *,
        is_proven: bool = False,
        is_admitted: bool = False,
    ) -> None:
        if not is_proven and not is_admitted and not self._admits(source, now):
            return
        self.counts["cookies_issued"] += 1
        cookie, quote = self._mint(source, now)
        attributes = quote.attributes | self._head | self._drain
        challenge = wire.Challenge(nonce, cookie, quote.bits, attributes)
        self._reply(datagram, source, wire.format_line(challenge), is_proven=is_proven)

    def _admits(self, stranger: Address, now: float) -> bool:
        if self._stranger_budget.admits(stranger, now):
            return True
        # Silence: an answer that says so would cost what the limit saves.
        self.drops[Drop.CHALLENGE_RATE] += 1
        return False

    def _pong(
        self,
        nonce: bytes,
        datagram: bytes,
        source: Address,
        now: float,
        *,
        is_refused: bool = False,
        is_admitted: bool = False,
    ) -> None:
        """Answers a ping (§5.9), with 0 if bare lines were refused: then the client vouches, and is told."""
        left_s = int(self.publish_leases.left_s(source, now))
        is_proven = left_s > 0
        if not is_proven and not is_admitted and not self._admits(source, now):
            return
        if is_proven and (is_refused or self._publishing.rates.was_overdrawn(source, now)):
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
        self._replies.append(Transmit(answer, len(answer), (source,), 0))

    def _audience_of(self, publishes: Sequence[bytes], now: float) -> int:
        """Returns about the largest number of leases on one of these topics, as a receipt can tell it."""
        topics = {line.partition(b" ")[0] for line in publishes}
        return min(max(self.leases.live_count(topic, now) for topic in topics), AUDIENCE_MAX)
