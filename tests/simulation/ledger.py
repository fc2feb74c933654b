"""What an outside observer of the wire knows: which cookies, leases and messages there are.

This is a second, naive account of the protocol, kept from what is sent and received and from what
applications publish. It shares no code with the cores but the codec, which has vectors of its own.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from kcast.client.events import Delivery
from kcast.client.messages.envelope import Envelope, format_envelope, parse_envelope
from kcast.client.messages.guard_and_writer import Told
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, HEADER_BYTES, Limits
from kcast.pubsub.networks import Networks, Share
from tests.simulation.credits import Credits
from tests.simulation.network import Clock, Packet
from tests.simulation.options import Options

if TYPE_CHECKING:
    from tests.simulation.hosts import ClientHost, ServerHost
    from tests.simulation.taps import TapRecord

Lease = tuple[Address, bytes]

HEX = b"0123456789ABCDEFabcdef"
LEASE_COOKIE_S = 128.0
PUBLISH_COOKIE_S = 3600.0
WINDOW_S = 120.0
RAW_OPEN_S = 2.0
ROUNDING = 1e-6


@lru_cache(maxsize=8192)
def lines_of(datagram: bytes) -> tuple[bytes, ...]:
    """Its non-blank lines; a last one without LF is none."""
    return tuple([line for line in datagram.split(b"\n")[:-1] if line])


def is_control(line: bytes) -> bool:
    return line[:1] == b"%" and not (len(line) >= 3 and line[1] in HEX and line[2] in HEX)


def is_answer(datagram: bytes) -> bool:
    """Whether it begins as a server's answer does, and not as a copy."""
    return datagram[:2] in (b"%=", b"%+", b"%-", b"%:")


@lru_cache(maxsize=8192)
def reply_in(line: bytes) -> wire.Reply | None:
    """What a line answers: `wire.parse_reply`, which several checkers ask about each line."""
    return wire.parse_reply(line)


def topic_of(line: bytes) -> bytes:
    return line.partition(b" ")[0]


@lru_cache(maxsize=8192)
def prefix_of(host: str) -> str:
    """The network that has a limit of its own: the first 24 bits of an IPv4 address, 48 of an IPv6 one."""
    if ":" in host:
        return ":".join(ip_address(host).exploded.split(":")[:3])
    return host.rpartition(".")[0]


def line_of(delivery: Delivery, copies: Collection[bytes] = ()) -> bytes:
    """The line that this delivery came from, without LF: one of those that came, else as a client writes it.

    Others may write the same envelope in another way.
    """
    topic = wire.encode_topic(delivery.topic)
    if delivery.publisher is None or delivery.seq is None:
        return topic + b" " + wire.encode_message(delivery.payload)
    envelope = Envelope(delivery.publisher, delivery.seq, delivery.payload, delivery.attributes)
    line = topic + b" " + format_envelope(envelope)
    if not copies or line in copies:
        return line
    of_topic = (other for other in copies if topic_of(other) == topic)
    return next((each for each in of_topic if parse_envelope(each[len(topic) + 1 :]) == envelope), line)


@dataclass(slots=True)
class Request:
    """A datagram that reached a server in a turn, and what came of it."""

    packet: Packet
    lines: tuple[bytes, ...]
    answer: bytes | None = None
    cookie_age_s: float | None = None  # of a cookie that this server had issued to this address
    is_cookie_received: bool = False
    forwards: bool = False  # whether its publishes are to be forwarded
    may_forward: bool = False  # whether they may be
    is_within_rate: bool = True  # whether its source had surely not used up what it may publish
    opened: tuple[bytes, ...] = ()  # topics of leases that were granted, and surely did not stand before
    refused: tuple[bytes, ...] = ()
    refused_live: tuple[bytes, ...] = ()  # those of them that stood, by promise
    reason: bytes = b""  # of the refusal, if there is one
    quote: "Quote | None" = None  # what was told with the cookie
    renewed_count: int = 0  # leases that were granted, and stood by promise

    @property
    def is_vouched(self) -> bool:
        return bool(self.lines) and self.lines[0].startswith(b"%!")

    @property
    def is_granted(self) -> bool:
        return self.answer is not None and any(line[:2] == b"%+" for line in lines_of(self.answer))

    def is_too_long(self, limits: Limits) -> bool:
        size_bytes = len(self.packet.data)
        return size_bytes > DATAGRAM_BYTES_MAX or len(self.lines) > limits.lines_per_datagram

    def publishes(self) -> list[bytes]:
        return [line for line in self.lines if b" " in line and not is_control(line)]

    def subscribes(self) -> list[bytes]:
        return [line for line in self.lines if b" " not in line and not is_control(line)]


class Quote(NamedTuple):
    """The prices that an answer told with its cookie, in bits: of a new lease, and of keeping one of many."""

    bits: int
    keep_bits: int


class Deadlines:
    """When each lease ends. Those that have ended are still known, but not counted."""

    def __init__(self) -> None:
        self.at: dict[Lease, float] = {}
        self.changes = 0
        """How often a lease has come or gone: where this is the same, they are the same leases."""
        self._live: dict[Lease, None] = {}
        self._ending: list[tuple[float, Lease]] = []

    def put_off(self, lease: Lease, until: float) -> None:
        """It lives at least until then."""
        if until > self.at.get(lease, -1.0):
            self.at[lease] = until
            self.changes += lease not in self._live
            self._live[lease] = None
            heapq.heappush(self._ending, (until, lease))

    def end(self, lease: Lease, now: float) -> None:
        """It has ended before its time."""
        if lease in self._live:
            self.at[lease] = now
            del self._live[lease]
            self.changes += 1

    def has(self, lease: Lease, now: float) -> bool:
        return self.at.get(lease, -1.0) > now

    def live(self, now: float) -> dict[Lease, None]:
        """All that have not ended by now, in the order in which they began."""
        while self._ending and self._ending[0][0] <= now:
            until, lease = heapq.heappop(self._ending)
            if self.at[lease] == until and lease in self._live:
                del self._live[lease]
                self.changes += 1
        return self._live


NETWORKS = Networks()


class Allowance:
    """What an IP or a network may publish in a second, and has in hand: a second's worth, or `most_s`."""

    def __init__(self, per_s: float, now: float, most_s: float = 1.0) -> None:
        self.per_s = per_s
        self._left = self._most = per_s * most_s
        self._at = now

    def left(self, now: float) -> float:
        self._left = min(self._most, self._left + (now - self._at) * self.per_s)
        self._at = now
        return self._left

    def charge(self, amount: int, now: float) -> None:
        self._left = self.left(now) - amount


class Boot:
    """One life of one server, from its start to its crash.

    What a receipt promised is a lease in `promised`. A lease may live longer than that: in `possible`.
    """

    def __init__(self, name: str, address: Address, options: Options, tap: "TapRecord") -> None:
        self.name = name
        self.tap = tap
        self.address = address
        self.options = options
        self.issued: defaultdict[Address, dict[bytes, float]] = defaultdict(dict)
        self.received: defaultdict[Address, set[bytes]] = defaultdict(set)
        self.proven: set[Address] = set()
        self.promised = Deadlines()
        self.possible = Deadlines()
        self.perhaps_established: set[Lease] = set()  # renewed half an interval later, or more
        self.established: set[Lease] = set()  # those of them for which there surely was room
        self.pushed_out: dict[Lease, float] = {}  # and until when their clients may still believe in them
        self.quotes: dict[tuple[Address, bytes], Quote] = {}
        self.leased_since: dict[Lease, float] = {}
        self.leases_by_topic: defaultdict[bytes, set[Address]] = defaultdict(set)
        self.publish_leased_since: dict[Address, float] = {}
        self.publish_promised: dict[Address, float] = {}
        self.publish_possible: dict[Address, float] = {}
        # Bare lines are counted apart from vouched ones: anyone may have forged them.
        self.offered: dict[tuple[Share, bool], Allowance] = {}
        self.offered_copies: dict[tuple[Share, bool], Allowance] = {}
        self.offered_bytes: dict[tuple[Share, bool], Allowance] = {}
        self.credits = Credits()
        self.draining_since: float | None = None
        self.bytes_in: Counter[Address] = Counter()
        self.bytes_out: Counter[Address] = Counter()
        self.datagrams_in: Counter[Address] = Counter()
        self.answers_out: Counter[Address] = Counter()
        self.refusals: Counter[str] = Counter()
        self.unproven_bytes_in = 0
        self.unproven_bytes_out = 0
        self.copies_out = 0
        self.handed_over = 0

    def may_answer(self, request: Request, answer: bytes) -> bool:
        """Whether this may rightly be the answer to a request: a receipt or a refusal only to one with a
        cookie that was made for its address."""
        if answer[:2] not in (b"%+", b"%-"):
            return True
        fields = request.lines[0].split(b" ") if request.is_vouched else []
        return len(fields) > 2 and fields[2] in self.issued[request.packet.source]

    def cookie_received(self, address: Address, lines: tuple[bytes, ...]) -> None:
        """A datagram of this server has really come to `address`."""
        for line in lines:
            if (cookie := _cookie_in(line)) is not None:
                self.received[address].add(cookie)

    def renewed(self, lease: Lease, now: float) -> None:
        """A lease that stands is renewed: after half an interval that establishes it, where there is room."""
        if now - self.leased_since[lease] < self.options.renewal_interval_s / 2 - ROUNDING:
            return
        if lease not in self.established:
            self.perhaps_established.add(lease)
            if self._has_room_beside(lease, now):
                self.established.add(lease)

    def _has_room_beside(self, lease: Lease, now: float) -> bool:
        """Whether a lease and all that are perhaps established leave a quarter of each limit free."""
        limits, perhaps = self.options.limits, self.perhaps_established
        # Nobody here knows whose network has opened which topic.
        topics_max = 0.75 * min(limits.topics, limits.topics_per_prefix)
        if len(perhaps) <= min(0.75 * limits.leases, 0.75 * limits.leases_per_prefix, topics_max):
            return True
        perhaps.intersection_update(self.possible.live(now))
        if len(perhaps) > 0.75 * limits.leases or len({topic for _, topic in perhaps}) > topics_max:
            return False
        network = prefix_of(lease[0][0])
        neighbours = sum(prefix_of(host) == network for (host, _), _ in perhaps)
        return neighbours <= 0.75 * limits.leases_per_prefix

    def is_leased(self, address: Address, topic: bytes, now: float) -> bool:
        """Whether a receipt promised that this lease stands now."""
        return self.promised.has((address, topic), now)

    def audience(self, topic: bytes, now: float) -> list[Address]:
        """Who has a live lease that stood before `now`: a new one may come too late for what came with it."""
        return [
            address
            for address in self.leases_by_topic.get(topic, ())
            if self.is_leased(address, topic, now) and self.leased_since[address, topic] < now
        ]

    def may_surely_publish(self, source: Address, now: float) -> bool:
        """Whether it has a live publish lease that stood before `now`: bare lines that come with the vouch
        that opens it were sent before anybody knew of it."""
        return self.publish_promised.get(source, -1.0) > now > self.publish_leased_since[source]

    def offer(self, request: Request, now: float) -> bool:
        """A request publishes its lines; whether its source has surely not used up what it may.

        Whoever ever held a lease on a topic counts as one that gets a copy: it may have lapsed a moment ago.
        """
        limits, publishes = self.options.limits, request.publishes()
        copies = sum(len(self.leases_by_topic.get(topic_of(line), ())) for line in publishes)
        size_bytes = sum(
            (len(line) + 1 + HEADER_BYTES) * len(self.leases_by_topic.get(topic_of(line), ()))
            for line in publishes
        )
        # Where the uplink is busy, too much may wait already.
        is_within = not limits.uplink_bytes_per_s
        for share, factor in NETWORKS.shares_of(request.packet.source):
            # Lines with a cookie count for bare ones too, but not the other way round.
            for is_vouched in {False, request.is_vouched}:
                who = share, is_vouched
                if who not in self.offered:
                    self.offered[who] = Allowance(factor * limits.publishes_per_s, now)
                    self.offered_copies[who] = Allowance(factor * limits.copies_per_s, now)
                    self.offered_bytes[who] = Allowance(factor * limits.egress_bytes_per_s, now)
                for allowance, amount in (
                    (self.offered[who], len(publishes)),
                    (self.offered_copies[who], copies),
                    (self.offered_bytes[who], size_bytes),
                ):
                    if is_vouched == request.is_vouched:
                        is_within &= not allowance.per_s or allowance.left(now) > ROUNDING
                    allowance.charge(amount, now)
        return is_within

    def publish_leased(self, source: Address, now: float, until: float, until_at_most: float) -> None:
        if self.publish_promised.get(source, -1.0) <= now:
            self.publish_leased_since[source] = now
        self.publish_promised[source] = until
        self.publish_possible[source] = until_at_most


def _cookie_in(answer_line: bytes) -> bytes | None:
    fields = answer_line.split(b" ")
    if fields[0] == b"%=" and len(fields) > 2:
        return fields[2]
    if fields[0] == b"%+" and len(fields) > 3:
        return fields[3]
    return None


def _quote_in(answer_line: bytes) -> Quote | None:
    reply = reply_in(answer_line)
    if not isinstance(reply, wire.Challenge | wire.Receipt):
        return None  # others look for answers that are none
    return Quote(reply.bits, int(reply.attributes.get("keep", 0)))


@dataclass(slots=True)
class ServerTurn:
    """What a server was given in one turn and what it sent. `unasked` are answers to nothing."""

    host: "ServerHost"
    boot: Boot
    now: float
    packets: list[Packet]
    sent: list[tuple[Address, bytes]]
    requests: list[Request] = field(default_factory=list)
    unasked: list[tuple[Address, bytes]] = field(default_factory=list)
    evicted: list[Lease] = field(default_factory=list)  # pushed out
    broken: list[Lease] = field(default_factory=list)  # those of them that were promised for longer
    unfair: list[Lease] = field(default_factory=list)  # and were established
    copies: Counter[tuple[Address, bytes]] = field(default_factory=Counter)  # who is sent which lines


@dataclass(slots=True)
class ClientTurn:
    """What a client was given in one turn, what it sent, and what it told its application.

    `copies` is the account of the lines that came, `delivered` which lines were delivered.
    """

    host: "ClientHost"
    now: float
    packets: list[Packet]
    sent: list[tuple[Address, bytes]]
    events: list[Told]
    copies: "dict[bytes, Copies]" = field(default_factory=dict)
    delivered: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Copies:
    """What a client has had of a line since it last went a whole window without a copy of it."""

    last_at: float
    last_arrival: int
    delivered: int = 0
    again: int = 0  # how often it may be delivered again, for what came in between
    raw_due: int = 0  # how often it should have been delivered, were it raw
    raw_open: list[tuple[float, set[str]]] = field(default_factory=list)

    def take_raw(self, server: str, now: float) -> None:
        """Accounts for a copy of a raw line as PROTOCOL §9.3 says."""
        self.raw_open = [(at, servers) for at, servers in self.raw_open if now - at < RAW_OPEN_S]
        for _, servers in self.raw_open:
            if server not in servers:
                servers.add(server)
                return
        self.raw_open.append((now, {server}))
        self.raw_due += 1


def _head(line: bytes) -> bytes:
    """Topic, publisher and number of an enveloped line."""
    topic, _, message = line.partition(b" ")
    return topic + b" " + message.partition(b" ")[0].partition(b";")[0]


@dataclass(slots=True)
class Message:
    """Something published: by whom, when, and which servers have forwarded it.

    At those in `tampered`, an attacker on the path has put something else into the request. At those in
    `shadowed`, one who forges the publisher's address was there at the same time: what comes in a burst
    behind a datagram without a good cookie is not looked at, unless its source has a lease.
    """

    topic: bytes
    publisher: "ClientHost"
    at: float
    is_unique: bool
    confirm: bool
    forwarded: set[str] = field(default_factory=set)
    tampered: set[str] = field(default_factory=set)
    shadowed: set[str] = field(default_factory=set)


class Ledger:
    """The account of a whole run."""

    def __init__(self, clock: Clock) -> None:
        self.messages: dict[bytes, Message] = {}
        self.log: list[tuple[bytes, Message]] = []
        self.forged: set[bytes] = set()
        self.delivered: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
        self.answers: list[bytes] = []
        self._clock = clock
        self._by_head: dict[bytes, Message] = {}
        self._copies: defaultdict[str, dict[bytes, Copies]] = defaultdict(dict)
        self._arrivals: Counter[str] = Counter()

    def publish(self, host: "ClientHost", topic: bytes, payload: bytes, *, confirm: bool, raw: bool) -> None:
        """An application is about to publish."""
        wire_topic = wire.encode_topic(topic)
        if raw:
            message = wire.encode_message(payload)
        else:
            host.seqs[wire_topic] = seq = host.seqs.get(wire_topic, 0) + 1
            message = format_envelope(Envelope(host.core.publisher, seq, payload))
        line = wire.publish_line(wire_topic, message)[:-1]
        before = self.messages.get(line)
        if before is not None:
            before.is_unique = False  # what is seen of one of them may be the other's
        message_sent = Message(topic, host, self._clock.time, before is None, confirm)
        self.messages[line] = message_sent
        self.log.append((line, message_sent))
        self._by_head[_head(line)] = message_sent

    def message_by_number(self, topic: bytes, publisher: str, seq: int) -> Message | None:
        """The message of this number that this publisher really published on a decoded topic."""
        return self._by_head.get(b"%b %%@%b.%d" % (wire.encode_topic(topic), publisher.encode(), seq))

    def client_turn(self, turn: ClientTurn) -> None:
        """Counts the copies that the client should look at, and what it has delivered."""
        name, now = turn.host.name, turn.now
        known = self._copies[name]
        for packet in turn.packets:
            for line in lines_of(packet.data) if len(packet.data) <= DATAGRAM_BYTES_MAX else ():
                if is_control(line) or packet.source not in turn.host.believed(topic_of(line)):
                    continue
                self._arrivals[name] += 1
                entry = known.get(line)
                if entry is None or (line not in turn.copies and self._is_forgotten(turn, entry)):
                    entry = known[line] = Copies(now, 0)
                elif line in turn.copies and self._is_forgotten(turn, entry):
                    # In one turn so much came between that this one was forgotten, and from whom it came.
                    entry.again += 1
                    entry.raw_open.clear()
                entry.take_raw(turn.host.world.server_at[packet.source].name, now)
                entry.last_at, entry.last_arrival = now, self._arrivals[name]
                turn.copies[line] = entry
        for event in turn.events:
            if isinstance(event, Delivery):
                # Others may write one envelope in two ways, which are two messages: each may be delivered.
                undelivered = [line for line, entry in turn.copies.items() if not entry.delivered]
                line = line_of(event, undelivered)
                if line not in turn.copies:
                    line = line_of(event, turn.copies)
                turn.delivered.add(line)
                self.delivered[name][line] += 1
                if line in turn.copies:
                    turn.copies[line].delivered += 1

    def _is_forgotten(self, turn: ClientTurn, entry: Copies) -> bool:
        """Whether the client may have forgotten this line, for its age or for all that came since."""
        since = self._arrivals[turn.host.name] - entry.last_arrival
        return turn.now - entry.last_at >= WINDOW_S or since >= turn.host.world.options.window_count

    def forge(self, datagram: bytes) -> None:
        """An attacker sends this; what it has of publishes counts as published, by the attacker."""
        self.forged.update(lines_of(datagram))

    def server_turn(self, turn: ServerTurn) -> None:
        """Brings the boot's account up to date, in the order in which things arrived."""
        boot, now = turn.boot, turn.now
        boot.handed_over += len(turn.packets)
        waiting: defaultdict[tuple[Address, bytes], list[Request]] = defaultdict(list)
        for packet in turn.packets:
            request = Request(packet, lines_of(packet.data))
            turn.requests.append(request)
            boot.bytes_in[packet.source] += len(packet.data)
            boot.datagrams_in[packet.source] += 1
            for line in request.lines:
                if line[:2] in (b"%!", b"%?", b"%~"):
                    waiting[packet.source, line.split(b" ")[1] if b" " in line else b""].append(request)
        for destination, data in turn.sent:
            boot.bytes_out[destination] += len(data)
            if is_answer(data):
                self.answers.append(data)
                boot.answers_out[destination] += 1
                nonce = data.split(b" ")[1] if b" " in data else b""
                queue = waiting[destination, nonce]
                open_requests = [each for each in queue if each.answer is None]
                # Liars use a nonce twice, with a good cookie and with a bad one that gets silence.
                likely = (each for each in open_requests if boot.may_answer(each, data))
                answered = next(likely, next(iter(open_requests), None))
                if answered is not None:
                    answered.answer = data
                else:
                    turn.unasked.append((destination, data))
            else:
                lines = lines_of(data)
                boot.copies_out += len(lines)
                for line in lines:
                    turn.copies[destination, line] += 1
        turn.evicted = boot.tap.take_evicted()
        for request in turn.requests:
            self._account(boot, request, now)
            if request.answer is not None and any(map(_cookie_in, lines_of(request.answer))):
                boot.credits.made_cookie(request.packet.source, now)
        self._push_out(turn)
        self._shadow(turn)
        for destination, data in turn.sent:
            if not is_answer(data):
                boot.credits.sent(destination, len(data))
            else:
                for line in lines_of(data):
                    if (cookie := _cookie_in(line)) is not None:
                        boot.issued[destination].setdefault(cookie, now)
                        if (quote := _quote_in(line)) is not None:
                            boot.quotes.setdefault((destination, cookie), quote)

    def _shadow(self, turn: ServerTurn) -> None:
        forged = {request.packet.source for request in turn.requests if request.packet.sender is None}
        for request in turn.requests if forged else ():
            if request.packet.sender is not None and request.packet.source in forged:
                for line in request.publishes():
                    if (message := self.messages.get(line)) is not None:
                        message.shadowed.add(turn.boot.name)

    def _account(self, boot: Boot, request: Request, now: float) -> None:
        source = request.packet.source
        if request.is_vouched:
            fields = request.lines[0].split(b" ")
            cookie = fields[2] if len(fields) > 2 else b""
            issued_at = boot.issued[source].get(cookie)
            request.quote = boot.quotes.get((source, cookie))
            if issued_at is not None and now - issued_at <= PUBLISH_COOKIE_S:
                request.cookie_age_s = now - issued_at
                request.is_cookie_received = cookie in boot.received[source]
                if request.is_cookie_received:
                    boot.proven.add(source)
            if request.answer is not None:
                self._read_answer(boot, request, now)
        elif not request.is_too_long(boot.options.limits):
            request.may_forward = boot.publish_possible.get(source, -1.0) > now
            if request.publishes() and request.may_forward:
                request.is_within_rate = boot.offer(request, now)
            request.forwards = request.is_within_rate and boot.may_surely_publish(source, now)
        if request.answer is not None and self._is_to_stranger(boot, request, now):
            boot.unproven_bytes_in += len(request.packet.data)
            boot.unproven_bytes_out += len(request.answer)
        for line in request.publishes() if request.forwards else ():
            message = self.messages.get(line)
            if message is not None:
                message.forwarded.add(boot.name)

    def _push_out(self, turn: ServerTurn) -> None:
        """Takes it that leases have ended which the server has pushed out in this turn."""
        boot, now = turn.boot, turn.now
        for lease in turn.evicted:
            if lease not in boot.tap.leases:  # else it was opened again
                turn.broken += [lease] * boot.promised.has(lease, now)
                turn.unfair += [lease] * (boot.promised.has(lease, now) and lease in boot.established)
                boot.pushed_out[lease] = boot.promised.at[lease]
                boot.promised.end(lease, now)
                boot.possible.end(lease, now)
                boot.established.discard(lease)
                boot.perhaps_established.discard(lease)

    def _is_to_stranger(self, boot: Boot, request: Request, now: float) -> bool:
        """Whether this answer is one that everybody gets: a cookie, or that there is no publish lease."""
        assert request.answer is not None
        left_s = boot.publish_possible.get(request.packet.source, now) - now
        if request.cookie_age_s is not None:
            return False  # its cookie is good, but perhaps too old for leases
        return request.answer[:2] == b"%=" or (request.answer[:2] == b"%:" and left_s < 1)

    def _read_answer(self, boot: Boot, request: Request, now: float) -> None:
        """Takes what a server answered to a vouch for its word."""
        assert request.answer is not None
        source, receipt, refused = request.packet.source, None, 0
        topics, publishes = request.subscribes(), request.publishes()
        for line in lines_of(request.answer):
            fields = line.split(b" ")
            if fields[0] == b"%+":
                receipt = fields
            elif fields[0] == b"%-":
                request.reason = fields[2]
                boot.refusals[fields[2].decode()] += 1
                refused = -1 if fields[3] == b"-" else int(fields[3], 16)
        request.refused = tuple([topic for index, topic in enumerate(topics) if refused >> index & 1])
        request.refused_live = tuple(
            [topic for topic in request.refused if boot.promised.has((source, topic), now)]
        )
        if publishes and (receipt is not None or request.reason == b"rate"):
            request.is_within_rate = boot.offer(request, now)
        if receipt is None:
            return
        request.forwards = request.may_forward = True
        until, until_at_most = now + int(receipt[2]), now + boot.options.ttl_s
        opened = []
        for index, topic in enumerate(topics):
            if not refused >> index & 1:
                lease = source, topic
                if not boot.possible.has(lease, now):
                    opened.append(topic)
                if not boot.promised.has(lease, now):
                    boot.leased_since[lease] = now
                    boot.established.discard(lease)
                    boot.perhaps_established.discard(lease)
                else:
                    request.renewed_count += 1
                    boot.renewed(lease, now)
                boot.pushed_out.pop(lease, None)
                boot.promised.put_off(lease, until)
                boot.possible.put_off(lease, until_at_most)
                boot.leases_by_topic[topic].add(source)
        request.opened = tuple(dict.fromkeys(opened))
        if refused.bit_count() < len(topics) and request.cookie_age_s is not None:
            boot.credits.renewed(source, now - request.cookie_age_s)
        if (publishes or not topics) and b"bare=0" not in receipt[5:]:
            boot.publish_leased(source, now, until, until_at_most)
