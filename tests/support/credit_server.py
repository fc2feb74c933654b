"""A client core and a server that forwards only for credit, a round trip apart, in virtual time. §5.7, §7.7.

`CreditServer` is the rule and no more, so that what the client does about it is tested by itself.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Protocol

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.server import Server
from tests.support.server_core import answer, handshake, send

SERVER: Address = ("192.0.2.1", 7400)
SUBSCRIBER: Address = ("198.51.100.1", 1000)
PUBLISHER: Address = ("203.0.113.9", 1000)
START = 1000.0
CREDIT_BYTES_MIN = 65_536


class Forwarding(Protocol):
    """A server as `CreditLine` sees it. `sent` and `dropped` have the time of each copy."""

    sent: list[float]
    dropped: list[float]
    asked: list[tuple[float, bytes]]

    def answer(self, datagram: bytes, now: float) -> bytes:
        """Takes a datagram of the client; returns the answer."""

    def forwards(self, datagram: bytes, now: float) -> bool:
        """Takes what somebody publishes; returns whether it goes to the client."""


@dataclass
class CreditServer:
    """Leases one topic; `sent` and `dropped` have the time of each copy. `tells` changes what it tells."""

    ttl_s: int = 60
    tells: Callable[[int], int | None] = lambda credit_bytes: credit_bytes
    sent: list[float] = field(default_factory=list)
    dropped: list[float] = field(default_factory=list)
    asked: list[tuple[float, bytes]] = field(default_factory=list)
    _sent_bytes: int = 0
    _proofs: deque[tuple[float, int]] = field(default_factory=lambda: deque([(0.0, 0)]))
    _marks: dict[bytes, int] = field(default_factory=dict)  # what had been sent when a cookie was minted
    _is_leased: bool = False

    def _cookie(self) -> bytes:
        cookie = b"%032d" % len(self._marks)
        self._marks[cookie] = self._sent_bytes
        return cookie

    def credit_bytes(self) -> int:
        proven_at, proven = self._proofs[-1]
        while len(self._proofs) > 1 and self._proofs[1][0] <= proven_at - 1.5 * self.ttl_s:
            self._proofs.popleft()
        return max(0, max(CREDIT_BYTES_MIN, proven - self._proofs[0][1]) - (self._sent_bytes - proven))

    def answer(self, datagram: bytes, now: float) -> bytes:
        lines, _ = wire.split_lines(datagram)
        request = wire.parse_request(lines[0])
        self.asked.append((now, lines[0][:2]))
        if not isinstance(request, wire.Vouch):
            assert isinstance(request, wire.Ask)
            return wire.format_line(wire.Challenge(request.nonce, self._cookie(), 0))
        mark = self._marks[request.cookie]
        if self._is_leased and len(lines) > 1 and mark > self._proofs[-1][1]:
            self._proofs.append((now, mark))
        self._is_leased = True
        told = self.tells(self.credit_bytes())
        attributes = {} if told is None else {"credit": str(told)}
        return wire.format_line(wire.Receipt(request.nonce, self.ttl_s, self._cookie(), 0, attributes))

    def forwards(self, datagram: bytes, now: float) -> bool:
        """Whether it sends a copy, which then counts."""
        if not self._is_leased or len(datagram) > self.credit_bytes():
            self.dropped.append(now)
            return False
        self._sent_bytes += len(datagram)
        self.sent.append(now)
        return True


@dataclass
class RealServer:
    """The product's own server, with one publisher that holds a publish lease there."""

    sent: list[float] = field(default_factory=list)
    dropped: list[float] = field(default_factory=list)
    asked: list[tuple[float, bytes]] = field(default_factory=list)
    ttl_s: int = 60

    def __post_init__(self) -> None:
        self.core = Server(secret=bytes(32), ttl_s=self.ttl_s)
        self._vouch(START)

    def answer(self, datagram: bytes, now: float) -> bytes:
        self.asked.append((now, datagram[:2]))
        self.core.handle_timeout(now)
        self._vouch(now)
        ((_, data),) = send(self.core, datagram, SUBSCRIBER, now)
        return data

    def _vouch(self, now: float) -> None:
        """Lets the publisher open its publish lease, or renew it."""
        vouch = wire.Vouch(b"p", handshake(self.core, PUBLISHER, now), None)
        assert answer(self.core, wire.request_datagram(vouch), PUBLISHER, now)

    def forwards(self, datagram: bytes, now: float) -> bool:
        copies = [each for each in send(self.core, datagram, PUBLISHER, now) if each[0] == SUBSCRIBER]
        (self.sent if copies else self.dropped).append(now)
        return bool(copies)


class CreditLine:
    """The two of them. `loses` says which datagrams of the client get lost, by number."""

    def __init__(self, rtt_s: float, server: Forwarding | None = None, **options: Any) -> None:
        self.now = START
        self.server: Forwarding = server or CreditServer()
        self.loses: Callable[[int], bool] = lambda number: False
        self.got: list[bytes] = []
        self._rtt_s = rtt_s
        self._asked = 0
        self._order = count()
        self._coming: list[tuple[float, int, bool, bytes]] = []  # at, order, to the client, datagram
        self.client = ClientCore(lab([SERVER], Policy(1, 1, 1)), Random(1), **options)
        self.client.subscribe(b"t", self.now)
        self.turn()

    def publish(self, size_bytes: int) -> None:
        """Lets somebody publish a line so long."""
        line = (b"t %d " % next(self._order)).ljust(size_bytes - 1, b".") + b"\n"
        if self.server.forwards(line, self.now):
            self._send(True, line)

    def run_until(self, end: float) -> None:
        while True:
            due = self.client.next_timeout()
            arrives = self._coming[0][0] if self._coming else None
            at = min((each for each in (due, arrives) if each is not None), default=None)
            if at is None or at > end:
                break
            self.now = max(self.now, at)
            while self._coming and self._coming[0][0] <= self.now:
                _, _, is_for_client, datagram = heapq.heappop(self._coming)
                if is_for_client:
                    self.client.receive(Burst(datagram, len(datagram), SERVER), self.now)
                else:
                    self._send(True, self.server.answer(datagram, self.now))
            self.turn()
        self.now = end

    def turn(self) -> None:
        self.client.handle_timeout(self.now)
        for transmit in self.client.flush(self.now):
            for datagram in datagrams(transmit.data, transmit.segment_bytes):
                self._asked += 1
                if not self.loses(self._asked):
                    self._send(False, datagram)
        self.client.events()

    def _send(self, is_for_client: bool, datagram: bytes) -> None:
        at = self.now + self._rtt_s / 2
        heapq.heappush(self._coming, (at, next(self._order), is_for_client, datagram))
