"""The dumb server: a table of who wants which topic, and forwarding. Sans-IO. PROTOCOL §4 to §7.

What is checked, in this order, cheapest first; nothing is kept for an address before its cookie is good:

    length -> lines -> first line's verb -> request at least as long as its answer -> cookie -> table

Every datagram gets at most one datagram back, never longer than itself. A reply verb that arrives is
dropped, so no forged packet can set two servers talking (open ones apart, §4.4). All that is not done is
counted in `drops`.

Copies leave in `flush`, not in `receive`: a batch of bursts is routed first, then each subscriber gets all
its lines in as few datagrams as they fit (§4.3).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from enum import StrEnum

from pubsub import wire
from pubsub.cookie import Cookies
from pubsub.endpoint import Address, Burst, Transmit, datagrams
from pubsub.limits import (
    COOKIE_LEASE_LIFE_S,
    DATAGRAM_BYTES_MAX,
    LEASES_MAX_DEFAULT,
    LINES_PER_DATAGRAM_MAX,
    PUBLISH_LEASES_MAX_DEFAULT,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MIN,
    TTL_S_DEFAULT,
    TTL_S_MAX,
)
from pubsub.table import ExpiringSet, LeaseTable


class Drop(StrEnum):
    """Why something that arrived had no effect. Of a datagram, of a line, or of a burst's own copies."""

    OWN_ADDRESS = "own-address"
    OVERSIZE = "oversize"
    EMPTY = "empty"
    TOO_MANY_LINES = "too-many-lines"
    UNTERMINATED = "unterminated"
    SHORT = "short"
    MALFORMED = "malformed"
    REPLY_VERB = "reply-verb"
    UNKNOWN_VERB = "unknown-verb"
    MISPLACED = "misplaced"
    EXTRA_REQUEST = "extra-request"
    COOKIE_FOREIGN = "cookie-foreign"
    COOKIE_OLD = "cookie-old"
    UNVOUCHED_SUBSCRIBE = "unvouched-subscribe"
    UNVOUCHED_PUBLISH = "unvouched-publish"
    TOPIC = "topic"
    TABLE_FULL = "table-full"
    NO_SUBSCRIBER = "no-subscriber"


class Server:
    """One server's core; satisfies `Endpoint`.

    `secret` is 32 random bytes, new for each process. `own_addresses` are the addresses it is reached at,
    which can be no subscriber. `open_to` tells which sources may speak the bare note without a handshake
    (§4.4); None is nobody.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        ttl_s: float = TTL_S_DEFAULT,
        capacity: int = LEASES_MAX_DEFAULT,
        publish_capacity: int = PUBLISH_LEASES_MAX_DEFAULT,
        own_addresses: frozenset[Address] = frozenset(),
        open_to: Callable[[Address], bool] | None = None,
    ) -> None:
        if not 1 <= ttl_s <= TTL_S_MAX:
            raise ValueError(f"ttl_s is {ttl_s}: give 1 to {TTL_S_MAX} seconds")
        self.leases = LeaseTable(ttl_s, capacity)
        self.publish_leases: ExpiringSet[Address] = ExpiringSet(ttl_s, publish_capacity)
        self.counts: Counter[str] = Counter()
        self.drops: Counter[Drop] = Counter()
        self._cookies = Cookies(secret)
        self._own_addresses = own_addresses
        self._open_to = open_to
        self._replies: list[Transmit] = []
        self._bursts: list[Transmit] = []
        self._lines_by_topic: defaultdict[bytes, list[bytes]] = defaultdict(list)

    # --- Endpoint ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, now: float) -> None:
        """Routes what arrived; copies and answers wait for `flush`."""
        if burst.source in self._own_addresses:
            self.drops[Drop.OWN_ADDRESS] += sum(1 for _ in datagrams(burst.data, burst.segment_bytes))
        elif not self._forward_whole(burst, now):
            for datagram in datagrams(burst.data, burst.segment_bytes):
                self._receive_datagram(datagram, burst.source, now)

    def handle_timeout(self, now: float) -> None:
        """Forgets what has expired."""
        self._expire_leases(now)
        self.publish_leases.pop_expired(now)

    def next_timeout(self) -> float | None:
        """When the first lease of either kind ends."""
        ends = (self.leases.next_expiry(), self.publish_leases.next_expiry())
        return min((at for at in ends if at is not None), default=None)

    def flush(self, now: float) -> list[Transmit]:
        """Answers first, then copies."""
        transmits = self._replies + self._bursts + list(self._pack_lines(now))
        self._replies, self._bursts = [], []
        self._lines_by_topic.clear()
        return transmits

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
        elif len(lines) > LINES_PER_DATAGRAM_MAX:
            self.drops[Drop.TOO_MANY_LINES] += 1
        elif lines[0].startswith(b"%!"):
            self._receive_vouched(datagram, lines, source, now)
        else:
            self._receive_bare(datagram, lines, source, now)

    def _receive_vouched(self, datagram: bytes, lines: list[bytes], source: Address, now: float) -> None:
        """A datagram whose first line shows a cookie: leases, publishes, one receipt (§5.4)."""
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
            self._reply(datagram, source, self._challenge(vouch.nonce, source, now))
            return
        subscribes, publishes = self._sort_lines(lines[1:])
        if subscribes and age_s > COOKIE_LEASE_LIFE_S:
            self.drops[Drop.COOKIE_OLD] += 1
            self._reply(datagram, source, self._challenge(vouch.nonce, source, now))
            return
        refused, reason = self._renew_leases(subscribes, source, now)
        for line in publishes:
            self._forward(line)
        attributes = {}
        if publishes or not subscribes:
            self.publish_leases.pop_expired(now)
            if not self.publish_leases.renew(source, now):
                self.drops[Drop.TABLE_FULL] += 1
                attributes["bare"] = "0"
        answer = b""
        if publishes or not subscribes or refused.bit_count() < len(subscribes):
            cookie = self._cookies.mint(source, now)
            ttl_s = int(self.leases.ttl_s)
            answer = wire.format_line(wire.Receipt(vouch.nonce, ttl_s, cookie, bits=0, attributes=attributes))
        if refused:
            answer += wire.format_line(wire.Refusal(vouch.nonce, reason, refused))
        self._reply(datagram, source, answer)

    def _sort_lines(self, lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Subscribe lines, and publish lines, of a vouched datagram."""
        subscribes, publishes = [], []
        for line in lines:
            if wire.is_control(line):
                # A receipt says all that a pong would, and only the first line can vouch.
                misplaced = line.startswith((b"%!", b"%?", b"%~"))
                self.drops[Drop.MISPLACED if misplaced else self._control_drop(line)] += 1
            elif b" " in line:
                publishes.append(line)
            else:
                subscribes.append(line)
        return subscribes, publishes

    def _renew_leases(self, topics: list[bytes], source: Address, now: float) -> tuple[int, str]:
        """Bitmap of the topics refused, and the first reason."""
        self._expire_leases(now)
        refused, reason = 0, ""
        for index, topic in enumerate(topics):
            if not wire.is_topic(topic):
                self.drops[Drop.TOPIC] += 1
                refused, reason = refused | 1 << index, reason or "topic"
            elif not self.leases.renew(topic, source, now):
                self.drops[Drop.TABLE_FULL] += 1
                refused, reason = refused | 1 << index, reason or "full"
            else:
                self.counts["leases_renewed"] += 1
        return refused, reason

    def _expire_leases(self, now: float) -> None:
        expired = self.leases.expire(now)
        if expired:
            self.counts["leases_expired"] += expired

    def _receive_bare(self, datagram: bytes, lines: list[bytes], source: Address, now: float) -> None:
        """A datagram that shows no cookie: publishes under a publish lease, `%?`, `%~`, the open note."""
        is_open = self._is_open_to(source)
        may_publish = is_open or self.publish_leases.left_s(source, now) > 0
        request: wire.Ask | wire.Ping | None = None
        for line in lines:
            if wire.is_control(line):
                parsed = wire.parse_request(line)
                if isinstance(parsed, (wire.Ask, wire.Ping)) and request is None:
                    request = parsed
                elif isinstance(parsed, (wire.Ask, wire.Ping)):
                    self.drops[Drop.EXTRA_REQUEST] += 1
                elif isinstance(parsed, wire.Vouch):
                    self.drops[Drop.MISPLACED] += 1
                else:
                    self.drops[self._control_drop(line)] += 1
            elif b" " in line:
                if may_publish:
                    self._forward(line)
                else:
                    self.drops[Drop.UNVOUCHED_PUBLISH] += 1
            elif not is_open:
                self.drops[Drop.UNVOUCHED_SUBSCRIBE] += 1
            else:
                self._renew_leases([line], source, now)
        if isinstance(request, wire.Ask):
            if len(datagram) < REQUEST_BYTES_MIN:
                self.drops[Drop.SHORT] += 1
            else:
                self._reply(datagram, source, self._challenge(request.nonce, source, now))
        elif isinstance(request, wire.Ping):
            left_s = int(self.publish_leases.left_s(source, now))
            self._reply(datagram, source, wire.format_line(wire.Pong(request.nonce, left_s)))

    def _is_open_to(self, source: Address) -> bool:
        return self._open_to is not None and self._open_to(source)

    @staticmethod
    def _control_drop(line: bytes) -> Drop:
        if line.startswith(wire.REPLY_VERBS):
            return Drop.REPLY_VERB
        return Drop.MALFORMED if line.startswith((b"%!", b"%?", b"%~")) else Drop.UNKNOWN_VERB

    # --- Answers -------------------------------------------------------------------------------------

    def _challenge(self, nonce: bytes, source: Address, now: float) -> bytes:
        self.counts["cookies_issued"] += 1
        return wire.format_line(wire.Challenge(nonce, self._cookies.mint(source, now), bits=0))

    def _reply(self, request: bytes, source: Address, answer: bytes) -> None:
        """Sends the one answer to a datagram, unless it is longer than what it answers (§5.2)."""
        assert len(answer) <= REPLY_BYTES_MAX
        if len(answer) > len(request):
            self.drops[Drop.SHORT] += 1
            return
        self.counts["answers_sent"] += 1
        self._replies.append(Transmit(answer, len(answer), (source,)))

    # --- Forwarding ----------------------------------------------------------------------------------

    def _forward_whole(self, burst: Burst, now: float) -> bool:
        """Forwards a burst as it came, if every non-blank line is a publish of one topic (§4.3).

        Decided by counting, without cutting 64 KB into lines: all lines start with `topic SP` when that
        prefix stands at the start and after every LF that ends a non-blank line.
        """
        data, segment_bytes, source = burst
        if len(data) <= segment_bytes or segment_bytes > DATAGRAM_BYTES_MAX:
            return False
        if not (self.publish_leases.left_s(source, now) > 0 or self._is_open_to(source)):
            return False
        topic, space, _ = data[:DATAGRAM_BYTES_MAX].partition(b" ")
        if not space or data[-1:] != b"\n" or data[segment_bytes - 1 :: segment_bytes].strip(b"\n"):
            return False
        prefix = topic + b" "
        # Most bursts of several topics show it in their second datagram: they need not be counted through.
        second = data[segment_bytes : 2 * segment_bytes].lstrip(b"\n")
        if second and not second.startswith(prefix):
            return False
        line_count = 1 + data.count(b"\n" + prefix)
        line_counts = [datagram.count(b"\n") for datagram in datagrams(data, segment_bytes)]
        if sum(line_counts) != line_count and b"\n\n" in data:
            line_counts = [len(wire.split_lines(datagram)[0]) for datagram in datagrams(data, segment_bytes)]
        if (
            sum(line_counts) != line_count
            or max(line_counts) > LINES_PER_DATAGRAM_MAX
            or not wire.is_topic(topic)
        ):
            return False
        self.counts["datagrams_received"] += len(line_counts)
        self.counts["messages_received"] += line_count
        subscribers = self.leases.subscribers(topic, now)
        if subscribers:
            waiting = self._lines_by_topic.pop(topic, None)
            if waiting:
                # What came before it leaves before it.
                line_count += len(waiting)
                self._bursts.append(Transmit(*wire.pack_lines(waiting), subscribers))
            self.counts["copies_sent"] += line_count * len(subscribers)
            self._bursts.append(Transmit(data, segment_bytes, subscribers))
        else:
            self.drops[Drop.NO_SUBSCRIBER] += line_count
        return True

    def _forward(self, line: bytes) -> None:
        topic = line[: line.index(b" ")]
        self.counts["messages_received"] += 1
        self._lines_by_topic[topic].append(line)

    def _pack_lines(self, now: float) -> Iterator[Transmit]:
        """Each subscriber's lines in as few datagrams as they fit; one packing for equal sets of topics.

        A topic that has enough for a datagram by itself is packed once for all its subscribers: to copy it
        for each would let a few busy topics and many odd sets of them fill the memory.
        """
        topics_of: defaultdict[Address, list[bytes]] = defaultdict(list)
        for topic, lines in self._lines_by_topic.items():
            subscribers = self.leases.subscribers(topic, now)
            if not subscribers:
                # Only canonical topics get into the table, so the check is needed just here.
                self.drops[Drop.NO_SUBSCRIBER if wire.is_topic(topic) else Drop.TOPIC] += len(lines)
                continue
            self.counts["copies_sent"] += len(lines) * len(subscribers)
            if sum(map(len, lines)) > DATAGRAM_BYTES_MAX // 2:
                yield Transmit(*wire.pack_lines(lines), subscribers)
                continue
            for address in subscribers:
                topics_of[address].append(topic)
        audiences: defaultdict[tuple[bytes, ...], list[Address]] = defaultdict(list)
        for address, topics in topics_of.items():
            audiences[tuple(topics)].append(address)
        for topics_wanted, addresses in audiences.items():
            wanted = [line for topic in topics_wanted for line in self._lines_by_topic[topic]]
            yield Transmit(*wire.pack_lines(wanted), addresses)
