"""A session, and a server that answers as a test wants it to: the rules of PROTOCOL §5 in a page."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from kcast.client.cluster import ServerEntry
from kcast.client.events import Outcome
from kcast.client.session.liveness import Change
from kcast.client.session.session import Session
from kcast.pubsub import stamp, wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, DATAGRAM_BYTES_MAX, REQUEST_BYTES_MIN, WORK_DATAGRAM_BITS

V4: Address = ("192.0.2.1", 7400)
V6: Address = ("2001:db8::1", 7400)
START = 1000.0


@dataclass
class Asked:
    """One datagram that came to the server, taken apart."""

    at: float
    address: Address
    verb: str
    nonce: bytes
    cookie: bytes
    stamp: bytes | None
    lines: list[bytes]  # without the first, where that is a request

    @property
    def topics(self) -> list[bytes]:
        return [line for line in self.lines if b" " not in line]

    @property
    def messages(self) -> list[bytes]:
        return [line for line in self.lines if b" " in line]


def taken_apart(data: bytes, address: Address, at: float) -> Asked:
    lines, _ = wire.split_lines(data)
    request = wire.parse_request(lines[0])
    assert request is not None or b" " in lines[0]
    cookie, stamp_ = (request.cookie, request.stamp) if isinstance(request, wire.Vouch) else (b"", None)
    verb = {wire.Ask: "?", wire.Vouch: "!", wire.Ping: "~"}[type(request)] if request else "."
    nonce = request.nonce if request else b""
    return Asked(at, address, verb, nonce, cookie, stamp_, lines[1:] if request else lines)


@dataclass
class FakeServer:
    """Its answers: what they cost, promise and refuse can be set at any time.

    The price of a new lease is the one that was told with the cookie shown; that of keeping leases above the
    first 8 (`keep_bits`, §7.9) is the one of the moment.
    """

    bits: int = 0
    keep_bits: int = 0
    keep_bits_max: int = WORK_DATAGRAM_BITS  # that renewals cost together
    ttl_s: int = 60
    lines_max: int = 64
    tells_lines: bool = True
    attributes: dict[str, str] = field(default_factory=dict)  # on every answer
    refused: dict[bytes, str] = field(default_factory=dict)  # new leases, with the reason
    refuses_publishes: bool = False  # for their rate
    is_up: bool = True
    boot: int = 1
    leases: dict[bytes, float] = field(default_factory=dict)
    published: list[bytes] = field(default_factory=list)
    _issued: dict[bytes, tuple[int, float, int]] = field(default_factory=dict)  # boot, time, price

    def restart(self) -> None:
        self.boot += 1
        self.leases.clear()

    def is_leased(self, topic: bytes, now: float) -> bool:
        return self.leases.get(topic, -inf) > now

    def _cookie(self, now: float) -> bytes:
        cookie = b"%032d" % len(self._issued)
        self._issued[cookie] = self.boot, now, self.bits
        return cookie

    def answer(self, asked: Asked, now: float) -> list[wire.Reply]:
        nonce, attributes = asked.nonce, self.attributes
        if not self.is_up:
            return []
        if asked.verb in ".~":
            self.published += asked.messages
            return [wire.Pong(nonce, self.ttl_s, attributes)] if nonce else []
        boot, issued_at, _ = self._issued.get(asked.cookie, (0, -inf, 0))
        is_old = now - issued_at > COOKIE_LEASE_LIFE_S and bool(asked.topics)
        if asked.verb == "?" or boot != self.boot or is_old:
            return [wire.Challenge(nonce, self._cookie(now), self.bits, attributes)]
        if 1 + len(asked.lines) > self.lines_max:
            lines = {"lines": str(self.lines_max)} if self.tells_lines else {}
            return [wire.Refusal(nonce, "size", None, lines | attributes)]
        if self.refuses_publishes and asked.messages:
            return [wire.Refusal(nonce, "rate", None, attributes)]
        self.published += asked.messages
        return self._lease(asked, now)

    def _lease(self, asked: Asked, now: float) -> list[wire.Reply]:
        topics = asked.topics
        standing = [topic for topic in self.leases if self.is_leased(topic, now)]
        new = {topic for topic in topics if topic not in standing}
        more = set(topics) & set(standing[8:]) if self.keep_bits else set()
        price = stamp.price_bits(self._issued[asked.cookie][2], len(new))
        keep_price = min(self.keep_bits_max, stamp.price_bits(self.keep_bits, len(more)))
        worth = asked.stamp, asked.cookie, topics
        is_paid = not price or (worth[0] is not None and stamp.is_valid(worth[0], *worth[1:], price))
        is_kept = not more or (worth[0] is not None and stamp.is_valid(worth[0], *worth[1:], keep_price))
        refused, reason = 0, ""
        for index, topic in enumerate(topics):
            why = "" if topic not in new else self.refused.get(topic, "" if is_paid else "work")
            if topic in more and not is_kept:
                why = "work"
            if why:
                refused, reason = refused | 1 << index, reason or why
            else:
                if topic in new:
                    self.leases.pop(topic, None)  # it goes to the end
                self.leases[topic] = now + self.ttl_s
        replies: list[wire.Reply] = []
        if not topics or refused.bit_count() < len(topics):
            keep = {"keep": str(self.keep_bits)} if self.keep_bits else {}
            attributes = keep | self.attributes
            replies.append(wire.Receipt(asked.nonce, self.ttl_s, self._cookie(now), self.bits, attributes))
        if refused:
            bits = {"bits": str(self.bits)} if reason == "work" else {}
            replies.append(wire.Refusal(asked.nonce, reason, refused, bits | self.attributes))
        return replies


class Talk:
    """A session and a fake server, `rtt_s` apart. `asked` is all that the session has sent."""

    def __init__(
        self,
        server: FakeServer | None = None,
        *,
        rtt_s: float = 0.0,
        addresses: tuple[Address, ...] = (V4,),
        families: tuple[int, ...] = (4, 6),
        seed: int = 1,
    ) -> None:
        self.now = START
        self.rtt_s = rtt_s
        self.server = server or FakeServer()
        self.session = Session(ServerEntry(addresses, "h"), Random(seed), families)
        self.asked: list[Asked] = []
        self.up = set(addresses)
        self._coming: list[tuple[float, Address, list[wire.Reply]]] = []

    def send(self) -> list[Asked]:
        """What the session sends now; nobody has answered it yet."""
        self.session.handle_timeout(self.now)
        sent = list(self._taken_apart())
        self.asked += sent
        return sent

    def _taken_apart(self) -> Iterator[Asked]:
        for data, size in self.session.datagrams_to_send(self.now):
            for datagram in datagrams(data, size):
                assert len(datagram) <= DATAGRAM_BYTES_MAX
                assert self.session.address is not None
                asked = taken_apart(datagram, self.session.address, self.now)
                assert asked.verb not in "?!" or len(datagram) >= REQUEST_BYTES_MIN
                yield asked

        if self.session.whereabouts.next_at <= self.now:
            ask = self.session.whereabouts.ask_next(self.now)
            yield taken_apart(ask.data, ask.destinations[0], self.now)

    def reply(self, *replies: wire.Reply, source: Address | None = None) -> None:
        """Lets the session take an answer, unless it comes from an address that it does not await it from."""
        burst = Burst(wire.format_line(replies[0]), DATAGRAM_BYTES_MAX, source or V4)
        if source in (None, self.session.address) or self.session.moves_to(burst, self.now):
            assert self.session.handle_replies(replies, self.now) == 0

    def exchange(self) -> None:
        """What is due now, and what comes of it, until it takes time."""
        for _ in range(1000):
            arrived = [each for each in self._coming if each[0] <= self.now]
            self._coming = [each for each in self._coming if each[0] > self.now]
            for _, source, replies in arrived:
                self.reply(*replies, source=source)
            sent = self.send()
            for asked in sent:
                replies = self.server.answer(asked, self.now) if asked.address in self.up else []
                if replies:
                    self._coming.append((self.now + self.rtt_s, asked.address, replies))
            if not sent and not arrived:
                return
        raise AssertionError("session and server talk without end at one moment")

    def run(self, for_s: float, *, tries_per_s: int = 0) -> None:
        """Lets time pass. With `tries_per_s`, stamps are looked for meanwhile."""
        end = self.now + for_s
        self.exchange()
        while True:
            times = [at for at, *_ in self._coming]
            timeout = self.session.next_timeout()
            if timeout is not None:
                times.append(timeout)
            if tries_per_s and self.session.is_minting:
                times.append(self.now + (0.01 if tries_per_s > 1000 else 1.0))
            at = min(times, default=inf)
            if at > end:
                break
            assert at > self.now, "it is due again and again at one moment"
            if tries_per_s and self.session.is_minting:
                self.session.work(round(tries_per_s * (at - self.now)), at)
            self.now = at
            self.exchange()
        self.now = end

    def mint(self) -> None:
        """Looks for stamps, and goes on talking, until there is nothing to look for."""
        self.exchange()
        while self.session.is_minting:
            self.session.work(1000, self.now)
            self.exchange()

    def verbs(self, since: float = -inf) -> str:
        return "".join(asked.verb for asked in self.asked if asked.at >= since)

    def notices(self) -> list[tuple[Change, bytes, str]]:
        notices, self.session.notices = self.session.notices, []
        return [(notice.change, notice.topic, notice.reason) for notice in notices]

    def changes(self) -> list[Change]:
        return [change for change, _, _ in self.notices()]

    def outcomes(self) -> list[tuple[int, Outcome]]:
        settled = self.session.take_settled()
        return [(parcel.handle, each.outcome) for each in settled for parcel in each.parcels]

    def want(self, *topics: bytes) -> None:
        for topic in topics:
            self.session.want(topic, self.now)

    def is_leased(self, *topics: bytes) -> bool:
        """Whether all of these stand, by both accounts."""
        return all(
            self.session.is_leased(topic) and self.server.is_leased(topic, self.now) for topic in topics
        )


def topics_of(count: int, size: int = 3) -> list[bytes]:
    return [(b"%04d" % number).rjust(size, b"t") for number in range(count)]
